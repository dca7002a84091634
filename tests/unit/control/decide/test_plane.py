"""The control plane as a whole: scaling, groups, failures, time and budget."""

from typing import Any

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import Open, Resize, SetBudget, SetFloor, ThresholdReached
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import Decision, Demand, Group, Snapshot
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1})


def elastic(least: int = 0, most: int = 4, **settings: Any) -> World:
    """Return an open pool of one group with one slot per node, from `least` to `most` nodes."""
    return World(Group("default", least, most), **settings).open()


# Scaling.


def test_fixed_pool_is_ready_when_all_its_nodes_are() -> None:
    world = World(Group("default", 2, 2))
    (request,) = world.tell(Open())
    assert isinstance(request, machines.Launch)
    first, second = request.machines
    world.tell(machines.Allocated(first))
    world.tell(machines.Allocated(second))
    assert ThresholdReached() not in world.tell(machines.Joined(first))
    assert ThresholdReached() in world.tell(machines.Joined(second))


def test_pool_with_a_threshold_is_ready_before_all_its_nodes_are() -> None:
    world = World(Group("default", 3, 3), thresholds={"default": 1})
    world.tell(Open())
    world.allocate()
    first = min(world.installing)
    assert ThresholdReached() in world.tell(machines.Joined(first))
    assert world.active == 1


def test_queued_tasks_scale_up_at_once_with_a_reason() -> None:
    world = elastic(1, 8)
    world.submit(5)
    world.wait(0.1)
    assert world.plane.desired == {"default": 5}
    assert "4 tasks wait and the only slot is busy" in world.reasons_given[-1]
    world.deliver()
    assert world.active == 5


def test_scale_up_is_capped_at_the_maximum_with_a_reason() -> None:
    world = elastic(1, 3)
    world.submit(50)
    world.wait(0.1)
    assert world.plane.desired == {"default": 3}
    assert ", but the maximum is 3 nodes" in world.reasons_given[-1]


def test_idle_pool_scales_down_to_its_minimum_after_the_idle_timeout() -> None:
    world = elastic(1, 4)
    world.submit(4)
    world.wait(0.1)
    world.deliver()
    world.finish()
    world.wait(59.9)
    assert world.plane.desired == {"default": 4}
    world.wait(0.2)
    assert world.plane.desired == {"default": 1}
    world.bury()
    assert (world.active, len(world.alive)) == (1, 1)
    assert "idle" in world.reasons_given[-1]


def test_low_load_scales_down_only_after_the_cooldown() -> None:
    world = elastic(1, 8)
    ran = world.submit(8)
    world.wait(0.1)
    world.deliver()
    world.finish(ran[1:])
    world.wait(29)
    assert world.plane.desired == {"default": 8}
    assert any("held back" in reason for reason in world.reasons_given)
    world.wait(60)
    assert world.plane.desired == {"default": 2}


def test_empty_pool_scales_up_for_the_first_task_and_down_again() -> None:
    world = elastic(0, 4)
    assert world.alive == {}
    (task,) = world.submit()
    assert world.reasons_given == ["0 -> 1 nodes: a task was submitted and the pool has no nodes"]
    world.deliver()
    world.finish()
    assert world.settled == {task: "value"}
    world.wait(61)
    world.bury()
    assert world.alive == {}


def test_new_work_cancels_a_drain() -> None:
    world = elastic(1, 3)
    first = world.submit(3)
    world.wait(0.1)
    world.deliver()
    held = [task for task in first if world.sent[task] == 2]
    world.finish([task for task in first if task not in held])
    world.wait(0.1)
    world.tell(Resize({"default": (1, 1)}))
    assert world.state_of(2) == "draining"
    world.tell(Resize({"default": (3, 3)}))
    assert world.state_of(2) == "active"


def test_task_pinned_to_a_draining_node_refuses_the_drain() -> None:
    world = World(Group("default", 2, 2)).open()
    first = world.submit(2)
    world.tell(Resize({"default": (1, 1)}))
    assert world.state_of(1) == "draining"
    (pinned,) = world.submit(target=1)
    world.finish(first)
    assert world.sent[pinned] == 1
    world.finish()
    assert world.settled[pinned] == "value"


def test_busy_node_is_not_terminated() -> None:
    world = World(Group("default", 2, 2)).open()
    running = world.submit(2)
    world.tell(Resize({"default": (1, 1)}))
    world.bury()
    assert len(world.alive) == 2
    world.finish(running)
    world.bury()
    assert len(world.alive) == 1
    assert world.plane.tasks.ranks == (0,)


def test_surplus_booting_machines_are_terminated() -> None:
    world = elastic(1, 6)
    numbers = world.submit(6)
    world.wait(0.1)
    world.allocate()
    assert len(world.alive) == 6
    world.tell(tasks.CancelTasks(tuple(numbers[1:])))
    world.finish(numbers[:1])
    world.wait(61)
    world.bury()
    assert len(world.alive) == 1


def test_late_machine_is_terminated() -> None:
    world = elastic(1, 2)
    numbers = world.submit(2)
    world.wait(0.1)
    (late,) = world.asked
    world.tell(tasks.CancelTasks(tuple(numbers)))
    world.finish(numbers[:1])
    world.wait(61)
    world.asked.clear()
    effects = world.tell(machines.Allocated(late))
    assert [effect for effect in effects if isinstance(effect, machines.Terminate)]
    assert world.active == 1


def test_freed_ranks_are_reused() -> None:
    world = World(Group("default", 3, 3)).open()
    world.tell(machines.Lost(world.machine_of(1), "spot"))
    world.deliver()
    assert world.plane.tasks.ranks == (0, 1, 2)


def test_head_stays_while_any_node_is_desired() -> None:
    world = World(Group("cpu", 1, 1), Group("gpu", 1, 1, resources={"GPU": 1})).open()
    world.tell(Resize({"cpu": (0, 1)}))
    world.tell(Resize({"gpu": (0, 1)}))
    world.submit()
    world.tell(Resize({"gpu": (1, 1)}))
    assert 0 in world.plane.tasks.ranks


# Needs and groups.


def test_tasks_are_dispatched_only_to_nodes_that_fit() -> None:
    world = World(Group("cpu", 1, 1, slots=4), Group("gpu", 1, 1, slots=4, resources={"GPU": 2})).open()
    rank = next(
        rank
        for rank, assignment in world.plane.reconciler.table.assignments.items()
        if assignment.machine.group == "gpu"
    )
    on_gpu = world.submit(3, GPU)
    assert [world.sent.get(task) for task in on_gpu] == [rank, rank, None], "two GPUs hold two tasks at a time"
    plain = world.submit(6)
    assert all(task in world.sent for task in plain[:5]), "tasks that fit do not wait behind one that does not"
    world.finish()
    assert all(world.settled[task] == "value" for task in (*on_gpu, *plain))
    assert world.sent[on_gpu[2]] == rank


def test_infeasible_task_ends_at_once_with_the_reason() -> None:
    world = World(Group("cpu", 1, 1, resources={"CPU": 4})).open()
    (task,) = world.submit(needs=Needs({"GPU": 1}))
    assert world.settled == {task: "infeasible"}
    assert world.reasons[task] == "1 GPU, which no node of this pool can ever have: a node has 4 CPU"


def test_infeasible_task_names_the_groups_of_a_pool_with_several() -> None:
    groups = Group("cpu", 1, 1, resources={"CPU": 4}), Group("gpu", 1, 1, resources={"CPU": 2, "GPU": 1})
    world = World(*groups).open()
    (task,) = world.submit(needs=Needs({"GPU": 2}))
    have = "a node of group 'cpu' has 4 CPU; a node of group 'gpu' has 2 CPU, 1 GPU"
    assert world.reasons[task] == f"2 GPU, which no node of this pool can ever have: {have}"


def test_empty_group_scales_up_for_tasks_that_fit_no_other() -> None:
    world = World(Group("cpu", 1, 4), Group("gpu", 0, 4, resources={"GPU": 1}, hourly_price=3.0)).open()
    world.submit(2, GPU)
    world.wait(0.1)
    assert world.plane.desired == {"cpu": 1, "gpu": 2}
    world.deliver()
    world.finish()
    assert set(world.settled.values()) == {"value"}


def test_floor_is_kept_until_the_next_request() -> None:
    world = World(Group("gpu", 0, 4, resources={"GPU": 1})).open()
    world.tell(SetFloor((Demand(3, GPU),)))
    assert world.plane.desired == {"gpu": 3}
    world.deliver()
    world.wait(300)
    assert world.plane.desired == {"gpu": 3}
    world.tell(SetFloor(()))
    world.wait(100)
    assert world.plane.desired == {"gpu": 0}


# Budget.


def test_launches_are_limited_by_the_budget() -> None:
    world = World(Group("default", 0, 10, hourly_price=60.0), budget=3.5).open()
    world.submit(10)
    world.wait(0.1)
    assert world.plane.desired == {"default": 3}, "each node is committed for a minute, which costs a dollar"
    assert "budget" in world.reasons_given[-1]


def test_exhausted_budget_drains_every_node_and_ends_queued_tasks() -> None:
    world = World(Group("default", 1, 1, hourly_price=60.0), budget=3.0).open()
    running, waiting = world.submit(2)
    world.wait(130)
    assert world.settled == {waiting: "unfunded"}
    assert world.reasons_given[-1] == (
        "1 -> 0 nodes: the rest of the budget of $3.00 is needed to drain the nodes: $2.00 is spent, and they cost "
        "$1.00 in the 60 s that it takes, at $60.00 per hour, so all nodes are drained"
    )
    world.finish([running])
    world.bury()
    assert world.alive == {}
    assert world.settled[running] == "value"
    assert world.plane.ledger.spent(world.now) <= 3.0
    (after,) = world.submit()
    assert world.settled[after] == "unfunded"


def test_pool_without_minimum_launches_nodes_for_tasks_again_once_its_budget_is_removed() -> None:
    world = World(Group("default", 0, 1, hourly_price=60.0), budget=3.0).open()
    world.submit(1)
    world.wait(5)
    world.deliver()
    world.wait(130)
    world.tell(SetBudget(None))
    assert "0 -> 0 nodes: the budget was removed, so the pool launches nodes for tasks again" in world.reasons_given


def test_long_task_is_evicted_before_the_budget_is_exceeded() -> None:
    world = World(Group("default", 1, 1, hourly_price=60.0), budget=3.0).open()
    (endless,) = world.submit()
    world.wait(155)
    assert tasks.Stop not in map(type, world.said)
    world.wait(10)
    assert tasks.Stop in map(type, world.said), "20 s before the end, so that what it leaves can be returned"
    assert world.settled == {}
    world.wait(10)
    assert world.settled == {endless: "unfunded"}
    assert "$2.67 is spent" in world.reasons[endless], "as of when it was stopped"
    world.bury()
    assert world.plane.ledger.spent(world.now) <= 3.0


@pytest.mark.parametrize(("outcome", "settled"), [("cancelled", "unfunded"), ("value", "value"), ("lost", "unfunded")])
def test_task_that_is_stopped_for_the_budget_ends_with_it(outcome: Any, settled: str) -> None:
    world = World(Group("default", 1, 1, hourly_price=60.0), budget=3.0).open()
    (endless,) = world.submit()
    world.wait(165)
    world.tell(tasks.Ended(endless, 0, outcome, 160.0))
    assert world.settled == {endless: settled}
    world.bury()
    assert world.alive == {}, "its node is drained"


def test_task_that_was_cancelled_before_the_budget_was_reached_ends_as_cancelled() -> None:
    world = World(Group("default", 1, 1, hourly_price=60.0), budget=3.0).open()
    (endless,) = world.submit()
    world.tell(tasks.CancelTasks((endless,)))
    world.wait(165)
    world.tell(tasks.Ended(endless, 0, "cancelled", 160.0))
    assert world.settled == {endless: "cancelled"}


def test_new_budget_reopens_the_pool() -> None:
    world = World(Group("default", 1, 1, hourly_price=60.0), budget=2.0).open()
    world.wait(130)
    world.bury()
    assert world.alive == {}
    world.tell(SetBudget(100.0))
    world.deliver()
    (task,) = world.submit()
    world.finish()
    assert world.settled == {task: "value"}


def test_decisions_are_kept_with_their_inputs() -> None:
    world = elastic(1, 8)
    world.submit(5)
    world.wait(0.1)
    (event,) = world.plane.decisions
    assert (event.by, event.policy, event.before, event.after) == ("policy", "pressure", {"default": 1}, {"default": 5})
    assert (event.inputs.queued, event.inputs.inflight, event.inputs.capacity, event.inputs.active) == (4, 1, 1, 1)
    assert event.change == 4


def test_decisions_do_not_change_afterwards() -> None:
    """Regression: an entry about tasks that end read "1 -> 1 nodes" once the pool had grown, and not "0 -> 0"."""
    groups = (Group("default", 0, 2), Group("gpus", 0, 2, resources={"GPU": 1.0}, hourly_price=30.0))
    world = World(*groups, budget=0.1, max_nodes=3).open()
    world.submit(1, Needs({"GPU": 1.0}))
    world.tell(Resize({"default": (4, 4)}))
    before = [str(event) for event in world.plane.decisions]
    world.submit(1)
    world.deliver()
    assert sum("waiting tasks end" in event for event in before) == 1
    assert sum("not resized" in event for event in before) == 1
    assert world.plane.desired["default"] == 1
    assert [str(event) for event in world.plane.decisions][: len(before)] == before


def test_policy_that_raises_changes_nothing_and_is_reported() -> None:
    class Broken:
        name = "broken"
        interval = None

        def decide(self, snapshot: Snapshot) -> Decision:
            raise ValueError("no idea")

    world = elastic(1, 4, policy=Broken())
    tasks_sent = world.submit(3)
    world.wait(100)
    world.finish()
    assert [world.settled[task] for task in tasks_sent] == ["value"] * 3
    (event,) = world.plane.decisions
    assert str(event) == "1 -> 1 nodes: the policy raised ValueError: no idea (held back: the pool stays as it is)"
    assert event.times == 1, "it is in the log once, and not at every look"


class Scripted:
    """A policy that gives the answer that it has at the moment, and counts how often it is asked."""

    name = "scripted"

    def __init__(self, answer: Any, interval: float | None = None) -> None:
        self.answer = answer
        self.interval = interval
        self.asked: list[Snapshot] = []

    def decide(self, snapshot: Snapshot) -> Any:
        self.asked.append(snapshot)
        return self.answer(snapshot) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    "answer",
    [
        Decision({"default": 2.5}, "half"),  # type: ignore[dict-item]
        Decision({"default": -1}, "none"),
        Decision({"other": 2}, "two"),
        Decision({"default": 2}, "two", victims=("a",)),  # type: ignore[arg-type]
        Decision({"default": 2}, 2),  # type: ignore[arg-type]
        "two",
    ],
)
def test_answer_that_is_no_decision_leaves_the_pool_as_it_is(answer: Any) -> None:
    """Regression: an uncaught TypeError, and tasks that waited until their timeout."""
    policy: Any = Scripted(answer)
    world = elastic(1, 4, policy=policy)
    tasks_sent = world.submit(3)
    world.wait(100)
    assert world.plane.desired == {"default": 1}
    assert len(policy.asked) == 4, "when the tasks came, and every cooldown: not at every message"
    (event,) = world.plane.decisions
    assert event.reason.startswith("the policy")
    assert event.held_back == "the pool stays as it is"
    world.finish()
    assert [world.settled[task] for task in tasks_sent] == ["value"] * 3


def test_failing_policy_is_in_the_log_once_for_each_failure_and_recovers() -> None:
    policy: Any = Scripted("two", 5.0)
    world = elastic(1, 4, policy=policy)
    world.submit(3)
    world.wait(30)
    policy.answer = 3
    world.wait(30)
    policy.answer = Decision({"default": 3}, "three")
    world.wait(30)
    policy.answer = Decision({"default": 1}, "one")
    world.wait(5)
    policy.answer = 3
    world.wait(30)
    assert [(sum(event.after.values()), event.reason[:21], event.times) for event in world.plane.decisions] == [
        (1, "the policy returned '", 1),
        (1, "the policy returned 3", 1),
        (3, "three", 1),
        (3, "one", 1),
        (3, "the policy returned 3", 1),
    ]


@pytest.mark.parametrize("policy", ["vanilla", "capability", "fixed_elastic"])
def test_policies_with_an_interval_are_not_asked_at_every_new_task(policy: str) -> None:
    """Regression: with a queue they were asked every 0.05 s: 49 nodes in 4 s."""
    world = elastic(1, 50, policy=policy)
    for _ in range(90):
        world.submit(100)
        world.wait(0.05)
    assert world.plane.desired == {"default": 3}, "one more at 2 s, and one at 4 s"


@pytest.mark.parametrize(("settled", "at"), [(True, 30.0), (False, 50.0)])
def test_fewer_nodes_are_decided_when_they_are_due(settled: bool, at: float) -> None:
    """Regression: they were decided at the next look of the policy, here 10 s later; it first wants fewer at 20 s."""
    policy: Any = Scripted(Decision({"default": 4}, "more"), 20.0)
    world = elastic(1, 4, policy=policy)
    world.tell(SetFloor(()))  # the policy is asked at once
    assert world.plane.desired == {"default": 4}
    world.deliver()
    policy.answer = Decision({"default": 1}, "fewer", settled=settled)
    world.wait(at - 0.01)
    assert world.plane.desired == {"default": 4}
    world.wait(0.02)
    assert world.plane.desired == {"default": 1}


def test_policy_cannot_remove_the_first_node_while_tasks_wait_for_it() -> None:
    world = World(Group("default", 0, 4, slots=2), policy="vanilla").open()
    (task,) = world.submit()
    world.wait(600)
    assert world.plane.desired == {"default": 1}
    world.deliver()
    world.finish()
    assert world.settled == {task: "value"}


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "no"])
def test_broadcast_that_waits_for_the_first_node_counts_as_work(policy: str) -> None:
    world = elastic(0, 3, policy=policy, idle_timeout=10.0, cooldown=2.0)
    world.tell(tasks.Broadcast(world.plane.tasks.number()))
    assert (world.plane.snapshot(world.now).pinned, world.plane.tasks.unsent, world.plane.tasks.waiting) == (1, 1, True)
    world.wait(300.0)
    assert world.plane.tasks.idle_for(world.now) == 0.0
    assert world.plane.desired == {"default": 1}, "its node boots for as long as that takes"
    world.deliver()
    assert list(world.sent.values()) == [0]
    world.finish()
    assert set(world.settled.values()) == {"value"}
    world.wait(300.0)
    assert world.plane.desired == {"default": 0}


def test_queued_tasks_do_not_cause_endless_ticks() -> None:
    world = elastic(1, 1)
    world.tell(Resize({"default": (1, 2)}))
    world.deliver()
    world.submit(100)
    world.wait(1)
    world.deliver()
    told = len(world.plane.decisions)
    ticks, until = 0, world.now + 60
    while world.plane.next_tick <= until:
        world.wait(world.plane.next_tick - world.now)
        ticks += 1
    assert ticks < 20
    assert len(world.plane.decisions) <= told + 5
