"""Machines that their provider takes back: they drain for good, and others are launched in time."""

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import KeptAdded, Open, PlaneEffect, Resize
from skyward.control.decide.tasks import messages as tasks
from skyward.kept.keep import KeptInfo
from skyward.kept.registry import KeptEntry
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


def pool(nodes: int) -> World:
    """Return an open pool of so many nodes."""
    world = World(Group("default", nodes, nodes)).open()
    assert world.active == nodes
    return world


def machine_of(world: World, rank: int) -> int:
    return world.plane.reconciler.table.assignments[rank].machine.id


def ranks(world: World) -> list[int]:
    return sorted(world.plane.reconciler.table.assignments)


def test_idle_node_is_removed_and_replaced_at_once() -> None:
    world = pool(3)
    effects = world.tell(machines.Reclaimed(machine_of(world, 1), 120))
    assert [each for each in effects if isinstance(each, machines.Launch)]
    assert [each.reason for each in effects if isinstance(each, machines.Terminate)] == ["its provider takes it back"]
    world.deliver()
    assert world.active == 3


def test_busy_node_finishes_its_task_while_another_is_launched() -> None:
    world = pool(2)
    world.submit(2)
    effects = world.tell(machines.Reclaimed(machine_of(world, 1), 120))
    assert [each for each in effects if isinstance(each, machines.Launch)]
    assert not [each for each in effects if isinstance(each, machines.Terminate)]
    world.deliver()
    assert ranks(world) == [0, 1, 2]
    world.finish()
    assert ranks(world) == [0, 2]
    assert set(world.settled.values()) == {"value"}


def test_head_is_replaced_under_its_own_rank() -> None:
    world = pool(2)
    world.submit(2)
    reclaimed = machine_of(world, 0)
    effects = world.tell(machines.Reclaimed(reclaimed, 120))
    assert not [each for each in effects if isinstance(each, machines.Launch)]
    assert world.plane.draining == {0}
    world.finish()
    world.deliver()
    assert ranks(world) == [0, 1]
    assert machine_of(world, 0) != reclaimed


def test_task_for_the_node_does_not_cancel_its_drain() -> None:
    world = pool(2)
    world.submit(2)
    world.tell(machines.Reclaimed(machine_of(world, 1), 120))
    world.submit(1, target=1)
    assert world.plane.draining == {1}


def test_machine_that_dies_at_the_deadline_requeues_its_task() -> None:
    world = pool(2)
    world.submit(2)
    reclaimed = machine_of(world, 1)
    world.tell(machines.Reclaimed(reclaimed, 120))
    world.deliver()
    effects = world.tell(machines.Lost(reclaimed, "its provider ended the machine"))
    assert [each for each in effects if isinstance(each, tasks.Requeue)]
    world.finish()
    assert set(world.settled.values()) == {"value"}
    assert world.active == 2


def test_notice_for_a_machine_that_is_gone_changes_nothing() -> None:
    world = pool(1)
    assert world.tell(machines.Reclaimed(99, 120)) == []


def test_notice_while_the_machine_boots_replaces_it_before_it_takes_tasks() -> None:
    world = World(Group("default", 1, 1))
    world.tell(Open())
    world.allocate()
    booting = machine_of(world, 0)
    effects = world.tell(machines.Reclaimed(booting, 120))
    assert [each.machine for each in effects if isinstance(each, machines.Terminate)] == [booting]
    assert [each for each in effects if isinstance(each, machines.Launch)]
    assert not [each for each in world.tell(machines.Joined(booting)) if isinstance(each, machines.Activate)]
    world.deliver()
    assert world.active == 1
    assert machine_of(world, 0) != booting


@pytest.mark.parametrize("joined_first", [True, False])
def test_machine_of_a_former_process_stays_until_its_tasks_and_results_are_known(joined_first: bool) -> None:
    source = MachineSource("cloud", "default")
    world = World(Group("default", 1, 1), existing={"default": {source: 1}})
    world.tell(Open())
    world.allocate()
    adopted = machine_of(world, 0)
    both = machines.Joined(adopted, reports=True), machines.Reclaimed(adopted, 120)
    effects: list[PlaneEffect] = []
    for message in both if joined_first else reversed(both):
        effects += world.tell(message)
    assert world.plane.draining == {0}
    assert not [each for each in effects if isinstance(each, machines.Terminate)]
    effects = world.tell(machines.TakenOver(adopted))
    assert [each.machine for each in effects if isinstance(each, machines.Terminate)] == [adopted]


def test_smaller_pool_keeps_the_rank_of_its_reclaimed_head() -> None:
    world = pool(2)
    world.submit(2)
    world.tell(machines.Reclaimed(machine_of(world, 0), 120))
    world.tell(Resize({"default": (1, 1)}))
    assert world.plane.draining == {0, 1}
    world.finish()
    world.deliver()
    assert ranks(world) == [0]


def test_lost_head_is_replaced_although_another_node_could_be_kept() -> None:
    world = pool(2)
    world.submit(2)
    world.tell(Resize({"default": (1, 1)}))
    assert world.plane.draining == {1}
    world.tell(machines.Lost(machine_of(world, 0), "it did not answer"))
    world.deliver()
    world.finish()
    world.deliver()
    assert ranks(world) == [0]


def test_next_head_counts_as_booting() -> None:
    world = pool(2)
    world.submit(1)
    world.tell(machines.Reclaimed(machine_of(world, 0), 120))
    counts = world.plane.snapshot(world.now).counts["default"]
    assert (counts.active, counts.booting, counts.leaving, counts.desired) == (1, 1, 1, 2)


def test_values_on_a_reclaimed_node_need_no_other_node() -> None:
    world = pool(3)
    info = KeptInfo("weights", "model", "Net", 100, 600.0)
    world.tell(KeptAdded(KeptEntry(info, 1, "default", used_at=world.now)))
    world.tell(machines.Reclaimed(machine_of(world, 1), 120))
    world.deliver()
    assert ranks(world) == [0, 1, 2, 3]
    world.tell(Resize({"default": (1, 1)}))
    assert world.plane.desired == {"default": 1}
    assert world.plane.draining == {1}
