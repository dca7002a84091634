"""The task manager against a model: tasks end once, in order, on nodes that fit."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skyward.control.decide.tasks.dispatch import PREFETCH_HORIZON, PREFETCH_MOST, RECALL_AFTER
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    Abandon,
    Broadcast,
    BroadcastEnded,
    CancelTasks,
    CheckPrefetched,
    Delivered,
    Dispatch,
    Ended,
    Member,
    RankDraining,
    RankJoined,
    RankLost,
    RankRemoved,
    Recall,
    Released,
    Settle,
    SettleOutcome,
    StartedOnNode,
    Stop,
    Submitted,
    TaskManagerMessage,
    Withheld,
)
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1})
RETRIES = 2
RANKS = range(4)
ranks = st.sampled_from(RANKS)


@dataclass
class Task:
    """Model of a task."""

    target: int | None
    replayable: bool
    needs: Needs = NOTHING
    broadcast: int | None = None
    node: int | None = None
    started: bool = False
    cancelled: bool = False
    losses: int = 0
    sent: int = 0
    retries: int = 0
    errors: int = 0


@dataclass
class Node:
    """Model of a node. It runs the first of its tasks, as many as it has slots."""

    slots: int
    gpus: int
    takes: bool = True


class TaskQueue(RuleBasedStateMachine):
    """Sends the manager messages in any order, and checks its effects against the model."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = TaskManager(retries=RETRIES)
        self.now = 0.0
        self.tasks: dict[int, Task] = {}
        self.over: dict[int, SettleOutcome] = {}
        self.nodes: dict[int, Node] = {}
        self.on: dict[int, list[int]] = {rank: [] for rank in RANKS}
        self.waiting: dict[tuple[Needs, int | None], deque[int]] = {}
        self.covered: dict[int, set[int]] = {}
        self.ended: set[int] = set()
        self.recalled: list[tuple[int, int, int]] = []
        self.stopped: list[tuple[int, int]] = []
        self.withheld: set[int] = set()

    # The step: expected and actual effects.

    def tell(
        self, message: TaskManagerMessage, settled: dict[int, SettleOutcome] | None = None, members: Any = ()
    ) -> None:
        """Send a message; exactly these tasks must end, and these (broadcast, rank) must become members."""
        expected = settled or {}
        ended = {self.tasks[task].broadcast for task in expected} - {None}
        seen: dict[int, SettleOutcome] = {}
        joined: list[tuple[int, int]] = []
        over: set[int | None] = set()
        for effect in self.manager.handle(message, self.now):
            match effect:
                case Dispatch():
                    self.was_sent(effect)
                case Settle(task, outcome):
                    assert task not in self.over, "a task ended twice"
                    self.over[task] = seen[task] = outcome
                    self.forget(task)
                case Member(broadcast, task, rank):
                    joined.append((broadcast, rank))
                    self.tasks[task] = Task(rank, replayable=True, broadcast=broadcast)
                    self.wait_for(task)
                    self.covered[broadcast].add(rank)
                case Recall(task, rank):
                    assert self.on[rank].index(task) >= self.nodes[rank].slots
                    assert self.tasks[task].target is None
                    self.recalled.append((task, rank, self.tasks[task].sent))
                case Stop(task, rank):
                    assert task in self.on[rank]
                    self.stopped.append((task, rank))
                case BroadcastEnded(broadcast):
                    assert broadcast not in self.ended, "a broadcast ended twice"
                    over.add(broadcast)
        assert seen == expected
        assert sorted(joined) == sorted(members)
        open_ones = {task.broadcast for number, task in self.tasks.items() if number not in self.over}
        empty = {b for b in self.covered if b not in open_ones and isinstance(message, Abandon)} - self.ended
        assert over == (ended - open_ones) | empty
        self.ended |= {broadcast for broadcast in over if broadcast is not None}

    def was_sent(self, send: Dispatch) -> None:
        task, node = self.tasks[send.task], self.nodes[send.rank]
        queue = self.waiting[task.needs, task.target]
        assert queue[0] == send.task, "tasks of one shape go in FIFO order"
        assert send.attempt == task.sent
        assert task.losses <= RETRIES
        assert task.target == send.rank if task.target is not None else node.takes
        ahead = 0
        if task.target is None and not task.needs and self.manager.task_seconds is not None:
            ahead = min(PREFETCH_MOST, int(PREFETCH_HORIZON / max(self.manager.task_seconds, 1e-6)))
        assert len(self.on[send.rank]) < node.slots + ahead
        if len(self.on[send.rank]) >= node.slots and task.target is None:
            assert task.replayable, "a prefetched task must be replayable: it may be lost before it has run"
            assert not task.losses
        queue.popleft()
        self.on[send.rank].append(send.task)
        task.node, task.started, task.sent = send.rank, False, task.sent + 1
        assert self.gpus_in_use(send.rank) <= node.gpus

    def gpus_in_use(self, rank: int) -> float:
        return sum(self.tasks[task].needs.resources.get("GPU", 0) for task in self.on[rank])

    def wait_for(self, task: int, *, first: bool = False) -> None:
        record = self.tasks[task]
        queue = self.waiting.setdefault((record.needs, record.target), deque())
        record.node = None
        (queue.appendleft if first else queue.append)(task)

    def forget(self, task: int) -> None:
        self.withheld.discard(task)
        for held in (*self.waiting.values(), *self.on.values()):
            if task in held:
                held.remove(task)

    def waits(self, task: int) -> bool:
        return any(task in queue for queue in self.waiting.values())

    def running(self) -> list[int]:
        return [task for rank, node in self.nodes.items() for task in self.on[rank][: node.slots]]

    def open_broadcasts(self) -> Iterable[int]:
        return [broadcast for broadcast in self.covered if broadcast not in self.ended]

    # Messages.

    @initialize(slots=st.integers(1, 3))
    def first_node(self, slots: int) -> None:
        self.join(0, slots, 1)

    @rule(
        count=st.integers(1, 6),
        pin=st.none() | ranks,
        replayable=st.booleans(),
        gpu=st.booleans(),
        retries=st.integers(0, 2),
    )
    def submit(self, count: int, pin: int | None, replayable: bool, gpu: bool, retries: int) -> None:
        needs = GPU if gpu and pin is None else NOTHING
        new = tuple(self.manager.number() for _ in range(count))
        for task in new:
            self.tasks[task] = Task(pin, replayable, needs, retries=retries)
            self.wait_for(task)
        self.tell(Submitted(new, pin, replayable, needs, retries))

    @rule()
    def broadcast(self) -> None:
        number = self.manager.number()
        self.covered[number] = set()
        self.tell(Broadcast(number), members=[(number, rank) for rank, node in self.nodes.items() if node.takes])

    @rule(rank=ranks, slots=st.integers(1, 3), gpus=st.integers(0, 2))
    def join(self, rank: int, slots: int, gpus: int) -> None:
        self.nodes.setdefault(rank, Node(slots, gpus)).takes = True
        new = [(broadcast, rank) for broadcast in self.open_broadcasts() if rank not in self.covered[broadcast]]
        self.tell(RankJoined(rank, slots, "", {"GPU": gpus}), members=new)

    @rule(rank=ranks)
    def drain(self, rank: int) -> None:
        if rank in self.nodes:
            self.nodes[rank].takes = False
        self.tell(RankDraining(rank))

    @rule(rank=ranks, removed=st.booleans())
    def lose(self, rank: int, removed: bool) -> None:
        settled: dict[int, SettleOutcome] = {}
        again: list[int] = []
        self.nodes.pop(rank, None)
        for number in self.on[rank]:
            task = self.tasks[number]
            task.losses += 1
            if task.cancelled:
                settled[number] = "cancelled"
            elif not task.replayable or task.losses > RETRIES:
                settled[number] = "lost"
            else:
                again.append(number)
        self.on[rank] = []
        for number in reversed(again):
            self.wait_for(number, first=True)
        if removed:
            settled |= dict.fromkeys(self.waiting.get((NOTHING, rank), ()), "lost")
            settled |= {task: "lost" for task in self.withheld if self.tasks[task].target == rank}
        self.tell(RankRemoved(rank, "gone") if removed else RankLost(rank, "gone"), settled)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), what=st.sampled_from(["started", "delivered"]))
    def progress(self, data: st.DataObject, what: str) -> None:
        task = data.draw(st.sampled_from(self.running()))
        if what == "started":
            self.tasks[task].started = True
            self.tell(StartedOnNode(task))
        else:
            self.tasks[task].replayable = False
            self.tell(Delivered(task))

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["value", "value", "error", "timeout"]),
        seconds=st.sampled_from([0.0, 0.0005, 1.0]),
    )
    def finish(self, data: st.DataObject, outcome: Literal["value", "error", "timeout"], seconds: float) -> None:
        self.end(data.draw(st.sampled_from(self.running())), outcome, seconds)

    def end(self, task: int, outcome: Literal["value", "error", "timeout"], seconds: float) -> None:
        rank = self.tasks[task].node
        assert rank is not None
        self.on[rank].remove(task)
        self.tell(Ended(task, rank, outcome, seconds), {task: outcome})

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def raise_what_retries_cover(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.running()))
        task = self.tasks[number]
        rank = task.node
        assert rank is not None
        self.on[rank].remove(number)
        settled: dict[int, SettleOutcome] = {}
        if task.replayable and not task.cancelled and task.errors < task.retries:
            task.errors += 1
            self.wait_for(number, first=True)
        else:
            settled[number] = "error"
        self.tell(Ended(number, rank, "error", 1.0, "it raised OSError: no"), settled)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def process_is_killed(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.running()))
        task = self.tasks[number]
        rank = task.node
        assert rank is not None
        self.on[rank].remove(number)
        settled: dict[int, SettleOutcome] = {}
        if task.cancelled:
            settled[number] = "cancelled"
        elif task.replayable and task.losses < RETRIES:
            task.losses += 1
            self.wait_for(number, first=True)
        else:
            settled[number] = "lost"
        self.tell(Ended(number, rank, "lost", 0.0), settled)

    @precondition(lambda self: self.recalled)
    @rule()
    def recall_is_answered(self) -> None:
        number, rank, sent = self.recalled.pop()
        task = self.tasks[number]
        held = self.on[rank]
        if number not in held or task.sent != sent or held.index(number) < self.nodes[rank].slots:
            return  # it runs already, or has ended: the node does not answer
        held.remove(number)
        settled: dict[int, SettleOutcome] = {number: "cancelled"} if task.cancelled else {}
        if not settled:
            self.wait_for(number, first=True)
        self.tell(Ended(number, rank, "returned", 0.0), settled)

    @precondition(lambda self: self.stopped)
    @rule(too_late=st.booleans())
    def stop_is_answered(self, too_late: bool) -> None:
        task, rank = self.stopped.pop()
        if task in self.on[rank]:
            self.on[rank].remove(task)
            self.tell(
                Ended(task, rank, "value" if too_late else "cancelled", 0.1),
                {task: "value" if too_late else "cancelled"},
            )

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), rank=ranks)
    def late_report(self, data: st.DataObject, rank: int) -> None:
        """A duplicate end, or one from a node that no longer has the task, changes nothing."""
        task = data.draw(st.sampled_from(sorted(self.tasks)))
        if task in self.over or self.tasks[task].node != rank:
            self.tell(Ended(task, rank, "value", 0.1))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.tasks)), min_size=1, max_size=4))
        settled: dict[int, SettleOutcome] = {
            task: "cancelled" for task in chosen if self.waits(task) or task in self.withheld
        }
        for task in chosen:
            self.tasks[task].cancelled = self.tasks[task].cancelled or task not in self.over
        before = len(self.stopped)
        on_nodes = {t for t in chosen if t not in self.over and t not in settled}
        self.tell(CancelTasks(tuple(chosen)), settled)
        assert {task for task, _ in self.stopped[before:]} <= on_nodes

    @rule()
    def abandon(self) -> None:
        waiting = [task for queue in self.waiting.values() for task in queue]
        self.tell(Abandon("no node can be had"), dict.fromkeys([*waiting, *self.withheld], "abandoned"))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def withhold(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.running()))
        task = self.tasks[number]
        rank = task.node
        assert rank is not None
        self.on[rank].remove(number)
        task.node = None
        settled: dict[int, SettleOutcome] = {number: "cancelled"} if task.cancelled else {}
        if not settled:
            self.withheld.add(number)
        self.tell(Withheld(number, rank), settled)

    @precondition(lambda self: self.withheld)
    @rule(data=st.data(), broken=st.booleans())
    def release(self, data: st.DataObject, broken: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.withheld)))
        self.withheld.discard(number)
        if not broken:
            self.wait_for(number, first=True)
        self.tell(Released(number, broken), {number: "error"} if broken else {})

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), rank=ranks)
    def late_report_of_a_withheld_task(self, data: st.DataObject, rank: int) -> None:
        task = data.draw(st.sampled_from(sorted(self.tasks)))
        if task not in self.withheld:
            self.tell(Released(task))
        if task in self.over or self.tasks[task].node != rank:
            self.tell(Withheld(task, rank))

    @rule(seconds=st.sampled_from([0.01, RECALL_AFTER * 2]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tell(CheckPrefetched())

    # Invariants.

    @invariant()
    def no_task_is_lost(self) -> None:
        waiting = [task for queue in self.waiting.values() for task in queue]
        there = [*waiting, *self.withheld, *(task for rank in RANKS for task in self.on[rank])]
        assert sorted(there) == sorted(task for task in self.tasks if task not in self.over)
        assert all(not self.on[rank] for rank in RANKS if rank not in self.nodes)

    @invariant()
    def no_slot_is_idle_while_a_task_fits_it(self) -> None:
        for (needs, target), queue in self.waiting.items():
            for rank, node in self.nodes.items() if queue else ():
                if (target is None and node.takes) or target == rank:
                    has_gpu = not needs or self.gpus_in_use(rank) < node.gpus
                    assert len(self.on[rank]) >= node.slots or not has_gpu

    @invariant()
    def every_node_is_a_member_of_every_broadcast(self) -> None:
        for broadcast in self.open_broadcasts():
            assert {rank for rank, node in self.nodes.items() if node.takes} <= self.covered[broadcast]

    @invariant()
    def counts_are_consistent(self) -> None:
        assert self.manager.running == len(self.running())
        left = len(self.tasks) - len(self.over) - len(self.running())
        assert (self.manager.queued, self.manager.withheld) == (left - len(self.withheld), len(self.withheld))
        assert self.manager.ranks == tuple(sorted(rank for rank, node in self.nodes.items() if node.takes))
        for rank in RANKS:
            assert self.manager.busy(rank) == len([task for task in self.running() if task in self.on[rank]])
        ahead = any(len(self.on[rank]) > node.slots for rank, node in self.nodes.items())
        assert self.manager.has_prefetched() == ahead

    def teardown(self) -> None:
        """With live nodes, every task and broadcast ends."""
        for task in sorted(self.withheld):
            self.withheld.discard(task)
            self.wait_for(task, first=True)
            self.tell(Released(task))
        for rank in RANKS:
            self.join(rank, 1, 1)
            if not self.nodes[rank].gpus:
                self.lose(rank, removed=False)
                self.join(rank, 1, 1)
        for _ in range(2 * len(self.tasks)):
            for task in self.running():
                self.end(task, "value", 0.1)
        assert set(self.over) == set(self.tasks)
        assert self.ended == set(self.covered)
        assert (self.manager.queued, self.manager.running) == (0, 0)


TestTaskQueue = TaskQueue.TestCase
TestTaskQueue.settings = settings(max_examples=80, stateful_step_count=40)
