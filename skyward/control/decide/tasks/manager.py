"""The task manager: queues tasks, has them dispatched to nodes, and settles each. Decides only; no I/O.

Each task ends exactly once. A task whose node dies is requeued at the head of the queue, up to `retries` times, unless
part of its stream was already delivered or its input was already consumed: running it again would duplicate work.
Members of a collective start together, and end or run again together (`skyward.control.decide.tasks.collectives`), as
do those of a gang (`skyward.control.decide.tasks.gangs`).
A prefetched task counts as run, so it never runs more often than that, and is not prefetched again. A task that raises
an exception that its own retry policy covers is requeued in the same way; these retries are counted separately.
"""

import itertools
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Literal

from skyward.control.decide.tasks.collective_runs import CollectiveRuns
from skyward.control.decide.tasks.collectives import CollectiveState, MemberEnd
from skyward.control.decide.tasks.dispatch import TaskDispatcher
from skyward.control.decide.tasks.gang_runs import GangRuns
from skyward.control.decide.tasks.gangs import GangState
from skyward.control.decide.tasks.locality import Locality
from skyward.control.decide.tasks.messages import (
    Abandon,
    Broadcast,
    BroadcastEnded,
    CancelBroadcast,
    CancelTasks,
    CheckPrefetched,
    Delivered,
    Dropped,
    Ended,
    EndGang,
    EndInfeasible,
    EndPinned,
    MeetingsDue,
    Member,
    MemberArrived,
    Overdue,
    RankDraining,
    RankJoined,
    RankLost,
    RankRemoved,
    Released,
    Requeue,
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
from skyward.control.decide.tasks.queries import TaskQueries
from skyward.control.decide.tasks.slots import NodeSlots
from skyward.control.decide.tasks.state import BroadcastState, TaskBook, TaskState
from skyward.scaling.snapshot import GangDemand, Group
from skyward.values.needs import NOTHING, describe_resources

__all__ = ["TaskManager"]

_NO_BLOBS: Mapping[bytes, int] = {}
_KILLED = "the process it ran in was killed"


class TaskManager(TaskQueries):
    """State of the queue. `handle` is the only entry point; it returns effects.

    Args:
        retries: times that a task is requeued after its node was lost.
        groups: groups of nodes that may exist; a task that fits none of them ends at once. Empty: any node may join.
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
    """

    def __init__(self, retries: int = 3, groups: tuple[Group, ...] = (), max_nodes: int | None = None) -> None:
        book = TaskBook(retries)
        super().__init__(book, groups, max_nodes)
        self._numbers = itertools.count(1)
        self._locality = Locality()
        self._collectives = CollectiveRuns(book)
        self._gangs = GangRuns(book)
        self._dispatcher = TaskDispatcher(book, self._locality, self._collectives, self._gangs)

    @property
    def packs(self) -> bool:
        """True if tasks go to the fullest nodes, so that others empty and can go; otherwise they are spread."""
        return self._book.table.packs

    @packs.setter
    def packs(self, packs: bool) -> None:
        self._book.table.packs = packs

    def number(self) -> int:
        """Return a number for a new task or broadcast."""
        return next(self._numbers)

    def fresh_gangs(self) -> Mapping[int, GangDemand]:
        """Return the demands of the gangs that began to wait since the last call."""
        fresh, self._book.waiting_gangs.fresh = self._book.waiting_gangs.fresh, {}
        return fresh

    def handle(self, message: TaskManagerMessage, now: float, cause: int = 0) -> list[TaskManagerEffect]:
        """Handle `message` at time `now`, in seconds of any monotonic clock; return effects, in order.

        Args:
            cause: number of the control plane's message that led to this one.
        """
        effects: list[TaskManagerEffect] = []
        self._book.now, self._book.cause = now, cause
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
                self._collectives.end_those_of(rank)
                self._lose(rank, reason, effects, outcome)
                withheld = [task for task in self._book.withheld if self._book.tasks[task].target == rank]
                self._settle_all((*self._book.queue.drop_pinned(rank), *withheld), outcome, reason, effects)
            case StartedOnNode(task):
                if (record := self._book.tasks.get(task)) is not None and record.status in ("sent", "recalled"):
                    record.life.move("running", now, cause=self._book.cause)
                    self._book.run_started(record, now)
                    if (collective := self._book.collective_of(record)) is not None:
                        collective.begin(task, now)
                return effects
            case Delivered(task):
                if (record := self._book.tasks.get(task)) is not None:
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
                self._collectives.arrive(task, rank, address, effects)
            case MeetingsDue():
                self._collectives.end_meetings(now, effects)
            case Withheld(task, rank):
                self._withhold(task, rank, now, effects)
            case Released(task, broken) if task in self._book.withheld:
                record = self._book.tasks[task]
                if self._book.collective_of(record) is not None:
                    self._collectives.end_member(record, MemberEnd("error" if broken else "returned"), effects)
                elif broken:
                    self._book.settle(task, "error", "", effects)
                else:
                    self._book.withheld.discard(task)
                    record.life.move("queued", now, "its inputs are available again", cause=self._book.cause)
                    record.since = now
                    self._book.queue.put_back(task, record.needs, record.target, record.function)
            case UniqueResults(rank, count):
                self._book.holding[rank] = count
            case CancelTasks(tasks):
                self._cancel(self._with_companions(tasks, effects), effects)
            case StopUnfunded(reason):
                known = self._book.tasks.items()
                sent = [task for task, each in known if each.node is not None and not each.is_cancelled]
                for task in sent:
                    self._book.tasks[task].unfunded = reason
                self._cancel(self._with_companions(sent, effects), effects)
            case CancelBroadcast(broadcast) if broadcast in self._book.broadcasts:
                broadcast_state = self._book.broadcasts[broadcast]
                broadcast_state.cancelled = True
                if broadcast_state.members:
                    self._cancel(self._with_companions(tuple(broadcast_state.members), effects), effects)
                else:
                    del self._book.broadcasts[broadcast]
                    effects.append(BroadcastEnded(broadcast, cause=self._book.cause))
            case Abandon(reason, outcome, shapes):
                unsent = (
                    (task, record)
                    for task, record in self._book.tasks.items()
                    if record.node is None and task not in self._book.finished
                )
                waiting = {
                    task
                    for task, record in unsent
                    if shapes is None or (record.gang is None and record.target is None and record.needs in shapes)
                }
                self._settle_waiting(waiting, outcome, reason, effects)
                for broadcast in [n for n, each in self._book.broadcasts.items() if not each.members]:
                    if shapes is None or self._book.broadcasts[broadcast].needs in shapes:
                        del self._book.broadcasts[broadcast]
                        effects.append(BroadcastEnded(broadcast, cause=self._book.cause))
            case EndPinned(rank, outcome, reason):
                self._settle_waiting(set(self._book.queue.pinned_to(rank)), outcome, reason, effects)
            case EndInfeasible(rank) if (node := self._book.table.nodes.get(rank)) is not None:
                self._end_infeasible(node, message, effects)
            case EndGang(number, outcome, reason):
                if (gang := self._book.gangs.get(number)) is not None and gang.is_waiting:
                    self._gangs.end_waiting(gang, outcome, reason, effects)
            case CheckPrefetched():
                self._dispatcher.recall(now, effects)
        self._dispatcher.dispatch(now, effects)
        if not self._book.tasks and (self.idle_since is None or effects):
            self.idle_since = now
        return effects

    def _submit(self, new: Submitted, effects: list[TaskManagerEffect]) -> None:
        for task, function in zip(new.tasks, new.functions or repeat(""), strict=False):
            blobs, bound = new.blobs.get(task, _NO_BLOBS), bool(new.kept)
            record = TaskState(task, new.target, new.replayable, new.needs, new.retries, blobs, bound)
            record.function, record.since = function, self._book.now
            self._book.tasks[task] = record
            self._book.queue.add(task, new.needs, new.target, function)
        self.submitted += len(new.tasks)
        if reason := self.infeasible(new.needs):
            self._book.queue.discard(new.tasks)
            for task in new.tasks:
                self._book.settle(task, "infeasible", reason, effects)

    def _open_broadcast(self, new: Broadcast, effects: list[TaskManagerEffect]) -> None:
        ranks = new.ranks
        if ranks is None:
            count = 1 if new.together is None else new.together.procs
            ranks = tuple(rank for rank in self._book.table.ranks if self.could_hold(rank, new.needs, count))
        record = BroadcastState(new.needs, new.retries, size=len(ranks), only=new.ranks, bound=bool(new.kept))
        record.function = new.function
        self._book.broadcasts[new.broadcast] = record
        if new.together is not None:
            record.collective = CollectiveState(new.together)
        self._add_members(new.broadcast, ranks, effects)

    def _add_members(self, broadcast: int, ranks: tuple[int, ...], effects: list[TaskManagerEffect]) -> None:
        collective = self._book.broadcasts[broadcast].collective
        procs = 1 if collective is None else collective.terms.procs
        places = [(rank, local) for rank in ranks for local in range(procs)]
        for position, (rank, local) in enumerate(places):
            task = self._add_member(broadcast, rank, (position, len(places)), effects, local)
            if collective is not None:
                collective.ranks[task] = rank

    def _add_member(
        self, broadcast: int, rank: int, share: tuple[int, int], effects: list[TaskManagerEffect], local: int = 0
    ) -> int:
        task = self.number()
        record = self._book.broadcasts[broadcast]
        new = TaskState(task, rank, True, record.needs, record.retries, bound=record.bound)
        new.broadcast, new.share, new.local = broadcast, share, local
        new.function, new.since = record.function, self._book.now
        self._book.tasks[task] = new
        record.members.add(task)
        record.given.add(rank)
        self._book.queue.add(task, record.needs, rank)
        effects.append(Member(broadcast, task, rank, local, cause=self._book.cause))
        return task

    def _join(self, joined: RankJoined, now: float, effects: list[TaskManagerEffect]) -> None:
        rank = joined.rank
        self._book.table.join(rank, joined.group, joined.slots, joined.resources, joined.capabilities, now)
        for broadcast, record in self._book.broadcasts.items():
            if record.bound or record.cancelled or (record.only is not None and rank not in record.only):
                continue
            if joined.is_extra and record.given:
                continue
            if record.collective is not None:
                count = record.collective.terms.procs
                if not record.members and self._book.table.nodes[rank].could_hold(record.needs, count):
                    self._add_members(broadcast, (rank,), effects)
            elif rank not in record.given and self._book.table.nodes[rank].could_hold(record.needs):
                share = (record.size, record.size) if record.size else (0, 1)
                record.size = max(1, record.size)
                self._add_member(broadcast, rank, share, effects)

    def _end_infeasible(self, node: NodeSlots, end: EndInfeasible, effects: list[TaskManagerEffect]) -> None:
        """End the tasks pinned to a node that can never hold them."""
        found: set[int] = set()
        for task in self._book.queue.pinned_to(node.rank):
            record = self._book.tasks[task]
            collective = self._book.collective_of(record)
            if record.needs != end.needs or (end.bound and not record.bound):
                continue
            if not node.could_hold(record.needs, 1 if collective is None else collective.terms.procs):
                found.add(task)
        has = describe_resources(node.total, node.capabilities)
        reason = end.reason or f"{end.needs} on node {node.rank}, which can never have that: it has {has}"
        self._settle_waiting(found, end.outcome, reason, effects)

    def _take_over(self, found: TasksFound, now: float) -> None:
        self._numbers = itertools.count(max(next(self._numbers), found.last + 1))
        for task in found.tasks:
            self._book.tasks[task] = TaskState(task, found.rank, replayable=False, node=found.rank)
            if self._book.table.assign(found.rank, task, NOTHING, now).spare >= 0:
                self._book.run_started(self._book.tasks[task], now)

    def _end_overdue(self, tasks: Iterable[int], rank: int, now: float, effects: list[TaskManagerEffect]) -> None:
        """End tasks that are past their timeout or were asked to stop, without a retry."""
        for task in tasks:
            record = self._book.tasks.get(task)
            if record is None or record.node != rank or task in self._book.finished:
                continue
            self._book.release(rank, record, now)
            end = MemberEnd("cancelled" if record.is_cancelled else "timeout")
            if self._book.collective_of(record) is not None:
                self._collectives.end_member(record, end, effects)
            elif (gang := self._book.gang_of(record)) is not None:
                self._gangs.member_ended(gang, record, end, effects)
            else:
                self._book.settle(task, "cancelled" if record.is_cancelled else "timeout", "", effects)

    def _drain(self, rank: int, effects: list[TaskManagerEffect]) -> None:
        if self._book.table.takes(rank):
            self._book.table.retire(rank)
            self._dispatcher.recall_surplus(rank, self._book.table.nodes[rank], len(self._book.tasks), effects)

    def _lose(self, rank: int, reason: str, effects: list[TaskManagerEffect], outcome: SettleOutcome = "lost") -> None:
        withheld = (task for task in self._book.withheld if self._book.tasks[task].target == rank)
        unkept = {task for task in (*self._book.queue.pinned_to(rank), *withheld) if self._book.tasks[task].bound}
        self._settle_waiting(unkept, "unkept" if outcome == "lost" else outcome, reason, effects)
        node = self._book.table.remove(rank)
        self._book.holding.pop(rank, None)
        if node is None:
            return
        self._book.ahead.discard(rank)
        again: list[int] = []
        for task in node.tasks:
            record = self._book.tasks[task]
            self._book.run_stopped(record)
            record.losses += 1  # a prefetched task may have run, too: the last reports of its node are missing
            if self._book.collective_of(record) is not None:
                kind: SettleOutcome = "unkept" if outcome == "lost" and record.bound else outcome
                self._collectives.end_member(record, MemberEnd(kind, reason), effects)
            elif (gang := self._book.gang_of(record)) is not None:
                self._gangs.member_ended(gang, record, MemberEnd(outcome, reason), effects)
            elif record.is_cancelled:
                self._book.settle(task, "cancelled", reason, effects)
            elif outcome == "lost" and record.bound:
                self._book.settle(task, "unkept", reason, effects)
            elif outcome != "lost" or not record.replayable or record.losses > self._book.retries:
                self._book.settle(task, outcome, reason, effects)
            else:
                again.append(task)
                effects.append(Requeue(task, rank, record.losses + record.errors, reason, cause=self._book.cause))
        for task in reversed(again):
            self._book.requeue(task, reason)

    def _end(self, ended: Ended, now: float, effects: list[TaskManagerEffect]) -> None:
        record = self._book.tasks.get(ended.task)
        if record is None or record.node != ended.rank or ended.task in self._book.finished:
            return  # a late report: the task has ended, or runs elsewhere
        node = self._book.release(ended.rank, record, now)
        if node is not None and node.spare >= 0:
            self._book.ahead.discard(ended.rank)
        if self._book.collective_of(record) is not None:
            reason = _KILLED if ended.outcome == "lost" else ""
            kind: SettleOutcome | Literal["returned"] = "raised" if ended.raised else ended.outcome
            if ended.outcome == "value":
                self._book.run_times.ended(record.function, ended.seconds)
            self._collectives.end_member(record, MemberEnd(kind, reason, ended.retry, ended.follows_loss), effects)
            return
        if (gang := self._book.gang_of(record)) is not None:
            reason = _KILLED if ended.outcome == "lost" else ""
            end = MemberEnd("raised" if ended.raised else ended.outcome, reason, ended.retry)
            if ended.outcome == "value":
                self._book.run_times.ended(record.function, ended.seconds)
            self._gangs.member_ended(gang, record, end, effects)
            return
        match ended.outcome:
            case "returned" if not record.is_cancelled:
                self._book.requeue(ended.task, "its node returned it")
            case "lost" if not record.is_cancelled:
                record.losses += 1
                if record.replayable and record.losses <= self._book.retries:
                    effects.append(
                        Requeue(ended.task, ended.rank, record.losses + record.errors, _KILLED, cause=self._book.cause)
                    )
                    self._book.requeue(ended.task, _KILLED)
                else:
                    self._book.settle(ended.task, "lost", _KILLED, effects)
            case "returned" | "lost":
                self._book.settle(ended.task, "cancelled", "", effects)
            case outcome:
                mean = self._book.task_seconds
                self._book.task_seconds = ended.seconds if mean is None else 0.8 * mean + 0.2 * ended.seconds
                if outcome != "cancelled":
                    self._book.run_times.ended(record.function, ended.seconds)
                if ended.retry and record.replayable and record.errors < record.retries and not record.is_cancelled:
                    record.errors += 1
                    times = record.losses + record.errors
                    effects.append(Requeue(ended.task, ended.rank, times, ended.retry, cause=self._book.cause))
                    self._book.requeue(ended.task, ended.retry)
                else:
                    self._book.settle(ended.task, outcome, "", effects)

    def _withhold(self, task: int, rank: int, now: float, effects: list[TaskManagerEffect]) -> None:
        record = self._book.tasks.get(task)
        if record is None or record.node != rank or task in self._book.finished:
            return
        node = self._book.release(rank, record, now)
        if node is not None and node.spare >= 0:
            self._book.ahead.discard(rank)
        collective = self._book.collective_of(record)
        if record.is_cancelled and collective is not None:
            self._collectives.end_member(record, MemberEnd("returned", "an input was lost"), effects)
            return
        if record.is_cancelled:
            self._book.settle(task, "cancelled", "", effects)
            return
        record.life.move("withheld", now, "an input was lost", cause=self._book.cause)
        record.node = None
        record.attempt += 1
        self._book.withheld.add(task)
        if collective is not None:
            self._collectives.stop_members(collective, "an input of another member was lost", effects)

    def _cancel(self, tasks: Iterable[int], effects: list[TaskManagerEffect]) -> None:
        waiting: set[int] = set()
        for task in tasks:
            record = self._book.tasks.get(task)
            if record is None or record.is_cancelled or task in self._book.finished:
                continue
            if record.node is not None:
                record.life.move("cancelling", self._book.now, cause=self._book.cause)
                effects.append(Stop(task, record.node, cause=self._book.cause))
            else:
                waiting.add(task)
        self.submitted -= sum(self._book.tasks[task].broadcast is None for task in waiting)
        self._settle_waiting(waiting, "cancelled", "", effects)

    def _settle_waiting(
        self, tasks: set[int], outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]
    ) -> None:
        if tasks:
            self._book.queue.discard(tasks)
            self._settle_all(sorted(tasks), outcome, reason, effects)

    def _settle_all(
        self, tasks: Iterable[int], outcome: SettleOutcome, reason: str, effects: list[TaskManagerEffect]
    ) -> None:
        """Settle tasks that are neither on a node nor in the queue. A collective ends with one of its members."""
        for task in tasks:
            if (record := self._book.tasks.get(task)) is None:
                continue  # it ended with another member
            if (gang := self._book.gang_of(record)) is not None:
                self._gangs.end_waiting(gang, outcome, reason, effects)
                continue
            if (collective := self._book.collective_of(record)) is None:
                self._book.settle(task, outcome, reason, effects)
            elif task not in collective.ends:
                collective.is_final = True
                self._book.withheld.discard(task)
                self._collectives.end_member(record, MemberEnd(outcome, reason), effects)

    def _with_companions(self, tasks: Iterable[int], effects: list[TaskManagerEffect]) -> list[int]:
        """Return tasks that are to be cancelled, with the other members of their collectives and gangs."""
        found: dict[int, None] = {}
        for task in tasks:
            found[task] = None
            record = self._book.tasks.get(task)
            if record is not None and (collective := self._book.collective_of(record)) is not None:
                collective.is_final = collective.is_cancelled = True
                collective.stopped_for = collective.stopped_for or "it was cancelled"
                found |= dict.fromkeys(collective.ranks)
            if record is not None and (gang := self._book.gang_of(record)) is not None:
                found |= dict.fromkeys(gang.members)
                if not gang.is_waiting:
                    self._gangs.break_up(gang, effects)
        return list(found)

    def _submit_gang(self, new: SubmitGang, effects: list[TaskManagerEffect]) -> None:
        size = len(new.tasks)
        for place, (task, needs) in enumerate(zip(new.tasks, new.demand.needs, strict=True)):
            retries = new.retries[place] if new.retries else 0
            record = TaskState(task, None, True, needs, retries, new.blobs.get(task, _NO_BLOBS))
            record.gang, record.share = new.gang, (place, size)
            record.function, record.since = new.functions[place] if new.functions else "", self._book.now
            self._book.tasks[task] = record
        gang = self._book.gangs[new.gang] = GangState(new.gang, new.tasks, new.demand, left=size)
        self._book.waiting_gangs.add(gang)
        self.submitted += size
        if reason := self.gang_infeasible(new.demand):
            self._gangs.end_waiting(gang, "infeasible", reason, effects)
