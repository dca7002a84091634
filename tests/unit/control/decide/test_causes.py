"""Causes: effects, transitions, decisions and errors carry the number of the message that led to them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.act.report import task_history
from skyward.control.decide.causes import KEPT, Cause, CauseLog, describe
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import (
    CollectionUsed,
    Decided,
    DrainNode,
    Open,
    PlaneEffect,
    PlaneMessage,
    Resize,
    SetBudget,
    SetFloor,
    Tick,
)
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.tasks.state import ENDED_KEPT
from skyward.errors import IllegalTransitionError
from skyward.scaling.snapshot import Decision, Demand, GangDemand, Group, Snapshot
from skyward.values.needs import NOTHING
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


class CheckedWorld(World):
    """A world that checks that every effect carries the number of the message of its step."""

    def tell(self, message: PlaneMessage) -> list[PlaneEffect]:
        before = self.plane.handled
        effects = super().tell(message)
        assert self.plane.handled == before + 1
        assert {effect.cause for effect in effects} <= {self.plane.handled}
        return effects


def lose(world: World, rank: int) -> int:
    """Report the machine of a rank lost; return the number of the message."""
    world.tell(machines.Lost(world.machine_of(rank), "connection closed"))
    return world.plane.handled


ACTIONS = (
    "submit",
    "broadcast",
    "finish",
    "cancel",
    "lose",
    "fail",
    "refuse",
    "resize",
    "drain",
    "floor",
    "wait",
    "fund",
)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), max_size=25))
def test_every_effect_carries_the_number_of_the_message_of_its_step(actions: list[tuple[str, int]]) -> None:
    world = CheckedWorld(Group("default", 1, 4, 2, hourly_price=1.0), budget=1.0).open()
    for action, number in actions:
        match action:
            case "submit":
                world.submit(number + 1)
            case "broadcast":
                world.tell(tasks.Broadcast(world.plane.tasks.number()))
            case "finish":
                for task in set(world.sent) - set(world.settled):
                    world.tell(tasks.Ended(task, world.sent[task], "value", 1.0))
            case "cancel":
                world.tell(tasks.CancelTasks(tuple(world.sent)[-number:]))
            case "lose" if number in world.plane.reconciler.table.assignments:
                lose(world, number)
            case "fail" if world.installing:
                world.tell(machines.Failed(world.installing.popitem()[0], "no space"))
            case "refuse" if world.asked:
                world.tell(machines.Refused((world.asked.popitem()[0],), "quota"))
            case "resize":
                world.tell(Resize({"default": (number // 2, number)}))
            case "drain":
                world.tell(DrainNode(number))
            case "floor":
                world.tell(SetFloor((Demand(number + 1),)))
            case "fund":
                world.tell(SetBudget(number / 100))
            case _:
                world.wait(10.0 * number)
                world.allocate()


def test_lost_node_is_the_cause_of_its_replacement_and_of_its_requeued_tasks() -> None:
    world = CheckedWorld(Group("default", 2, 2)).open()
    first, second = world.submit(2)
    task, rank = next((task, rank) for task, rank in world.sent.items() if rank == 1)
    machine = world.machine_of(rank)
    effects = world.tell(machines.Lost(machine, "connection closed"))
    lost = world.plane.handled
    caused = {type(effect) for effect in effects if effect.cause == lost}
    assert {machines.NodeGone, machines.Terminate, machines.Launch, tasks.Requeue, Decided} <= caused
    assert [effect.task for effect in effects if isinstance(effect, tasks.Requeue)] == [task]
    replacement = world.plane.reconciler.table.assignments[rank].machine
    assert replacement.cause == lost
    assert replacement.life.history()[-1].endswith(f"QUEUED -> REQUESTED (#{lost})")
    node = world.plane.reconciler.table.assignments[rank].life.history()
    assert node[-2:] == (
        f"0.000 active -> vacant connection closed (#{lost})",
        f"0.000 vacant -> waiting (#{lost})",
    )
    (decision,) = [effect.event for effect in effects if isinstance(effect, Decided)]
    assert decision.cause == f"#{lost}: machine {machine} of node 1 lost: connection closed"
    assert {first, second} == set(world.sent)
    history = [text.partition(" ")[2] for text in task_history(world.plane, task)]  # without the time
    sent, requeued = history
    assert sent.startswith("queued -> sent (#")
    assert requeued == f"sent -> queued: node {rank} died: connection closed ({decision.cause})"


def test_history_of_a_task_outlives_the_task_and_only_the_latest_are_kept() -> None:
    world = World(Group("default", 1, 1)).open()
    world.allocate()
    (first,) = world.submit(1)
    world.finish()
    assert " sent -> ended" in task_history(world.plane, first)[-1]
    for _ in range(ENDED_KEPT):
        world.submit(1)
        world.finish()
    assert task_history(world.plane, first) == ()
    assert task_history(world.plane, 10**6) == ()


def test_failed_replacement_names_the_lost_node_as_the_first_cause() -> None:
    world = World(Group("default", 1, 1), limits=Limits(launches=2)).open()
    machine = world.machine_of(0)
    lose(world, 0)
    world.allocate()
    for _ in range(2):
        while not world.installing:
            world.wait(1.0)
            world.allocate()
        failing, _ = world.installing.popitem()
        world.tell(machines.Failed(failing, "no space left\nlog"))
    cause = f"machine {machine} of node 0 lost: connection closed"
    assert world.plane.failure == f"could not start node 0 (caused by: {cause}): no space left\nlog"
    texts = [each.text for each in world.plane.causes.chain(world.plane.handled)]
    assert texts == [
        f"machine {failing} of node 0 failed to start: no space left",
        f"machine {failing - 1} of node 0 failed to start: no space left",
        f"machine {machine} of node 0 lost: connection closed",
    ]


@pytest.mark.parametrize("refusals", [1, 2])
def test_first_node_that_cannot_start_names_no_further_cause(refusals: int) -> None:
    world = World(Group("default", 1, 1), limits=Limits(refusals=refusals))
    world.tell(Open())
    while not world.plane.failure:
        world.tell(machines.Refused((world.asked.popitem()[0],), "quota"))
        world.wait(5.0)
    assert world.plane.failure == "could not start node 0: quota"


def test_task_of_a_removed_node_ends_with_the_request_that_removed_it() -> None:
    world = World(Group("default", 2, 2), thresholds={"default": 1})
    world.tell(Open())
    world.allocate()
    (task,) = world.submit(target=1)
    world.tell(Resize({"default": (1, 1)}))
    assert world.settled == {task: "lost"}
    assert world.reasons[task] == "node 1 is gone (caused by: resized to 1 node): it is no longer needed"


def test_drained_node_reports_drain_request_as_cause() -> None:
    world = World(Group("default", 2, 2)).open()
    world.submit(2)
    world.tell(Resize({"default": (1, 1)}))
    resized = world.plane.handled
    world.finish()
    (gone,) = [effect for effect in world.said if isinstance(effect, machines.NodeGone)]
    assert (gone.rank, gone.origin) == (1, resized)
    assert gone.cause > resized


def test_decision_of_the_policy_has_the_message_that_triggered_it() -> None:
    world = World(Group("default", 1, 4)).open()
    world.wait(60)
    world.now += 0.1
    world.submit(3)
    submitted = world.plane.handled
    (event,) = [effect.event for effect in world.said if isinstance(effect, Decided)]
    assert event.cause == f"#{submitted}: 3 tasks, 1 to 3, submitted"
    assert world.plane.causes.get(submitted) == Cause(submitted, event.reason)


def test_illegal_transition_names_the_message_and_the_earlier_ones() -> None:
    world = World(Group("default", 1, 1)).open()
    (task,) = world.submit()
    submitted = world.plane.handled
    world.tell(tasks.StartedOnNode(task))
    started = world.plane.handled
    world.plane.tasks._book.tasks[task].life.state = "ended"
    with pytest.raises(IllegalTransitionError) as caught:
        world.tell(tasks.Ended(task, 0, "value", 1.0))
    number = world.plane.handled
    assert str(caught.value).startswith(f"task {task} cannot go from ended to ended (#{number})\n")
    assert caught.value.history == (
        f"0.000 queued -> sent (#{submitted})",
        f"0.000 sent -> running (#{started})",
    )
    assert caught.value.__notes__ == [f"The control plane was handling #{number}: task {task} ended on node 0: value."]


def test_log_keeps_the_latest_causes() -> None:
    log = CauseLog()
    for number in range(1, KEPT + 3):
        log.add(Cause(number, "?", number - 1))
    assert (log.get(2), log.get(3)) == (None, Cause(3, "?", 2))
    assert len(log.chain(KEPT + 2)) == KEPT


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Open(), "the pool was opened"),
        (Resize({"a": (0, 1)}), "resized to between 0 and 1 nodes"),
        (SetBudget(None), "budget removed"),
        (SetBudget(2.5), "budget set to $2.50"),
        (Tick(), "regular check"),
        (CollectionUsed(), "the client used a collection"),
        (machines.Allocated(7), "machine 7 of node 3 allocated"),
        (machines.Terminated(8), "machine 8 terminated"),
        (machines.Refused((7,), "quota:\n..."), "machine 7 of node 3 refused: quota"),
        (machines.Refused((7, 8), "quota"), "2 machines refused: quota"),
        (tasks.Overdue((1,), 3, "it does not answer"), "node 3 lost: it does not answer"),
        (tasks.Submitted((5,)), "task 5 submitted"),
        (tasks.CancelTasks((5, 6)), "2 tasks, 5 to 6, cancelled"),
        (tasks.SubmitGang(4, (5, 6), GangDemand((NOTHING, NOTHING))), "gang of 2 tasks, 5 to 6, submitted"),
        (tasks.Broadcast(9), "broadcast 9 submitted"),
        (tasks.RankDraining(3), "the worker of node 3 is closing"),
        (tasks.StartedOnNode(5), "task 5 started"),
        (tasks.Delivered(5), "elements of task 5 were delivered"),
        (tasks.Stored(3, (b"",)), "blobs were stored on node 3"),
        (tasks.Withheld(5, 3), "task 5 was withheld from node 3: an input was lost"),
        (tasks.Abandon("no budget\n..."), "waiting tasks were abandoned: no budget"),
    ],
)
def test_messages_have_a_text(message: PlaneMessage, text: str) -> None:
    assert describe(message, ["a"], {7: 3}.get) == text


def test_resize_names_the_group_in_a_pool_of_several() -> None:
    ranks: dict[int, int] = {}
    resize = Resize({"a": (0, 1)})
    assert describe(resize, ["a", "b"], ranks.get) == "resized to between 0 and 1 nodes of 'a'"
    both = Resize({"a": (2, 2), "b": (0, 4)})
    assert describe(both, ["a", "b"], ranks.get) == "resized to 2 nodes of 'a' and between 0 and 4 nodes of 'b'"


class Fewer:
    """A policy that asks for no nodes."""

    name, interval = "fewer", None

    def decide(self, snapshot: Snapshot) -> Decision:
        return Decision(dict.fromkeys(snapshot.desired, 0), "none")


def test_limit_below_the_minimum_is_not_reported_as_holding_a_decision_back() -> None:
    """Regression: `at least 1 for request_resources` held back a change from 2 to 2 nodes, the pool's minimum."""
    policy: Any = Fewer()
    world = World(Group("default", 2, 4), policy=policy, cooldown=0.0).open()
    world.tell(SetFloor((Demand(1),)))
    world.wait(120)
    assert world.reasons_given == []


def test_only_the_limit_that_sets_the_number_is_reported() -> None:
    policy: Any = Fewer()
    existing = {"default": {MachineSource("cloud", "default"): 5}}
    world = World(Group("default", 0, 9), policy=policy, cooldown=0.0, existing=existing).open()
    world.tell(SetFloor((Demand(5),)))
    assert world.reasons_given[-1] == "5 -> 5 nodes: none (held back: `request_resources` reserves at least 5 nodes)"


def test_reason_of_a_node_given_up_is_not_hidden_by_the_budget() -> None:
    """Regression: retries that the budget did not allow replaced the reason why a node could not be started."""
    world = World(Group("default", 2, 2, hourly_price=60.0), budget=2.5, limits=Limits(launches=1))
    world.tell(Open())
    first, second = world.asked
    world.tell(machines.Allocated(first))
    world.tell(machines.Failed(first, "no space left"))
    world.tell(machines.Refused((second,), "quota"))
    world.wait(3.0)
    assert world.plane.reconciler.requester.over_budget
    assert world.plane.failure == "could not start node 0: no space left"
