"""Data locality: tasks go to the nodes that hold their data, and wait for none of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skyward.control.decide.tasks.dispatch import OVERTAKEN, OVERTAKING_SECONDS
from skyward.control.decide.tasks.locality import CROWDING, WORTH
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    Dispatch,
    Dropped,
    Ended,
    RankJoined,
    RankLost,
    Stored,
    Submitted,
    TaskManagerMessage,
)
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

MIB = 2**20
GPU = Needs({"GPU": 1})
LARGE = {b"large": 40 * MIB}
OTHER = {b"other": 40 * MIB}


class Nodes:
    """A task manager with nodes, and a record of its dispatches."""

    def __init__(self, count: int, slots: int = 1, gpus: Mapping[int, float] | None = None) -> None:
        self.manager = TaskManager()
        self.sent: dict[int, int] = {}
        for rank in range(count):
            self.tell(RankJoined(rank, slots, "", {"GPU": (gpus or {}).get(rank, 0.0)}))

    def tell(self, message: TaskManagerMessage) -> list[int]:
        """Send a message; return the dispatched tasks, in order."""
        sends = [effect for effect in self.manager.handle(message, 0.0) if isinstance(effect, Dispatch)]
        self.sent |= {send.task: send.rank for send in sends}
        return [send.task for send in sends]

    def submit(self, blobs: Mapping[bytes, int] | None = None, needs: Needs = NOTHING) -> int:
        """Submit one task; return its number."""
        task = self.manager.number()
        self.tell(Submitted((task,), needs=needs, blobs={task: blobs} if blobs else {}))
        return task

    def run(self, blobs: Mapping[bytes, int] | None = None, needs: Needs = NOTHING) -> int:
        """Run one task to its end, while nothing else runs; return its node, which then has its data."""
        task = self.submit(blobs, needs)
        rank = self.sent[task]
        self.tell(Stored(rank, tuple(blobs or ())))
        self.end(task)
        return rank

    def end(self, task: int, seconds: float = 0.1) -> list[int]:
        """End a task; return the tasks dispatched then."""
        return self.tell(Ended(task, self.sent[task], "value", seconds))


def test_task_goes_to_the_holder_of_its_data() -> None:
    nodes = Nodes(4)
    first = nodes.run(LARGE)
    assert [nodes.run(LARGE) for _ in range(5)] == [first] * 5


def test_task_goes_to_the_holder_of_most_of_its_data() -> None:
    nodes = Nodes(4)
    nodes.tell(Stored(1, (b"small",)))
    nodes.tell(Stored(2, (b"large",)))
    assert nodes.run({**LARGE, b"small": MIB}) == 2


def test_tasks_without_data_go_round_robin() -> None:
    nodes = Nodes(3)
    nodes.run(LARGE)
    assert [nodes.run() for _ in range(6)] == [1, 2, 0, 1, 2, 0]


def test_tasks_whose_data_all_nodes_hold_go_round_robin() -> None:
    nodes = Nodes(3)
    for rank in range(3):
        nodes.tell(Stored(rank, (b"large",)))
    assert [nodes.run(LARGE) for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_task_does_not_wait_for_the_holder_of_its_data() -> None:
    nodes = Nodes(2)
    holder = nodes.run(LARGE)
    nodes.submit(LARGE)
    other = nodes.submit(LARGE)
    assert nodes.sent[other] == 1 - holder


def test_tasks_with_shared_data_are_spread_before_it_is_stored() -> None:
    nodes = Nodes(4, slots=4)
    tasks = [nodes.submit(LARGE) for _ in range(4)]
    assert sorted(nodes.sent[task] for task in tasks) == [0, 1, 2, 3]


def test_small_data_is_sent_to_an_idle_node_instead_of_sharing_the_holder() -> None:
    nodes = Nodes(2, slots=2)
    little, much = {b"little": CROWDING - 1}, {b"much": CROWDING + 1}
    nodes.tell(Stored(0, (b"little", b"much")))
    busy = nodes.submit(little)
    assert nodes.sent[busy] == 0
    assert nodes.run(little) == 1
    nodes.tell(Dropped(1, (b"little",)))
    assert nodes.run(much) == 0


def test_dropped_data_does_not_count() -> None:
    nodes = Nodes(3)
    nodes.tell(Stored(2, (b"large",)))
    nodes.tell(Dropped(2, (b"large",)))
    assert nodes.run(LARGE) == 0


def test_replacement_node_holds_no_data() -> None:
    nodes = Nodes(3)
    nodes.tell(Stored(2, (b"large",)))
    nodes.tell(RankLost(2, "gone"))
    nodes.tell(RankJoined(2, 1))
    assert nodes.run(LARGE) == 0


def test_needs_take_precedence_over_locality() -> None:
    nodes = Nodes(3, gpus={1: 1.0})
    nodes.tell(Stored(0, (b"large",)))
    assert nodes.run(LARGE, GPU) == 1


def test_short_task_with_local_data_overtakes_a_task_without() -> None:
    nodes = Nodes(1)
    nodes.run(LARGE)
    running = nodes.submit()
    oldest, behind = nodes.submit(OTHER), nodes.submit(LARGE)
    assert nodes.end(running) == [behind]
    assert nodes.end(behind) == [oldest]


def test_oldest_task_is_overtaken_a_few_times_at_most() -> None:
    nodes = Nodes(1)
    nodes.run(LARGE)
    last = nodes.submit()
    oldest = nodes.submit(OTHER)
    for _ in range(OVERTAKEN):
        behind = nodes.submit(LARGE)
        assert nodes.end(last) == [behind]
        last = behind
    nodes.submit(LARGE)
    assert nodes.end(last) == [oldest]


def test_long_tasks_are_not_overtaken() -> None:
    nodes = Nodes(1)
    nodes.run(LARGE)
    running = nodes.submit()
    oldest = nodes.submit(OTHER)
    nodes.submit(LARGE)
    assert nodes.end(running, seconds=60) == [oldest]


BLOBS = {b"a": 40 * MIB, b"b": 30 * MIB, b"c": 2 * MIB, b"d": 1000}
RANKS = range(4)
ranks = st.sampled_from(RANKS)


@dataclass
class Task:
    """Model of a task."""

    blobs: dict[bytes, int]
    needs: Needs
    overtaken: int = 0


@dataclass
class Node:
    """Model of a node."""

    slots: int
    gpus: int
    held: set[bytes] = field(default_factory=set)
    tasks: dict[int, Task] = field(default_factory=dict)

    def fits(self, task: Task) -> bool:
        gpus = sum(bool(running.needs) for running in self.tasks.values())
        return len(self.tasks) < self.slots and (not task.needs or gpus < self.gpus)

    def lacks(self, task: Task) -> int:
        return sum(size for key, size in task.blobs.items() if key not in self.held)


class Placement(RuleBasedStateMachine):
    """Tasks with and without data, on nodes that get, drop and lose it: each is dispatched as the model says."""

    @initialize(slots=st.lists(st.integers(1, 2), min_size=4, max_size=4), gpus=st.integers(0, 2))
    def open(self, slots: list[int], gpus: int) -> None:
        self.manager = TaskManager(retries=1000)
        self.waiting: dict[Needs, list[int]] = {NOTHING: [], GPU: []}
        self.tasks: dict[int, Task] = {}
        self.turn = -1
        self.nodes = {rank: Node(number, gpus) for rank, number in enumerate(slots)}
        for rank in RANKS:
            self.join(rank)

    def join(self, rank: int) -> None:
        self.tell(RankJoined(rank, self.nodes[rank].slots, "", {"GPU": self.nodes[rank].gpus}))

    def tell(self, message: TaskManagerMessage) -> None:
        for effect in self.manager.handle(message, 0.0):
            if isinstance(effect, Dispatch):
                self.was_sent(effect.task, effect.rank)

    def was_sent(self, number: int, rank: int) -> None:
        task, node = self.tasks[number], self.nodes[rank]
        queue = self.waiting[task.needs]
        mean = self.manager.task_seconds
        if ahead := len(node.tasks) >= node.slots:  # prefetched, as tasks are short
            assert mean is not None
            assert not task.needs
        if queue[0] != number:
            oldest = self.tasks[queue[0]]
            best = self.best(oldest)
            assert best is not None
            assert self.nodes[best].lacks(oldest) >= WORTH
            assert not node.lacks(task)
            assert mean is not None
            assert mean <= OVERTAKING_SECONDS
            oldest.overtaken += 1
            assert oldest.overtaken <= OVERTAKEN
        assert ahead or rank == self.best(task)
        queue.remove(number)
        self.turn = rank
        node.tasks[number] = task

    def best(self, task: Task) -> int | None:
        """Return the node for a task: the cheapest one that fits, and round robin among equals."""
        order = sorted(RANKS, key=lambda rank: (rank <= self.turn, rank))
        able = [rank for rank in order if self.nodes[rank].fits(task)]
        if not task.blobs:
            return next(iter(able), None)
        return min(able, key=lambda r: self.nodes[r].lacks(task) + CROWDING * len(self.nodes[r].tasks), default=None)

    @rule(
        wanted=st.lists(st.sampled_from([{b"a"}, {b"b"}, {b"c"}, {b"d"}, {b"a", b"c"}, set()]), min_size=1, max_size=3),
        gpu=st.booleans(),
    )
    def submit(self, wanted: list[set[bytes]], gpu: bool) -> None:
        needs = GPU if gpu and self.nodes[0].gpus else NOTHING
        blobs = {self.manager.number(): {key: BLOBS[key] for key in keys} for keys in wanted}
        self.tasks |= {number: Task(which, needs) for number, which in blobs.items()}
        self.waiting[needs] += blobs
        self.tell(
            Submitted(tuple(blobs), needs=needs, blobs={number: which for number, which in blobs.items() if which})
        )

    @precondition(lambda self: any(node.tasks for node in self.nodes.values()))
    @rule(data=st.data(), seconds=st.sampled_from([0.001, 0.1, 30.0]))
    def finish(self, data: st.DataObject, seconds: float) -> None:
        rank = data.draw(st.sampled_from([rank for rank, node in self.nodes.items() if node.tasks]))
        node = self.nodes[rank]
        number, task = next(iter(node.tasks.items()))
        node.held |= task.blobs.keys()
        self.tell(Stored(rank, tuple(task.blobs)))
        del node.tasks[number]
        self.tell(Ended(number, rank, "value", seconds))

    @rule(rank=ranks, key=st.sampled_from(sorted(BLOBS)))
    def drop(self, rank: int, key: bytes) -> None:
        self.nodes[rank].held.discard(key)
        self.tell(Dropped(rank, (key,)))

    @rule(rank=ranks)
    def lose(self, rank: int) -> None:
        lost = self.nodes[rank].tasks
        self.nodes[rank] = Node(0, 0)
        for needs, queue in self.waiting.items():
            queue[:0] = [number for number, task in lost.items() if task.needs == needs]
        self.tell(RankLost(rank, "gone"))
        self.nodes[rank] = Node(1, self.nodes[(rank + 1) % len(RANKS)].gpus)
        self.join(rank)

    @invariant()
    def no_slot_is_idle_while_a_task_fits_it(self) -> None:
        for needs, queue in self.waiting.items():
            assert not queue or not any(node.fits(Task({}, needs)) for node in self.nodes.values())


TestPlacement = Placement.TestCase
TestPlacement.settings = settings(max_examples=60, stateful_step_count=40)
