"""The control plane when machines are refused, late, stuck or lost, and when messages are duplicated."""

from itertools import pairwise

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource, RefusalKind
from skyward.control.decide.messages import Open, Resize
from skyward.scaling.snapshot import Group
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


def test_failing_bootstrap_launches_three_machines_for_each_node() -> None:
    world = World(Group("default", 2, 2))
    world.tell(Open())
    launched: set[int] = set()
    for _ in range(20):
        world.allocate()
        launched |= set(world.installing)
        for machine in tuple(world.installing):
            del world.installing[machine]
            world.tell(machines.Failed(machine, "no space left on device"))
        world.bury()
        world.wait(20)
    assert len(launched) == 6
    assert world.plane.cannot_start
    assert world.plane.failure.endswith("no space left on device")
    assert world.alive == {}


def test_final_failure_is_not_tried_again() -> None:
    world = World(Group("default", 1, 1))
    world.tell(Open())
    world.allocate()
    (machine,) = world.installing
    world.tell(machines.Failed(machine, "no such package", is_final=True))
    assert world.plane.cannot_start
    assert world.plane.failure.endswith("no such package")
    world.bury()
    world.wait(60)
    assert not world.asked
    assert world.alive == {}


def test_refused_requests_back_off_exponentially() -> None:
    world = World(Group("default", 1, 2)).open()
    world.submit(2)
    world.wait(0.1)
    moments: list[float] = []
    while len(moments) < 5:
        while not world.asked:
            world.wait(0.25)
        moments.append(world.now)
        refused = tuple(world.asked)
        world.asked.clear()
        world.tell(machines.Refused(refused, "quota"))
    gaps = [after - before for before, after in pairwise(moments)]
    assert gaps == sorted(gaps)
    assert gaps[0] == pytest.approx(1.0, abs=0.3)
    assert gaps[-1] >= 8


def test_partial_allocation_is_kept() -> None:
    world = World(Group("default", 3, 3), limits=Limits(refusals=2))
    world.tell(Open())
    first, *others = world.asked
    world.asked.clear()
    world.tell(machines.Allocated(first))
    world.tell(machines.Joined(first))
    world.tell(machines.Refused(tuple(others), "no capacity"))
    for _ in range(2):
        assert not world.plane.cannot_start, "part of the request was granted, which is no refusal"
        world.wait(5)
        refused = tuple(world.asked)
        world.asked.clear()
        world.tell(machines.Refused(refused, "no capacity"))
    assert world.active == 1
    assert world.plane.cannot_start


@pytest.mark.parametrize("kind", ["unknown", "capacity"])
def test_cloud_that_gives_one_machine_of_each_request_fills_the_pool(kind: RefusalKind) -> None:
    world = World(Group("default", 6, 6), limits=Limits(no_capacity=5.0))
    world.tell(Open())
    while world.active < 6:
        assert not world.plane.cannot_start
        asked = tuple(world.asked)
        world.asked.clear()
        world.tell(machines.Allocated(asked[0]))
        world.tell(machines.Joined(asked[0]))
        if asked[1:]:
            world.tell(machines.Refused(asked[1:], "one at a time", kind))
            world.wait(30)


def test_other_source_is_used_during_backoff() -> None:
    spot, on_demand = MachineSource("cloud", "a", market="spot"), MachineSource("cloud", "a", market="on-demand")
    world = World(Group("default", 1, 1), sources={"default": (spot, on_demand)})
    (request,) = world.tell(Open())
    assert request == machines.Launch("default", spot, (1,))
    effects = world.tell(machines.Refused((1,), "no capacity", "capacity"))
    assert [effect.source for effect in effects if isinstance(effect, machines.Launch)] == [on_demand]


def test_unanswered_request_is_retried_and_then_terminated() -> None:
    world = World(Group("default", 1, 1), limits=Limits(request=100, refusals=1))
    world.tell(Open())
    (number,) = world.asked
    world.wait(116)
    assert [e for e in world.said if isinstance(e, machines.Launch)] == [world.asked[number]] * 2
    world.wait(120)
    assert number in world.leaving, "a machine that may have been launched is terminated"


def test_machine_past_its_boot_timeout_is_replaced() -> None:
    world = World(Group("default", 1, 1), limits=Limits(boot=60))
    world.tell(Open())
    world.allocate()
    (stuck,) = world.installing
    world.wait(80)
    assert stuck in world.leaving
    world.installing.clear()
    world.deliver()
    assert world.active == 1


def test_termination_is_repeated() -> None:
    world = World(Group("default", 0, 1), limits=Limits(terminate=50)).open()
    world.submit()
    world.deliver()
    world.finish()
    world.wait(200)
    assert world.leaving.count(1) >= 2


def test_lost_node_is_replaced_and_its_task_requeued() -> None:
    world = World(Group("default", 2, 2)).open()
    first, second = world.submit(2)
    world.tell(machines.Lost(world.machine_of(world.sent[second]), "spot"))
    assert any("replacing it" in reason for reason in world.reasons_given)
    world.deliver()
    world.finish()
    assert world.settled == {first: "value", second: "value"}


def test_duplicate_and_late_messages_change_nothing() -> None:
    world = World(Group("default", 1, 1)).open()
    machine = world.machine_of(0)
    for message in (
        machines.Allocated(machine),
        machines.Joined(machine),
        machines.Refused((machine,), "late"),
        machines.Failed(machine, "late"),
        machines.Terminated(99),
        machines.Lost(99, "late"),
    ):
        before = world.plane.reconciler.table.machines[machine].state
        if not isinstance(message, machines.Failed):
            assert not world.tell(message)
            assert world.plane.reconciler.table.machines[machine].state == before


def test_tasks_of_a_failed_group_end_and_others_continue() -> None:
    gpu = Needs({"GPU": 1})
    world = World(Group("cpu", 1, 1), Group("gpu", 0, 1, resources={"GPU": 1})).open()
    (on_gpu,) = world.submit(needs=gpu)
    world.wait(0.1)
    for _ in range(3):
        world.allocate()
        for machine in tuple(world.installing):
            del world.installing[machine]
            world.tell(machines.Failed(machine, "no driver"))
        world.bury()
        world.wait(20)
    assert world.settled == {on_gpu: "abandoned"}
    assert world.reasons[on_gpu].endswith("no driver")
    (plain,) = world.submit()
    world.finish()
    assert world.settled[plain] == "value"


def test_drain_past_its_deadline_continues_without_new_tasks() -> None:
    world = World(Group("default", 2, 2), limits=Limits(drain=30)).open()
    first, second = world.submit(2)
    world.tell(Resize({"default": (1, 1)}))
    world.submit(3)
    world.wait(100)
    assert world.state_of(1) == "draining"
    assert sorted(world.sent) == [first, second]
