"""State of the tasks of a pool: of each task, of each broadcast, and the book of all, with the transitions of one task.

The parts of the task manager share the book: each reads and changes it within one step.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from skyward.control.decide.tasks.collectives import CollectiveState
from skyward.control.decide.tasks.gangs import GangState, WaitingGangs
from skyward.control.decide.tasks.messages import BroadcastEnded, Dispatch, Settle, SettleOutcome, TaskManagerEffect
from skyward.control.decide.tasks.queue import WaitingTasks
from skyward.control.decide.tasks.run_times import RunTimes
from skyward.control.decide.tasks.slots import NodeSlots, SetAside, SlotTable
from skyward.control.lifecycle import TASK, Lifecycle, TaskStatus
from skyward.values.needs import NOTHING, Needs
from skyward.wire.protocol.messages import Collective, GangMember

__all__ = ["BroadcastState", "TaskBook", "TaskState"]

ENDED_KEPT = 300
"""Finished tasks whose history is kept: as many as a report lists."""


@dataclass(slots=True)
class TaskState:
    """One task: its request, its lifecycle, and where it is.

    Attributes:
        number: the task's number.
        target: the only node that may run it; None for any.
        replayable: True if it may run again: no part of its result was delivered, and its input is intact.
        needs: resources that it needs.
        retries: retries after it raised.
        blobs: sizes of its data by key.
        bound: True if it uses values on its target and so ends with that node.
        overtaken: number of later tasks that were sent before it.
        node: the node that it was sent to; None in the queue, and while it is withheld.
        losses: times that its node, or its process there, was lost.
        errors: times that it raised and was retried.
        attempt: times that it left a node without ending, which tells late reports from current ones.
        unfunded: why it was stopped for the budget; empty if it was not.
        broadcast: the broadcast that it is a member of.
        gang: the gang that it is a member of.
        share: its position in the data of its broadcast or gang, and the number of shares.
        local: its position among the members of a collective on its node.
        function: the function that it runs.
        since: when it was submitted, or was queued again.
        started_at: when it got its slot; None while it has none.
    """

    number: int
    target: int | None
    replayable: bool
    needs: Needs = NOTHING
    retries: int = 0
    blobs: Mapping[bytes, int] = field(default_factory=dict)
    bound: bool = False
    overtaken: int = 0
    node: int | None = None
    losses: int = 0
    errors: int = 0
    attempt: int = 0
    unfunded: str = ""
    broadcast: int | None = None
    gang: int | None = None
    share: tuple[int, int] | None = None
    local: int = 0
    function: str = ""
    since: float = 0.0
    started_at: float | None = None
    life: Lifecycle[TaskStatus] = field(init=False)

    def __post_init__(self) -> None:
        self.life = Lifecycle(self, TASK, "queued" if self.node is None else "sent")

    @property
    def status(self) -> TaskStatus:
        """The current state."""
        return self.life.state

    @property
    def is_cancelled(self) -> bool:
        """True if its node was asked to stop it."""
        return self.life.state == "cancelling"

    def __str__(self) -> str:
        return f"task {self.number}"


@dataclass(slots=True)
class BroadcastState:
    """One broadcast: its remaining tasks, and the nodes that have a share.

    Attributes:
        needs: resources that each of its tasks needs.
        retries: retries of each after it raised.
        members: tasks that have not ended.
        size: number of nodes that share its data.
        given: ranks that have, or had, a share: another node of the same rank takes over only tasks that run again.
        only: the nodes that take part; None for all.
        bound: True if its members use values on their nodes and so end with them.
        cancelled: True if it takes no more members.
        collective: its members together; None if they are independent.
        function: the function that its members run.
    """

    needs: Needs
    retries: int = 0
    members: set[int] = field(default_factory=set)
    size: int = 0
    given: set[int] = field(default_factory=set)
    only: tuple[int, ...] | None = None
    bound: bool = False
    cancelled: bool = False
    collective: CollectiveState | None = None
    function: str = ""


@dataclass
class TaskBook:
    """The tasks of a pool.

    Attributes:
        retries: times that a task is requeued after its node was lost.
        task_seconds: recent mean of the durations of tasks; None while unknown.
        run_times: run times by function.
        tasks: the tasks that have not ended, by number.
        queue: those that wait for a slot, without the members of gangs.
        table: the slots of the nodes.
        broadcasts: the broadcasts that have not ended, by number.
        gangs: the gangs that have not ended, by number.
        waiting_gangs: those of them that wait.
        ahead: ranks of the nodes that hold prefetched tasks.
        withheld: tasks that wait for a lost input.
        finished: members of collectives and gangs that have ended, but whose callers do not know yet.
        reserved: by node, the free slots that are kept for collectives.
        set_aside: by node, what is reserved for the gang `set_aside_for`.
        holding: number of results that exist only on a node, by rank.
        ended: the latest tasks that have ended.
        now: time of the present step.
        cause: number of the control plane's message that led to the present step.
    """

    retries: int = 3
    task_seconds: float | None = None
    run_times: RunTimes = field(default_factory=RunTimes)
    tasks: dict[int, TaskState] = field(default_factory=dict)
    queue: WaitingTasks = field(default_factory=WaitingTasks)
    table: SlotTable = field(default_factory=SlotTable)
    broadcasts: dict[int, BroadcastState] = field(default_factory=dict)
    gangs: dict[int, GangState] = field(default_factory=dict)
    waiting_gangs: WaitingGangs = field(default_factory=WaitingGangs)
    ahead: set[int] = field(default_factory=set)
    withheld: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    reserved: dict[int, int] = field(default_factory=dict)
    set_aside: Mapping[int, SetAside] = field(default_factory=dict)
    set_aside_for: GangState | None = None
    holding: dict[int, int] = field(default_factory=dict)
    ended: deque[TaskState] = field(default_factory=lambda: deque(maxlen=ENDED_KEPT))
    now: float = 0.0
    cause: int = 0

    def collectives(self) -> Iterable[tuple[BroadcastState, CollectiveState]]:
        """Return the collectives, each with its broadcast."""
        return [(each, each.collective) for each in self.broadcasts.values() if each.collective is not None]

    def collective_of(self, record: TaskState) -> CollectiveState | None:
        """Return the collective that a task is a member of."""
        return None if record.broadcast is None else self.broadcasts[record.broadcast].collective

    def gang_of(self, record: TaskState) -> GangState | None:
        """Return the gang that a task is a member of."""
        return None if record.gang is None else self.gangs.get(record.gang)

    def send(
        self, task: int, rank: int, now: float, effects: list[TaskManagerEffect], gang: GangMember | None = None
    ) -> None:
        """Send a task, which is no longer in the queue, to a node."""
        record = self.tasks[task]
        record.life.move("sent", now, cause=self.cause)
        record.node = rank
        if self.table.assign(rank, task, record.needs, now).spare < 0:
            self.ahead.add(rank)
        else:
            self.run_started(record, now)
        place = None
        if (collective := self.collective_of(record)) is not None:
            generation = f"{record.broadcast}-{collective.generation}"
            place = Collective((record.local, collective.terms.procs), generation, collective.terms.within)
        effects.append(Dispatch(task, rank, record.attempt, record.share, place, gang, cause=self.cause))

    def release(self, rank: int, record: TaskState, now: float) -> NodeSlots | None:
        """Take a task off its node."""
        self.run_stopped(record)
        node = self.table.release(rank, record.number, now)
        if node is not None and rank in self.ahead:
            following = next(islice(node.tasks, node.slots - 1, None), None)
            if following is not None:
                self.run_started(self.tasks[following], now)
        return node

    def run_started(self, record: TaskState, now: float) -> None:
        """Record that a task has a slot. Idempotent."""
        if record.started_at is None:
            record.started_at = now
            self.run_times.started(record.function, now)

    def run_stopped(self, record: TaskState) -> None:
        """Record that a task no longer has a slot. Idempotent."""
        if record.started_at is not None:
            self.run_times.stopped(record.function, record.started_at)
            record.started_at = None

    def requeue(self, task: int, why: str) -> None:
        """Put a task that has left its node at the head of the queue."""
        record = self.tasks[task]
        record.life.move("queued", self.now, why, cause=self.cause)
        record.node = None
        record.attempt += 1
        record.since = self.now
        self.queue.put_back(task, record.needs, record.target, record.function)

    def settle(self, task: int, outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]) -> None:
        """End a task that is neither on a node nor in the queue, and its broadcast or gang with the last member."""
        record = self.tasks.pop(task)
        if outcome == "cancelled" and record.unfunded:
            outcome, reason = "unfunded", record.unfunded
        record.life.move("ended", self.now, reason, cause=self.cause)
        self.withheld.discard(task)
        self.finished.discard(task)
        self.ended.append(record)
        effects.append(Settle(task, outcome, reason, cause=self.cause))
        if (gang := self.gang_of(record)) is not None:
            gang.left -= 1
            if not gang.left:
                del self.gangs[gang.number]
        if record.broadcast is not None:
            members = self.broadcasts[record.broadcast].members
            members.discard(task)
            if not members:
                del self.broadcasts[record.broadcast]
                effects.append(BroadcastEnded(record.broadcast, cause=self.cause))
