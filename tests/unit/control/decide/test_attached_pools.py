"""A pool that starts with the machines of a former process."""

from collections.abc import Sequence

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import Open, SetBudget, Tick
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

CLOUD = MachineSource("cloud", "default", hourly_price=36.0)


def attached(existing: int, *, least: int = 1, spent: float, budget: float) -> World:
    """Return a pool of which `existing` machines are allocated, and none has joined."""
    group = Group("default", least, max(least, existing), hourly_price=36.0)
    world = World(group, budget=budget, existing={"default": {CLOUD: existing}})
    world.plane.ledger.carry(spent)
    world.tell(Open())
    world.allocate()
    return world


def take_over(world: World, machine: int, found: Sequence[int] = ()) -> None:
    """Let a machine join, and report the tasks that are found on it."""
    rank = world.installing.pop(machine)
    world.tell(machines.Joined(machine, reports=True))
    if found:
        world.tell(tasks.TasksFound(tuple(found), rank, max(found)))
    world.tell(machines.TakenOver(machine))


def test_machines_that_exist_are_taken_over_when_the_budget_affords_no_launch() -> None:
    """Regression: attaching in the last minute of the budget failed, which terminated machines and finished results."""
    world = attached(1, spent=0.18, budget=0.70)
    assert not world.plane.cannot_start
    assert list(world.alive) == [1]
    assert world.leaving == []


def test_found_tasks_run_until_the_budget_stops_them_and_then_the_nodes_end() -> None:
    world = attached(1, spent=0.18, budget=0.70)  # 52 seconds are left
    world.tell(Tick())
    assert world.plane.budget_exhausted
    assert world.leaving == [], "a machine was terminated before its tasks were known"
    take_over(world, 1, found=[7])
    assert world.state_of(0) == "draining"
    assert world.leaving == []
    world.tell(tasks.Ended(7, 0, "value", 1.0))
    assert world.settled == {7: "value"}
    assert world.leaving == [1]


def test_tasks_found_after_the_budget_stopped_tasks_are_stopped() -> None:
    world = attached(1, spent=0.18, budget=0.70)
    world.wait(35)
    take_over(world, 1, found=[7])
    assert any(isinstance(effect, tasks.Stop) and effect.task == 7 for effect in world.said)
    assert world.leaving == []


def test_nothing_is_launched_beside_the_machines_that_exist_if_the_budget_does_not_cover_it() -> None:
    world = attached(2, least=3, spent=0.30, budget=2.00)
    take_over(world, 1, found=[7])
    assert not world.plane.ready
    take_over(world, 2)
    assert world.plane.ready
    assert (world.asked, world.active, world.plane.cannot_start, world.plane.failure) == ({}, 2, False, "")
    world.tell(SetBudget(20.0))
    world.wait(20)
    assert list(world.asked) == [3]


def test_tasks_that_no_node_has_are_counted() -> None:
    world = World(Group("default", 1, 1, slots=2), retries=0).open()
    world.tell(tasks.TasksFound((90,), 0, 90))
    assert world.plane.tasks.unsent == 0
    numbers = world.submit(4)
    assert world.plane.tasks.unsent == 3
    world.tell(tasks.Ended(numbers[0], 0, "value", 1.0))
    assert world.plane.tasks.unsent == 2


@pytest.mark.parametrize(
    ("ranks", "kept"),
    [
        (((2,), (0, 1)), {1: 2, 2: 0, 3: 1}),
        (((2, 2), (0,)), {1: 2, 3: 1, 2: 0}),
        (((), (3,)), {1: 3, 2: 0, 3: 1}),
    ],
)
def test_nodes_keep_their_ranks(ranks: tuple[tuple[int, ...], ...], kept: dict[int, int]) -> None:
    """Regression: they were numbered anew, in the order of their sources."""
    other = MachineSource("other", hourly_price=2.0)
    counts = [max(1, len(each)) for each in ranks]
    world = World(
        Group("default", 3, 3, hourly_price=36.0),
        existing={"default": dict(zip((CLOUD, other), counts, strict=True))},
        ranks={"default": dict(zip((CLOUD, other), ranks, strict=True))},
    )
    world.tell(Open())
    assert [request.source for request in world.asked.values()].count(other) == counts[1]
    world.allocate()
    assert world.installing == kept


def test_machines_that_exist_are_requested_at_their_own_source_at_once() -> None:
    """Regression: they were requested at the preferred source, which launched others beside them."""
    other = MachineSource("other", hourly_price=2.0)
    world = World(
        Group("default", 3, 3, hourly_price=36.0),
        sources={"default": (CLOUD, other)},
        existing={"default": {other: 2}},
        limits=Limits(upscaling_speed=1.0),
    )
    world.tell(Open())
    assert [(number, each.source) for number, each in world.asked.items()] == [(1, other), (2, other), (3, CLOUD)]
