"""Warnings of a policy of the user that takes long to decide."""

import pytest

from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import Open, Tick
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.settings import PlaneSettings
from skyward.scaling.registry import find_policy
from skyward.scaling.snapshot import Decision, Group, Snapshot

pytestmark = pytest.mark.unit

SOURCES = {"a": (MachineSource("cloud", "a"),)}


class Clock:
    """A clock that moves only when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A policy whose decisions take some seconds of a clock, and may fail."""

    name, interval = "slow", 1.0

    def __init__(self, clock: Clock, *, fails: bool = False) -> None:
        self._clock = clock
        self._fails = fails
        self.takes = 0.0

    def decide(self, snapshot: Snapshot) -> Decision:
        self._clock.now += self.takes
        if self._fails:
            raise RuntimeError("no decision")
        return Decision({}, "nothing changes")


@pytest.mark.parametrize("fails", [False, True])
def test_slow_policy_is_pointed_out_once(fails: bool) -> None:
    """Regression: a policy that took seconds to decide stalled the pool, and nothing said so."""
    clock = Clock()
    policy = Slow(clock, fails=fails)
    plane = ControlPlane(PlaneSettings((Group("a", 0, 2),), SOURCES), policy, clock)
    assert plane.policy_time is not None
    warnings = []
    for second, takes in enumerate((0.01, 1.5, 3.0)):
        policy.takes = takes
        plane.handle(Tick() if second else Open(), float(2 * second))
        plane.handle(Tick(), 2 * second + 1.5)
        warnings.append(plane.policy_time.take_warning())
    assert [bool(each) for each in warnings] == [False, True, False]
    assert warnings[1].startswith("policy 'slow' took 1.5 s to decide, in which the pool neither starts tasks")


def test_only_policies_of_the_user_are_measured_and_only_with_a_clock() -> None:
    settings = PlaneSettings((Group("a", 0, 2),), SOURCES)
    clock = Clock()
    assert ControlPlane(settings, find_policy("adaptive"), clock).policy_time is None
    assert ControlPlane(settings, Slow(clock)).policy_time is None
