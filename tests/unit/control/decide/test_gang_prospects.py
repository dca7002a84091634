"""Gangs whose nodes are sold out, closed, or cost more than the budget covers."""

from typing import Any

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.messages import Resize, SetBudget
from skyward.control.decide.prospects.gangs import GangProspects
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import GangDemand, Group
from skyward.values.gangs import GangPlacement
from skyward.values.needs import NOTHING, Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1.0})
CHEAP = Group("cheap", 0, 4, hourly_price=1.0)
DEAR = Group("dear", 0, 4, hourly_price=3.0)
ELASTIC = [policy for policy in POLICIES if policy != "no"]


def submit(world: World, *needs: Needs, placement: GangPlacement = "pack") -> list[int]:
    """Submit a gang; return its tasks."""
    gang = world.plane.tasks.number()
    numbers = tuple(world.plane.tasks.number() for _ in needs)
    world.tell(tasks.SubmitGang(gang, numbers, GangDemand(needs, placement)))
    return list(numbers)


def refuse(world: World, group: str) -> None:
    """Refuse every request for a machine of the group: it is sold out."""
    refused = tuple(number for number, request in world.asked.items() if request.group == group)
    for number in refused:
        del world.asked[number]
    if refused:
        world.tell(machines.Refused(refused, "no such machine is free", "capacity"))


@pytest.mark.parametrize("policy", ELASTIC)
def test_gang_gets_nodes_of_another_group_in_place_of_one_that_is_sold_out(policy: str) -> None:
    world = World(CHEAP, DEAR, policy=policy, cooldown=5.0).open()
    members = submit(world, NOTHING, NOTHING, NOTHING, placement="strict_spread")
    while world.now < 120 and not set(members) <= set(world.settled):
        refuse(world, "cheap")
        world.deliver()
        world.finish()
        world.wait(1.0)
    assert [world.settled[task] for task in members] == ["value"] * 3


def test_gang_waits_for_a_group_that_is_sold_out_where_the_others_are_too_small() -> None:
    world = World(CHEAP, Group("dear", 0, 1, hourly_price=3.0), limits=Limits(no_capacity=50.0)).open()
    members = submit(world, NOTHING, NOTHING, NOTHING, placement="strict_spread")
    while world.now < 40:
        refuse(world, "cheap")
        world.wait(1.0)
    assert not world.settled
    while world.now < 400 and not set(members) <= set(world.settled):
        world.deliver()
        world.finish()
        world.wait(1.0)
    assert [world.settled[task] for task in members] == ["value"] * 3


def test_gang_ends_once_its_groups_have_been_sold_out_for_longer_than_the_patience() -> None:
    world = World(CHEAP, DEAR, limits=Limits(patience=1000.0)).open()
    members = submit(world, NOTHING, NOTHING)
    while world.now < 900:
        refuse(world, "cheap")
        refuse(world, "dear")
        world.wait(1.0)
    assert not world.settled
    while world.now < 1400 and not world.settled:
        refuse(world, "cheap")
        refuse(world, "dear")
        world.wait(1.0)
    assert [world.settled[task] for task in members] == ["abandoned"] * 2
    reason = world.reasons[members[0]]
    assert "cannot start enough nodes for 2 tasks at once" in reason
    assert "no such machine is free" in reason
    assert reason.endswith("for over 16.6667 minutes")
    assert any("a waiting gang ends" in reason for reason in world.reasons_given)


def test_shape_that_waits_in_vain_does_not_end_a_gang_with_members_of_that_shape() -> None:
    world = World(Group("a", 0, 4), limits=Limits(patience=1000.0)).open()
    (single,) = world.submit(1)
    while world.now < 900:
        refuse(world, "a")
        world.wait(1.0)
    members = submit(world, NOTHING, NOTHING)
    while world.now < 1400 and single not in world.settled:
        refuse(world, "a")
        world.wait(1.0)
    assert world.settled == {single: "abandoned"}
    while world.now < 2500 and members[0] not in world.settled:
        world.deliver()
        world.finish()
        world.wait(1.0)
    assert [world.settled[task] for task in members] == ["value"] * 2


def test_message_that_changes_no_prospects_looks_at_no_waiting_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each message looked at every waiting gang, however many there were."""
    looked_at: list[int] = []
    look = GangProspects._end

    def recorded(self: GangProspects, number: int, *rest: Any) -> Any:
        looked_at.append(number)
        return look(self, number, *rest)

    monkeypatch.setattr(GangProspects, "_end", recorded)
    world = World(Group("a", 0, 4, hourly_price=1.0), budget=100.0, limits=Limits(patience=1000.0)).open()
    busy = world.submit(4)
    for _ in range(20):
        world.deliver()
        world.wait(1.0)
    waiting = [submit(world, NOTHING, NOTHING) for _ in range(10)]
    assert len(looked_at) == 10, "each is looked at when it begins to wait"
    world.finish(busy[:1])
    world.submit(3)
    world.wait(30.0)
    assert len(looked_at) == 10
    world.tell(Resize({"a": (0, 3)}))
    assert len(looked_at) >= 20, "another maximum may end any of them"
    for _ in range(20):
        world.deliver()
        world.wait(1.0)
        world.finish()
    assert {world.settled[task] for members in waiting for task in members} == {"value"}


@pytest.mark.parametrize("policy", ELASTIC)
@pytest.mark.parametrize("least", [0, 1])
def test_no_node_is_launched_for_a_gang_that_the_budget_does_not_cover(policy: str, least: int) -> None:
    world = World(Group("a", least, 4, hourly_price=3600.0), policy=policy, budget=150.0).open()
    before = dict(world.plane.desired)
    members = submit(world, *[NOTHING] * 4)
    assert {world.settled[task] for task in members} == {"unfunded"}
    assert "cannot pay for 4 tasks at once" in world.reasons[members[0]]
    assert dict(world.plane.desired) == before


def test_budget_must_cover_the_nodes_of_all_groups_together() -> None:
    gpus = Group("gpus", 0, 2, resources={"GPU": 1.0}, hourly_price=3600.0)
    world = World(Group("plain", 0, 1, hourly_price=3600.0), gpus, budget=150.0).open()
    fits = submit(world, GPU, GPU, placement="strict_spread")
    assert not world.settled
    world.deliver()
    assert set(world.sent) == set(fits)
    world.finish()
    world.tell(SetBudget(170.0))
    members = submit(world, GPU, GPU, NOTHING, placement="strict_spread")
    assert {world.settled[task] for task in members} == {"unfunded"}
    assert "60 s of 1 more node for $3,600.00/h in total must be covered" in world.reasons[members[0]]


def test_gang_gets_nodes_in_a_pool_whose_nodes_are_all_gone() -> None:
    world = World(Group("a", 0, 2, hourly_price=1.0), idle_timeout=10.0, cooldown=5.0).open()
    members = submit(world, NOTHING, NOTHING)
    world.deliver()
    assert set(world.sent) == set(members)
    world.finish()
    for _ in range(60):
        world.wait(10.0)
        world.bury()
    assert not any(world.plane.desired.values())
    again = submit(world, NOTHING, NOTHING)
    world.deliver()
    assert set(again) <= set(world.sent)


def test_refusal_of_a_gang_has_every_part_of_the_budget() -> None:
    """Regression: the minute of the nodes that run, which decided it, was not mentioned."""
    world = World(Group("a", 0, 4, hourly_price=60.0), budget=3.0).open()
    submit(world, NOTHING, NOTHING)
    world.deliver()
    world.wait(5.0)
    members = submit(world, *[NOTHING] * 3)
    assert {world.settled[task] for task in members} == {"unfunded"}
    assert (
        "$0.17 of its budget of $3.00 is spent, $2.00 is reserved for 60 s of the nodes that it has, and 60 s of 1 "
        "more node for $60.00/h in total must be covered, which cost $1.00; raise the budget"
    ) in world.reasons[members[0]]


def test_gang_waits_for_the_budget_of_nodes_that_leave() -> None:
    """Regression: it ended at once, though the budget covers its nodes when those that leave have gone."""
    world = World(Group("a", 0, 4, hourly_price=60.0), budget=4.5, idle_timeout=1.0, cooldown=1.0).open()
    world.submit(2)
    world.deliver()
    world.finish()
    world.wait(20.0)
    assert world.leaving
    members = submit(world, *[NOTHING] * 4)
    assert not set(members) & set(world.settled)
    world.bury()
    assert not set(members) & set(world.settled)
