"""Gangs in the control plane: pools grow for them, keep what they wait for, and end those that can never start."""

from typing import Any

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.messages import Decided, Resize, SetBudget
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.snapshot import Decision, GangDemand, Group, Snapshot
from skyward.values.gangs import GangPlacement
from skyward.values.needs import NOTHING, Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1})
POLICIES = ["adaptive", "pressure", "binpack", "vanilla", "capability", "fixed_elastic"]


def submit(world: World, *needs: Needs, placement: GangPlacement = "pack") -> list[int]:
    """Submit a gang; return its tasks."""
    gang = world.plane.tasks.number()
    numbers = tuple(world.plane.tasks.number() for _ in needs)
    world.tell(tasks.SubmitGang(gang, numbers, GangDemand(needs, placement)))
    return list(numbers)


def outcomes(world: World, members: list[int]) -> set[str]:
    return {world.settled[task] for task in members}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("least", [0, 1])
def test_pool_grows_for_a_gang_under_every_policy(policy: Any, least: int) -> None:
    world = World(Group("a", least, 5), policy=policy).open()
    members = submit(world, *[NOTHING] * 4)
    for _ in range(20):
        world.deliver()
        world.wait(5.0)
    assert sorted(world.sent[task] for task in members) == [0, 1, 2, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_idle_nodes_stay_while_a_gang_waits_for_them_and_a_busy_one(policy: Any) -> None:
    world = World(Group("a", 0, 3), policy=policy, idle_timeout=30.0, cooldown=5.0).open()
    (busy,) = world.submit()
    for _ in range(5):
        world.deliver()
        world.wait(1.0)
    members = submit(world, *[NOTHING] * 3)
    for _ in range(30):
        world.deliver()
        world.wait(20.0)
    assert world.active == 3
    assert not world.settled
    world.finish([busy])
    assert sorted(world.sent[task] for task in members) == [0, 1, 2]
    world.finish()
    assert outcomes(world, members) == {"value"}


def test_gang_gets_the_groups_that_its_members_fit() -> None:
    cpu = Group("cpu", 1, 4, resources={"CPU": 4}, hourly_price=1.0)
    gpu = Group("gpu", 0, 2, resources={"CPU": 8, "GPU": 1}, hourly_price=8.0)
    world = World(cpu, gpu).open()
    members = submit(world, GPU, NOTHING, NOTHING, placement="strict_spread")
    world.wait(1.0)
    world.deliver()
    assert dict(world.plane.desired) == {"cpu": 2, "gpu": 1}
    assert set(world.sent) == set(members)


def test_gang_ends_when_its_nodes_cannot_be_launched() -> None:
    world = World(Group("a", 1, 3), limits=Limits(rounds=1)).open()
    members = submit(world, NOTHING, NOTHING)
    for _ in range(40):
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            world.tell(machines.Failed(number, "no space left"))
        world.bury()
        world.wait(60.0)
    assert outcomes(world, members) == {"abandoned"}
    assert "cannot start enough nodes for 2 tasks at once" in world.reasons[members[0]]
    assert "no space left" in world.reasons[members[0]]


def test_gang_ends_at_once_if_the_budget_does_not_cover_its_nodes() -> None:
    world = World(Group("a", 1, 4, hourly_price=3600.0), budget=150.0).open()
    members = submit(world, *[NOTHING] * 4)
    assert outcomes(world, members) == {"unfunded"}
    assert "cannot pay for 4 tasks at once" in world.reasons[members[0]]


def test_waiting_gang_ends_when_the_budget_is_lowered() -> None:
    world = World(Group("a", 1, 2, hourly_price=1.0), budget=100.0).open()
    world.submit()
    members = submit(world, NOTHING, NOTHING)
    world.tell(SetBudget(0.001))
    assert outcomes(world, members) == {"unfunded"}


def test_waiting_gang_ends_when_the_pool_is_made_smaller_and_others_go_on() -> None:
    world = World(Group("a", 2, 4)).open()
    world.submit(2)
    large, small = submit(world, *[NOTHING] * 3), submit(world, NOTHING)
    world.tell(Resize({"a": (2, 2)}))
    assert outcomes(world, large) == {"infeasible"}
    assert not set(small) & set(world.settled)


def test_policy_no_adds_no_nodes_for_a_gang_which_ends() -> None:
    world = World(Group("a", 1, 4), policy="no").open()
    members = submit(world, NOTHING, NOTHING)
    assert outcomes(world, members) == {"infeasible"}
    assert world.reasons[members[0]].endswith("and policy 'no' adds none")
    assert submit(world, NOTHING)[0] in world.sent


def test_policy_no_launches_no_first_nodes_for_a_gang() -> None:
    """Regression: a gang got nodes under policy `no` if the pool had none, and only then."""
    world = World(Group("a", 0, 2), policy="no").open()
    members = submit(world, NOTHING, NOTHING)
    assert outcomes(world, members) == {"infeasible"}
    assert "0 nodes of 'a', each with 1 slot, and policy 'no' adds none" in world.reasons[members[0]]
    (task,) = world.submit()
    assert outcomes(world, submit(world, NOTHING, NOTHING)) == {"infeasible"}, "while the node boots for the task"
    world.deliver()
    assert task in world.sent


def test_lost_node_is_replaced_and_the_gang_runs_again() -> None:
    world = World(Group("a", 0, 2)).open()
    members = submit(world, NOTHING, NOTHING)
    world.deliver()
    assert set(world.sent) == set(members)
    world.tell(machines.Lost(world.machine_of(1), "spot"))
    world.tell(tasks.Ended(members[0], 0, "cancelled", 1.0))
    world.sent.clear()
    world.deliver()
    world.wait(30.0)
    world.deliver()
    assert sorted(world.sent[task] for task in members) == [0, 1]
    assert not world.settled


class Keeps:
    """A policy that wants one node, whatever waits."""

    name, interval = "keeps", 600.0

    def decide(self, snapshot: Snapshot) -> Decision:
        return Decision({"a": 1}, "one is enough")


class Fails(Keeps):
    """A policy that fails."""

    def decide(self, snapshot: Snapshot) -> Decision:
        raise RuntimeError("no decision")


def test_gang_gets_its_nodes_at_once_under_a_custom_policy_that_does_not_count_gangs() -> None:
    """Regression: it waited for ever, and nothing said so."""
    world = World(Group("a", 1, 3), policy=Keeps()).open()
    world.wait(1.0)
    members = submit(world, NOTHING, NOTHING)
    world.wait(1.0)
    world.deliver()
    assert set(members) <= set(world.sent)
    gang = "a gang of 2 tasks (placement 'pack') waits, so at least 2 nodes must be there"
    assert world.reasons_given[-1] == f"1 -> 2 nodes: one is enough, but {gang}"
    world.finish()
    world.wait(2000.0)
    world.bury()
    assert dict(world.plane.desired) == {"a": 1}


def test_custom_policy_that_fails_says_that_a_gang_waits() -> None:
    world = World(Group("a", 1, 3), policy=Fails()).open()
    world.wait(700.0)
    submit(world, NOTHING, NOTHING)
    world.wait(1.0)
    failed = "1 -> 1 nodes: the policy raised RuntimeError: no decision"
    held_back = " (held back: the pool stays as it is)"
    waits = "; a gang waits that gets no nodes before the policy decides, or `pool.resize` adds them"
    assert world.reasons_given == [f"{failed}{held_back}", f"{failed}{waits}{held_back}"]
    world.tell(Resize({"a": (2, 3)}))
    world.deliver()
    assert world.sent


def test_first_nodes_for_a_gang_have_their_numbers_in_the_reason() -> None:
    """Regression: it said only that a gang was submitted and the pool had no nodes."""
    cpu = Group("cpu", 0, 4, resources={"CPU": 4}, hourly_price=1.0)
    gpu = Group("gpu", 0, 2, resources={"CPU": 8, "GPU": 1}, hourly_price=8.0)
    world = World(cpu, gpu).open()
    submit(world, GPU, NOTHING, NOTHING, placement="strict_spread")
    gang = "a gang of 3 tasks (placement 'strict_spread') waits and the pool has no nodes"
    assert world.reasons_given == [f"0 -> 3 nodes: {gang}, so 2 nodes of 'cpu' and 1 node of 'gpu' are launched"]


def test_decision_for_a_gang_has_the_gang_as_its_cause_though_it_is_made_a_moment_later() -> None:
    """Regression: the cause was a regular check."""
    world = World(Group("a", 1, 4), policy="adaptive").open()
    (task,) = world.submit()  # the policy is asked, and not again at once
    world.finish([task])
    submit(world, NOTHING, NOTHING)
    world.wait(0.2)
    (decided,) = [each.event for each in world.said if isinstance(each, Decided) and each.event.change]
    assert decided.cause.endswith(": gang of 2 tasks, 3 to 4, submitted")
    assert "gang of 2 tasks (placement 'pack') waits" in decided.reason
