"""Tasks for which no node of the preferred group can come: they get one of another group, or they end and say why."""

from dataclasses import replace
from typing import Any

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource, RefusalKind
from skyward.control.decide.messages import Resize, SetBudget, SetFloor
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import Decision, Demand, Group, Snapshot
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

CHEAP = Group("cheap", 0, 4, hourly_price=1.0)
DEAR = Group("dear", 0, 4, hourly_price=3.0)
GPU = Needs({"GPU": 1.0})
GPUS = Group("gpus", 0, 4, resources={"GPU": 1.0}, hourly_price=30.0)

ELASTIC = [policy for policy in POLICIES if policy != "no"]


def refuse(world: World, group: str, kind: RefusalKind) -> None:
    """Refuse every request for a machine of the group."""
    refused = tuple(number for number, request in world.asked.items() if request.group == group)
    for number in refused:
        del world.asked[number]
    if refused:
        world.tell(machines.Refused(refused, "no such machine is free", kind))


def sold_out(world: World, group: str, *, count: int, until: float, kind: RefusalKind = "capacity") -> None:
    """Advance the clock until so many tasks have ended, in a world in which one group is sold out."""
    while world.now < until and len(world.settled) < count:
        refuse(world, group, kind)
        world.deliver()
        world.finish()
        world.wait(1.0)


@pytest.mark.parametrize("policy", ELASTIC)
@pytest.mark.parametrize("kind", ["capacity", "quota", "impossible", "denied"])
def test_group_that_is_sold_out_is_replaced_by_the_next_cheapest(policy: str, kind: RefusalKind) -> None:
    sources = {"cheap": (MachineSource("other cloud", "cheap", hourly_price=1.0),)}
    world = World(CHEAP, DEAR, policy=policy, cooldown=5.0, sources=sources).open()
    world.submit(4)
    sold_out(world, "cheap", count=4, until=40.0, kind=kind)
    assert set(world.settled.values()) == {"value"}
    assert len(world.settled) == 4
    assert any("no such machine is free" in reason for reason in world.reasons_given)


@pytest.mark.parametrize("policy", ELASTIC)
@pytest.mark.parametrize("running", [0, 1])
def test_no_sentence_about_a_group_that_is_sold_out_calls_what_it_has_its_maximum(policy: str, running: int) -> None:
    """Regression: the nodes that a blocked group has, or that come, were called its maximum."""
    world = World(CHEAP, DEAR, policy=policy, cooldown=5.0).open()
    world.submit(running)
    world.deliver()
    world.submit(40)
    for _ in range(10):
        refuse(world, "cheap", "capacity")
        world.wait(1.0)
    for _ in range(120):
        refuse(world, "cheap", "capacity")
        world.deliver()
        world.finish()
        world.wait(1.0)
    wrong = [f"maximum of {number}" for number in range(4)] + [f"maximum of 'cheap' is {number}" for number in range(4)]
    assert [reason for reason in world.reasons_given if any(each in reason for each in wrong)] == []


def test_decision_for_a_group_that_is_sold_out_says_so_once() -> None:
    """Regression: it was limited to "the maximum of 'cheap'", which was the number of nodes that the group had."""

    class OneOfEach:
        name = "one of each"
        interval = 1.0

        def decide(self, snapshot: Snapshot) -> Decision:
            return Decision({"cheap": 1, "dear": 1}, "each group gets a node")

    world = World(CHEAP, DEAR, policy=OneOfEach()).open()
    world.submit(4)
    for _ in range(20):
        refuse(world, "cheap", "capacity")
        world.wait(1.0)
        world.deliver()
    said = [reason for reason in world.reasons_given if "each group gets a node" in reason and "cheap" in reason]
    assert said
    for reason in said:
        assert reason.count("group 'cheap' gets no machine now: no such machine is free") == 1
        assert "maximum" not in reason


def test_sold_out_group_is_used_again_after_its_pause() -> None:
    world = World(CHEAP, DEAR, policy="pressure", limits=Limits(no_capacity=50.0)).open()
    world.submit(2)
    sold_out(world, "cheap", count=2, until=40.0)
    world.wait(300)
    world.deliver()
    assert not world.active
    world.submit(2)
    assert {request.group for request in world.asked.values()} == {"cheap"}


@pytest.mark.parametrize("policy", ELASTIC)
def test_group_whose_machines_do_not_start_is_replaced(policy: str) -> None:
    world = World(CHEAP, DEAR, policy=policy, cooldown=5.0, limits=Limits(launches=3)).open()
    world.submit(2)
    while world.now < 200.0 and len(world.settled) < 2:
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            bad = world.alive[number].type == "cheap"
            world.tell(machines.Failed(number, "its disk is broken") if bad else machines.Joined(number))
        world.bury()
        world.finish()
        world.wait(1.0)
    assert set(world.settled.values()) == {"value"}, "the dear group serves the tasks"


def test_tasks_end_when_every_group_that_fits_fails_to_start() -> None:
    world = World(CHEAP, GPUS, policy="pressure", limits=Limits(launches=1)).open()
    first, *_ = world.submit(2, GPU)
    world.allocate()
    for number in tuple(world.installing):
        world.tell(machines.Failed(number, "its driver does not load"))
    assert world.settled[first] == "abandoned"
    assert "its driver does not load" in world.reasons[first]
    assert not world.plane.is_unfunded


@pytest.mark.parametrize("policy", ELASTIC)
def test_tasks_end_when_the_budget_is_set_below_the_costs(policy: str) -> None:
    world = World(CHEAP, policy=policy, budget=10.0, cooldown=5.0, idle_timeout=5.0).open()
    world.submit(1)
    world.wait(5)
    world.deliver()
    world.wait(60)
    world.finish()
    world.wait(300)
    world.deliver()
    assert not world.active
    world.tell(SetBudget(0.000001))
    (task,) = world.submit(1)
    world.wait(40)
    assert world.settled[task] == "unfunded"
    assert "budget" in world.reasons[task]


@pytest.mark.parametrize("policy", ELASTIC)
def test_tasks_end_when_the_only_group_that_fits_is_too_dear(policy: str) -> None:
    world = World(CHEAP, GPUS, policy=policy, budget=0.1, cooldown=5.0).open()
    (gpu,) = world.submit(1, GPU)
    plain = world.submit(1)
    world.wait(40)
    world.deliver()
    world.finish(plain)
    assert world.settled == {gpu: "unfunded", **dict.fromkeys(plain, "value")}
    assert "cannot afford another node" in world.reasons[gpu]
    assert "$30" in world.reasons[gpu]


def test_tasks_that_no_group_can_run_for_the_budget_name_the_groups_in_one_sentence() -> None:
    """Regression: the same sentence was said for each group, without the name of the group."""
    groups = Group("cheap", 0, 2, hourly_price=60.0), Group("dear", 0, 2, hourly_price=600.0)
    world = World(*groups, budget=0.5, cooldown=5.0).open()
    (task,) = world.submit(1)
    world.wait(40)
    assert world.settled == {task: "unfunded"}
    assert world.reasons[task].startswith(
        "cannot afford another node of 'cheap' for $60.00/h or of 'dear' for $600.00/h: $0.00 of its budget of $0.50 "
        "is spent, and 60 s of the node must be covered; raise the budget to continue"
    )
    assert world.reasons[task].count("raise the budget") == 1


def test_plain_tasks_go_to_the_group_that_the_budget_covers() -> None:
    groups = (Group("small", 0, 4, hourly_price=0.0), Group("large", 0, 4, resources={"GPU": 1.0}, hourly_price=30.0))
    world = World(*groups, policy="pressure", budget=0.1).open()
    (task,) = world.submit(1)
    world.deliver()
    world.finish()
    assert world.settled == {task: "value"}


def test_unanswered_request_is_affordable_again_for_its_own_machine() -> None:
    limits = Limits(request=10.0, refusals=5)
    world = World(Group("default", 0, 1, hourly_price=3.6), budget=0.06, limits=limits, policy="pressure").open()
    world.submit(1)
    (number,) = world.asked
    world.asked.clear()
    world.wait(60)
    assert list(world.asked) == [number], "its reservation covers the repeated request"


def test_tasks_end_once_every_group_has_been_sold_out_for_longer_than_the_patience() -> None:
    world = World(CHEAP, DEAR, policy="pressure", limits=Limits(patience=1000.0)).open()
    (task,) = world.submit(1)
    while world.now < 900:
        refuse(world, "cheap", "capacity")
        refuse(world, "dear", "capacity")
        world.wait(1.0)
    assert task not in world.settled
    while world.now < 1400 and task not in world.settled:
        refuse(world, "cheap", "capacity")
        refuse(world, "dear", "capacity")
        world.wait(1.0)
    assert world.settled[task] == "abandoned"
    assert "no such machine is free" in world.reasons[task]
    assert any("waiting tasks end" in reason for reason in world.reasons_given)


def test_machine_that_comes_within_the_patience_serves_the_tasks() -> None:
    world = World(CHEAP, policy="pressure", limits=Limits(patience=1000.0)).open()
    (task,) = world.submit(1)
    while world.now < 800:
        refuse(world, "cheap", "capacity")
        world.wait(1.0)
    while world.now < 1600 and task not in world.settled:
        world.deliver()
        world.finish()
        world.wait(1.0)
    assert world.settled == {task: "value"}


def test_group_that_may_have_no_node_beside_the_minimums_ends_its_tasks() -> None:
    world = World(Group("plain", 2, 2), GPUS, policy="pressure", max_nodes=2).open()
    (task,) = world.submit(1, GPU)
    assert world.settled[task] == "abandoned"
    assert "2 nodes in total" in world.reasons[task]


def test_broadcast_for_which_no_node_can_come_ends() -> None:
    world = World(GPUS, policy="pressure", budget=0.1).open()
    effects: list[Any] = world.tell(tasks.Broadcast(world.plane.tasks.number()))
    assert any(isinstance(effect, tasks.BroadcastEnded) for effect in effects)


def test_patience_starts_anew_with_tasks_that_come_after_others_have_ended() -> None:
    """Regression: the timer outlived its tasks, so a later task ended at its first refusal."""
    world = World(CHEAP, policy="pressure", limits=Limits(patience=1000.0)).open()
    (first,) = world.submit(1)
    refuse(world, "cheap", "capacity")
    world.wait(5)
    world.tell(tasks.CancelTasks((first,)))
    world.wait(4000)
    (second,) = world.submit(1)
    refuse(world, "cheap", "capacity")
    world.wait(5)
    assert second not in world.settled


@pytest.mark.parametrize("policy", ELASTIC)
def test_tasks_get_a_node_of_the_only_group_that_fits_whatever_the_policy_looks_at(policy: str) -> None:
    """Regression: vanilla and fixed_elastic do not look at needs, so the task waited for ever beside another group."""
    world = World(CHEAP, GPUS, policy=policy, cooldown=2.0).open()
    world.submit(1)
    world.deliver()
    (gpu,) = world.submit(1, GPU)
    while world.now < 300.0 and gpu not in world.settled:
        world.wait(1.0)
        world.deliver()
        world.finish([gpu])
    assert world.settled[gpu] == "value"


def test_node_0_counts_towards_the_maximum_of_all_groups() -> None:
    """Regression: beside a minimum and the head, tasks of a third group waited for ever."""
    groups = (Group("a", 1, 2), Group("c", 1, 1), GPUS)
    world = World(*groups, policy="adaptive", max_nodes=2).open()
    assert world.plane.head == "a"
    world.tell(Resize({"a": (0, 2)}))
    (task,) = world.submit(1, GPU)
    assert world.settled[task] == "abandoned"
    assert "2 nodes in total" in world.reasons[task]


def test_task_that_free_slots_do_not_fit_gets_one_node_and_no_more() -> None:
    """Regression: the node that it was given was cancelled at once and launched again, about once a second."""
    group = Group("nodes", 1, 4, 4, {"CPU": 4.0}, hourly_price=1.0)
    world = World(group, policy="adaptive").open()
    world.submit(1, Needs({"CPU": 3.0}))
    (waits,) = world.submit(1, Needs({"CPU": 2.0}))
    while world.now < 900.0 and waits not in world.sent:
        world.wait(60.0)
        world.deliver()
    assert waits in world.sent
    launches = [effect for effect in world.said if isinstance(effect, machines.Launch)]
    assert len(launches) <= 3


@pytest.mark.parametrize("policy", ELASTIC)
@pytest.mark.parametrize("kind", ["capacity", "denied"])
def test_reservation_gets_nodes_of_the_next_group_while_the_cheap_one_is_sold_out(
    policy: str, kind: RefusalKind
) -> None:
    """Regression: only waiting tasks and gangs got nodes of another group, and a reservation waited for ever."""
    sources = {"cheap": (MachineSource("other cloud", "cheap", hourly_price=1.0),)}
    world = World(CHEAP, DEAR, policy=policy, cooldown=5.0, sources=sources).open()
    world.tell(SetFloor((Demand(2),)))
    for _ in range(5):
        refuse(world, "cheap", kind)
        world.deliver()
        world.wait(1.0)
    assert world.plane.desired["dear"] == world.active == 2
    reasons = [each for each in world.reasons_given if "reserves" in each and "2 nodes of 'dear'" in each]
    assert any("group 'cheap' gets no" in each for each in reasons)


def test_policy_no_gets_no_nodes_of_other_groups_for_a_reservation() -> None:
    world = World(CHEAP, DEAR, policy="no").open()
    world.tell(SetFloor((Demand(2),)))
    refuse(world, "cheap", "capacity")
    world.wait(20.0)
    assert dict(world.plane.desired) == {"cheap": 2, "dear": 0}


def test_reservation_that_needs_the_group_that_is_sold_out_waits_for_it() -> None:
    world = World(CHEAP, replace(DEAR, max=1)).open()
    world.tell(SetFloor((Demand(2),)))
    for _ in range(5):
        refuse(world, "cheap", "capacity")
        world.deliver()
        world.wait(1.0)
    assert dict(world.plane.desired) == {"cheap": 2, "dear": 0}


def test_full_pool_says_which_minimum_to_lower() -> None:
    """Regression: the reason was no sentence, and named neither the limit nor the fix."""
    world = World(Group("cpu", 2, 2), GPUS, max_nodes=2).open()
    (task,) = world.submit(needs=GPU)
    assert world.reasons[task] == (
        "has no room for a node of group 'gpus': it may have at most 2 nodes in total (max_nodes), and the minimum of "
        "its other groups is 2 nodes; lower a minimum, with `pool.resize(nodes, group='cpu')`"
    )
