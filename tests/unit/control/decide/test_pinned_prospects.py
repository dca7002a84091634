"""Tasks that only one node may run, whose node cannot come: they end and say why, as soon as other tasks would."""

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.messages import Resize, SetBudget
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.snapshot import Group
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

PATIENT = Limits(patience=1000.0)
PAIR = Group("nodes", 2, 2, hourly_price=1.0)
CPU = Group("cpu", 1, 1, resources={"CPU": 4.0}, hourly_price=1.0)
GPU = Group("gpu", 1, 1, resources={"CPU": 4.0, "GPU": 1.0}, hourly_price=30.0)


def lose(world: World, rank: int) -> None:
    """Lose the node of a rank; another machine for it is wanted."""
    world.tell(machines.Lost(world.machine_of(rank), "its host failed"))


def refuse(world: World) -> None:
    """Refuse every request: the group is sold out."""
    refused = tuple(world.asked)
    world.asked.clear()
    if refused:
        world.tell(machines.Refused(refused, "no such machine is free", "capacity"))


def stay_sold_out(world: World, until: float) -> None:
    """Advance the clock while every request is refused."""
    while world.now < until:
        refuse(world)
        world.wait(1.0)


def test_task_pinned_to_a_node_that_is_sold_out_ends_after_the_patience() -> None:
    """Regression: the group had another node, so the task waited for ever."""
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    (task,) = world.submit(1, target=1)
    (other,) = world.submit(1)
    world.finish([other])
    stay_sold_out(world, 900)
    assert task not in world.settled
    stay_sold_out(world, 1400)
    assert world.settled == {task: "abandoned", other: "value"}
    assert world.reasons[task] == (
        "cannot start node 1: it gets no machine now: no such machine is free, for over 16.6667 minutes"
    )
    assert any("tasks that wait for node 1 end: the pool cannot start node 1" in each for each in world.reasons_given)


def test_node_that_comes_within_the_patience_runs_the_tasks_pinned_to_it() -> None:
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    (task,) = world.submit(1, target=1)
    stay_sold_out(world, 900)
    world.wait(400)
    world.deliver()
    world.finish()
    assert world.settled == {task: "value"}


def test_patience_with_a_node_starts_anew_when_it_is_lost_again() -> None:
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    world.submit(1, target=1)
    stay_sold_out(world, 900)
    world.wait(400)
    world.deliver()
    lose(world, 1)
    stay_sold_out(world, 2000)
    assert not world.settled
    stay_sold_out(world, 2800)
    assert set(world.settled.values()) == {"abandoned"}


def test_broadcast_ends_on_the_node_that_cannot_come_and_runs_on_the_other() -> None:
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    effects = world.tell(tasks.Broadcast(world.plane.tasks.number(), ranks=(0, 1)))
    first, second = [effect.task for effect in effects if isinstance(effect, tasks.Member)]
    world.finish([first])
    stay_sold_out(world, 1400)
    assert world.settled == {first: "value", second: "abandoned"}
    assert any(isinstance(effect, tasks.BroadcastEnded) for effect in world.said)


def test_collective_ends_when_the_node_of_one_member_cannot_come() -> None:
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    together = tasks.Together(procs=1, restarts=1, within=60.0)
    world.tell(tasks.Broadcast(world.plane.tasks.number(), ranks=(0, 1), together=together))
    (behind,) = world.submit(1, target=0)
    stay_sold_out(world, 1400)
    assert sorted(world.settled.values()) == ["abandoned", "cancelled"]
    assert not world.plane.tasks.awaited_ranks
    world.finish([behind])
    assert world.settled[behind] == "value"


def test_task_pinned_to_a_node_that_the_budget_does_not_cover_ends_at_once() -> None:
    """Regression: another node ran within the budget, so the task waited until all of it was spent."""
    world = World(CPU, GPU, budget=20.0).open()
    world.wait(600)
    (task,) = world.submit(1, target=1)
    lose(world, 1)
    refuse(world)
    world.bury()
    assert not world.settled
    world.tell(SetBudget(5.6))
    assert world.settled == {task: "unfunded"}
    assert world.reasons[task].startswith("cannot start node 1: it cannot afford another node: $5.17 of its budget")


def test_task_pinned_to_a_node_of_a_closed_group_ends_at_once() -> None:
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    (task,) = world.submit(1, target=1)
    refused = tuple(world.asked)
    world.asked.clear()
    world.tell(machines.Refused(refused, "the account is closed", "denied"))
    assert set(world.settled) == {task}
    assert "the account is closed" in world.reasons[task]


def test_task_pinned_to_a_rank_without_a_node_ends_at_once() -> None:
    """Regression: a task for a node that has just left the pool waited for a node that reuses its rank."""
    world = World(Group("nodes", 1, 2)).open()
    world.tell(Resize({"nodes": (2, 2)}))
    world.deliver()
    world.tell(Resize({"nodes": (1, 1)}))
    world.bury()
    (task,) = world.submit(1, target=1)
    assert world.settled == {task: "abandoned"}
    assert world.reasons[task] == "has no node 1 any more"


def test_shapes_that_wait_in_vain_do_not_end_tasks_whose_own_node_boots() -> None:
    world = World(PAIR, limits=PATIENT).open()
    lose(world, 1)
    (task,) = world.submit(1, target=1)
    world.tell(tasks.Abandon("gets no GPUs", shapes=frozenset({Needs({})})))
    assert not world.settled
    world.deliver()
    world.finish()
    assert world.settled == {task: "value"}


def test_task_ends_when_its_node_can_never_hold_it() -> None:
    """Regression: submitted while the node boots, it waited for ever and held up the tasks behind it."""
    world = World(CPU, Group("gpu", 0, 1, resources={"GPU": 1.0})).open()
    world.tell(Resize({"cpu": (2, 2)}))
    (large,) = world.submit(1, Needs({"GPU": 1.0}), target=1)
    (behind,) = world.submit(1, target=1)
    world.deliver()
    world.finish()
    assert world.settled == {large: "infeasible", behind: "value"}
    assert world.reasons[large] == "1 GPU on node 1, which can never have that: it has 4 CPU"
