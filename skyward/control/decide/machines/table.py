"""The table of a pool's machines and of the ranks that they serve.

Its indices are kept up to date, so that a message of one machine does not visit all of them.
"""

import itertools
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field
from typing import Literal

from skyward.control.decide.machines.free_ranks import FreeRanks
from skyward.control.decide.machines.instance import INSTANCE, InstanceState
from skyward.control.decide.machines.launch_queue import LaunchQueue
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.lifecycle import NODE, Lifecycle, NodeState

__all__ = ["Machine", "MachineTable", "RankAssignment", "Stage"]

type Stage = Literal["booting", "active", "leaving"]

_STAGES: tuple[Stage, ...] = ("booting", "active", "leaving")
_BOOTING: frozenset[InstanceState] = frozenset({"QUEUED", "REQUESTED", "ALLOCATED", "INSTALLING"})


@dataclass(slots=True, eq=False)
class Machine:
    """One machine, from its request to its end.

    Attributes:
        since: when it entered its current state.
        not_before: earliest time of its request.
        requested_at: times of its requests.
        wanted: True if it is still to become a node.
        expelled: True if the user drains it: it is not kept for new demand.
        reclaimed: True if its provider takes it back: its drain is never cancelled.
        replaced: True if it drains because it is outdated: it is not kept for new demand.
        refilled: True if it is replaced by a node of the same rank, which starts once it has left.
        adopted: True for a machine of a former process, until it is known what runs and waits there. Until then it is
            not removed as surplus.
        cause: number of the message for which it was launched, kept or removed.
    """

    id: int
    group: str
    rank: int
    life: Lifecycle[InstanceState]
    since: float
    not_before: float = 0.0
    source: MachineSource | None = None
    requested_at: list[float] = field(default_factory=list)
    wanted: bool = True
    expelled: bool = False
    reclaimed: bool = False
    replaced: bool = False
    refilled: bool = False
    adopted: bool = False
    cause: int = 0

    @property
    def state(self) -> InstanceState:
        """The current state."""
        return self.life.state

    @property
    def stage(self) -> Stage:
        """The stage that it counts as."""
        if not self.wanted:
            return "leaving"
        return "booting" if self.state in _BOOTING else "active" if self.state == "RUNNING" else "leaving"


@dataclass(slots=True, eq=False)
class RankAssignment:
    """The node of one rank: what remains when its machine is replaced."""

    life: Lifecycle[NodeState]
    machine: Machine


class MachineTable:
    """The machines by number and the rank assignments by rank.

    Attributes:
        cause: number of the message that is being handled, for the histories.
    """

    def __init__(self) -> None:
        self.cause = 0
        self.machines: dict[int, Machine] = {}
        self.assignments: dict[int, RankAssignment] = {}
        self._lives: dict[int, Lifecycle[NodeState]] = {}
        self._numbers = itertools.count(1)
        self._stages: dict[tuple[str, Stage], dict[int, Machine]] = {}
        self._states: dict[InstanceState, dict[str, dict[int, Machine]]] = {}
        self._queues: dict[str, LaunchQueue] = {}
        self._free = FreeRanks()

    def __iter__(self) -> Iterator[Machine]:
        return iter(tuple(self.machines.values()))

    def count(self, group: str, stage: Stage) -> int:
        """Return the number of machines of a group in a stage."""
        return len(self._stages.get((group, stage), ()))

    def has(self, group: str) -> bool:
        """Return whether there is a machine of a group, in any state."""
        return any(self.count(group, stage) for stage in _STAGES)

    def counts_in(self, state: InstanceState) -> dict[str, int]:
        """Return the number of machines in a state, by group; groups without any are left out."""
        return {group: len(found) for group, found in self._states.get(state, {}).items() if found}

    def of_state(self, group: str, state: InstanceState) -> Collection[Machine]:
        """Return the machines of a group in a state, in any order."""
        return self._states.get(state, {}).get(group, {}).values()

    def in_states(self, *states: InstanceState) -> list[Machine]:
        """Return the machines in these states, the oldest first."""
        groups = (self._states.get(state, {}).values() for state in states)
        found = [machine for of_state in groups for of_group in of_state for machine in of_group.values()]
        return sorted(found, key=lambda machine: machine.id)

    def refills(self, group: str) -> list[Machine]:
        """Return the draining machines of a group whose ranks are filled again after them, by rank.

        They are outdated, or their provider takes the head back.
        """
        draining = self._states.get("STOP_REQUESTED", {}).get(group, {}).values()
        found = [each for each in draining if each.refilled or (each.reclaimed and not each.rank)]
        return sorted(found, key=lambda machine: machine.rank)

    def of(self, group: str, *stages: Stage) -> list[Machine]:
        """Return the machines of a group in these stages, by rank."""
        found = [machine for stage in stages for machine in self._stages.get((group, stage), {}).values()]
        return sorted(found, key=lambda machine: (machine.rank, machine.id))

    def queued(self, group: str) -> list[Machine]:
        """Return the queued machines of a group, by rank."""
        found = self._states.get("QUEUED", {}).get(group, {}).values()
        return sorted(found, key=lambda machine: (machine.rank, machine.id))

    def due(self, group: str, now: float) -> int:
        """Return the number of queued machines of a group that may be requested now."""
        return self._queue(group).due(now)

    def first_due(self, group: str, count: int) -> list[Machine]:
        """Return up to `count` of the machines that `due` counted last, by rank."""
        return [self.machines[number] for number in self._queue(group).first(count)]

    def next_due(self, group: str) -> float | None:
        """Return when another queued machine may be requested, after the last call of `due`; None without any."""
        return self._queue(group).next_at

    def free_ranks(self, count: int, without: Container[int] = ()) -> list[int]:
        """Return the `count` lowest ranks that no machine has and that are not in `without`."""
        return self._free.lowest(count, without)

    def machine_of(self, rank: int, *states: InstanceState) -> Machine | None:
        """Return the machine of a rank if it is in one of these states."""
        assignment = self.assignments.get(rank)
        return assignment.machine if assignment is not None and assignment.machine.state in states else None

    def add(self, group: str, rank: int, not_before: float, now: float) -> Machine:
        """Add a queued machine for this rank."""
        number = next(self._numbers)
        machine = Machine(number, group, rank, Lifecycle(f"machine {number}", INSTANCE, "QUEUED"), now, not_before)
        machine.cause = self.cause
        self.machines[number] = machine
        self._enter(machine)
        self._assign(machine, now)
        return machine

    def move(self, machine: Machine, to: InstanceState, now: float, why: str = "") -> None:
        """Change the state of a machine, and that of its node."""
        self._exit(machine)
        machine.life.move(to, now, why, cause=self.cause)
        machine.since = now
        self._enter(machine)
        assignment = self.assignments.get(machine.rank)
        if assignment is not None and assignment.machine is machine:
            node: NodeState | None = {"RUNNING": "active", "STOP_REQUESTED": "draining"}.get(to)  # type: ignore[assignment]  # of a literal dict
            if node is not None:
                assignment.life.move(node, now, why, cause=self.cause)

    def mark_surplus(self, machine: Machine) -> None:
        """Mark a requested machine as surplus: it will not become a node."""
        self._exit(machine)
        machine.wanted, machine.cause = False, self.cause
        self._enter(machine)

    def unmark_surplus(self, machine: Machine, now: float) -> None:
        """Undo `mark_surplus`: the machine will become a node."""
        self._exit(machine)
        machine.wanted, machine.cause = True, self.cause
        self._enter(machine)
        self._assign(machine, now)

    def _assign(self, machine: Machine, now: float) -> None:
        life = self._lives.setdefault(machine.rank, Lifecycle(f"node {machine.rank}", NODE, "vacant"))
        life.move("waiting", now, cause=self.cause)
        self.assignments[machine.rank] = RankAssignment(life, machine)
        self._free.take(machine.rank)

    def vacate(self, machine: Machine, now: float, why: str) -> bool:
        """Free the rank of a machine; return whether the machine still had it."""
        assignment = self.assignments.get(machine.rank)
        if assignment is None or assignment.machine is not machine:
            return False
        assignment.life.move("vacant", now, why, cause=self.cause)
        del self.assignments[machine.rank]
        self._free.release(machine.rank)
        return True

    def forget(self, machine: Machine) -> None:
        """Remove a machine."""
        self._exit(machine)
        self.machines.pop(machine.id, None)

    def _enter(self, machine: Machine) -> None:
        """Add a machine to the indices."""
        group, state = machine.group, machine.state
        self._stages.setdefault((group, machine.stage), {})[machine.id] = machine
        self._states.setdefault(state, {}).setdefault(group, {})[machine.id] = machine
        if state == "QUEUED":
            self._queue(group).add(machine.id, machine.rank, machine.not_before)

    def _exit(self, machine: Machine) -> None:
        """Remove a machine from the indices, before a change of it."""
        group, state = machine.group, machine.state
        del self._stages[group, machine.stage][machine.id]
        del self._states[state][group][machine.id]
        if state == "QUEUED":
            self._queue(group).remove(machine.id, machine.rank, machine.not_before)

    def _queue(self, group: str) -> LaunchQueue:
        if (queue := self._queues.get(group)) is None:
            queue = self._queues[group] = LaunchQueue()
        return queue
