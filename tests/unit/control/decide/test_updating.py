"""Rolling updates: outdated nodes are replaced one by one, without stopping a task."""

import random
from typing import Any

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import (
    ContinueSize,
    KeptAdded,
    Open,
    ReleaseKept,
    Resize,
    SetBudget,
    SpareStreams,
    Tick,
    UpdateGroup,
)
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.updating import GroupUpdate, OutdatedNode, UpdateStep, next_step
from skyward.kept.keep import KeptInfo
from skyward.kept.registry import KeptEntry
from skyward.scaling.snapshot import Group
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit


def node(rank: int, *, idle: bool = True, keeps: str = "") -> OutdatedNode:
    return OutdatedNode(rank, idle, keeps)


def state(*outdated: OutdatedNode, desired: int = 2, **other: Any) -> GroupUpdate:
    return GroupUpdate(desired, other.pop("active", desired), outdated=outdated, **other)


# The pure step.


def test_one_node_more_is_wanted_first() -> None:
    assert next_step(state(node(0), node(1))) == UpdateStep(extra=True)


def test_nothing_is_drained_before_the_additional_node_is_active() -> None:
    assert next_step(state(node(0), node(1), extra=True, booting=1)) == UpdateStep(extra=True)


def test_idle_nodes_go_first_and_node_0_last() -> None:
    nodes = [node(0), node(1), node(2, idle=False), node(3)]
    gone = []
    while nodes:
        step = next_step(state(*nodes, desired=4, active=5, extra=True))
        gone.append(step.remove)
        nodes = [each for each in nodes if each.rank != step.remove]
    assert gone == [3, 1, 2, 0]


def test_additional_node_stays_until_the_next_node_0_is_active() -> None:
    assert next_step(state(node(0), active=3, extra=True)) == UpdateStep(extra=True, remove=0)
    assert next_step(state(extra=True, leaving=0, booting=1)) == UpdateStep(extra=True)
    assert next_step(state(active=3, extra=True)) == UpdateStep(is_over=True)


def test_no_second_node_is_launched_while_one_drains() -> None:
    assert next_step(state(node(0), leaving=1)) == UpdateStep()
    assert next_step(state(node(0), leaving=1, extra=True)) == UpdateStep(extra=True)


def test_one_node_makes_room_where_there_is_none() -> None:
    full = "group 'gpu' may have at most 2 nodes"
    assert next_step(state(node(0), node(1), full=full)) == UpdateStep(remove=1)
    assert next_step(state(node(0), full=full, active=1, booting=1)) == UpdateStep()
    assert next_step(state(node(0, idle=False), node(1, idle=False), full=full)) == UpdateStep(remove=1)
    assert next_step(state(node(0), node(1, idle=False), full=full, failed="sold out")) == UpdateStep(waits="sold out")


def test_nodes_that_keep_values_stay() -> None:
    assert next_step(state(node(1, keeps="df"), active=3, extra=True)) == UpdateStep(waits="node 1 keeps df")
    step = next_step(state(node(0), node(1, keeps="df"), active=3, extra=True))
    assert step == UpdateStep(extra=True, remove=0)


def test_nodes_stay_while_the_present_spec_cannot_be_launched() -> None:
    sold_out = "the group gets no machine now: sold out"
    assert next_step(state(node(0), node(1), extra=True, failed=sold_out)) == UpdateStep(waits=sold_out)
    assert next_step(state(node(0), full="it is full", failed=sold_out)) == UpdateStep(waits=sold_out)


# The control plane.


def update(
    world: World, *, position: int = 1, fields: tuple[str, ...] = ("image",), price: float = 0, **changes: Any
) -> None:
    """Give group "default" another spec, whose only source has this position, and the earlier price by default."""
    had = world.plane.groups["default"]
    group = Group("default", had.min, had.max, had.slots, changes.pop("resources", had.resources), **changes)
    source = MachineSource("cloud", "default", position=position, hourly_price=price or had.hourly_price)
    world.tell(UpdateGroup(group, (source,), range(position, position + 1), 600.0, fields))


def outdated(world: World) -> list[int]:
    """Return the ranks of outdated nodes."""
    found = world.plane.reconciler
    return sorted(rank for rank, each in found.table.assignments.items() if found.is_outdated(each.machine))


def ranks(world: World) -> list[int]:
    return sorted(world.plane.reconciler.table.assignments)


def pool(least: int = 3, most: int = 8, **settings: Any) -> World:
    settings.setdefault("policy", "no")
    return World(Group("default", least, most, hourly_price=1.0), **settings).open()


def test_idle_pool_is_replaced_one_by_one() -> None:
    world = pool()
    update(world)
    most = 0
    while world.asked or world.installing or world.leaving:
        most = max(most, len(world.asked) + len(world.alive) - len(world.leaving))
        assert world.active >= 3
        if world.asked:
            world.allocate()
        elif world.installing:
            machine, _ = world.installing.popitem()
            world.tell(machines.Joined(machine))
        else:
            world.bury()
    assert most == 4
    assert outdated(world) == []
    assert world.active == 3
    assert 0 in ranks(world)
    assert not world.plane.updates
    assert [each for each in world.reasons_given if "update of group" in each] == [
        "3 -> 3 nodes: the update of group 'default' is complete: no node of an earlier spec is left"
    ]


@pytest.mark.parametrize("most", [{}, {"max_nodes": 3}])
def test_no_machine_is_launched_beyond_the_maximum_when_the_pool_grows_to_it(most: dict[str, int]) -> None:
    world = pool(1, 8 if most else 3, **most)
    update(world)
    assert len(world.asked) == 1
    world.tell(Resize({"default": (3, 8 if most else 3)}, {"default": 3}))
    assert len(world.alive) + len(world.asked) == 3
    world.deliver()
    assert world.active == 3
    world.wait(60.0)
    world.deliver()
    assert outdated(world) == [], "the outdated node goes first, since there is no room for one more"
    assert world.active == 3


def test_ended_tasks_do_not_look_at_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = pool(3)
    running = world.submit(3)
    update(world)
    looked = 0
    look = world.plane.updates.steps

    def steps(*given: Any) -> Any:
        nonlocal looked
        looked += 1
        return look(*given)

    monkeypatch.setattr(world.plane.updates, "steps", steps)
    world.finish(running)
    assert looked == 0, "the additional node still starts"
    world.deliver()
    assert outdated(world) == []


def test_decision_log_says_what_is_replaced_by_what() -> None:
    world = pool(2)
    update(world)
    world.deliver()
    texts = [each.removeprefix("2 -> 2 nodes: ") for each in world.reasons_given]
    assert texts == [
        "group 'default' has another spec (image): its 2 nodes are replaced one by one",
        "one node more is launched from the present spec of group 'default', to replace 2 nodes one by one",
        "node 1 was launched from an earlier spec of group 'default'; node 2 takes its place, until a new node 1 is "
        "active",
        "node 0 was launched from an earlier spec of group 'default'; node 2 takes its place, until a new node 0 is "
        "active",
        "the update of group 'default' is complete: no node of an earlier spec is left",
    ]


@pytest.mark.parametrize("most", [3, 4])
def test_successors_get_the_ranks_of_the_nodes_that_they_replace(most: int) -> None:
    """Regression: the ranks 0, 1 became 0, 2, so that tasks for node 1 failed."""
    world = pool(3, most)
    world.submit(2)
    (queued,) = world.submit(target=2)
    (behind,) = world.submit(target=2)
    for position in (1, 2):
        update(world, position=position)
        world.deliver()
        world.finish()
        world.deliver()
        assert outdated(world) == []
        assert ranks(world) == [0, 1, 2]
    assert world.settled[queued] == world.settled[behind] == "value"


@pytest.mark.parametrize("policy", ["adaptive", "pressure", "binpack"])
@pytest.mark.parametrize("total", [None, 3])
def test_room_is_for_the_additional_node_before_growth(policy: str, total: int | None) -> None:
    """Regression: the policy took the room that was given for the update, for the tasks that waited."""
    world = pool(2, 2, policy=policy, max_nodes=total)
    world.submit(200)
    world.wait(40)
    update(world)
    world.tell(Resize({"default": (2, 3 if total is None else 8)}))
    world.wait(40)
    assert world.plane.desired == {"default": 2}
    running = [task for task in world.sent if task not in world.settled]
    world.finish(running)
    world.deliver()
    assert world.active >= 2
    world.finish()
    world.deliver()
    assert outdated(world) == []


def test_smaller_pool_launches_no_successor() -> None:
    world = pool(3, 3)
    world.submit(3)
    update(world)
    assert world.plane.draining == {2}
    world.tell(Resize({"default": (2, 2)}))
    assert world.plane.draining == {2}
    world.finish()
    world.deliver()
    assert ranks(world) == [0, 1]
    assert outdated(world) == []


def test_busy_nodes_end_their_tasks_first() -> None:
    world = pool(2)
    sent = world.submit(2)
    update(world)
    world.deliver()
    assert world.plane.draining == {1}
    assert not world.settled
    more = world.submit()
    assert world.sent[more[0]] == 2
    world.finish([task for task in sent if world.sent[task] == 1])
    world.deliver()
    assert outdated(world) == [0]
    world.finish()
    world.deliver()
    assert outdated(world) == []
    assert set(world.settled.values()) == {"value"}
    assert len(world.settled) == 3


@pytest.mark.parametrize("most", [pytest.param(4, id="no room"), pytest.param(8, id="room for one more")])
def test_broadcast_under_way_gets_no_members_on_the_nodes_of_an_update(most: int) -> None:
    """Regression: the successor of a node that had ended its part, and the additional node, ran the call again."""
    world = pool(4, most)
    world.tell(tasks.Broadcast(world.plane.tasks.number()))
    world.finish([task for task, rank in world.sent.items() if rank])
    update(world)
    world.deliver()
    assert outdated(world) == [0]
    assert len(world.sent) == 4
    world.finish()
    world.deliver()
    assert outdated(world) == []
    assert list(world.settled.values()) == ["value"] * 4


def test_broadcast_under_way_includes_nodes_that_the_pool_gains() -> None:
    world = pool(2)
    world.tell(tasks.Broadcast(world.plane.tasks.number()))
    world.tell(Resize({"default": (3, 8)}, {"default": 3}))
    world.deliver()
    assert len(world.sent) == 3


def test_node_with_kept_values_is_replaced_once_they_are_dropped() -> None:
    world = pool(2)
    keep(world, 1)
    update(world)
    world.deliver()
    assert outdated(world) == [1]
    assert world.active == 2
    assert "2 -> 2 nodes: 1 node of an earlier spec of group 'default' stays for now: node 1 keeps df" in (
        world.reasons_given
    )
    world.tell(ReleaseKept(("key",)))
    world.deliver()
    assert outdated(world) == []
    assert world.active == 2


def test_value_kept_on_a_draining_node_keeps_it() -> None:
    world = pool(2)
    world.submit(2)
    update(world)
    world.deliver()
    assert world.plane.draining == {1}
    keep(world, 1)
    assert 1 not in world.plane.draining
    world.finish()
    world.deliver()
    assert outdated(world) == [1]
    assert world.active == 2


def test_task_for_a_draining_node_keeps_it_until_it_has_ended() -> None:
    world = pool(2)
    world.submit(2)
    update(world)
    world.deliver()
    (task,) = world.submit(target=1)
    world.finish()
    world.deliver()
    assert world.settled[task] == "value"
    assert outdated(world) == []
    assert world.active == 2


BIG = Needs({"BIG": 1.0})


@pytest.mark.parametrize("most", [pytest.param(2, id="no room"), pytest.param(4, id="room for one more")])
@pytest.mark.parametrize("rank", [0, 1])
def test_task_pinned_to_a_node_that_only_its_successor_can_hold_runs_there(most: int, rank: int) -> None:
    """Regression: the outdated node waited for the task, and the task for the successor of the node."""
    world = pool(2, most)
    running = world.submit(2)
    update(world, resources={"BIG": 1.0}, fields=("resources",))
    (big,) = world.submit(needs=BIG, target=rank)
    (behind,) = world.submit(target=rank)
    world.deliver()
    assert big not in world.sent
    world.finish(running)
    for _ in range(3):
        world.deliver()
        world.finish()
    assert outdated(world) == []
    assert world.sent[big] == rank
    assert world.settled[big] == world.settled[behind] == "value"


def test_task_that_only_the_successor_can_hold_does_not_cancel_the_drain_of_its_node() -> None:
    world = pool(2, 2)
    running = world.submit(2)
    update(world, resources={"BIG": 1.0}, fields=("resources",))
    assert world.plane.draining == {1}
    (big,) = world.submit(needs=BIG, target=1)
    assert world.plane.draining == {1}
    world.finish([task for task in running if world.sent[task] == 1])
    world.deliver()
    assert world.sent[big] == 1
    world.finish()
    world.deliver()
    assert world.settled[big] == "value"
    assert outdated(world) == []


def test_collective_that_waits_for_a_successor_does_not_hold_the_other_nodes() -> None:
    world = World(Group("default", 1, 1), Group("other", 1, 1, 1, {"BIG": 1.0}), policy="no").open()
    new = Group("default", 1, 1, 1, {"BIG": 1.0})
    source = MachineSource("cloud", "default", position=1)
    world.tell(UpdateGroup(new, (source,), range(1, 2), 600.0, ("resources",)))
    together = tasks.Together()
    world.tell(tasks.Broadcast(world.plane.tasks.number(), BIG, ranks=(0, 1), together=together))
    other = Group("other", 1, 1, 1, {"BIG": 1.0})
    world.tell(UpdateGroup(other, (MachineSource("cloud", "other", position=1),), range(1, 2), 600.0, ("image",)))
    for _ in range(3):
        world.deliver()
        world.finish()
    assert outdated(world) == []
    assert list(world.settled.values()) == ["value", "value"]


def test_task_pinned_to_a_node_without_a_successor_ends() -> None:
    """Regression: it waited for ever for a node of the changed spec, after the update had failed."""
    world = pool(2)
    update(world, resources={"BIG": 1.0}, fields=("resources",))
    (big,) = world.submit(needs=BIG, target=1)
    (plain,) = world.submit(target=1)
    fail_all(world)
    assert world.settled[big] == "abandoned"
    assert "node 1 stays as it is, and can never hold 1 BIG: the pool could not start node 2" in world.reasons[big]
    world.finish()
    assert world.settled[plain] == "value"
    (late,) = world.submit(needs=BIG, target=0)
    assert world.settled[late] == "abandoned"


def test_task_pinned_to_a_node_whose_successor_is_too_dear_ends() -> None:
    world = pool(1, 1)
    world.tell(SetBudget(1.5 / 60))
    update(world, resources={"BIG": 1.0}, fields=("resources",), price=10.0)
    (big,) = world.submit(needs=BIG, target=0)
    assert world.settled[big] == "unfunded"


def test_task_that_uses_a_kept_value_never_waits_for_a_successor() -> None:
    world = pool(2, 2)
    keep(world, 1)
    update(world, resources={"BIG": 1.0}, fields=("resources",))
    (number,) = (world.plane.tasks.number(),)
    world.tell(tasks.Submitted((number,), 1, needs=BIG, kept=("key",)))
    assert world.settled[number] == "infeasible"


def test_task_pinned_to_a_node_of_a_group_that_can_never_hold_it_ends() -> None:
    """Regression: it waited for ever, though only a node of another group could run it."""
    world = World(Group("small", 1, 1), Group("big", 1, 1, 1, {"BIG": 1.0}), policy="no").open()
    (big,) = world.submit(needs=BIG, target=0)
    assert world.settled[big] == "infeasible"
    assert world.reasons[big] == "1 BIG on node 0, which can never have that: it has no resources"


def test_node_takes_tasks_until_the_streams_have_ended_whose_readers_wait_for_them() -> None:
    """Regression: the tasks waited for the successor, which waited for the stream, which waited for its reader."""
    world = World(Group("default", 1, 1, 2), policy="no").open()
    (stream,) = world.submit()
    update(world)
    (read,) = world.submit()
    assert world.plane.draining == {0}
    assert read not in world.sent
    world.tell(SpareStreams(0, frozenset({stream})))
    assert world.plane.draining == set()
    world.finish([read])
    assert world.settled[read] == "value"
    assert world.reasons_given[-1] == (
        "1 -> 1 nodes: 1 node of an earlier spec of group 'default' stays for now: node 0 runs streams that are not "
        "read while tasks wait, so it takes tasks until they end"
    )
    world.wait(100)
    assert world.plane.draining == set()
    world.submit(1)
    world.finish([stream])
    assert world.plane.draining == {0}, "it drains though it has tasks, as before"
    world.finish()
    world.deliver()
    assert outdated(world) == []
    assert world.active == 1


def test_only_nodes_that_drain_for_an_update_are_spared_for_streams() -> None:
    world = pool(2)
    world.submit(2)
    world.tell(Resize({"default": (1, 8)}, {"default": 1}))
    assert world.plane.draining == {1}
    world.tell(SpareStreams(1, frozenset({2})))
    assert world.plane.draining == {1}


def test_pool_of_a_fixed_size_under_load_is_replaced() -> None:
    """Regression: nodes that were never idle took new tasks, so that the update never went on."""
    world = pool(2, 2)
    first, second = world.submit(2)
    waiting = world.submit(20)
    update(world)
    assert world.reasons_given[-1] == (
        "2 -> 2 nodes: node 1 was launched from an earlier spec of group 'default' and goes once its tasks have ended, "
        "before its successor starts: group 'default' may have at most 2 nodes"
    )
    world.finish([second])
    assert len(world.settled) == 1
    world.deliver()
    assert outdated(world) == [0]
    assert world.sent[waiting[0]] == 1
    world.finish([first])
    world.deliver()
    assert outdated(world) == []
    assert ranks(world) == [0, 1]
    world.finish()
    assert set(world.settled.values()) == {"value"}
    assert len(world.settled) == 22


def test_stored_results_do_not_keep_a_node() -> None:
    """Regression: an update waited for a node on which a result was stored, for a reason that no one saw."""
    world = pool(2, 2)
    world.tell(tasks.UniqueResults(0, 1))
    update(world)
    world.deliver()
    assert world.plane.draining == {0}
    world.tell(tasks.UniqueResults(0, 0))
    world.deliver()
    assert outdated(world) == []


def test_single_node_is_replaced_and_tasks_wait_meanwhile() -> None:
    world = pool(1, 1)
    world.submit(3)
    update(world)
    assert world.reasons_given[-1].endswith("; tasks wait meanwhile, and what is in collections is lost")
    assert outdated(world) == [0]
    world.finish()
    assert world.active == 0
    assert len(world.settled) == 1
    world.deliver()
    world.finish()
    assert len(world.settled) == 3
    assert world.active == 1
    assert outdated(world) == []


def test_maximum_over_all_groups_holds() -> None:
    world = pool(2, 8, max_nodes=2)
    world.submit(2)
    update(world)
    assert len(world.alive) + len(world.asked) == 2
    assert world.plane.draining == {1}
    assert "(max_nodes)" in world.reasons_given[-1]
    world.finish()
    world.deliver()
    assert outdated(world) == []


def test_budget_without_room_lets_a_node_go_first() -> None:
    world = pool(2)
    world.tell(SetBudget(2.5 / 60))
    update(world)
    assert "the budget covers no further node" in world.reasons_given[-1]
    assert not world.asked
    world.bury()
    world.deliver()
    assert outdated(world) == []
    assert world.active == 2


def test_nodes_stay_if_the_present_spec_is_sold_out_and_go_later() -> None:
    world = pool(2)
    update(world)
    refused, world.asked = tuple(world.asked), {}
    world.tell(machines.Refused(refused, "there is none", "capacity"))
    assert world.active == 2
    assert world.reasons_given[-1] == (
        "2 -> 2 nodes: 2 nodes of an earlier spec of group 'default' stay for now: the group gets no machine now: "
        "there is none"
    )
    assert not world.asked
    world.wait(320)
    world.deliver()
    assert outdated(world) == []


def test_nodes_stay_if_those_of_the_present_spec_do_not_start() -> None:
    world = pool(2)
    update(world)
    fail_all(world)
    assert world.active == 2
    assert outdated(world) == [0, 1]
    assert "stay for now: the pool could not start node 2" in world.reasons_given[-1]
    world.wait(4000)
    assert not world.asked
    (task,) = world.submit()
    world.finish()
    assert world.settled[task] == "value"


def test_resize_retries_an_update_that_failed() -> None:
    world = pool(2)
    update(world)
    fail_all(world)
    world.tell(Resize({"default": (2, 4)}))
    world.deliver()
    assert outdated(world) == []


def test_tasks_that_need_the_present_spec_retry_an_update_that_failed() -> None:
    world = pool(2)
    update(world, resources={"GPU": 1.0}, fields=("accelerator",))
    fail_all(world)
    (task,) = world.submit(needs=Needs({"GPU": 1.0}))
    world.wait(400)
    world.deliver()
    assert world.sent[task] not in outdated(world)
    world.finish()
    world.deliver()
    assert outdated(world) == []


def test_tasks_that_need_the_present_spec_end_if_it_never_starts() -> None:
    world = pool(2)
    update(world, resources={"GPU": 1.0}, fields=("accelerator",))
    (task,) = world.submit(needs=Needs({"GPU": 1.0}))
    for _ in range(40):
        fail_all(world)
        world.wait(300)
    assert world.settled[task] == "abandoned"
    assert "could not start" in world.reasons[task]
    assert world.active == 2


def test_groups_without_room_are_replaced_one_node_at_a_time() -> None:
    """Regression: a node of each group left at once, and what was in collections was lost without a notice."""
    world = World(Group("a", 1, 1), Group("b", 2, 2), policy="no").open()
    running = world.submit(3)
    for name, most in (("a", 1), ("b", 2)):
        source = MachineSource("cloud", name, position=1)
        world.tell(UpdateGroup(Group(name, most, most), (source,), range(1, 2), 600.0, ("image",)))
    assert world.plane.draining == {0}
    assert world.reasons_given[-1] == (
        "3 -> 3 nodes: 2 nodes of an earlier spec of group 'b' stay for now: group 'a' has one node less until the "
        "successor of its node 0 is active"
    )
    world.finish(running)
    least = world.active
    while world.asked or world.installing or world.leaving:
        world.allocate()
        least = min(least, world.active)
        if world.installing:
            machine, _ = world.installing.popitem()
            world.tell(machines.Joined(machine))
        world.bury()
        least = min(least, world.active)
    assert least == 2
    assert outdated(world) == []
    assert ranks(world) == [0, 1, 2]


def test_last_active_node_waits_for_the_one_that_starts() -> None:
    world = World(Group("a", 1, 1), Group("b", 1, 1), policy="no").open()
    world.tell(machines.Lost(world.machine_of(0), "it died"))
    world.allocate()
    source = MachineSource("cloud", "b", position=1)
    world.tell(UpdateGroup(Group("b", 1, 1), (source,), range(1, 2), 600.0, ("image",)))
    assert world.active == 1
    assert "no other node is active before one of group 'a' has started" in world.reasons_given[-1]
    world.deliver()
    assert outdated(world) == []
    assert world.active == 2


def test_update_goes_on_although_another_group_never_gets_its_node_back() -> None:
    world = World(Group("a", 1, 1), Group("b", 2, 2), policy="no").open()
    for name, most in (("a", 1), ("b", 2)):
        source = MachineSource("cloud", name, position=1)
        world.tell(UpdateGroup(Group(name, most, most), (source,), range(1, 2), 600.0, ("image",)))
    for _ in range(60):
        while refused := [number for number, launch in world.asked.items() if launch.source.type == "a"]:
            world.asked = {number: launch for number, launch in world.asked.items() if number not in refused}
            world.tell(machines.Refused(tuple(refused), "there is none, ever", "impossible"))
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            world.tell(machines.Joined(number))
        world.bury()
        world.wait(30)
    assert 0 not in ranks(world)
    assert outdated(world) == []
    assert world.active == 2


def test_earlier_spec_again_keeps_its_nodes() -> None:
    world = pool(3)
    update(world)
    fail_all(world)
    update(world, position=0)
    assert "(image): no node is replaced, since none is of another spec" in str(world.reasons_given)
    world.deliver()
    assert outdated(world) == []
    assert world.active == 3
    assert world.plane.groups["default"].max == 8


def test_resize_after_the_earlier_spec_was_taken_again_launches_from_it() -> None:
    world = pool(2, 2)
    update(world)
    refused, world.asked = tuple(world.asked), {}
    world.tell(machines.Refused(refused, "there is none", "capacity"))
    world.deliver()
    assert outdated(world) == [0, 1]
    world.tell(machines.Lost(world.machine_of(1), "it died"))
    update(world, position=0)
    world.tell(Resize({"default": (3, 3)}))
    assert {source.position for source in world.plane.reconciler.sources["default"]} == {0}
    world.deliver()
    assert world.active == 3
    assert outdated(world) == []


def test_decision_log_says_how_many_of_the_nodes_are_replaced() -> None:
    world = pool(2, 2)
    world.submit(2)
    update(world)
    world.tell(machines.Lost(world.machine_of(1), "it died"))
    world.deliver()
    update(world, position=1)
    assert "(image): 1 of its 2 nodes is replaced" in str(world.reasons_given)


def test_second_update_supersedes_the_first() -> None:
    world = pool(3)
    update(world)
    world.allocate()
    update(world, position=2)
    world.deliver()
    found = world.plane.reconciler.table.assignments.values()
    assert {each.machine.source.position for each in found if each.machine.source is not None} == {2}
    assert world.active == 3


@pytest.mark.parametrize("nodes", [1, 2])
def test_node_that_made_room_comes_back_if_its_successor_does_not_start(nodes: int) -> None:
    world = pool(nodes, nodes)
    update(world)
    (task,) = world.submit()
    (pinned,) = world.submit(target=nodes - 1)
    launched = None
    while launched != 0:
        world.bury()
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            launched = world.alive[number].position
            world.tell(machines.Failed(number, "it broke") if launched else machines.Joined(number))
        world.wait(5)
    world.finish()
    assert world.settled[task] == world.settled[pinned] == "value"
    assert world.active == nodes
    assert len(outdated(world)) == nodes
    world.wait(4000)
    assert not world.asked
    (text,) = [each for each in world.reasons_given if "takes the place of the one that made room" in each]
    assert "and the update ends: the pool could not start node" in text
    world.tell(Resize({"default": (nodes, nodes)}))
    world.deliver()
    assert outdated(world) == []


def test_node_that_made_room_comes_back_if_its_successor_is_sold_out() -> None:
    world = pool(1, 1)
    update(world)
    (task,) = world.submit()
    refused, world.asked = tuple(world.asked), {}
    world.tell(machines.Refused(refused, "there is none", "capacity"))
    world.deliver()
    world.finish()
    assert world.settled[task] == "value"
    assert outdated(world) == [0]
    assert "the pool gets no machine now: there is none" in str(world.reasons_given)


def test_update_that_fell_back_stays_ended_when_all_nodes_have_gone() -> None:
    """Regression: the nodes that came later were replaced again and again."""
    world = World(Group("default", 0, 1, hourly_price=1.0), policy="pressure", idle_timeout=5.0).open()
    world.submit()
    world.deliver()
    world.finish()
    update(world)
    world.bury()
    refused, world.asked = tuple(world.asked), {}
    world.tell(machines.Refused(refused, "there is none", "capacity"))
    world.deliver()
    world.wait(60)
    world.bury()
    assert ranks(world) == []
    world.submit()
    world.allocate()
    world.tell(machines.Joined(world.machine_of(0)))
    world.finish()
    world.tell(Tick())
    assert outdated(world) == [0]
    assert world.state_of(0) == "active"


def attached(before: int, present: int, **settings: Any) -> World:
    """Return a pool that was attached to in an update, with so many nodes of the spec before and of the present one."""
    old, new = (MachineSource("cloud", "default", position=position, hourly_price=1.0) for position in (0, 1))
    existing = {source: count for source, count in ((old, before), (new, present)) if count}
    world = World(
        Group("default", 2, 2, hourly_price=1.0),
        policy="no",
        sources={"default": (new,)},
        positions={"default": range(1, 2)},
        earlier={("default", 0): Group("default", 2, 2, hourly_price=1.0)},
        existing={"default": existing},
        before={"default": (old,)},
        **settings,
    ).open()
    world.tell(ContinueSize({"default": 2}))
    return world


def test_update_that_fell_back_before_its_process_ended_does_not_begin_again() -> None:
    world = attached(2, 0, fell_back=frozenset({"default"}))
    world.wait(4000)
    world.deliver()
    assert outdated(world) == [0, 1]
    assert not any(isinstance(each, machines.Drain) for each in world.said)
    world.tell(Resize({"default": (2, 2)}))
    world.deliver()
    assert outdated(world) == []


def test_node_that_made_room_before_its_process_ended_comes_back_if_its_successor_is_sold_out() -> None:
    old, new = (MachineSource("cloud", "default", position=position, hourly_price=1.0) for position in (0, 1))
    world = World(
        Group("default", 2, 2, hourly_price=1.0),
        policy="no",
        sources={"default": (new,)},
        positions={"default": range(1, 2)},
        existing={"default": {old: 1}},
        before={"default": (old,)},
    )
    world.tell(Open())
    refused = tuple(number for number, each in world.asked.items() if each.source == new)
    for number in refused:
        del world.asked[number]
    world.tell(machines.Refused(refused, "there is none", "capacity"))
    world.deliver()
    world.tell(ContinueSize({"default": 2}))
    world.deliver()
    assert outdated(world) == [0, 1]
    assert "takes the place of the one that made room" in str(world.reasons_given)


def test_node_0_comes_back_if_its_successor_is_sold_out() -> None:
    world = pool(1, 2)
    update(world)
    while 0 not in [each.rank for each in world.said if isinstance(each, machines.NodeGone)]:
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            world.tell(machines.Joined(number))
    refused, world.asked = tuple(world.asked), {}
    world.tell(machines.Refused(refused, "there is none", "capacity"))
    assert world.active == 1
    world.deliver()
    assert ranks(world) == outdated(world) == [0]
    world.wait(4000)
    world.deliver()
    assert ranks(world) == outdated(world) == [0]


def test_tasks_that_need_the_present_spec_end_once_it_was_given_up() -> None:
    world = World(Group("default", 1, 1), policy="no").open()
    update(world, resources={"GPU": 1.0}, fields=("accelerator",))
    (task,) = world.submit(needs=Needs({"GPU": 1.0}))
    for _ in range(3):
        world.bury()
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            world.tell(machines.Failed(number, "it broke"))
        world.wait(10)
    world.deliver()
    assert world.settled[task] == "abandoned"
    assert "could not start node 0" in world.reasons[task]
    assert world.active == 1


def test_lost_node_is_replaced_from_the_present_spec() -> None:
    world = pool(2, 2)
    world.submit(2)
    update(world)
    world.tell(machines.Lost(world.machine_of(1), "it died"))
    world.deliver()
    assert outdated(world) == [0]


def test_smaller_pool_loses_outdated_nodes_first() -> None:
    world = pool(3, 3)
    world.submit(3)
    update(world)
    world.tell(machines.Lost(world.machine_of(2), "it died"))
    world.deliver()
    assert outdated(world) == [0, 1]
    world.tell(Resize({"default": (2, 2)}))
    assert world.plane.draining == {1}


def test_updates_are_refused_that_leave_tasks_without_a_node() -> None:
    world = World(Group("default", 1, 4, 1, {"GPU": 1.0}), policy="no").open()
    assert world.plane.refuses_update(Group("default", 1, 4), world.now) == ""
    (task,) = world.submit(needs=Needs({"GPU": 1.0}))
    assert world.plane.refuses_update(Group("default", 1, 4), world.now) == (
        "tasks that have not ended need 1 GPU, which no node would have: wait for them, or cancel them"
    )
    world.finish([task])
    assert world.plane.refuses_update(Group("default", 1, 4), world.now) == ""


def test_updates_are_refused_whose_nodes_the_budget_does_not_cover() -> None:
    world = pool(2)
    world.tell(SetBudget(0.5))
    assert world.plane.refuses_update(Group("default", 2, 8, hourly_price=14.0), world.now) == ""
    assert world.plane.refuses_update(Group("default", 2, 8, hourly_price=1000.0), world.now) == (
        "its budget of $0.50, of which $0.00 is spent, does not cover 60 s of 2 nodes at $1,000.00/h: raise it first, "
        "with `pool.set_budget(USD)`"
    )
    world.tell(SetBudget(None))
    assert world.plane.refuses_update(Group("default", 2, 8, hourly_price=1000.0), world.now) == ""


@pytest.mark.parametrize("most", [1, 3])
def test_node_stays_if_the_budget_does_not_cover_its_successor(most: int) -> None:
    world = pool(1, most)
    world.tell(SetBudget(1.5 / 60))
    update(world, price=10.0)
    (task,) = world.submit()
    world.finish([task])
    world.deliver()
    assert outdated(world) == [0]
    assert world.active == 1
    assert "the budget does not cover a node of the present spec at $10.00/h, even in its place" in str(
        world.reasons_given
    )
    world.tell(SetBudget(1.0))
    world.deliver()
    assert outdated(world) == []
    assert world.active == 1


def test_nodes_keep_the_resources_that_they_were_launched_with() -> None:
    world = World(Group("default", 2, 4, 1, {"GPU": 1.0}), policy="no").open()
    keep(world, 1)
    update(world, resources={"TPU": 1.0}, fields=("accelerator",))
    world.deliver()
    assert outdated(world) == [1]
    (task,) = world.submit(needs=Needs({"TPU": 1.0}))
    assert world.sent[task] != 1


@pytest.mark.parametrize("policy", ["adaptive", "pressure", "binpack", "vanilla"])
def test_policies_do_not_count_the_additional_node(policy: str) -> None:
    world = pool(3, 8, policy=policy)
    world.submit(3)
    update(world)
    before = world.plane.desired["default"]
    world.wait(60)
    assert world.plane.desired["default"] == before
    assert world.plane.snapshot(world.now).counts["default"].booting == 0
    world.finish()
    world.deliver()
    world.wait(10)
    world.deliver()
    assert outdated(world) == []


@pytest.mark.parametrize("busy", [False, True])
def test_decision_for_fewer_nodes_says_which_node_gets_no_successor(busy: bool) -> None:
    """Regression: "1 booting node is not needed any more" read as if the update was given up."""
    world = pool(1, 2, policy="adaptive")
    world.submit(8)
    world.wait(2)
    world.deliver()
    assert world.active == 2
    update(world)
    assert world.plane.draining == {1}
    long = [task for task, rank in world.sent.items() if rank == 1 and task not in world.settled]
    world.finish([task for task in range(1, 9) if task not in long or not busy])
    world.wait(100)
    said = "-> 1 nodes: 1 booting node is not needed any more; node 1, which leaves for the update, gets no successor"
    assert said in str(world.reasons_given)
    world.finish()
    world.deliver()
    assert outdated(world) == []
    assert ranks(world) == [0]


@pytest.mark.parametrize("seed", range(60))
def test_updates_replace_one_node_at_a_time_and_stop_no_task(seed: int) -> None:
    chance = random.Random(seed)
    least = chance.randint(1, 5)
    most = least + chance.choice([0, 1, 3])
    world = pool(least, most, max_nodes=chance.choice([None, most, most + 1]))
    position, fresh = 0, 0
    for _ in range(chance.randint(20, 80)):
        active = world.active
        events = ["submit", "submit", "finish", "update", "allocate", "join", "bury", "fail", "refuse", "tick", "keep"]
        event = chance.choice([*events, "pin", "spare"])
        match event:
            case "pin":
                world.submit(target=chance.randrange(least))
            case "spare" if world.plane.draining:
                rank = chance.choice(sorted(world.plane.draining))
                there = world.plane.tasks.node(rank)
                world.tell(SpareStreams(rank, frozenset(list(there.tasks)[:1] if there else ())))
            case "submit":
                world.submit(chance.randint(1, 3))
            case "finish":
                running = [task for task in world.sent if task not in world.settled]
                if running:
                    world.finish([chance.choice(running)])
            case "update":
                position += 1
                update(world, position=position)
            case "allocate":
                world.allocate()
            case "join" if world.installing:
                machine = chance.choice(list(world.installing))
                del world.installing[machine]
                world.tell(machines.Joined(machine))
            case "fail" if world.installing:
                machine = chance.choice(list(world.installing))
                del world.installing[machine]
                world.tell(machines.Failed(machine, "it broke"))
            case "refuse" if world.asked:
                refused, world.asked = tuple(world.asked), {}
                world.tell(machines.Refused(refused, "there is none", chance.choice(["capacity", "unknown"])))
            case "bury":
                world.bury()
            case "keep" if world.active:
                fresh += 1
                keep(world, chance.choice(world.plane.tasks.ranks), key=f"key{fresh}")
                world.now += chance.choice([0.0, 4000.0])
            case _:
                world.now += chance.uniform(0, 20)
                world.tell(Tick())
        desired = world.plane.desired["default"]
        assert world.plane.reconciler.effective("default") <= max(desired, min(most, desired + 1))
        assert sum(machine.replaced for machine in world.plane.reconciler.table) <= 1 or world.leaving
        assert world.active >= active - 1
        assert set(world.settled.values()) <= {"value"}
    for _ in range(60):
        world.now += 4000
        world.tell(Resize({"default": (least, most)}))
        world.finish()
        world.deliver()
    assert outdated(world) == []
    assert world.active == world.plane.desired["default"]
    assert set(world.settled.values()) <= {"value"}


def fail_all(world: World) -> None:
    """Let every machine that is launched fail to become a node."""
    for _ in range(30):
        world.allocate()
        for number in tuple(world.installing):
            del world.installing[number]
            world.tell(machines.Failed(number, "it broke"))
        world.bury()
        world.wait(5)


def keep(world: World, rank: int, key: str = "key") -> None:
    world.tell(KeptAdded(KeptEntry(KeptInfo(key, "df", "DataFrame", 100, 3600.0), rank, "p", used_at=world.now)))
