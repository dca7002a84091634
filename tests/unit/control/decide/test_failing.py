"""The control plane when machines are refused, late, stuck, lost, or say things twice."""

from itertools import pairwise

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import Open, Resize
from skyward.scaling.snapshot import Group
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


def test_a_bootstrap_that_always_fails_launches_three_machines_for_each_node() -> None:
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
    assert world.plane.hopeless
    assert world.plane.failure.endswith("no space left on device")
    assert world.alive == {}


def test_requests_that_are_refused_are_spaced_out_more_and_more() -> None:
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


def test_part_of_what_was_asked_for_is_kept_when_the_rest_is_refused() -> None:
    world = World(Group("default", 3, 3), limits=Limits(refusals=2))
    world.tell(Open())
    first, *others = world.asked
    world.asked.clear()
    world.tell(machines.Allocated(first))
    world.tell(machines.Joined(first))
    world.tell(machines.Refused(tuple(others), "no capacity"))
    world.wait(5)
    world.tell(machines.Refused(tuple(world.asked), "no capacity"))
    assert world.active == 1
    assert world.plane.hopeless


def test_another_place_is_asked_while_one_is_left_alone() -> None:
    spot, on_demand = MachineSource("cloud", "a", market="spot"), MachineSource("cloud", "a", market="on-demand")
    world = World(Group("default", 1, 1), places={"default": (spot, on_demand)})
    (request,) = world.tell(Open())
    assert request == machines.Request("default", spot, (1,))
    effects = world.tell(machines.Refused((1,), "no capacity"))
    assert [effect.place for effect in effects if isinstance(effect, machines.Request)] == [on_demand]


def test_a_request_without_an_answer_is_made_again_and_then_is_given_back() -> None:
    world = World(Group("default", 1, 1), limits=Limits(request=100, refusals=1))
    world.tell(Open())
    (number,) = world.asked
    world.wait(116)
    assert [e for e in world.said if isinstance(e, machines.Request)] == [world.asked[number]] * 2
    world.wait(120)
    assert number in world.leaving, "what may have been launched is given back"


def test_a_machine_that_does_not_come_up_in_time_is_replaced() -> None:
    world = World(Group("default", 1, 1), limits=Limits(boot=60))
    world.tell(Open())
    world.allocate()
    (stuck,) = world.installing
    world.wait(80)
    assert stuck in world.leaving
    world.installing.clear()
    world.deliver()
    assert world.active == 1


def test_a_machine_that_does_not_go_is_told_again() -> None:
    world = World(Group("default", 0, 1), limits=Limits(terminate=50)).open()
    world.submit()
    world.deliver()
    world.finish()
    world.wait(200)
    assert world.leaving.count(1) >= 2


def test_a_lost_node_is_replaced_and_its_task_sent_again() -> None:
    world = World(Group("default", 2, 2)).open()
    first, second = world.submit(2)
    world.tell(machines.Lost(world.machine_of(world.sent[second]), "spot"))
    assert any("replacing it" in reason for reason in world.reasons_given)
    world.deliver()
    world.finish()
    assert world.settled == {first: "value", second: "value"}


def test_messages_that_come_twice_or_late_change_nothing() -> None:
    world = World(Group("default", 1, 1)).open()
    machine = world.machine_of(0)
    for message in (
        machines.Allocated(machine),
        machines.Joined(machine),
        machines.Refused((machine,), "late"),
        machines.Failed(machine, "late"),
        machines.Gone(99),
        machines.Lost(99, "late"),
    ):
        before = world.plane.reconciler.book.machines[machine].state
        if not isinstance(message, machines.Failed):
            assert not world.tell(message)
            assert world.plane.reconciler.book.machines[machine].state == before


def test_tasks_that_only_a_failed_group_could_hold_end_and_the_others_go_on() -> None:
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


def test_a_drain_past_its_deadline_goes_on_and_gets_no_new_task() -> None:
    world = World(Group("default", 2, 2), limits=Limits(drain=30)).open()
    first, second = world.submit(2)
    world.tell(Resize({"default": (1, 1)}))
    world.submit(3)
    world.wait(100)
    assert world.state_of(1) == "draining"
    assert sorted(world.sent) == [first, second]
