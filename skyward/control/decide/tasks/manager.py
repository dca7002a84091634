"""The task manager: which task goes to which node, and how each task ends. Decides; does nothing.

Tasks wait in FIFO order and go round robin to nodes with a free slot and what else they need; a task that fits nowhere
now does not hold up those of another shape. A task with large data goes to the node with a free slot that must be sent
the least of it (`skyward.control.decide.tasks.locality`); where that is much and tasks are short, a few tasks behind it
that a free node has all the data of go first. While tasks are short, a node is also given a few ahead of time
(`prefetch`), so that it does not idle for a round trip after each; what turns out to wait behind a long task is
recalled as soon as another node could run it.

Each task ends exactly once. A task whose node dies goes back to the head of the queue, up to `retries` times, unless
part of its stream was already delivered or its input was already consumed: running it again would then double work.
It never runs more often than that: one that was sent ahead counts as run, and is not sent ahead again. A task that
raises what its own retries cover goes back in the same way; these are counted apart.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from skyward.control.decide.tasks.locality import WORTH, Locality
from skyward.control.decide.tasks.messages import (
    Abandon,
    Broadcast,
    BroadcastEnded,
    Cancel,
    CancelBroadcast,
    CheckDeadlines,
    Delivered,
    Dispatch,
    Dropped,
    Effect,
    Ended,
    Found,
    Holding,
    Member,
    Message,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    Outcome,
    Overdue,
    Recall,
    Released,
    Requeue,
    Settle,
    Started,
    Stop,
    Stored,
    Submitted,
    Withheld,
)
from skyward.control.decide.tasks.queue import WaitingTasks
from skyward.control.decide.tasks.slots import NodeSlots, SlotTable
from skyward.control.decide.tasks.state import BroadcastState, TaskState
from skyward.scaling.snapshot import Demand, Group
from skyward.values.needs import NOTHING, Needs, held

__all__ = ["TaskManager"]

PREFETCH_HORIZON = 0.004
"""Seconds of work that a node is given ahead of time."""

PREFETCH_MOST = 64

OVERTAKEN = 16
OVERTAKING_SECONDS = 1.0
"""Tasks that may go before the oldest one because a free node has their data; and how long tasks may take on average
for that, so that it is soon its turn."""

_NO_BLOBS: Mapping[bytes, int] = {}
_KILLED = "the process it ran in was killed"
RECALL_AFTER = 0.05
"""Seconds without a task ending on a node after which what waits there may be recalled."""


@dataclass
class TaskManager:
    """State of the queue. `handle` is the only way in; it returns what to do.

    Attributes:
        retries: how often a task is sent again after its node died.
        groups: what nodes there may be; a task that none of them could hold ends at once. Empty: any may come.
    """

    retries: int = 3
    groups: tuple[Group, ...] = ()
    idle_since: float | None = None
    task_seconds: float | None = None
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _tasks: dict[int, TaskState] = field(default_factory=dict)
    _waiting: WaitingTasks = field(default_factory=WaitingTasks)
    _table: SlotTable = field(default_factory=SlotTable)
    _broadcasts: dict[int, BroadcastState] = field(default_factory=dict)
    _ahead: set[int] = field(default_factory=set)
    _locality: Locality = field(default_factory=Locality)
    _withheld: set[int] = field(default_factory=set)
    _holding: dict[int, int] = field(default_factory=dict)
    _now: float = 0.0

    def number(self) -> int:
        """A number for a new task or broadcast."""
        return next(self._numbers)

    # Looking at it.

    @property
    def queued(self) -> int:
        """Tasks that wait for a slot, wherever they do."""
        return len(self._tasks) - len(self._withheld) - self.running

    @property
    def withheld(self) -> int:
        """Tasks that wait for what they take, which was lost."""
        return len(self._withheld)

    @property
    def waiting(self) -> bool:
        """Whether anything waits for a node: a task, or a broadcast that has found none yet."""
        there = len(self._tasks) - len(self._withheld)
        return there > self._table.busy or any(not each.members for each in self._broadcasts.values())

    @property
    def running(self) -> int:
        """Tasks that occupy a slot."""
        return self._table.busy

    @property
    def ranks(self) -> tuple[int, ...]:
        """The nodes that take tasks."""
        return self._table.ranks

    def busy(self, rank: int) -> int:
        """Slots in use on a node."""
        node = self._table.nodes.get(rank)
        return 0 if node is None else node.busy

    def busy_in(self, group: str) -> int:
        """Slots in use on the nodes of a group."""
        return self._table.busy_in.get(group, 0)

    def node(self, rank: int) -> NodeSlots | None:
        """The slots of a node."""
        return self._table.nodes.get(rank)

    def demands(self) -> tuple[Demand, ...]:
        """What waits for any node that fits, by shape; what was sent ahead of time counts as waiting too."""
        surplus = self.queued - len(self._waiting) - self._waiting.pinned
        demands = [Demand(count, needs) for needs, count in self._waiting.counts()]
        return (*demands, Demand(surplus)) if surplus else tuple(demands)

    def shapes(self) -> set[Needs]:
        """The shapes of what waits for a node, broadcasts that have found none among it."""
        empty = {each.needs for each in self._broadcasts.values() if not each.members}
        return {*self._waiting.shapes(), *empty}

    def idle_for(self, now: float) -> float:
        """Seconds since it last had a task; 0 while it has one."""
        return 0.0 if self._tasks or self.idle_since is None else now - self.idle_since

    def is_empty(self, rank: int) -> bool:
        """Whether a node holds no task, none waits for it by name, and all that its tasks returned is elsewhere."""
        node = self._table.nodes.get(rank)
        idle = (node is None or not node.tasks) and self._waiting.next_pinned(rank) is None
        return idle and not self._holding.get(rank)

    def node_of(self, task: int) -> int | None:
        """Where a task was sent last."""
        record = self._tasks.get(task)
        return None if record is None else record.node

    def holders(self) -> dict[int, list[int]]:
        """Return the tasks that hold the slots of each node."""
        return {rank: list(node.tasks)[: node.slots] for rank, node in self._table.nodes.items()}

    def backlog(self, rank: int) -> int:
        """Return how many tasks a node has, or are to come to it by name, beyond its slots; less than 0: free slots."""
        node = self._table.nodes.get(rank)
        return 0 if node is None else len(self._waiting.pinned_to(rank)) - node.spare

    def could_start_on(self, task: int) -> tuple[int, ...] | None:
        """Return the nodes that a task which waits for a slot could ever start on; None where it does not wait."""
        record = self._tasks.get(task)
        if record is None or record.status in ("running", "withheld"):
            return None
        if record.node is not None:
            node = self._table.nodes.get(record.node)
            if node is None or task in list(node.tasks)[: node.slots]:
                return None
        if record.target is not None:
            return (record.target,)
        return tuple(rank for rank in self._table.ranks if self._could_hold(self._table.nodes[rank], record.needs))

    def waits(self) -> bool:
        """Whether any node holds tasks that it has no slot for, so that time matters."""
        return bool(self._ahead)

    def infeasible(self, needs: Needs) -> str:
        """What is wrong with `needs`, where no node could ever hold them; empty where one could."""
        if not needs or not self.groups or any(group.max and group.can_hold(needs) for group in self.groups):
            return ""
        have = "; ".join(f"{group.name!r} has {held(group.resources, group.capabilities)}" for group in self.groups)
        return f"{needs}, which no node of this pool can ever have: {have}"

    # The step.

    def handle(self, message: Message, now: float) -> list[Effect]:
        """Take `message` at time `now`, in seconds of any steady clock; what must be done about it, in order."""
        effects: list[Effect] = []
        self._now = now
        match message:
            case Submitted():
                self._submit(message, effects)
            case Broadcast():
                self._open_broadcast(message, effects)
            case NodeJoined():
                self._join(message, now, effects)
            case Found():
                self._take_over(message, now)
            case NodeDraining(rank):
                self._drain(rank, effects)
            case NodeLost(rank, reason):
                self._locality.left(rank)
                self._lose(rank, reason, effects)
                self._take_from_broadcasts(rank)
            case Overdue(tasks, rank, reason):
                self._locality.left(rank)
                self._end_overdue(tasks, rank, now, effects)
                self._lose(rank, reason, effects)
                self._take_from_broadcasts(rank)
            case NodeRemoved(rank, reason, outcome):
                self._locality.left(rank)
                self._lose(rank, reason, effects, outcome)
                withheld = [task for task in self._withheld if self._tasks[task].target == rank]
                for task in (*self._waiting.drop_pinned(rank), *withheld):
                    self._settle(task, outcome, reason, effects)
                self._take_from_broadcasts(rank)
            case Started(task):
                if (record := self._tasks.get(task)) is not None and record.status in ("sent", "recalled"):
                    record.life.move("running", now)
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
            case Withheld(task, rank):
                self._withhold(task, rank, now, effects)
            case Released(task, broken) if task in self._withheld:
                record = self._tasks[task]
                if broken:
                    self._settle(task, "error", "", effects)
                else:
                    self._withheld.discard(task)
                    record.life.move("queued", now, "its inputs are there again")
                    self._waiting.put_back(task, record.needs, record.target)
            case Holding(rank, count):
                self._holding[rank] = count
            case Cancel(tasks):
                self._cancel(tasks, effects)
            case CancelBroadcast(broadcast) if broadcast in self._broadcasts:
                record_of = self._broadcasts[broadcast]
                record_of.cancelled = True
                if record_of.members:
                    self._cancel(tuple(record_of.members), effects)
                else:
                    del self._broadcasts[broadcast]
                    effects.append(BroadcastEnded(broadcast))
            case Abandon(reason, outcome, shapes):
                unsent = ((task, record.needs) for task, record in self._tasks.items() if record.node is None)
                waiting = {task for task, needs in unsent if shapes is None or needs in shapes}
                self._settle_waiting(waiting, outcome, reason, effects)
                for broadcast in [n for n, each in self._broadcasts.items() if not each.members]:
                    if shapes is None or self._broadcasts[broadcast].needs in shapes:
                        del self._broadcasts[broadcast]
                        effects.append(BroadcastEnded(broadcast))
            case CheckDeadlines():
                self._recall(now, effects)
        self._dispatch(now, effects)
        if not self._tasks and (self.idle_since is None or effects):
            self.idle_since = now
        return effects

    def _submit(self, new: Submitted, effects: list[Effect]) -> None:
        for task in new.tasks:
            blobs, bound = new.blobs.get(task, _NO_BLOBS), bool(new.kept)
            self._tasks[task] = TaskState(task, new.target, new.replayable, new.needs, new.retries, blobs, bound)
            self._waiting.add(task, new.needs, new.target)
        if reason := self.infeasible(new.needs):
            self._waiting.discard(new.tasks)
            for task in new.tasks:
                self._settle(task, "infeasible", reason, effects)

    def _open_broadcast(self, new: Broadcast, effects: list[Effect]) -> None:
        ranks = new.ranks
        if ranks is None:
            ranks = tuple(rank for rank in self._table.ranks if self.could_hold(rank, new.needs))
        record = BroadcastState(new.needs, new.retries, size=len(ranks), only=new.ranks, bound=bool(new.kept))
        self._broadcasts[new.broadcast] = record
        for position, rank in enumerate(ranks):
            self._add_member(new.broadcast, rank, (position, len(ranks)), effects)

    def could_hold(self, rank: int, needs: Needs) -> bool:
        """Whether a node could take a task of this shape when it is empty; of one that is not up yet, it may."""
        node = self._table.nodes.get(rank)
        return node is None or self._could_hold(node, needs)

    def _could_hold(self, node: NodeSlots, needs: Needs) -> bool:
        """Whether a node could take a task of this shape when it is empty."""
        if not needs:
            return True
        in_use = [held.resources for held in node.tasks.values()]
        whole = {name: free + sum(used.get(name, 0.0) for used in in_use) for name, free in node.free.items()}
        return needs.fit(whole, node.capabilities)

    def _add_member(self, broadcast: int, rank: int, share: tuple[int, int], effects: list[Effect]) -> None:
        task = self.number()
        record = self._broadcasts[broadcast]
        new = TaskState(task, rank, True, record.needs, record.retries, bound=record.bound)
        new.broadcast, new.share = broadcast, share
        self._tasks[task] = new
        record.members.add(task)
        record.given.add(rank)
        self._waiting.add(task, record.needs, rank)
        effects.append(Member(broadcast, task, rank))

    def _join(self, joined: NodeJoined, now: float, effects: list[Effect]) -> None:
        rank = joined.rank
        self._table.join(rank, joined.group, joined.slots, joined.resources, joined.capabilities, now)
        for broadcast, record in self._broadcasts.items():
            if record.bound or record.cancelled or (record.only is not None and rank not in record.only):
                continue
            if rank not in record.given and self._could_hold(self._table.nodes[rank], record.needs):
                share = (record.size, record.size) if record.size else (0, 1)
                record.size = max(1, record.size)
                self._add_member(broadcast, rank, share, effects)

    def _take_over(self, found: Found, now: float) -> None:
        self._numbers = itertools.count(max(next(self._numbers), found.last + 1))
        for task in found.tasks:
            self._tasks[task] = TaskState(task, found.rank, replayable=False, node=found.rank)
            self._table.hold(found.rank, task, NOTHING, now)

    def _take_from_broadcasts(self, rank: int) -> None:
        """The node of a rank is gone: the next one takes part anew, unless it takes over what this one had."""
        for record in self._broadcasts.values():
            if rank not in record.over and not any(self._tasks[task].target == rank for task in record.members):
                record.given.discard(rank)

    def _end_overdue(self, tasks: Iterable[int], rank: int, now: float, effects: list[Effect]) -> None:
        """End tasks that ran past their timeout, or were told to stop: they do not run again."""
        for task in tasks:
            record = self._tasks.get(task)
            if record is None or record.node != rank:
                continue
            self._table.release(rank, task, now)
            if record.broadcast is not None:
                self._broadcasts[record.broadcast].over.add(rank)
            self._settle(task, "cancelled" if record.is_cancelled else "timeout", "", effects)

    def _drain(self, rank: int, effects: list[Effect]) -> None:
        if self._table.takes(rank):
            self._table.retire(rank)
            self._recall_surplus(rank, self._table.nodes[rank], len(self._tasks), effects)

    def _lose(self, rank: int, reason: str, effects: list[Effect], outcome: Outcome = "lost") -> None:
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
            record.losses += 1  # one sent ahead may have run, too: nobody has heard of what happened last
            if record.is_cancelled:
                self._settle(task, "cancelled", reason, effects)
            elif outcome == "lost" and record.bound:
                self._settle(task, "unkept", reason, effects)
            elif outcome != "lost" or not record.replayable or record.losses > self.retries:
                self._settle(task, outcome, reason, effects)
            else:
                again.append(task)
                effects.append(Requeue(task, rank, record.losses + record.errors, reason))
        for task in reversed(again):
            self._requeue(task, reason)

    def _requeue(self, task: int, why: str) -> None:
        record = self._tasks[task]
        record.life.move("queued", self._now, why)
        record.node = None
        record.attempt += 1
        self._waiting.put_back(task, record.needs, record.target)

    def _end(self, ended: Ended, now: float, effects: list[Effect]) -> None:
        record = self._tasks.get(ended.task)
        if record is None or record.node != ended.rank:
            return  # it was over already, or runs elsewhere by now
        node = self._table.release(ended.rank, ended.task, now)
        if node is not None and node.spare >= 0:
            self._ahead.discard(ended.rank)
        match ended.outcome:
            case "returned" if not record.is_cancelled:
                self._requeue(ended.task, "its node handed it back")
            case "lost" if not record.is_cancelled:
                record.losses += 1
                if record.replayable and record.losses <= self.retries:
                    effects.append(Requeue(ended.task, ended.rank, record.losses + record.errors, _KILLED))
                    self._requeue(ended.task, _KILLED)
                else:
                    self._settle(ended.task, "lost", _KILLED, effects)
            case "returned" | "lost":
                self._settle(ended.task, "cancelled", "", effects)
            case outcome:
                mean = self.task_seconds
                self.task_seconds = ended.seconds if mean is None else 0.8 * mean + 0.2 * ended.seconds
                if ended.retry and record.replayable and record.errors < record.retries and not record.is_cancelled:
                    record.errors += 1
                    effects.append(Requeue(ended.task, ended.rank, record.losses + record.errors, ended.retry))
                    self._requeue(ended.task, ended.retry)
                else:
                    self._settle(ended.task, outcome, "", effects)

    def _withhold(self, task: int, rank: int, now: float, effects: list[Effect]) -> None:
        record = self._tasks.get(task)
        if record is None or record.node != rank:
            return
        node = self._table.release(rank, task, now)
        if node is not None and node.spare >= 0:
            self._ahead.discard(rank)
        if record.is_cancelled:
            self._settle(task, "cancelled", "", effects)
            return
        record.life.move("withheld", now, "an input was lost")
        record.node = None
        record.attempt += 1
        self._withheld.add(task)

    def _settle(self, task: int, outcome: Outcome, reason: str, effects: list[Effect]) -> None:
        record = self._tasks.pop(task)
        record.life.move("ended", self._now, reason)
        self._withheld.discard(task)
        effects.append(Settle(task, outcome, reason))
        if record.broadcast is not None:
            members = self._broadcasts[record.broadcast].members
            members.discard(task)
            if not members:
                del self._broadcasts[record.broadcast]
                effects.append(BroadcastEnded(record.broadcast))

    def _cancel(self, tasks: Iterable[int], effects: list[Effect]) -> None:
        waiting: set[int] = set()
        for task in tasks:
            record = self._tasks.get(task)
            if record is None or record.is_cancelled:
                continue
            if record.node is not None:
                record.life.move("cancelling", self._now)
                effects.append(Stop(task, record.node))
            else:
                waiting.add(task)
        self._settle_waiting(waiting, "cancelled", "", effects)

    def _settle_waiting(self, tasks: set[int], outcome: Outcome, reason: str, effects: list[Effect]) -> None:
        if tasks:
            self._waiting.discard(tasks)
            for task in sorted(tasks):
                self._settle(task, outcome, reason, effects)

    def _recall(self, now: float, effects: list[Effect]) -> None:
        """Take back what waits behind a long task, as far as other nodes have free slots for it."""
        room = sum(max(0, node.spare) for node in self._table.nodes.values()) if not self._waiting else 0
        for rank in tuple(self._ahead):
            node = self._table.nodes[rank]
            if room <= 0:
                return
            if now - node.quiet_since < RECALL_AFTER:
                continue
            room -= self._recall_surplus(rank, node, room, effects)

    def _recall_surplus(self, rank: int, node: NodeSlots, most: int, effects: list[Effect]) -> int:
        """Recall up to `most` tasks that a node has no slot for, the last sent first; how many."""
        recalled = 0
        for task in list(node.tasks)[node.slots :][::-1]:
            record = self._tasks[task]
            if recalled < most and record.target is None and record.status == "sent":
                record.life.move("recalled", self._now)
                effects.append(Recall(task, rank))
                recalled += 1
        return recalled

    def _dispatch(self, now: float, effects: list[Effect]) -> None:
        for rank in self._waiting.targets():
            node = self._table.nodes.get(rank)  # one that drains, too: it was asked for by name
            while node is not None and (task := self._waiting.next_pinned(rank)) is not None:
                if not node.fits(self._tasks[task].needs):
                    break
                self._send(self._waiting.take_pinned(rank), rank, now, effects)
        for needs in self._waiting.shapes():
            while (chosen := self._choose(needs)) is not None:
                place, rank = chosen
                self._send(self._waiting.take(needs, place), rank, now, effects)
        if self._waiting.has(NOTHING) and (ahead := self._prefetch()):
            while (task := self._goes_ahead()) is not None and (free := self._best(task, ahead)) is not None:
                self._send(self._waiting.take(NOTHING), free, now, effects)

    def _choose(self, needs: Needs) -> tuple[int, int] | None:
        """Return which of the waiting tasks of a shape goes next, by its place, and to which node; None if none can."""
        task = self._waiting.next(needs)
        if task is None or (rank := self._best(task)) is None:
            return None
        return self._overtaking(needs, task, rank) or (0, rank)

    def _overtaking(self, needs: Needs, oldest: int, rank: int) -> tuple[int, int] | None:
        """Return a task behind the oldest one, and the free node that has its data, if `rank` lacks the oldest's."""
        record = self._tasks[oldest]
        if not record.blobs or record.overtaken >= OVERTAKEN or self._locality.to_send(rank, record.blobs) < WORTH:
            return None
        if self.task_seconds is None or self.task_seconds > OVERTAKING_SECONDS:
            return None
        for place, task in enumerate(self._waiting.first(needs, 1 + OVERTAKEN)):
            blobs = self._tasks[task].blobs
            its = self._best(task) if sum(blobs.values()) >= WORTH else None
            if its is not None and not self._locality.to_send(its, blobs):
                record.overtaken += 1
                return place, its
        return None

    def _best(self, task: int, ahead: int = 0) -> int | None:
        """Return the node that a task had best go to, of those where it can start now, or be sent `ahead` of time."""
        record = self._tasks[task]
        locality, blobs = self._locality, record.blobs
        cost = (lambda node: locality.cost(node.rank, node.busy, blobs)) if blobs else None
        return self._table.next_ahead(ahead, cost) if ahead else self._table.next_free(record.needs, cost)

    def _goes_ahead(self) -> int | None:
        """Return the next task if it may be lost with a node on which it waits, which counts as if it had run."""
        task = self._waiting.next(NOTHING)
        if task is None or not self.retries:
            return None
        record = self._tasks[task]
        return task if record.replayable and not record.losses else None

    def _prefetch(self) -> int:
        if self.task_seconds is None:
            return 0
        return min(PREFETCH_MOST, int(PREFETCH_HORIZON / max(self.task_seconds, 1e-6)))

    def _send(self, task: int, rank: int, now: float, effects: list[Effect]) -> None:
        record = self._tasks[task]
        record.life.move("sent", now)
        record.node = rank
        if self._table.hold(rank, task, record.needs, now).spare < 0:
            self._ahead.add(rank)
        effects.append(Dispatch(task, rank, record.attempt, record.share))
