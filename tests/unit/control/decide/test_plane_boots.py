"""Boots in the control plane: those that are cancelled, and those that go on because other nodes need them."""

from typing import Any

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import CollectionUsed, SetFloor
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.snapshot import GangDemand, Group
from skyward.values.needs import NOTHING
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

POLICIES = ["adaptive", "pressure", "binpack", "vanilla", "capability", "fixed_elastic", "no"]


def gang(world: World, size: int) -> tuple[int, ...]:
    """Submit a gang; return its tasks."""
    number = world.plane.tasks.number()
    members = tuple(world.plane.tasks.number() for _ in range(size))
    world.tell(tasks.SubmitGang(number, members, GangDemand((NOTHING,) * size)))
    return members


def of_three(policy: Any, least: int) -> World:
    """Return a pool of three nodes whose gang has ended."""
    world = World(Group("a", least, 3, hourly_price=1.0), policy=policy, desired={"a": 3}).open()
    world.finish(gang(world, 3))
    assert world.active == 3
    return world


# Loss of the head.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("is_reclaimed", [False, True])
@pytest.mark.parametrize("is_busy", [False, True])
def test_no_node_leaves_in_place_of_a_head_that_boots(
    policy: Any, least: int, is_reclaimed: bool, is_busy: bool
) -> None:
    """`adaptive` cancelled the boot of the head, which stays, and the nodes that were up went for it."""
    world = of_three(policy, least)
    if is_busy:
        world.submit(target=1)
    head = world.machine_of(0)
    world.tell(machines.Reclaimed(head, 120.0) if is_reclaimed else machines.Lost(head, "its process ended"))
    world.bury()
    for _ in range(4):
        world.tell(SetFloor(()))  # the policy is asked
        world.wait(0.5)
    assert [world.state_of(rank) for rank in (1, 2)] == ["active", "active"]
    assert 0 in world.installing.values() or world.plane.reconciler.requested("a")


def test_other_boots_are_cancelled_beside_that_of_the_head() -> None:
    world = World(Group("a", 0, 6, hourly_price=1.0), policy="adaptive", desired={"a": 2}).open()
    members = gang(world, 5)
    world.wait(0.1)
    assert world.plane.desired == {"a": 5}
    world.tell(machines.Lost(world.machine_of(0), "its process ended"))
    world.tell(tasks.CancelTasks(members))
    world.wait(0.1)
    assert world.plane.desired == {"a": 2}
    assert world.state_of(1) == "active"


# Cancelled work.


@pytest.mark.parametrize("steps", ["queued", "requested", "booting"])
def test_all_boots_are_cancelled_at_once_when_nothing_waits_any_more(steps: str) -> None:
    world = World(Group("a", 0, 3, hourly_price=1.0), policy="adaptive").open()
    members = gang(world, 3)
    assert world.plane.desired == {"a": 3}
    if steps != "queued":
        world.wait(2.0)
    if steps == "booting":
        world.allocate()
        world.wait(2.0)
    world.tell(tasks.CancelTasks(members))
    world.wait(0.1)
    assert world.plane.desired == {"a": 0}
    world.deliver()
    assert (world.active, world.alive) == (0, {})


def test_boot_for_a_collection_goes_on_for_as_long_as_the_client_uses_it() -> None:
    world = World(Group("a", 0, 3, hourly_price=1.0), policy="adaptive").open()
    for _ in range(30):
        world.tell(CollectionUsed())
        world.wait(1.0)
        assert world.plane.desired == {"a": 1}
    world.wait(20.0)
    assert world.plane.desired == {"a": 0}
