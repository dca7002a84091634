"""The task manager: dispatches tasks to nodes, and settles each task. Decides only; no I/O.

Tasks are dispatched in FIFO order, round robin or to the fullest first (`TaskManager.packs`), to nodes with a free slot
and the resources they need; a task that fits nowhere now does not block tasks of another shape. A task with large
data goes to the free node that lacks the least of it (`skyward.control.decide.tasks.locality`); if that is still much
and tasks are short, a few later tasks whose data is on a free node may overtake it. While tasks are short, a node also
prefetches a few, so that it does not idle for a round trip after each. Prefetched tasks that wait behind a long task
are recalled as soon as another node could run them.

Each task ends exactly once. A task whose node dies is requeued at the head of the queue, up to `retries` times, unless
part of its stream was already delivered or its input was already consumed: running it again would duplicate work.
Members of a collective start together, and end or run again together (`skyward.control.decide.tasks.collectives`), as
do those of a gang (`skyward.control.decide.tasks.gangs`).
A prefetched task counts as run, so it never runs more often than that, and is not prefetched again. A task that raises
an exception that its own retry policy covers is requeued in the same way; these retries are counted separately.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Literal

from skyward.control.decide.tasks.collectives import CollectiveState, MemberEnd
from skyward.control.decide.tasks.gangs import GangState, WaitingGangs, has_slots, seats_left, set_aside_for
from skyward.control.decide.tasks.locality import WORTH, Locality
from skyward.control.decide.tasks.messages import (
    Abandon,
    Broadcast,
    BroadcastEnded,
    CancelBroadcast,
    CancelTasks,
    CheckPrefetched,
    Delivered,
    Dispatch,
    Dropped,
    Ended,
    EndGang,
    MeetingOpened,
    MeetingsDue,
    Member,
    MemberArrived,
    Overdue,
    RankDraining,
    RankJoined,
    RankLost,
    RankRemoved,
    Recall,
    Released,
    Requeue,
    Settle,
    SettleOutcome,
    StartedOnNode,
    Stop,
    StopUnfunded,
    Stored,
    SubmitGang,
    Submitted,
    TaskManagerEffect,
    TaskManagerMessage,
    TasksFound,
    UniqueResults,
    Withheld,
)
from skyward.control.decide.tasks.queue import WaitingTasks
from skyward.control.decide.tasks.run_times import RunTimes
from skyward.control.decide.tasks.slots import NodeSlots, SetAside, SlotTable, fit_all
from skyward.control.decide.tasks.state import BroadcastState, TaskState
from skyward.control.lifecycle import Lifecycle, TaskStatus
from skyward.scaling.gang_placement import Seats, gang_fits, place_gang
from skyward.scaling.gang_text import gang_text, maximum_text
from skyward.scaling.snapshot import Demand, GangDemand, Group
from skyward.values.needs import NOTHING, Needs, describe_resources
from skyward.wire.protocol.messages import Collective, GangMember

__all__ = ["TaskManager"]

PREFETCH_HORIZON = 0.004
"""Seconds of work that a node prefetches."""

PREFETCH_MOST = 64

OVERTAKEN = 16
OVERTAKING_SECONDS = 1.0
"""Tasks that may overtake the oldest one because a free node has their data, and the mean duration of tasks up to
which they may, so that the oldest one does not wait long."""

ENDED_KEPT = 300
"""Finished tasks whose history is kept: as many as a report lists."""

_NO_BLOBS: Mapping[bytes, int] = {}
_KILLED = "the process it ran in was killed"
RECALL_AFTER = 0.05
"""Seconds without a task ending on a node after which its prefetched tasks may be recalled."""


@dataclass
class TaskManager:
    """State of the queue. `handle` is the only entry point; it returns effects.

    Attributes:
        retries: times that a task is requeued after its node was lost.
        groups: groups of nodes that may exist; a task that fits none of them ends at once. Empty: any node may join.
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
        submitted: number of tasks that were ever queued, without those that were queued again.
        run_times: run times by function.
    """

    retries: int = 3
    groups: tuple[Group, ...] = ()
    max_nodes: int | None = None
    idle_since: float | None = None
    task_seconds: float | None = None
    submitted: int = 0
    run_times: RunTimes = field(default_factory=RunTimes)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _tasks: dict[int, TaskState] = field(default_factory=dict)
    _waiting: WaitingTasks = field(default_factory=WaitingTasks)
    _table: SlotTable = field(default_factory=SlotTable)
    _broadcasts: dict[int, BroadcastState] = field(default_factory=dict)
    _gangs: dict[int, GangState] = field(default_factory=dict)
    _waiting_gangs: WaitingGangs = field(default_factory=WaitingGangs)
    _ahead: set[int] = field(default_factory=set)
    _locality: Locality = field(default_factory=Locality)
    _withheld: set[int] = field(default_factory=set)
    _finished: set[int] = field(default_factory=set)
    _reserved: dict[int, int] = field(default_factory=dict)
    _set_aside: Mapping[int, SetAside] = field(default_factory=dict)
    _set_aside_for: GangState | None = None
    _holding: dict[int, int] = field(default_factory=dict)
    _ended: deque[TaskState] = field(default_factory=lambda: deque(maxlen=ENDED_KEPT))
    _now: float = 0.0
    _cause: int = 0

    @property
    def packs(self) -> bool:
        """True if tasks go to the fullest nodes, so that others empty and can go; otherwise they are spread."""
        return self._table.packs

    @packs.setter
    def packs(self, packs: bool) -> None:
        self._table.packs = packs

    def number(self) -> int:
        """Return a number for a new task or broadcast."""
        return next(self._numbers)

    # Queries.

    @property
    def queued(self) -> int:
        """Number of tasks that wait for a slot, in the queue or on a node."""
        return len(self._tasks) - len(self._withheld) - len(self._finished) - self.running

    @property
    def unsent(self) -> int:
        """Number of tasks that no node has, and of broadcasts that have no tasks yet."""
        sent = sum(len(node.tasks) for node in self._table.nodes.values())
        empty = sum(not each.members for each in self._broadcasts.values())
        return len(self._tasks) - len(self._finished) - sent + empty

    @property
    def withheld(self) -> int:
        """Number of tasks that wait for a lost input."""
        return len(self._withheld)

    @property
    def pinned(self) -> int:
        """Number of tasks that wait for one certain node, and of broadcasts that wait for any."""
        return self._waiting.pinned + sum(not each.members for each in self._broadcasts.values())

    @property
    def waiting(self) -> bool:
        """True if a task, or a broadcast without members, waits for a node."""
        live = len(self._tasks) - len(self._withheld) - len(self._finished)
        return live > self._table.busy or any(not each.members for each in self._broadcasts.values())

    @property
    def running(self) -> int:
        """Number of tasks that occupy a slot."""
        return self._table.busy

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of the nodes that take tasks."""
        return self._table.ranks

    @property
    def occupied(self) -> Set[int]:
        """Ranks of the nodes that hold tasks, with or without a slot."""
        return self._table.occupied

    def busy(self, rank: int) -> int:
        """Return the number of slots in use on a node."""
        node = self._table.nodes.get(rank)
        return 0 if node is None else node.busy

    def busy_in(self, group: str) -> int:
        """Return the number of slots in use on the nodes of a group."""
        return self._table.busy_in.get(group, 0)

    def started_in(self, group: str) -> int:
        """Return the number of tasks that were ever sent to nodes of a group."""
        return self._table.started_in.get(group, 0)

    def ends_in(self, rank: int, now: float) -> float | None:
        """Return the seconds until the last task of a node is expected to end; None if a run time is unknown."""
        node = self._table.nodes.get(rank)
        latest = 0.0
        for task in () if node is None else node.tasks:
            record = self._tasks[task]
            mean = self.run_times.mean(record.function)
            if mean is None:
                return None
            age = 0.0 if record.started_at is None else now - record.started_at
            latest = max(latest, mean - age if age < mean else age)  # one over the mean runs on for as long again
        return latest

    def idle_ranks(self) -> list[int]:
        """Return the nodes that take tasks and have none, ascending."""
        return self._table.idle()

    def node(self, rank: int) -> NodeSlots | None:
        """Return the slots of a node."""
        return self._table.nodes.get(rank)

    def demands(self, now: float) -> tuple[Demand, ...]:
        """Return the demand for any node that fits, by shape and function.

        Prefetched tasks without a slot are included; the tasks of gangs are not.
        """
        surplus = self.queued - len(self._waiting) - self._waiting.pinned - self._waiting_gangs.tasks
        demands = [self._demand(needs, function, count, now) for needs, function, count in self._waiting.counts()]
        return (*demands, *self._prefetched(surplus)) if surplus > 0 else tuple(demands)

    def _prefetched(self, count: int) -> list[Demand]:
        """Return the demand of so many tasks that wait on a node, by function: on each node, that of the last one."""
        ahead: Counter[str] = Counter()
        for rank in self._ahead:
            node = self._table.nodes[rank]
            if node.spare < 0:
                ahead[self._tasks[next(reversed(node.tasks))].function] -= node.spare
        found = []
        for function, tasks in ahead.items():
            found.append(Demand(min(tasks, count), seconds=self.run_times.mean(function)))
            count -= min(tasks, count)
        return [*found, Demand(count, seconds=self.task_seconds)] if count else found

    def _demand(self, needs: Needs, function: str, count: int, now: float) -> Demand:
        oldest = self._waiting.next(needs)
        waited = 0.0 if oldest is None else max(0.0, now - self._tasks[oldest].since)
        return Demand(count, needs, self.run_times.mean(function), waited, self.run_times.age(function, now))

    @property
    def has_waiting_gangs(self) -> bool:
        """True if a gang waits for nodes."""
        return bool(self._waiting_gangs)

    def waiting_gangs(self) -> dict[int, GangDemand]:
        """Return the demands of the waiting gangs by their numbers, the oldest first."""
        return {gang.number: gang.demand for gang in self._waiting_gangs}

    def gangs(self) -> tuple[GangDemand, ...]:
        """Return the demands of the waiting gangs, the oldest first."""
        return tuple(gang.demand for gang in self._waiting_gangs)

    def shapes(self) -> set[Needs]:
        """Return the shapes that wait for a node, including broadcasts without members, but not the tasks of gangs."""
        empty = {each.needs for each in self._broadcasts.values() if not each.members}
        return {*self._waiting.shapes(), *empty}

    @property
    def idle_from(self) -> float | None:
        """Time at which the last task ended; None while there are tasks."""
        return None if self._tasks or self._has_empty_broadcasts else self.idle_since

    @property
    def _has_empty_broadcasts(self) -> bool:
        return any(not each.members for each in self._broadcasts.values())

    def idle_for(self, now: float) -> float:
        """Return the seconds since the last task ended; 0 while there are tasks."""
        since = self.idle_from
        return 0.0 if since is None else now - since

    def is_empty(self, rank: int) -> bool:
        """Return whether a node holds no task, no task is pinned to it, and no result is stored on it alone."""
        if rank in self.occupied or self._waiting.next_pinned(rank) is not None or self._holding.get(rank):
            return False
        return all(self._tasks[task].target != rank for task in self._finished)

    def next_meeting(self) -> float | None:
        """Return the time at which the next meeting of a collective is over; None without any."""
        return min((due for _, each in self._collectives() if (due := each.due) is not None), default=None)

    def node_of(self, task: int) -> int | None:
        """Return the node that a task was sent to last."""
        record = self._tasks.get(task)
        return None if record is None else record.node

    def holders(self) -> dict[int, list[int]]:
        """Return the tasks that hold the slots of each node."""
        return {rank: list(node.tasks)[: node.slots] for rank, node in self._table.nodes.items()}

    def backlog(self, rank: int) -> int:
        """Return the number of tasks on a node or pinned to it, beyond its slots; negative for free slots."""
        node = self._table.nodes.get(rank)
        return 0 if node is None else len(self._waiting.pinned_to(rank)) - node.spare

    def life_of(self, task: int) -> Lifecycle[TaskStatus] | None:
        """Return the lifecycle of a task; None if it was not queued yet, or ended too long ago."""
        record = self._tasks.get(task) or next((each for each in self._ended if each.number == task), None)
        return None if record is None else record.life

    def could_start_on(self, task: int) -> tuple[int, ...] | None:
        """Return the nodes that a waiting task could ever start on; None if the task does not wait."""
        record = self._tasks.get(task)
        if record is None or record.status in ("running", "withheld", "finished", "cancelling"):
            return None
        if record.node is not None:
            node = self._table.nodes.get(record.node)
            if node is None or task in list(node.tasks)[: node.slots]:
                return None
        if record.target is not None:
            return (record.target,)
        return tuple(rank for rank in self._table.ranks if self._could_hold(self._table.nodes[rank], record.needs))

    def may_be_held(self, task: int) -> int | None:
        """Return how many slots of its node a member of a collective can do without; None for any other task."""
        record = self._tasks[task]
        collective = self._collective_of(record)
        node = None if record.target is None else self._table.nodes.get(record.target)
        return None if collective is None or node is None else node.slots - collective.terms.procs

    def reservations(self) -> dict[int, tuple[int, ...]]:
        """Return, by node, the members of the collective that its free slots are kept for."""
        found: dict[int, tuple[int, ...]] = {}
        for rank in self._reserved:
            task = self._waiting.next_pinned(rank)
            collective = None if task is None else self._collective_of(self._tasks[task])
            if collective is not None:
                found[rank] = tuple(collective.ranks)
        if self._set_aside_for is not None:
            found |= dict.fromkeys(self._set_aside, self._set_aside_for.members)
        return found

    def gang_start(self, task: int) -> Callable[[Mapping[int, int]], bool] | None:
        """Return a function that tells whether the waiting gang of a task could start without some slots of each node.

        None for any other task.
        """
        gang = self._gang_of(self._tasks[task])
        if gang is None or not gang.is_waiting:
            return None
        demand, nodes = gang.demand, [self._table.nodes[rank] for rank in self._table.ranks]

        def starts(held: Mapping[int, int]) -> bool:
            seats = [Seats(node.slots - held.get(node.rank, 0), node.total, node.capabilities) for node in nodes]
            return place_gang(seats, demand.needs, demand.placement) is not None

        return starts

    def is_pinned(self, task: int) -> bool:
        """Return whether only one node may run a task, so that no other node helps."""
        return self._tasks[task].target is not None

    def has_prefetched(self) -> bool:
        """Return whether any node holds prefetched tasks, so that time matters."""
        return bool(self._ahead)

    def infeasible(self, needs: Needs) -> str:
        """Return why no node could ever hold `needs`; empty if one could."""
        if not needs or not self.groups or any(group.max and group.can_hold(needs) for group in self.groups):
            return ""
        found = [(group.name, describe_resources(group.resources, group.capabilities)) for group in self.groups]
        if len(found) == 1:
            have = f"a node has {found[0][1]}"
        else:
            have = "; ".join(f"a node of group {name!r} has {resources}" for name, resources in found)
        return f"{needs}, which no node of this pool can ever have: {have}"

    def gang_infeasible(self, demand: GangDemand) -> str:
        """Return why the pool could never hold a gang at once; empty if it could."""
        if not self.groups:
            return ""
        for needs in dict.fromkeys(demand.needs):
            if reason := self.infeasible(needs):
                return reason
        if gang_fits(self.groups, demand, self.max_nodes):
            return ""
        most = maximum_text(self.groups, self.max_nodes)
        return f"{gang_text(demand)}, which do not fit even in the pool's maximum: {most}"

    # Transitions.

    def handle(self, message: TaskManagerMessage, now: float, cause: int = 0) -> list[TaskManagerEffect]:
        """Handle `message` at time `now`, in seconds of any monotonic clock; return effects, in order.

        Args:
            cause: number of the control plane's message that led to this one.
        """
        effects: list[TaskManagerEffect] = []
        self._now, self._cause = now, cause
        match message:
            case Submitted():
                self._submit(message, effects)
            case SubmitGang():
                self._submit_gang(message, effects)
            case Broadcast():
                self._open_broadcast(message, effects)
            case RankJoined():
                self._join(message, now, effects)
            case TasksFound():
                self._take_over(message, now)
            case RankDraining(rank):
                self._drain(rank, effects)
            case RankLost(rank, reason):
                self._locality.left(rank)
                self._lose(rank, reason, effects)
            case Overdue(tasks, rank, reason):
                self._locality.left(rank)
                self._end_overdue(tasks, rank, now, effects)
                self._lose(rank, reason, effects)
            case RankRemoved(rank, reason, outcome):
                self._locality.left(rank)
                self._end_collectives_of(rank)
                self._lose(rank, reason, effects, outcome)
                withheld = [task for task in self._withheld if self._tasks[task].target == rank]
                self._settle_all((*self._waiting.drop_pinned(rank), *withheld), outcome, reason, effects)
            case StartedOnNode(task):
                if (record := self._tasks.get(task)) is not None and record.status in ("sent", "recalled"):
                    record.life.move("running", now, cause=self._cause)
                    self._run_started(record, now)
                    if (collective := self._collective_of(record)) is not None:
                        collective.begin(task, now)
                return effects
            case Delivered(task):
                if (record := self._tasks.get(task)) is not None:
                    record.replayable = False
                return effects
            case Stored(rank, keys):
                self._locality.stored(rank, keys)
                return effects
            case Dropped(rank, keys):
                self._locality.dropped(rank, keys)
                return effects
            case Ended():
                self._end(message, now, effects)
            case MemberArrived(task, rank, address):
                self._arrive(task, rank, address, effects)
            case MeetingsDue():
                self._end_meetings(now, effects)
            case Withheld(task, rank):
                self._withhold(task, rank, now, effects)
            case Released(task, broken) if task in self._withheld:
                record = self._tasks[task]
                if self._collective_of(record) is not None:
                    self._end_member(record, MemberEnd("error" if broken else "returned"), effects)
                elif broken:
                    self._settle(task, "error", "", effects)
                else:
                    self._withheld.discard(task)
                    record.life.move("queued", now, "its inputs are available again", cause=self._cause)
                    record.since = now
                    self._waiting.put_back(task, record.needs, record.target, record.function)
            case UniqueResults(rank, count):
                self._holding[rank] = count
            case CancelTasks(tasks):
                self._cancel(self._with_companions(tasks, effects), effects)
            case StopUnfunded(reason):
                sent = [
                    task for task, record in self._tasks.items() if record.node is not None and not record.is_cancelled
                ]
                for task in sent:
                    self._tasks[task].unfunded = reason
                self._cancel(self._with_companions(sent, effects), effects)
            case CancelBroadcast(broadcast) if broadcast in self._broadcasts:
                broadcast_state = self._broadcasts[broadcast]
                broadcast_state.cancelled = True
                if broadcast_state.members:
                    self._cancel(self._with_companions(tuple(broadcast_state.members), effects), effects)
                else:
                    del self._broadcasts[broadcast]
                    effects.append(BroadcastEnded(broadcast, cause=self._cause))
            case Abandon(reason, outcome, shapes):
                unsent = (
                    (task, record)
                    for task, record in self._tasks.items()
                    if record.node is None and task not in self._finished
                )
                waiting = {
                    task
                    for task, record in unsent
                    if shapes is None or (record.gang is None and record.needs in shapes)
                }
                self._settle_waiting(waiting, outcome, reason, effects)
                for broadcast in [n for n, each in self._broadcasts.items() if not each.members]:
                    if shapes is None or self._broadcasts[broadcast].needs in shapes:
                        del self._broadcasts[broadcast]
                        effects.append(BroadcastEnded(broadcast, cause=self._cause))
            case EndGang(number, outcome, reason):
                if (gang := self._gangs.get(number)) is not None and gang.is_waiting:
                    self._end_waiting_gang(gang, outcome, reason, effects)
            case CheckPrefetched():
                self._recall(now, effects)
        self._dispatch(now, effects)
        if not self._tasks and (self.idle_since is None or effects):
            self.idle_since = now
        return effects

    def _submit(self, new: Submitted, effects: list[TaskManagerEffect]) -> None:
        for task, function in zip(new.tasks, new.functions or repeat(""), strict=False):
            blobs, bound = new.blobs.get(task, _NO_BLOBS), bool(new.kept)
            record = TaskState(task, new.target, new.replayable, new.needs, new.retries, blobs, bound)
            record.function, record.since = function, self._now
            self._tasks[task] = record
            self._waiting.add(task, new.needs, new.target, function)
        self.submitted += len(new.tasks)
        if reason := self.infeasible(new.needs):
            self._waiting.discard(new.tasks)
            for task in new.tasks:
                self._settle(task, "infeasible", reason, effects)

    def _open_broadcast(self, new: Broadcast, effects: list[TaskManagerEffect]) -> None:
        ranks = new.ranks
        if ranks is None:
            count = 1 if new.together is None else new.together.procs
            ranks = tuple(rank for rank in self._table.ranks if self.could_hold(rank, new.needs, count))
        record = BroadcastState(new.needs, new.retries, size=len(ranks), only=new.ranks, bound=bool(new.kept))
        record.function = new.function
        self._broadcasts[new.broadcast] = record
        if new.together is not None:
            record.collective = CollectiveState(new.together)
        self._add_members(new.broadcast, ranks, effects)

    def _add_members(self, broadcast: int, ranks: tuple[int, ...], effects: list[TaskManagerEffect]) -> None:
        collective = self._broadcasts[broadcast].collective
        procs = 1 if collective is None else collective.terms.procs
        places = [(rank, local) for rank in ranks for local in range(procs)]
        for position, (rank, local) in enumerate(places):
            task = self._add_member(broadcast, rank, (position, len(places)), effects, local)
            if collective is not None:
                collective.ranks[task] = rank

    def could_hold(self, rank: int, needs: Needs, count: int = 1) -> bool:
        """Return whether an idle node could hold this shape `count` times; True for a node that is not active yet."""
        node = self._table.nodes.get(rank)
        return node is None or self._could_hold(node, needs, count)

    def _could_hold(self, node: NodeSlots, needs: Needs, count: int = 1) -> bool:
        """Return whether a node could hold this shape `count` times when it is idle."""
        if not needs:
            return True
        in_use = [held.resources for held in node.tasks.values()]
        whole = {name: free + sum(used.get(name, 0.0) for used in in_use) for name, free in node.free.items()}
        return fit_all([needs] * count, whole, node.capabilities)

    def _add_member(
        self, broadcast: int, rank: int, share: tuple[int, int], effects: list[TaskManagerEffect], local: int = 0
    ) -> int:
        task = self.number()
        record = self._broadcasts[broadcast]
        new = TaskState(task, rank, True, record.needs, record.retries, bound=record.bound)
        new.broadcast, new.share, new.local = broadcast, share, local
        new.function, new.since = record.function, self._now
        self._tasks[task] = new
        record.members.add(task)
        record.given.add(rank)
        self._waiting.add(task, record.needs, rank)
        effects.append(Member(broadcast, task, rank, local, cause=self._cause))
        return task

    def _join(self, joined: RankJoined, now: float, effects: list[TaskManagerEffect]) -> None:
        rank = joined.rank
        self._table.join(rank, joined.group, joined.slots, joined.resources, joined.capabilities, now)
        for broadcast, record in self._broadcasts.items():
            if record.bound or record.cancelled or (record.only is not None and rank not in record.only):
                continue
            if record.collective is not None:
                count = record.collective.terms.procs
                if not record.members and self._could_hold(self._table.nodes[rank], record.needs, count):
                    self._add_members(broadcast, (rank,), effects)
            elif rank not in record.given and self._could_hold(self._table.nodes[rank], record.needs):
                share = (record.size, record.size) if record.size else (0, 1)
                record.size = max(1, record.size)
                self._add_member(broadcast, rank, share, effects)

    def _take_over(self, found: TasksFound, now: float) -> None:
        self._numbers = itertools.count(max(next(self._numbers), found.last + 1))
        for task in found.tasks:
            self._tasks[task] = TaskState(task, found.rank, replayable=False, node=found.rank)
            if self._table.assign(found.rank, task, NOTHING, now).spare >= 0:
                self._run_started(self._tasks[task], now)

    def _end_overdue(self, tasks: Iterable[int], rank: int, now: float, effects: list[TaskManagerEffect]) -> None:
        """End tasks that are past their timeout or were asked to stop, without a retry."""
        for task in tasks:
            record = self._tasks.get(task)
            if record is None or record.node != rank or task in self._finished:
                continue
            self._release(rank, record, now)
            end = MemberEnd("cancelled" if record.is_cancelled else "timeout")
            if self._collective_of(record) is not None:
                self._end_member(record, end, effects)
            elif (gang := self._gang_of(record)) is not None:
                self._end_of_gang(gang, record, end, effects)
            else:
                self._settle(task, "cancelled" if record.is_cancelled else "timeout", "", effects)

    def _drain(self, rank: int, effects: list[TaskManagerEffect]) -> None:
        if self._table.takes(rank):
            self._table.retire(rank)
            self._recall_surplus(rank, self._table.nodes[rank], len(self._tasks), effects)

    def _lose(self, rank: int, reason: str, effects: list[TaskManagerEffect], outcome: SettleOutcome = "lost") -> None:
        withheld = (task for task in self._withheld if self._tasks[task].target == rank)
        unkept = {task for task in (*self._waiting.pinned_to(rank), *withheld) if self._tasks[task].bound}
        self._settle_waiting(unkept, "unkept" if outcome == "lost" else outcome, reason, effects)
        node = self._table.remove(rank)
        self._holding.pop(rank, None)
        if node is None:
            return
        self._ahead.discard(rank)
        again: list[int] = []
        for task in node.tasks:
            record = self._tasks[task]
            self._run_stopped(record)
            record.losses += 1  # a prefetched task may have run, too: the last reports of its node are missing
            if self._collective_of(record) is not None:
                kind: SettleOutcome = "unkept" if outcome == "lost" and record.bound else outcome
                self._end_member(record, MemberEnd(kind, reason), effects)
            elif (gang := self._gang_of(record)) is not None:
                self._end_of_gang(gang, record, MemberEnd(outcome, reason), effects)
            elif record.is_cancelled:
                self._settle(task, "cancelled", reason, effects)
            elif outcome == "lost" and record.bound:
                self._settle(task, "unkept", reason, effects)
            elif outcome != "lost" or not record.replayable or record.losses > self.retries:
                self._settle(task, outcome, reason, effects)
            else:
                again.append(task)
                effects.append(Requeue(task, rank, record.losses + record.errors, reason, cause=self._cause))
        for task in reversed(again):
            self._requeue(task, reason)

    def _requeue(self, task: int, why: str) -> None:
        record = self._tasks[task]
        record.life.move("queued", self._now, why, cause=self._cause)
        record.node = None
        record.attempt += 1
        record.since = self._now
        self._waiting.put_back(task, record.needs, record.target, record.function)

    def _end(self, ended: Ended, now: float, effects: list[TaskManagerEffect]) -> None:
        record = self._tasks.get(ended.task)
        if record is None or record.node != ended.rank or ended.task in self._finished:
            return  # a late report: the task has ended, or runs elsewhere
        node = self._release(ended.rank, record, now)
        if node is not None and node.spare >= 0:
            self._ahead.discard(ended.rank)
        if self._collective_of(record) is not None:
            reason = _KILLED if ended.outcome == "lost" else ""
            kind: SettleOutcome | Literal["returned"] = "raised" if ended.raised else ended.outcome
            if ended.outcome == "value":
                self.run_times.ended(record.function, ended.seconds)
            self._end_member(record, MemberEnd(kind, reason, ended.retry, ended.follows_loss), effects)
            return
        if (gang := self._gang_of(record)) is not None:
            reason = _KILLED if ended.outcome == "lost" else ""
            end = MemberEnd("raised" if ended.raised else ended.outcome, reason, ended.retry)
            if ended.outcome == "value":
                self.run_times.ended(record.function, ended.seconds)
            self._end_of_gang(gang, record, end, effects)
            return
        match ended.outcome:
            case "returned" if not record.is_cancelled:
                self._requeue(ended.task, "its node returned it")
            case "lost" if not record.is_cancelled:
                record.losses += 1
                if record.replayable and record.losses <= self.retries:
                    effects.append(
                        Requeue(ended.task, ended.rank, record.losses + record.errors, _KILLED, cause=self._cause)
                    )
                    self._requeue(ended.task, _KILLED)
                else:
                    self._settle(ended.task, "lost", _KILLED, effects)
            case "returned" | "lost":
                self._settle(ended.task, "cancelled", "", effects)
            case outcome:
                mean = self.task_seconds
                self.task_seconds = ended.seconds if mean is None else 0.8 * mean + 0.2 * ended.seconds
                if outcome != "cancelled":
                    self.run_times.ended(record.function, ended.seconds)
                if ended.retry and record.replayable and record.errors < record.retries and not record.is_cancelled:
                    record.errors += 1
                    effects.append(
                        Requeue(ended.task, ended.rank, record.losses + record.errors, ended.retry, cause=self._cause)
                    )
                    self._requeue(ended.task, ended.retry)
                else:
                    self._settle(ended.task, outcome, "", effects)

    def _withhold(self, task: int, rank: int, now: float, effects: list[TaskManagerEffect]) -> None:
        record = self._tasks.get(task)
        if record is None or record.node != rank or task in self._finished:
            return
        node = self._release(rank, record, now)
        if node is not None and node.spare >= 0:
            self._ahead.discard(rank)
        collective = self._collective_of(record)
        if record.is_cancelled and collective is not None:
            self._end_member(record, MemberEnd("returned", "an input was lost"), effects)
            return
        if record.is_cancelled:
            self._settle(task, "cancelled", "", effects)
            return
        record.life.move("withheld", now, "an input was lost", cause=self._cause)
        record.node = None
        record.attempt += 1
        self._withheld.add(task)
        if collective is not None:
            self._stop_members(collective, "an input of another member was lost", effects)

    def _settle(self, task: int, outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]) -> None:
        record = self._tasks.pop(task)
        if outcome == "cancelled" and record.unfunded:
            outcome, reason = "unfunded", record.unfunded
        record.life.move("ended", self._now, reason, cause=self._cause)
        self._withheld.discard(task)
        self._finished.discard(task)
        self._ended.append(record)
        effects.append(Settle(task, outcome, reason, cause=self._cause))
        if (gang := self._gang_of(record)) is not None:
            gang.left -= 1
            if not gang.left:
                del self._gangs[gang.number]
        if record.broadcast is not None:
            members = self._broadcasts[record.broadcast].members
            members.discard(task)
            if not members:
                del self._broadcasts[record.broadcast]
                effects.append(BroadcastEnded(record.broadcast, cause=self._cause))

    def _cancel(self, tasks: Iterable[int], effects: list[TaskManagerEffect]) -> None:
        waiting: set[int] = set()
        for task in tasks:
            record = self._tasks.get(task)
            if record is None or record.is_cancelled or task in self._finished:
                continue
            if record.node is not None:
                record.life.move("cancelling", self._now, cause=self._cause)
                effects.append(Stop(task, record.node, cause=self._cause))
            else:
                waiting.add(task)
        self._settle_waiting(waiting, "cancelled", "", effects)

    def _settle_waiting(
        self, tasks: set[int], outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]
    ) -> None:
        if tasks:
            self._waiting.discard(tasks)
            self._settle_all(sorted(tasks), outcome, reason, effects)

    def _settle_all(
        self, tasks: Iterable[int], outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]
    ) -> None:
        """Settle tasks that are neither on a node nor in the queue. A collective ends with one of its members."""
        for task in tasks:
            if (record := self._tasks.get(task)) is None:
                continue  # it ended with another member
            if (gang := self._gang_of(record)) is not None:
                self._end_waiting_gang(gang, outcome, reason, effects)
                continue
            if (collective := self._collective_of(record)) is None:
                self._settle(task, outcome, reason, effects)
            elif task not in collective.ends:
                collective.is_final = True
                self._withheld.discard(task)
                self._end_member(record, MemberEnd(outcome, reason), effects)

    def _run_started(self, record: TaskState, now: float) -> None:
        """Record that a task has a slot. Idempotent."""
        if record.started_at is None:
            record.started_at = now
            self.run_times.started(record.function, now)

    def _run_stopped(self, record: TaskState) -> None:
        """Record that a task no longer has a slot. Idempotent."""
        if record.started_at is not None:
            self.run_times.stopped(record.function, record.started_at)
            record.started_at = None

    def _release(self, rank: int, record: TaskState, now: float) -> NodeSlots | None:
        """Take a task off its node."""
        self._run_stopped(record)
        node = self._table.release(rank, record.number, now)
        if node is not None and rank in self._ahead:
            following = next(islice(node.tasks, node.slots - 1, None), None)
            if following is not None:
                self._run_started(self._tasks[following], now)
        return node

    def _recall(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Recall tasks that wait behind a long task, as far as other nodes have free slots for them."""
        kept = {rank: aside.slots for rank, aside in self._set_aside.items()}
        free = (max(0, node.spare - kept.get(node.rank, 0)) for node in self._table.nodes.values())
        room = sum(free) if not self._waiting else 0
        for rank in tuple(self._ahead):
            node = self._table.nodes[rank]
            if room <= 0:
                return
            if now - node.quiet_since < RECALL_AFTER:
                continue
            room -= self._recall_surplus(rank, node, room, effects)

    def _recall_surplus(self, rank: int, node: NodeSlots, most: int, effects: list[TaskManagerEffect]) -> int:
        """Recall up to `most` tasks that a node has no slot for, the last one sent first; return the number."""
        recalled = 0
        for task in list(node.tasks)[node.slots :][::-1]:
            record = self._tasks[task]
            if recalled < most and record.target is None and record.status == "sent":
                record.life.move("recalled", self._now, cause=self._cause)
                effects.append(Recall(task, rank, cause=self._cause))
                recalled += 1
        return recalled

    # Collectives.

    def _collectives(self) -> Iterable[tuple[BroadcastState, CollectiveState]]:
        return [(each, each.collective) for each in self._broadcasts.values() if each.collective is not None]

    def _collective_of(self, record: TaskState) -> CollectiveState | None:
        return None if record.broadcast is None else self._broadcasts[record.broadcast].collective

    def _with_companions(self, tasks: Iterable[int], effects: list[TaskManagerEffect]) -> list[int]:
        """Return tasks that are to be cancelled, with the other members of their collectives and gangs."""
        found: dict[int, None] = {}
        for task in tasks:
            found[task] = None
            record = self._tasks.get(task)
            if record is not None and (collective := self._collective_of(record)) is not None:
                collective.is_final = collective.is_cancelled = True
                collective.stopped_for = collective.stopped_for or "it was cancelled"
                found |= dict.fromkeys(collective.ranks)
            if record is not None and (gang := self._gang_of(record)) is not None:
                found |= dict.fromkeys(gang.members)
                if not gang.is_waiting:
                    self._break_up(gang, effects)
        return list(found)

    def _end_collectives_of(self, rank: int) -> None:
        """Let no collective run again that has a member on a node which is gone for good."""
        for _, collective in self._collectives():
            if rank in collective.ranks.values():
                collective.is_final = True

    def _arrive(self, task: int, rank: int, address: str, effects: list[TaskManagerEffect]) -> None:
        record = self._tasks.get(task)
        if record is None or record.node != rank or (collective := self._collective_of(record)) is None:
            return
        if collective.arrive(task, address, self._now):
            for each, where in collective.ranks.items():
                effects.append(MeetingOpened(each, where, collective.address, cause=self._cause))

    def _end_meetings(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Stop the collectives whose members have not met in time."""
        for _, collective in self._collectives():
            if collective.due is not None and now >= collective.due:
                collective.is_final = True
                collective.unmet = (
                    f"{collective.missing()} did not meet the others within {collective.terms.within:g} s"
                )
                self._stop_members(collective, collective.unmet, effects)

    def _stop_members(self, collective: CollectiveState, why: str, effects: list[TaskManagerEffect]) -> None:
        """Stop the members of a collective that have not ended."""
        if collective.stopped_for:
            return
        collective.stopped_for, collective.due = why, None
        for task in collective.ranks:
            record = self._tasks.get(task)
            if record is None or not collective.stopped_for:
                return  # the last one has ended
            if task in collective.ends or record.status in ("withheld", "cancelling"):
                continue
            if record.node is None:
                self._waiting.discard((task,))
                self._end_member(record, MemberEnd("stopped"), effects)
            else:
                record.life.move("cancelling", self._now, why, cause=self._cause)
                effects.append(Stop(task, record.node, cause=self._cause))

    def _end_member(self, record: TaskState, end: MemberEnd, effects: list[TaskManagerEffect]) -> None:
        """Record the end of a member. The first one that did not return a value ends the others."""
        collective = self._collective_of(record)
        assert collective is not None  # callers have checked
        if collective.unmet:
            was_there = record.number in collective.arrived
            end = MemberEnd("cancelled") if was_there else MemberEnd("unmet", collective.unmet)
        elif collective.is_cancelled and (end.follows_loss or end.outcome == "lost"):
            end = MemberEnd("cancelled")
        elif end.outcome == "cancelled" and collective.stopped_for and not collective.is_final:
            end = MemberEnd("stopped")
        record.life.move("finished", self._now, end.reason, cause=self._cause)
        self._withheld.discard(record.number)
        self._finished.add(record.number)
        collective.ends[record.number] = end
        if not end.is_result:
            self._stop_members(collective, end.reason or f"a member ended: {end.outcome}", effects)
        if collective.is_over and record.number in self._finished:
            self._conclude(record, collective, effects)

    def _conclude(self, last: TaskState, collective: CollectiveState, effects: list[TaskManagerEffect]) -> None:
        """End a collective whose members have all ended, or queue all of them again."""
        assert last.broadcast is not None  # a member has one
        members = [self._tasks[task] for task in collective.ranks]
        can_again = all(member.replayable for member in members)
        why = collective.again(self._broadcasts[last.broadcast].retries) if can_again else ""
        collective.due = None
        if why:
            for member in reversed(members):
                self._finished.discard(member.number)
                times = collective.losses + collective.errors
                if member.node is not None:
                    effects.append(Requeue(member.number, member.node, times, why, cause=self._cause))
                self._requeue(member.number, why)
            collective.stopped_for = ""
            collective.ends.clear()
            return
        for task, end in tuple(collective.ends.items()):  # in the order in which they ended
            if end.outcome == "stopped" or end.outcome == "returned":
                self._settle(task, "cancelled", collective.stopped_for, effects)
            else:
                self._settle(task, "value" if end.outcome == "raised" else end.outcome, end.reason, effects)

    def _may_start(self, collective: CollectiveState) -> bool:
        """Return whether each member is next on its node, and all of them fit there."""
        for rank, count in Counter(collective.ranks.values()).items():
            node = self._table.nodes.get(rank)
            ahead = self._waiting.pinned_to(rank)[:count]
            if node is None or node.spare < count or any(task not in collective.ranks for task in ahead):
                return False
            needs = [self._tasks[task].needs for task in ahead]
            if not node.fits_all(needs):
                return False
            if (aside := self._set_aside.get(rank)) is not None and not node.fit_beside(needs, aside):
                return False
        return True

    def _start_together(self, collective: CollectiveState, now: float, effects: list[TaskManagerEffect]) -> None:
        """Send all members of a collective to their nodes."""
        collective.start()
        self._waiting.discard(collective.ranks)
        for task, rank in collective.ranks.items():
            self._send(task, rank, now, effects)

    # Gangs.

    def _gang_of(self, record: TaskState) -> GangState | None:
        return None if record.gang is None else self._gangs.get(record.gang)

    def _submit_gang(self, new: SubmitGang, effects: list[TaskManagerEffect]) -> None:
        size = len(new.tasks)
        for place, (task, needs) in enumerate(zip(new.tasks, new.demand.needs, strict=True)):
            retries = new.retries[place] if new.retries else 0
            record = TaskState(task, None, True, needs, retries, new.blobs.get(task, _NO_BLOBS))
            record.gang, record.share = new.gang, (place, size)
            record.function, record.since = new.functions[place] if new.functions else "", self._now
            self._tasks[task] = record
        gang = self._gangs[new.gang] = GangState(new.gang, new.tasks, new.demand, left=size)
        self._waiting_gangs.add(gang)
        self.submitted += size
        if reason := self.gang_infeasible(new.demand):
            self._end_waiting_gang(gang, "infeasible", reason, effects)

    def _end_waiting_gang(
        self, gang: GangState, outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]
    ) -> None:
        self._waiting_gangs.remove(gang)
        for task in gang.members:
            self._settle(task, outcome, reason, effects)

    def _start_gang(self, gang: GangState, now: float, effects: list[TaskManagerEffect]) -> bool:
        """Send all members of a gang to nodes, if they fit now; return whether they do."""
        nodes = [self._table.nodes[rank] for rank in self._table.open]
        if not has_slots(gang, nodes):
            return False
        reserved, aside = self._reserved, self._set_aside
        seats = [seats_left(node, reserved.get(node.rank, 0), aside.get(node.rank)) for node in nodes]
        places = place_gang(seats, gang.demand.needs, gang.demand.placement)
        if places is None:
            return False
        self._waiting_gangs.remove(gang)
        gang.start()
        ranks = tuple(nodes[place].rank for place in places)
        member = GangMember(ranks, gang.starts)
        for task, rank in zip(gang.members, ranks, strict=True):
            self._send(task, rank, now, effects, member)
        return True

    def _end_of_gang(
        self, gang: GangState, record: TaskState, end: MemberEnd, effects: list[TaskManagerEffect]
    ) -> None:
        """Record the end of a member of a gang that runs."""
        task = record.number
        gang.active.discard(task)
        why = ""
        if gang.is_whole and not gang.again and not end.is_result:
            why = self._why_again(gang, record, end)
            if not why:
                self._break_up(gang, effects)
        if not gang.is_whole:
            outcome: SettleOutcome = "value" if end.outcome == "raised" else _outcome_alone(record, end)
            self._settle(task, outcome, end.reason, effects)
            return
        record.life.move("finished", self._now, end.reason, cause=self._cause)
        self._finished.add(task)
        if why:
            self._stop_gang(gang, why, effects)
        if not gang.active:
            self._conclude_gang(gang, effects)

    def _why_again(self, gang: GangState, record: TaskState, end: MemberEnd) -> str:
        """Return why a whole gang runs again, one of whose members has ended in this way; empty if it does not."""
        match end.outcome:
            case "lost":
                gang.losses += 1
                return end.reason if gang.losses <= self.retries else ""
            case "returned":
                return end.reason or "its node returned it"
            case _ if end.retry and record.errors < record.retries:
                record.errors += 1
                return end.retry
            case _:
                return ""

    def _stop_gang(self, gang: GangState, why: str, effects: list[TaskManagerEffect]) -> None:
        """Stop the members of a gang that run, so that all of them run again."""
        if gang.again:
            return
        gang.again = why
        for task in gang.members:
            record = self._tasks[task]
            node = None if record.node is None else self._table.nodes.get(record.node)
            if task in gang.active and node is not None and task in node.tasks and not record.is_cancelled:
                record.life.move("cancelling", self._now, why, cause=self._cause)
                effects.append(Stop(task, node.rank, cause=self._cause))

    def _break_up(self, gang: GangState, effects: list[TaskManagerEffect]) -> None:
        """Let each member of a gang end by itself, and end those whose values were held back."""
        stopped, gang.again = gang.again, ""
        gang.is_whole = False
        for task in gang.members:
            if task in self._finished:
                self._settle(task, "cancelled" if stopped else "value", stopped, effects)

    def _conclude_gang(self, gang: GangState, effects: list[TaskManagerEffect]) -> None:
        """End a whole gang, all members of which have ended, or let it wait again."""
        if not gang.again:
            for task in gang.members:
                self._settle(task, "value", "", effects)
            return
        for task in gang.members:
            record = self._tasks[task]
            assert record.node is not None  # it was sent
            self._finished.discard(task)
            times = gang.losses + record.errors
            effects.append(Requeue(task, record.node, times, gang.again, cause=self._cause))
            record.life.move("queued", self._now, gang.again, cause=self._cause)
            record.node, record.since = None, self._now
            record.attempt += 1
        gang.again, gang.is_waiting = "", True
        self._waiting_gangs.add(gang)

    # Dispatch.

    def _dispatch_pinned(self, now: float, effects: list[TaskManagerEffect], before: int | None = None) -> None:
        for rank in self._waiting.targets():
            node = self._table.nodes.get(rank)  # draining nodes too: the task is pinned to this node
            while node is not None and (task := self._waiting.next_pinned(rank)) is not None:
                if before is not None and task > before:
                    break
                if (collective := self._collective_of(self._tasks[task])) is not None:
                    if not self._may_start(collective):
                        self._reserved[rank] = collective.terms.procs
                        break
                    self._start_together(collective, now, effects)
                    continue
                needs, aside = self._tasks[task].needs, self._set_aside.get(rank)
                if not node.fits(needs) or (aside is not None and not node.fit_beside((needs,), aside)):
                    break
                self._send(self._waiting.take_pinned(rank), rank, now, effects)

    def _dispatch(self, now: float, effects: list[TaskManagerEffect]) -> None:
        self._reserved.clear()
        self._set_aside, self._set_aside_for = {}, None
        if self._waiting_gangs:
            self._dispatch_gangs(now, effects)
        self._dispatch_single(now, effects)
        if self._waiting.has(NOTHING) and (ahead := self._prefetch_count()):
            while (task := self._prefetchable()) is not None and (free := self._best(task, ahead)) is not None:
                self._send(self._waiting.take(NOTHING), free, now, effects)

    def _dispatch_gangs(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Start the gangs that fit now, each after the older tasks; reserve what the oldest of the others waits for."""
        failed: set[int] = set()
        for gang in self._waiting_gangs:
            if id(gang.demand) in failed:
                continue
            self._dispatch_single(now, effects, before=gang.number)
            if self._start_gang(gang, now, effects):
                continue
            failed.add(id(gang.demand))
            if self._set_aside_for is None:
                self._set_aside, self._set_aside_for = set_aside_for(gang, self._table), gang

    def _dispatch_single(self, now: float, effects: list[TaskManagerEffect], before: int | None = None) -> None:
        """Send the tasks that can start now; with `before`, only those with lower numbers."""
        self._dispatch_pinned(now, effects, before)
        for needs in self._waiting.shapes():
            while (chosen := self._choose(needs, before)) is not None:
                place, rank = chosen
                self._send(self._waiting.take(needs, place), rank, now, effects)

    def _choose(self, needs: Needs, before: int | None = None) -> tuple[int, int] | None:
        """Return the place in the queue of a shape's next task, and its node; None if none can be dispatched."""
        task = self._waiting.next(needs)
        if task is None or (before is not None and task > before) or (rank := self._best(task)) is None:
            return None
        if before is not None:
            return 0, rank
        return self._overtaking(needs, task, rank) or (0, rank)

    def _overtaking(self, needs: Needs, oldest: int, rank: int) -> tuple[int, int] | None:
        """Return a later task whose data is on a free node, with that node, if `rank` lacks the data of the oldest."""
        record = self._tasks[oldest]
        if not record.blobs or record.overtaken >= OVERTAKEN or self._locality.to_send(rank, record.blobs) < WORTH:
            return None
        if self.task_seconds is None or self.task_seconds > OVERTAKING_SECONDS:
            return None
        for place, task in enumerate(self._waiting.first(needs, 1 + OVERTAKEN)):
            blobs = self._tasks[task].blobs
            holder = self._best(task) if sum(blobs.values()) >= WORTH else None
            if holder is not None and not self._locality.to_send(holder, blobs):
                record.overtaken += 1
                return place, holder
        return None

    def _best(self, task: int, ahead: int = 0) -> int | None:
        """Return the best node for a task, among those where it can start now, or that may prefetch `ahead` tasks."""
        record = self._tasks[task]
        locality, blobs = self._locality, record.blobs
        cost = (lambda node: locality.cost(node.rank, node.busy, blobs)) if blobs else None
        if ahead:
            return self._table.next_ahead(ahead, cost, self._reserved, self._set_aside)
        return self._table.next_free(record.needs, cost, self._reserved, self._set_aside)

    def _prefetchable(self) -> int | None:
        """Return the next task if it may be prefetched: it must survive the loss of its node, which counts as a run."""
        task = self._waiting.next(NOTHING)
        if task is None or not self.retries:
            return None
        record = self._tasks[task]
        return task if record.replayable and not record.losses else None

    def _prefetch_count(self) -> int:
        if self.task_seconds is None:
            return 0
        return min(PREFETCH_MOST, int(PREFETCH_HORIZON / max(self.task_seconds, 1e-6)))

    def _send(
        self, task: int, rank: int, now: float, effects: list[TaskManagerEffect], gang: GangMember | None = None
    ) -> None:
        record = self._tasks[task]
        record.life.move("sent", now, cause=self._cause)
        record.node = rank
        if self._table.assign(rank, task, record.needs, now).spare < 0:
            self._ahead.add(rank)
        else:
            self._run_started(record, now)
        place = None
        if (collective := self._collective_of(record)) is not None:
            generation = f"{record.broadcast}-{collective.generation}"
            place = Collective((record.local, collective.terms.procs), generation, collective.terms.within)
        effects.append(Dispatch(task, rank, record.attempt, record.share, place, gang, cause=self._cause))


def _outcome_alone(record: TaskState, end: MemberEnd) -> SettleOutcome:
    """Return how a member ends that does not run again."""
    match end.outcome:
        case "returned" | "stopped":
            return "cancelled"
        case "lost" if record.is_cancelled:
            return "cancelled"
        case outcome:
            return outcome
