"""Queries about the tasks of a pool: numbers, needs, and the nodes where they could run. Changes nothing; no I/O."""

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from skyward.control.decide.tasks.run_times import RunTimes
from skyward.control.decide.tasks.slots import NodeSlots, fit_all
from skyward.control.decide.tasks.state import TaskBook
from skyward.control.lifecycle import Lifecycle, TaskStatus
from skyward.scaling.snapshot import Demand, GangDemand, Group
from skyward.scaling.snapshot.gang_placement import Seats, gang_fits, place_gang
from skyward.scaling.snapshot.gang_text import gang_text, maximum_text
from skyward.values.needs import Needs, describe_resources

__all__ = ["InfeasibleTask", "TaskQueries"]


@dataclass(frozen=True, slots=True)
class InfeasibleTask:
    """A task pinned to a node that can never hold it.

    Attributes:
        needs: what it needs.
        procs: number of processes of its collective that need that on one node.
        bound: True if it uses values on this node, so that no successor could run it.
    """

    needs: Needs
    procs: int = 1
    bound: bool = False

    def fits(self, group: Group) -> bool:
        """Return whether a node of a group could hold it."""
        return fit_all([self.needs] * self.procs, group.resources, group.capabilities)


class TaskQueries:
    """Queries about a task book.

    Attributes:
        groups: groups of nodes that may exist; a task that fits none of them ends at once. Empty: any node may join.
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
        idle_since: when the last task ended; None while none has.
        submitted: number of tasks that were ever queued, without those that were queued again, or were cancelled there.
    """

    def __init__(self, book: TaskBook, groups: tuple[Group, ...], max_nodes: int | None) -> None:
        self._book = book
        self.groups = groups
        self.max_nodes = max_nodes
        self.idle_since: float | None = None
        self.submitted = 0

    @property
    def run_times(self) -> RunTimes:
        """Run times by function."""
        return self._book.run_times

    @property
    def task_seconds(self) -> float | None:
        """Recent mean of the durations of tasks; None while unknown."""
        return self._book.task_seconds

    @property
    def queued(self) -> int:
        """Number of tasks that wait for a slot, in the queue or on a node."""
        return len(self._book.tasks) - len(self._book.withheld) - len(self._book.finished) - self.running

    @property
    def unsent(self) -> int:
        """Number of tasks that no node has, and of broadcasts that have no tasks yet."""
        sent = sum(len(node.tasks) for node in self._book.table.nodes.values())
        empty = sum(not each.members for each in self._book.broadcasts.values())
        return len(self._book.tasks) - len(self._book.finished) - sent + empty

    @property
    def withheld(self) -> int:
        """Number of tasks that wait for a lost input."""
        return len(self._book.withheld)

    @property
    def pinned(self) -> int:
        """Number of tasks that wait for one certain node, and of broadcasts that wait for any."""
        return self._book.queue.pinned + sum(not each.members for each in self._book.broadcasts.values())

    @property
    def awaited_ranks(self) -> tuple[int, ...]:
        """Ranks of the nodes that certain tasks wait for, which no other node may run."""
        return self._book.queue.targets()

    @property
    def waiting(self) -> bool:
        """True if a task, or a broadcast without members, waits for a node."""
        live = len(self._book.tasks) - len(self._book.withheld) - len(self._book.finished)
        return live > self._book.table.busy or any(not each.members for each in self._book.broadcasts.values())

    @property
    def running(self) -> int:
        """Number of tasks that occupy a slot."""
        return self._book.table.busy

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of the nodes that take tasks."""
        return self._book.table.ranks

    @property
    def occupied(self) -> Set[int]:
        """Ranks of the nodes that hold tasks, with or without a slot."""
        return self._book.table.occupied

    def busy(self, rank: int) -> int:
        """Return the number of slots in use on a node."""
        node = self._book.table.nodes.get(rank)
        return 0 if node is None else node.busy

    def shapes_in(self, group: str) -> dict[Needs, int]:
        """Return the number of tasks on the nodes of a group that take resources of them, by shape."""
        return dict(self._book.table.shapes_in.get(group, ()))

    def busy_in(self, group: str) -> int:
        """Return the number of slots in use on the nodes of a group."""
        return self._book.table.busy_in.get(group, 0)

    def started_in(self, group: str) -> int:
        """Return the number of tasks that were ever sent to nodes of a group."""
        return self._book.table.started_in.get(group, 0)

    def ends_in(self, rank: int, now: float) -> float | None:
        """Return the seconds until the last task of a node is expected to end; None if a run time is unknown."""
        node = self._book.table.nodes.get(rank)
        latest = 0.0
        for task in () if node is None else node.tasks:
            record = self._book.tasks[task]
            mean = self.run_times.mean(record.function)
            if mean is None:
                return None
            age = 0.0 if record.started_at is None else now - record.started_at
            latest = max(latest, mean - age if age < mean else age)  # one over the mean runs on for as long again
        return latest

    def idle_ranks(self) -> list[int]:
        """Return the nodes that take tasks and have none, ascending."""
        return self._book.table.idle()

    def node(self, rank: int) -> NodeSlots | None:
        """Return the slots of a node."""
        return self._book.table.nodes.get(rank)

    def demands(self, now: float) -> tuple[Demand, ...]:
        """Return the demand for any node that fits, by shape and function.

        Prefetched tasks without a slot are included; the tasks of gangs are not.
        """
        surplus = self.queued - len(self._book.queue) - self._book.queue.pinned - self._book.waiting_gangs.tasks
        demands = [self._demand(needs, function, count, now) for needs, function, count in self._book.queue.counts()]
        return (*demands, *self._prefetched(surplus)) if surplus > 0 else tuple(demands)

    def _prefetched(self, count: int) -> list[Demand]:
        """Return the demand of so many tasks that wait on a node, by function: on each node, that of the last one."""
        ahead: Counter[str] = Counter()
        for rank in self._book.ahead:
            node = self._book.table.nodes[rank]
            if node.spare < 0:
                ahead[self._book.tasks[next(reversed(node.tasks))].function] -= node.spare
        found = []
        for function, tasks in ahead.items():
            found.append(Demand(min(tasks, count), seconds=self._book.run_times.mean(function)))
            count -= min(tasks, count)
        return [*found, Demand(count, seconds=self._book.task_seconds)] if count else found

    def _demand(self, needs: Needs, function: str, count: int, now: float) -> Demand:
        oldest = self._book.queue.next(needs)
        waited = 0.0 if oldest is None else max(0.0, now - self._book.tasks[oldest].since)
        return Demand(count, needs, self.run_times.mean(function), waited, self.run_times.age(function, now))

    @property
    def has_waiting_gangs(self) -> bool:
        """True if a gang waits for nodes."""
        return bool(self._book.waiting_gangs)

    @property
    def waiting_gangs(self) -> Mapping[int, GangDemand]:
        """The demands of the waiting gangs by their numbers, the oldest first."""
        return self._book.waiting_gangs.demands

    def gangs(self) -> tuple[GangDemand, ...]:
        """Return the demands of the waiting gangs, the oldest first."""
        return tuple(self._book.waiting_gangs.demands.values())

    def shapes(self) -> set[Needs]:
        """Return the shapes that wait for a node, including broadcasts without members, but not the tasks of gangs."""
        empty = {each.needs for each in self._book.broadcasts.values() if not each.members}
        return {*self._book.queue.shapes(), *empty}

    def unfinished_shapes(self) -> set[Needs]:
        """Return the shapes of all tasks that have not ended, and of broadcasts without members."""
        book = self._book
        tasks = {record.needs for task, record in book.tasks.items() if task not in book.finished}
        return tasks | {each.needs for each in book.broadcasts.values() if not each.members}

    @property
    def idle_from(self) -> float | None:
        """Time at which the last task ended; None while there are tasks."""
        return None if self._book.tasks or self._has_empty_broadcasts else self.idle_since

    @property
    def _has_empty_broadcasts(self) -> bool:
        return any(not each.members for each in self._book.broadcasts.values())

    def idle_for(self, now: float) -> float:
        """Return the seconds since the last task ended; 0 while there are tasks."""
        since = self.idle_from
        return 0.0 if since is None else now - since

    def is_empty(self, rank: int) -> bool:
        """Return whether a node holds no task, no task is pinned to it, and no result is stored on it alone."""
        return not self._book.holding.get(rank) and self.has_no_work(rank)

    def has_no_work(self, rank: int) -> bool:
        """Return whether a node holds no task, and none is pinned to it that can start there; results may be stored.

        A task that only the successor of a node could hold waits for that, and so do those behind it.
        """
        task = self._book.queue.next_pinned(rank)
        if rank in self.occupied or (task is not None and not self._needs_successor(task)):
            return False
        return all(self._book.tasks[task].target != rank for task in self._book.finished)

    def awaits(self, rank: int) -> bool:
        """Return whether tasks wait, for any node or in a gang, that a node could hold."""
        node = self._book.table.nodes.get(rank)
        of_gangs = {needs for gang in self._book.waiting_gangs.demands.values() for needs in gang.needs}
        return node is not None and any(map(node.could_hold, self.shapes() | of_gangs))

    def _needs_successor(self, task: int) -> bool:
        """Return whether a pinned task waits for another node of its rank, or of that of a member of its collective."""
        record = self._book.tasks[task]
        collective = self._book.collective_of(record)
        if collective is None:
            return record.target is not None and not self.could_hold(record.target, record.needs)
        ranks, procs = set(collective.ranks.values()), collective.terms.procs
        return not all(self.could_hold(rank, record.needs, procs) for rank in ranks)

    def infeasible_pinned(self, rank: int) -> InfeasibleTask | None:
        """Return the next task pinned to a node, if the node is there and can never hold it; None otherwise."""
        task, node = self._book.queue.next_pinned(rank), self._book.table.nodes.get(rank)
        if task is None or node is None:
            return None
        record = self._book.tasks[task]
        collective = self._book.collective_of(record)
        procs = 1 if collective is None else collective.terms.procs
        return None if node.could_hold(record.needs, procs) else InfeasibleTask(record.needs, procs, record.bound)

    def next_meeting(self) -> float | None:
        """Return the time at which the next meeting of a collective is over; None without any."""
        return min((due for _, each in self._book.collectives() if (due := each.due) is not None), default=None)

    def node_of(self, task: int) -> int | None:
        """Return the node that a task was sent to last."""
        record = self._book.tasks.get(task)
        return None if record is None else record.node

    def holders(self) -> dict[int, list[int]]:
        """Return the tasks that hold the slots of each node."""
        return {rank: list(node.tasks)[: node.slots] for rank, node in self._book.table.nodes.items()}

    def backlog(self, rank: int) -> int:
        """Return the number of tasks on a node or pinned to it, beyond its slots; negative for free slots."""
        node = self._book.table.nodes.get(rank)
        return 0 if node is None else len(self._book.queue.pinned_to(rank)) - node.spare

    def life_of(self, task: int) -> Lifecycle[TaskStatus] | None:
        """Return the lifecycle of a task; None if it was not queued yet, or ended too long ago."""
        record = self._book.tasks.get(task) or next((each for each in self._book.ended if each.number == task), None)
        return None if record is None else record.life

    def could_start_on(self, task: int) -> tuple[int, ...] | None:
        """Return the nodes that a waiting task could ever start on; None if the task does not wait."""
        record = self._book.tasks.get(task)
        if record is None or record.status in ("running", "withheld", "finished", "cancelling"):
            return None
        if record.node is not None:
            node = self._book.table.nodes.get(record.node)
            if node is None or task in list(node.tasks)[: node.slots]:
                return None
        if record.target is not None:
            return (record.target,)
        return tuple(rank for rank in self._book.table.ranks if self._book.table.nodes[rank].could_hold(record.needs))

    def may_be_held(self, task: int) -> int | None:
        """Return how many slots of its node a member of a collective can do without; None for any other task."""
        record = self._book.tasks[task]
        collective = self._book.collective_of(record)
        node = None if record.target is None else self._book.table.nodes.get(record.target)
        return None if collective is None or node is None else node.slots - collective.terms.procs

    def reservations(self) -> dict[int, tuple[int, ...]]:
        """Return, by node, the members of the collective that its free slots are kept for."""
        found: dict[int, tuple[int, ...]] = {}
        for rank in self._book.reserved:
            task = self._book.queue.next_pinned(rank)
            collective = None if task is None else self._book.collective_of(self._book.tasks[task])
            if collective is not None:
                found[rank] = tuple(collective.ranks)
        if self._book.set_aside_for is not None:
            found |= dict.fromkeys(self._book.set_aside, self._book.set_aside_for.members)
        return found

    def gang_start(self, task: int) -> Callable[[Mapping[int, int]], bool] | None:
        """Return a function that tells whether the waiting gang of a task could start without some slots of each node.

        None for any other task.
        """
        gang = self._book.gang_of(self._book.tasks[task])
        if gang is None or not gang.is_waiting:
            return None
        demand, nodes = gang.demand, [self._book.table.nodes[rank] for rank in self._book.table.ranks]

        def starts(held: Mapping[int, int]) -> bool:
            seats = [Seats(node.slots - held.get(node.rank, 0), node.total, node.capabilities) for node in nodes]
            return place_gang(seats, demand.needs, demand.placement) is not None

        return starts

    def is_pinned(self, task: int) -> bool:
        """Return whether only one node may run a task, so that no other node helps."""
        return self._book.tasks[task].target is not None

    def has_prefetched(self) -> bool:
        """Return whether any node holds prefetched tasks, so that time matters."""
        return bool(self._book.ahead)

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

    def could_hold(self, rank: int, needs: Needs, count: int = 1) -> bool:
        """Return whether an idle node could hold this shape `count` times; True for a node that is not active yet."""
        node = self._book.table.nodes.get(rank)
        return node is None or node.could_hold(needs, count)
