"""Draining a node by hand: it is removed once it is empty, and the pool shrinks by one."""

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import DrainNode
from skyward.control.decide.removal import undrainable
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


def pool(least: int, up: int) -> World:
    """Return an open pool of `up` nodes with a minimum of `least`."""
    world = World(Group("default", least, 4)).open()
    world.submit(up)
    world.wait(0.1)
    world.deliver()
    world.finish()
    assert world.active == up
    return world


def why_not(world: World, rank: int) -> str:
    """Return why a node cannot be drained."""
    return undrainable(
        world.plane.reconciler.table,
        world.plane.groups,
        world.plane.desired,
        world.plane.kept.busy_nodes(world.now),
        rank,
    )


def test_drained_node_is_removed_and_the_pool_shrinks() -> None:
    world = pool(1, 3)
    effects = world.tell(DrainNode(1))
    assert machines.Drain(1, machine=2) in effects
    assert any(isinstance(effect, machines.Terminate) for effect in effects), "it holds no task"
    assert world.plane.desired == {"default": 2}
    assert world.reasons_given[-1] == "3 -> 2 nodes: node 1 is drained"
    assert sorted(world.plane.reconciler.table.assignments) == [0, 2]


def test_busy_node_is_removed_after_its_task() -> None:
    world = pool(1, 2)
    world.submit(2)
    effects = world.tell(DrainNode(1))
    assert machines.Drain(1, machine=2) in effects
    assert not any(isinstance(effect, machines.Terminate) for effect in effects)
    assert why_not(world, 1) == "it is already draining, and terminates once its tasks are done"
    world.finish()
    assert sorted(world.plane.reconciler.table.assignments) == [0]


def test_busy_node_is_removed_although_the_policy_wants_as_many_nodes_again() -> None:
    world = pool(1, 3)
    world.submit(8)
    world.wait(0.1)
    going = world.machine_of(1)
    world.submit(8)
    world.tell(DrainNode(1))
    world.wait(1)
    assert world.plane.desired["default"] > 2, "the policy replaces it"
    assert world.state_of(1) == "draining"
    world.finish([task for task, rank in world.sent.items() if rank == 1])
    world.deliver()
    assert going not in world.alive


def test_drained_node_that_a_new_task_asks_for_stays() -> None:
    world = pool(1, 3)
    world.submit(3)
    world.tell(DrainNode(1))
    world.submit(target=1)
    assert world.state_of(1) == "active"
    assert world.reasons_given[-1] == "2 -> 3 nodes: a new task must run on node 1, so its drain is cancelled"
    world.finish()
    world.deliver()
    assert sorted(world.plane.reconciler.table.assignments) == [0, 1, 2], "no other node goes in its place"


def test_node_that_boots_cannot_be_drained() -> None:
    world = pool(1, 2)
    world.submit(9)
    world.wait(0.1)
    assert why_not(world, 2) == "node 2 is not up yet"


@pytest.mark.parametrize(
    ("least", "rank", "why"),
    [
        (1, 0, "node 0 is the head, which stays as long as the pool has any node"),
        (1, 7, "there is no node 7; the nodes are 0, 1"),
        (2, 1, "the pool is at its minimum of 2 nodes"),
    ],
)
def test_undrainable_node_stays(least: int, rank: int, why: str) -> None:
    world = pool(least, 2)
    assert why_not(world, rank) == why
    assert world.tell(DrainNode(rank)) == []
    assert world.plane.desired == {"default": 2}
