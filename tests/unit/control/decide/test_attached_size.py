"""The size of a pool that is attached to: the bounds, desired nodes and drains of its former process continue."""

import pytest

from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import ContinueSize
from skyward.control.decide.settings import PlaneSettings, resumed
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


def attached(least: int, most: int, existing: int, desired: int) -> World:
    """Return an attached pool that has attached to `existing` machines."""
    source = MachineSource("cloud", "default")
    settings = PlaneSettings(
        (Group("default", 3, 3),), {"default": (source,)}, {"default": 3}, {"default": {source: existing}}
    )
    settings = resumed(settings, {"default": (least, most)}, {"default": desired})
    return World(
        *settings.groups,
        thresholds=settings.thresholds,
        existing=settings.existing,
        desired=settings.desired,
        policy="no",
    ).open()


def test_nodes_that_were_draining_are_attached_and_drain_after_their_tasks() -> None:
    world = attached(1, 1, existing=3, desired=1)
    assert (world.active, world.plane.ready) == (3, True)
    world.submit(3)
    world.tell(ContinueSize({"default": 1}, (2, 1)))
    assert world.plane.draining == {1, 2}
    assert world.plane.desired == {"default": 1}
    assert world.reasons_given[-1] == "3 -> 1 nodes: the pool had 1 desired node when its process ended"
    world.finish()
    world.bury()
    assert sorted(world.plane.reconciler.table.assignments) == [0]


def test_the_node_that_was_draining_drains_and_not_the_last_one() -> None:
    world = attached(1, 4, existing=3, desired=2)
    world.submit(3)
    world.tell(ContinueSize({"default": 2}, (1,)))
    assert world.plane.draining == {1}


def test_missing_nodes_of_a_pool_that_was_growing_are_launched() -> None:
    world = attached(3, 3, existing=1, desired=3)
    assert world.active == 3
    world.tell(ContinueSize({"default": 3}))
    assert world.reasons_given == [], "nothing is left to change"


def test_pool_that_had_scaled_down_is_ready_with_fewer_nodes_than_its_spec_started_with() -> None:
    world = attached(1, 4, existing=1, desired=1)
    assert (world.active, world.plane.ready) == (1, True)


def test_draining_node_stays_if_another_one_was_lost_in_between() -> None:
    world = attached(1, 4, existing=2, desired=2)
    world.tell(ContinueSize({"default": 2}, (1,)))
    assert not world.plane.draining
