"""A control plane in a simulated world: machines come and go when the test says so."""

from collections.abc import Sequence
from typing import Any

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import Decided, Open, PlaneEffect, PlaneMessage, Tick
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.settings import PlaneSettings
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.registry import find_policy
from skyward.scaling.snapshot import Group
from skyward.values.needs import NOTHING, Needs

__all__ = ["World"]


class World:
    """Drives a control plane, and records its effects.

    Attributes:
        now: seconds.
        asked: requested machines without an answer.
        alive: existing machines, with their sources.
        sent: the latest node of each dispatched task.
        settled: the outcome of each ended task.
    """

    def __init__(self, *groups: Group, policy: Any = "pressure", **settings: Any) -> None:
        sources = {
            group.name: (MachineSource("cloud", group.name, hourly_price=group.hourly_price),) for group in groups
        }
        sources |= settings.pop("sources", {})
        self.now = 0.0
        self.plane = ControlPlane(PlaneSettings(groups, sources, **settings), find_policy(policy))
        self.asked: dict[int, machines.Launch] = {}
        self.alive: dict[int, MachineSource] = {}
        self.installing: dict[int, int] = {}
        self.leaving: list[int] = []
        self.sent: dict[int, int] = {}
        self.settled: dict[int, str] = {}
        self.reasons: dict[int, str] = {}
        self.said: list[PlaneEffect] = []

    def tell(self, message: PlaneMessage) -> list[PlaneEffect]:
        """Send a message, and record the effects."""
        effects = self.plane.handle(message, self.now)
        for effect in effects:
            match effect:
                case machines.Launch(_, _, numbers):
                    self.asked.update(dict.fromkeys(numbers, effect))
                case machines.Install(machine, rank):
                    self.installing[machine] = rank
                case machines.Terminate(machine):
                    self.leaving.append(machine)
                case tasks.Dispatch(task, rank):
                    self.sent[task] = rank
                case tasks.Settle(task, outcome, reason):
                    assert task not in self.settled, f"task {task} ended twice"
                    self.settled[task], self.reasons[task] = outcome, reason
                case _:
                    pass
        self.said += effects
        return effects

    def open(self) -> "World":
        """Open the pool, and bring up its first nodes."""
        self.tell(Open())
        self.deliver()
        return self

    def allocate(self) -> None:
        """Allocate every requested machine."""
        for number, request in tuple(self.asked.items()):
            del self.asked[number]
            self.alive[number] = request.source
            self.tell(machines.Allocated(number))

    def deliver(self) -> None:
        """Allocate and join every requested machine, and remove every terminated one."""
        while self.asked or self.installing or self.leaving:
            self.allocate()
            for number in tuple(self.installing):
                del self.installing[number]
                self.tell(machines.Joined(number))
            self.bury()

    def bury(self) -> None:
        """Remove every terminated machine."""
        while self.leaving:
            number = self.leaving.pop(0)
            self.alive.pop(number, None)
            self.installing.pop(number, None)
            self.tell(machines.Terminated(number))

    def submit(self, count: int = 1, needs: Needs = NOTHING, target: int | None = None) -> list[int]:
        """Submit tasks; return their numbers."""
        numbers = [self.plane.tasks.number() for _ in range(count)]
        self.tell(tasks.Submitted(tuple(numbers), target, needs=needs))
        return numbers

    def finish(self, numbers: Sequence[int] | None = None) -> None:
        """Return values for these tasks, or for all running ones, until none runs."""
        wanted = None if numbers is None else set(numbers)
        while running := [t for t in self.sent if t not in self.settled and (wanted is None or t in wanted)]:
            for task in running:
                self.tell(tasks.Ended(task, self.sent[task], "value", 1.0))

    def wait(self, seconds: float) -> None:
        """Advance the clock, with every tick that the plane requests."""
        until = self.now + seconds
        while self.plane.next_tick <= until:
            self.now = max(self.now, self.plane.next_tick)
            self.tell(Tick())
        self.now = until

    @property
    def active(self) -> int:
        """Number of nodes that take tasks."""
        return len(self.plane.tasks.ranks)

    @property
    def reasons_given(self) -> list[str]:
        """The decisions, as text."""
        return [str(effect.event) for effect in self.said if isinstance(effect, Decided)]

    def state_of(self, rank: int) -> str:
        """Return the state of the node of a rank."""
        return self.plane.reconciler.table.assignments[rank].life.state

    def machine_of(self, rank: int) -> int:
        """Return the machine of a rank."""
        return self.plane.reconciler.table.assignments[rank].machine.id
