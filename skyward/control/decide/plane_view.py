"""Counts and loads of a pool: the inputs of its decisions."""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property

from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.table import Machine, MachineTable
from skyward.control.decide.tasks.manager import TaskManager
from skyward.events.decisions import DecisionInputs
from skyward.scaling.snapshot import Counts, Group, NodeLoad, NodeWork

__all__ = ["OnDemand", "PlaneView"]


class OnDemand[T](Sequence[T]):
    """A part of a snapshot with an item for each of some nodes, built at first use."""

    def __init__(self, make: Callable[[], tuple[T, ...]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> tuple[T, ...]:
        return self._make()

    @property
    def is_made(self) -> bool:
        """True if it was used."""
        return "_made" in self.__dict__

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # as of the tuple
        return self._made[index]

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[T]:
        return iter(self._made)


class PlaneView:
    """Read-only view of the parts of a control plane."""

    def __init__(self, groups: Mapping[str, Group], tasks: TaskManager, table: MachineTable, ledger: Ledger) -> None:
        self._groups = groups
        self._tasks = tasks
        self._table = table
        self._ledger = ledger

    def counts(self, name: str, desired: int, *, is_paused: bool = False) -> Counts:
        """Return the counts of one group; the successors of nodes that drain count as booting, if they get their ranks.

        Args:
            is_paused: True if no source of the group may be asked: then the unrequested machines are counted too.
        """
        successors = len(self._table.refills(name)) if desired else 0
        return Counts(
            active=self._table.count(name, "active"),
            booting=self._table.count(name, "booting") + successors,
            leaving=self._table.count(name, "leaving"),
            busy=self._tasks.busy_in(name),
            desired=desired,
            unrequested=self._table.counts_in("QUEUED").get(name, 0) if is_paused else 0,
            started=self._tasks.started_in(name),
            shapes=self._tasks.shapes_in(name),
        )

    @property
    def booting_head(self) -> str | None:
        """Group of node 0 while it boots, requested or not, or drains and gets a successor; None otherwise."""
        assignment = self._table.assignments.get(0)
        if assignment is None:
            return None
        machine = assignment.machine
        is_followed = machine.state == "STOP_REQUESTED" and (machine.refilled or machine.reclaimed)
        return machine.group if machine.stage == "booting" or is_followed else None

    def nodes(self, now: float, without: Container[int] = ()) -> Sequence[NodeLoad]:
        """Return every node but those on the machines `without`, built at first use."""
        return OnDemand(lambda: tuple(self._load(machine, now) for machine in self._table if machine.id not in without))

    def idle(self, now: float) -> Sequence[NodeLoad]:
        """Return the active nodes without a task, built at first use."""
        return OnDemand(
            lambda: tuple(
                self._load(machine, now)
                for rank in self._tasks.idle_ranks()
                if (machine := self._table.machine_of(rank, "RUNNING")) is not None
            )
        )

    def work(self, now: float) -> Sequence[NodeWork]:
        """Return what each active node costs and runs, built at first use."""
        return OnDemand(
            lambda: tuple(
                self._work(machine, now)
                for rank in self._tasks.ranks
                if (machine := self._table.machine_of(rank, "RUNNING")) is not None
            )
        )

    def _work(self, machine: Machine, now: float) -> NodeWork:
        node, price = self._tasks.node(machine.rank), self._ledger.price_of(machine.id)
        shapes = {} if node is None else Counter(node.tasks.values())
        ends_in = self._tasks.ends_in(machine.rank, now)
        return NodeWork(
            machine.rank,
            machine.group,
            self._groups[machine.group].hourly_price if price is None else price,
            shapes,
            ends_in,
        )

    def _load(self, machine: Machine, now: float) -> NodeLoad:
        assignment = self._table.assignments.get(machine.rank)
        node = self._tasks.node(machine.rank) if assignment is not None and assignment.machine is machine else None
        if node is None:
            return NodeLoad(machine.rank, machine.group, machine.stage, free=self._groups[machine.group].resources)
        idle_for = 0.0 if node.tasks else now - node.quiet_since
        return NodeLoad(machine.rank, machine.group, machine.stage, len(node.tasks), node.free, idle_for)

    def inputs(self, now: float) -> DecisionInputs:
        """Return the inputs of a decision at this moment."""
        counts = {name: self.counts(name, 0) for name in self._groups}
        return DecisionInputs(
            queued=self._tasks.queued,
            inflight=self._tasks.running,
            capacity=sum(counts[name].active * group.slots for name, group in self._groups.items()),
            active=sum(each.active for each in counts.values()),
            booting=sum(each.booting for each in counts.values()),
            leaving=sum(each.leaving for each in counts.values()),
            idle_for=self._tasks.idle_for(now),
            spent=self._ledger.spent(now),
            per_hour=self._ledger.per_hour,
        )
