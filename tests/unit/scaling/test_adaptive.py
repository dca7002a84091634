"""The adaptive policy, rule by rule."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.scaling.adaptive import Adaptive
from skyward.scaling.gaps import Gaps
from skyward.scaling.snapshot import Counts, Demand, GangDemand, Group, NodeLoad, RunningTasks, Snapshot
from skyward.scaling.snapshot.work import rough_text, starts_of_busy, starts_of_free
from skyward.values.needs import NOTHING, Needs

GPU = Needs({"GPU": 1})


def pool(
    *demands: Demand,
    active: int = 1,
    booting: int = 0,
    busy: int | None = None,
    slots: int = 1,
    least: int = 0,
    most: int = 100,
    boot: float = 120.0,
    price: float = 1.0,
    **given_fields: object,
) -> Snapshot:
    """Return a pool of one group, whose nodes are busy unless said otherwise."""
    group = Group("nodes", least, most, slots, hourly_price=price)
    busy = active * slots if busy is None else busy
    counts = Counts(active, booting, 0, busy, active + booting)
    seen = Snapshot(1000.0, (group,), {"nodes": counts}, demands, boots={"nodes": boot}, boot_seconds=boot)
    return replace(seen, **given_fields)  # type: ignore[arg-type]  # fields of a snapshot


def idle_nodes(*seconds: float, group: str = "nodes") -> tuple[NodeLoad, ...]:
    """Return the idle nodes among some: the seconds for which each has been idle, or 0 for one that is busy."""
    return tuple(NodeLoad(rank, group, "active", idle_for=each) for rank, each in enumerate(seconds) if each)


def nodes_for(seen: Snapshot) -> int:
    return Adaptive().decide(seen).desired["nodes"]


# How many nodes.


@pytest.mark.parametrize(
    ("seen", "nodes"),
    [
        pytest.param(pool(), 1, id="nothing waits"),
        pytest.param(
            pool(Demand(1000, seconds=0.01), running=(RunningTasks(1, 0.01),)),
            1,
            id="done before a node has booted",
        ),
        pytest.param(pool(Demand(1000, seconds=0.01), active=0, booting=1), 1, id="the only node boots"),
        pytest.param(pool(Demand(8, seconds=7200.0)), 9, id="each long task is worth a node"),
        pytest.param(pool(Demand(8, seconds=7200.0), slots=4), 3, id="each long task is worth a slot"),
        pytest.param(pool(Demand(8, seconds=7200.0), booting=3), 9, id="booting nodes take their tasks"),
        pytest.param(pool(Demand(8, seconds=7200.0), active=4, busy=1), 9, id="free slots take tasks"),
        pytest.param(pool(Demand(8, seconds=7200.0), most=5), 5, id="never more than the maximum"),
        pytest.param(pool(Demand(8, seconds=7200.0), max_nodes=4), 4, id="never more than the maximum of all groups"),
        pytest.param(pool(Demand(100, seconds=60.0)), 41, id="a new node runs two tasks within the target"),
        pytest.param(pool(Demand(100, seconds=60.0), target_wait="fast", most=200), 101, id="no wait beyond the boot"),
        pytest.param(pool(Demand(100, seconds=60.0), target_wait="cheap"), 8, id="a wait of fifteen minutes"),
        pytest.param(pool(Demand(100, seconds=60.0), target_wait=600.0), 11, id="a wait in seconds"),
    ],
)
def test_nodes_for_tasks_of_known_run_time(seen: Snapshot, nodes: int) -> None:
    assert nodes_for(seen) == nodes


@pytest.mark.parametrize(
    ("running", "nodes"),
    [
        pytest.param(RunningTasks(4, 300.0, age=10.0), 6, id="they have just started together"),
        pytest.param(RunningTasks(4, 300.0, age=290.0), 4, id="they are about to end"),
        pytest.param(RunningTasks(4, 300.0, age=9000.0), 6, id="they run far longer than the mean"),
        pytest.param(RunningTasks(4), 6, id="their run time is unknown"),
    ],
)
def test_busy_nodes_count_as_far_as_their_tasks_are_expected_to_end(running: RunningTasks, nodes: int) -> None:
    assert nodes_for(pool(Demand(2, seconds=300.0), active=4, running=(running,))) == nodes


def test_task_that_waits_too_long_gets_a_node_whatever_was_expected() -> None:
    soon = (RunningTasks(4, 300.0, age=200.0, spread=90.0),)
    assert nodes_for(pool(Demand(1, seconds=300.0, waited=100.0), active=4, running=soon)) == 4
    assert nodes_for(pool(Demand(1, seconds=300.0, waited=300.0), active=4, running=soon)) == 5
    assert nodes_for(pool(Demand(1, seconds=300.0, waited=300.0), active=4, booting=1, running=soon)) == 5


def test_short_tasks_that_waited_for_the_first_boot_launch_nothing_while_a_node_boots() -> None:
    seen = pool(Demand(999, seconds=0.01, waited=500.0), booting=1, running=(RunningTasks(1, 0.01),))
    assert nodes_for(replace(seen, target_wait="fast")) == 2


# Nodes whose resources hold fewer tasks than they have slots.

CPU = Needs({"CPU": 1})
NARROW = Group("nodes", 0, 100, 4, {"CPU": 1.0}, hourly_price=1.0)


def narrow(
    *demands: Demand, active: int, busy: int, booting: int = 0, group: Group = NARROW, **given_fields: object
) -> Snapshot:
    """Return a pool of nodes with four slots and resources for one task of a CPU."""
    counts = Counts(active, booting, 0, busy, active + booting, shapes={CPU: busy} if busy else {})
    seen = Snapshot(1000.0, (group,), {"nodes": counts}, demands, boots={"nodes": 60.0}, boot_seconds=60.0)
    return replace(seen, **given_fields)  # type: ignore[arg-type]  # fields of a snapshot


@pytest.mark.parametrize(
    ("seen", "nodes"),
    [
        pytest.param(narrow(Demand(3, CPU, seconds=7200.0), active=1, busy=1), 4, id="free slots are no room"),
        pytest.param(narrow(Demand(3, CPU, seconds=7200.0), active=2, busy=1), 4, id="a free node is"),
        pytest.param(narrow(Demand(3, seconds=7200.0), active=1, busy=1), 1, id="for tasks that need no resources"),
        pytest.param(narrow(Demand(3, CPU, seconds=7200.0), active=1, busy=1, booting=3), 4, id="boots go on"),
        pytest.param(
            narrow(Demand(2, CPU, seconds=300.0), active=4, busy=4, running=(RunningTasks(4, 300.0, age=290.0),)),
            4,
            id="tasks that are about to end make room",
        ),
        pytest.param(
            narrow(Demand(1, CPU, seconds=7200.0), Demand(1, CPU, seconds=3600.0), active=1, busy=0),
            2,
            id="of two functions",
        ),
        pytest.param(
            narrow(Demand(1, CPU, seconds=7200.0), Demand(3, seconds=7200.0), active=1, busy=0), 2, id="beside others"
        ),
        pytest.param(
            narrow(
                Demand(1, CPU, seconds=7200.0),
                active=1,
                busy=0,
                gangs=(GangDemand((CPU,)),),
                nodes=(NodeLoad(0, "nodes", "active", free={"CPU": 1.0}),),
            ),
            2,
            id="a gang takes the room",
        ),
        pytest.param(
            narrow(Demand(1, CPU, seconds=7200.0), active=0, busy=0, booting=2, gangs=(GangDemand((CPU, CPU)),)),
            3,
            id="a gang takes the boots",
        ),
    ],
)
def test_nodes_of_which_resources_hold_fewer_tasks_than_slots(seen: Snapshot, nodes: int) -> None:
    assert nodes_for(seen) == nodes


def test_tasks_of_half_the_resources_of_a_node_take_half_of_it() -> None:
    group = replace(NARROW, resources={"CPU": 8.0}, slots=8)
    large = Counts(1, 0, 0, 1, 1, shapes={Needs({"CPU": 5}): 1})
    seen = narrow(Demand(6, CPU, seconds=7200.0), active=1, busy=1, group=group, counts={"nodes": large})
    assert nodes_for(seen) == 2, "three of them fit beside it"
    assert nodes_for(replace(seen, demands=(Demand(3, CPU, seconds=7200.0),))) == 1
    assert nodes_for(replace(seen, demands=(Demand(2, Needs({"CPU": 5}), seconds=7200.0),))) == 3


def test_new_tasks_are_expected_to_need_what_the_latest_ones_needed() -> None:
    """Two free slots of a node that is full were room, so the boot was cancelled."""
    policy = Adaptive()
    seen = narrow(active=1, busy=1, booting=1)
    for minute in range(30):
        desired = policy.decide(replace(seen, now=60.0 * minute, submitted=minute)).desired
    assert desired == {"nodes": 2}


def test_gaps_of_nodes_that_are_full_with_one_task_are_those_of_their_second_node() -> None:
    policy = Adaptive()
    idle = idle_nodes(0, 40)
    for now, busy in ((0.0, 2), (10.0, 1), (40.0, 2), (50.0, 1), (80.0, 2), (90.0, 1)):
        policy.decide(narrow(active=2, busy=busy, now=now))
    decision = policy.decide(narrow(active=2, busy=1, now=130.0, idle=idle))
    assert decision.desired == {"nodes": 1}, "the next task has come after 30 s so far"


# Unknown run times.


def test_tasks_of_unknown_length_get_one_node_and_twice_as_many_after_each_boot() -> None:
    policy = Adaptive()
    seen = pool(Demand(50), boot=60.0)
    sizes = []
    for now in (0.0, 1.0, 59.0, 60.0, 120.0):
        decision = policy.decide(replace(seen, now=now))
        sizes.append(decision.desired["nodes"])
    assert sizes == [2, 2, 2, 3, 5]


def test_reason_of_more_nodes_for_tasks_of_unknown_length_says_how_long_they_have_waited() -> None:
    policy = Adaptive()
    seen = pool(Demand(50), boot=60.0)
    tasks, until = "50 tasks of unknown length", "until one has ended or run for a boot, 60 s"
    assert policy.decide(replace(seen, now=0.0)).reason == f"{tasks}: 1 more node, {until}"
    after = "after a wait of 60 s"
    assert policy.decide(replace(seen, now=60.0)).reason == f"{tasks}: 2 more nodes {after}, {until}"
    seen = pool(Demand(50), boot=60.0, booting=1)
    assert policy.decide(replace(seen, now=60.1)).reason == f"{tasks}: 1 more node, so that 2 boot {after}, {until}"


def test_running_tasks_that_are_as_long_as_a_boot_prove_that_each_is_worth_a_node() -> None:
    assert nodes_for(pool(Demand(50, ran=119.0))) == 2
    assert nodes_for(pool(Demand(50, ran=120.0))) == 51


def test_policy_is_asked_again_once_more_is_known() -> None:
    decision = Adaptive().decide(pool(Demand(50, ran=119.5)))
    assert decision.look_in is not None
    assert 0 < decision.look_in <= 0.5


# Boots that are no longer needed.


def test_needless_boots_are_cancelled_without_the_cooldown() -> None:
    decision = Adaptive().decide(pool(booting=5))
    assert decision.desired == {"nodes": 1}
    assert decision.at_once == {"nodes": 5}


def test_boots_that_waiting_tasks_use_go_on() -> None:
    decision = Adaptive().decide(pool(Demand(3, seconds=7200.0), booting=5))
    assert decision.desired == {"nodes": 4}
    assert decision.at_once == {"nodes": 2}


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(pool(Demand(1, seconds=0.01), active=0, booting=3), id="a task waits"),
        pytest.param(pool(active=0, booting=3, collection_used=True), id="a client uses a collection"),
        pytest.param(pool(active=0, booting=3, collection_used=True, head_boots="nodes"), id="the head boots"),
        pytest.param(pool(active=0, booting=3, least=1), id="the minimum"),
    ],
)
def test_only_node_of_a_pool_that_is_used_boots_on(seen: Snapshot) -> None:
    decision = Adaptive().decide(seen)
    assert (decision.desired, decision.at_once) == ({"nodes": 1}, {"nodes": 2})


@pytest.mark.parametrize("head", [None, "nodes"])
def test_all_boots_of_a_pool_that_nothing_uses_are_cancelled(head: str | None) -> None:
    decision = Adaptive().decide(pool(active=0, booting=3, head_boots=head))
    assert (decision.desired, decision.at_once) == ({"nodes": 0}, {"nodes": 3})


def test_tasks_that_were_cancelled_are_not_expected_again() -> None:
    policy = Adaptive()
    seen = pool(active=0, booting=3, boot=45.0, head_boots="nodes")
    policy.decide(replace(seen, now=1000.0))
    policy.decide(replace(seen, now=1001.0, demands=(Demand(500),), submitted=500))
    assert policy.decide(replace(seen, now=1002.0, submitted=0)).desired == {"nodes": 0}


# The head.


@pytest.mark.parametrize(
    ("seen", "nodes", "cancelled"),
    [
        pytest.param(pool(active=2, booting=1, busy=0), 3, 0, id="it alone boots"),
        pytest.param(pool(active=2, booting=3, busy=1), 3, 2, id="it boots with others"),
        pytest.param(
            pool(
                active=2,
                counts={"nodes": Counts(active=2, booting=1, unrequested=1, desired=3)},
                pauses={"nodes": 900.0},
            ),
            3,
            0,
            id="it cannot be requested yet",
        ),
    ],
)
def test_head_boots_on_while_any_other_node_is_there(seen: Snapshot, nodes: int, cancelled: int) -> None:
    """Active nodes went in its place, at once, with their tasks and with the values of collections."""
    decision = Adaptive().decide(replace(seen, head_boots="nodes"))
    assert decision.desired == {"nodes": nodes}
    assert sum(decision.at_once.values()) == cancelled


def test_head_of_another_group_boots_on_while_any_node_is_there() -> None:
    seen = groups(PLAIN, WITH_GPU, demands=(), head_boots="gpu")
    counts = {"plain": Counts(active=2, busy=1, desired=2), "gpu": Counts(booting=2, desired=2)}
    decision = Adaptive().decide(replace(seen, counts=counts))
    assert (decision.desired, decision.at_once) == ({"plain": 2, "gpu": 1}, {"gpu": 1})


def test_nodes_that_idled_leave_beside_a_head_that_boots() -> None:
    seen = pool(active=2, booting=1, busy=1, head_boots="nodes", idle=idle_nodes(0, 0, 121))
    decision = Adaptive().decide(seen)
    assert (decision.desired, decision.victims, decision.at_once) == ({"nodes": 2}, (2,), {})


def test_boots_that_pinned_tasks_may_wait_for_go_on() -> None:
    decision = Adaptive().decide(pool(booting=5, pinned=1))
    assert (decision.desired, decision.at_once) == ({"nodes": 6}, {})


def test_nodes_that_were_given_up_stay_desired_until_the_pool_is_empty() -> None:
    """The head is among them: a pool whose other nodes stay would have none."""
    given_up = {"nodes": Counts(active=1, busy=1, desired=2)}
    assert nodes_for(pool(counts=given_up)) == 2
    assert nodes_for(pool(Demand(1, seconds=0.01), counts=given_up)) == 2
    assert nodes_for(pool(counts={"nodes": Counts(desired=2)})) == 0


# Idle nodes.


@pytest.mark.parametrize(
    ("seen", "nodes"),
    [
        pytest.param(pool(active=2, busy=1, idle=idle_nodes(0, 110)), 2, id="for less than a boot"),
        pytest.param(pool(active=2, busy=1, idle=idle_nodes(0, 121)), 1, id="for a boot"),
        pytest.param(pool(active=2, busy=1, price=0.0, idle=idle_nodes(0, 59)), 2, id="unpriced, for less than 60 s"),
        pytest.param(pool(active=2, busy=1, price=0.0, idle=idle_nodes(0, 61)), 1, id="unpriced, for 60 s"),
        pytest.param(
            pool(active=2, busy=1, idle=idle_nodes(0, 200), idle_timeout=600.0, idle_timeout_given=True),
            2,
            id="less than the user's time",
        ),
        pytest.param(
            pool(active=2, busy=1, idle=idle_nodes(0, 6), idle_timeout=5.0, idle_timeout_given=True),
            1,
            id="more than the user's time",
        ),
        pytest.param(pool(active=2, busy=1, waiting_cost=4.0, idle=idle_nodes(0, 500)), 2, id="waiting is dear"),
        pytest.param(pool(active=2, busy=1, waiting_cost=4.0, idle=idle_nodes(0, 601)), 1, id="not that dear"),
        pytest.param(pool(active=2, busy=1, idle=idle_nodes(121, 0)), 2, id="the head stays"),
        pytest.param(
            pool(active=2, busy=0, idle_for=3.0, idle=idle_nodes(121, 121)), 2, id="a client has used their data"
        ),
        pytest.param(pool(active=2, busy=0, idle_for=121.0, idle=idle_nodes(121, 121)), 0, id="everything goes"),
        pytest.param(pool(active=2, busy=0, idle_for=121.0, least=1, idle=idle_nodes(121, 121)), 1, id="the minimum"),
    ],
)
def test_idle_nodes_go_once_idling_costs_as_much_as_a_boot(seen: Snapshot, nodes: int) -> None:
    assert nodes_for(seen) == nodes


def test_node_that_tasks_will_reach_is_kept() -> None:
    policy = Adaptive()
    seen = pool(active=3, busy=1, idle=idle_nodes(0, 15, 15))
    for minute in range(40):
        desired = policy.decide(replace(seen, now=60.0 * minute, submitted=6 * minute)).desired
    assert desired == {"nodes": 3}


# Groups.

SMALL = Group("small", 0, 50, 1, hourly_price=1.0)
LARGE = Group("large", 0, 50, 16, hourly_price=4.0)
CHEAP = Group("a", 0, 2, 1, hourly_price=1.0)
DEAR = Group("b", 0, 50, 1, hourly_price=1.1)
PLAIN = Group("plain", 0, 10, 1, {"CPU": 4.0}, hourly_price=1.0)
WITH_GPU = Group("gpu", 0, 2, 1, {"CPU": 4.0, "GPU": 1.0}, hourly_price=0.5)


def groups(*of: Group, demands: tuple[Demand, ...], **given_fields: object) -> Snapshot:
    counts = {group.name: Counts() for group in of}
    seen = Snapshot(0.0, of, counts, demands, boot_seconds=60.0)
    return replace(seen, **given_fields)  # type: ignore[arg-type]  # fields of a snapshot


@pytest.mark.parametrize(
    ("seen", "desired"),
    [
        pytest.param(groups(SMALL, LARGE, demands=(Demand(1, seconds=3600.0),)), (1, 0), id="one task, one slot"),
        pytest.param(groups(SMALL, LARGE, demands=(Demand(16, seconds=3600.0),)), (0, 1), id="work for 16 slots"),
        pytest.param(groups(SMALL, LARGE, demands=(Demand(34, seconds=3600.0),)), (2, 2), id="the rest on small ones"),
        pytest.param(groups(CHEAP, DEAR, demands=(Demand(100, seconds=300.0),)), (2, 50), id="overflow"),
        pytest.param(groups(CHEAP, DEAR, demands=(Demand(2, seconds=300.0),)), (2, 0), id="no overflow"),
        pytest.param(
            groups(CHEAP, DEAR, demands=(Demand(2, seconds=300.0),), pauses={"a": 300.0}), (0, 2), id="sold out"
        ),
        pytest.param(
            groups(CHEAP, DEAR, demands=(Demand(2, seconds=300.0),), pauses={"a": 2.0}), (2, 0), id="a short pause"
        ),
        pytest.param(
            groups(CHEAP, DEAR, demands=(Demand(2, seconds=300.0),), prices={"a": 9.0}), (0, 2), id="dearer now"
        ),
        pytest.param(
            groups(CHEAP, DEAR, demands=(Demand(2, seconds=300.0),), pauses={"a": inf, "b": inf}), (0, 0), id="closed"
        ),
        pytest.param(
            groups(PLAIN, WITH_GPU, demands=(Demand(9, seconds=300.0), Demand(2, GPU, seconds=300.0))),
            (9, 2),
            id="what only one group can hold goes first",
        ),
    ],
)
def test_groups_are_chosen_by_the_price_of_a_task(seen: Snapshot, desired: tuple[int, int]) -> None:
    assert tuple(Adaptive().decide(seen).desired.values()) == desired


def test_nodes_that_cannot_be_requested_are_launched_elsewhere() -> None:
    seen = groups(CHEAP, DEAR, demands=(Demand(2, seconds=300.0),), pauses={"a": 300.0})
    stuck = {"a": Counts(booting=2, desired=2, unrequested=2), "b": Counts()}
    decision = Adaptive().decide(replace(seen, counts=stuck))
    assert decision.desired == {"a": 0, "b": 2}
    assert decision.at_once == {"a": 2}
    alone = replace(seen, groups=(CHEAP,), counts={"a": stuck["a"]})
    assert Adaptive().decide(alone).desired == {"a": 2}


def test_idle_nodes_make_room_for_tasks_that_need_another_group() -> None:
    seen = groups(PLAIN, WITH_GPU, demands=(Demand(1, GPU, seconds=300.0),), max_nodes=3)
    counts = {"plain": Counts(active=3, busy=1, desired=3), "gpu": Counts()}
    full = replace(seen, counts=counts, idle=idle_nodes(0, 1, 1, group="plain"))
    decision = Adaptive().decide(full)
    assert decision.desired["plain"] == 2
    assert decision.infeasible == ()


# Reasons.


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (
            pool(Demand(1000, seconds=0.01), running=(RunningTasks(1, 0.01),)),
            "1,000 tasks of about 10 ms need 10 s on one node; a boot takes 120 s",
        ),
        (
            pool(Demand(8, seconds=120.0), active=2, boot=60.0, running=(RunningTasks(2, 120.0),)),
            "8 tasks of about 120 s need 16 min of slots; with 2 nodes they end in 10 min, more than a boot of 60 s "
            "and the target of 60 s together",
        ),
        (pool(active=2, busy=1), "1 of 2 slots are busy and no task waits"),
        (
            pool(Demand(5), boot=60.0),
            "5 tasks of unknown length: 1 more node, until one has ended or run for a boot, 60 s",
        ),
        (
            pool(Demand(1), boot=60.0, most=1),
            "1 task of unknown length waits until one has ended or run for a boot, 60 s",
        ),
        (
            pool(
                Demand(6),
                active=0,
                booting=1,
                boot=60.0,
                counts={"nodes": Counts(booting=1, unrequested=1, desired=1)},
                pauses={"nodes": 90.0},
            ),
            "6 tasks of unknown length wait, and no node can be launched for the next 90 s",
        ),
        (
            pool(Demand(1), boot=60.0, most=2, pauses={"nodes": inf}),
            "1 task of unknown length waits, and no node can be launched now",
        ),
        (
            pool(Demand(8, seconds=7200.0), active=5, most=10, pauses={"nodes": inf}),
            "8 tasks of about 2 h need 16 h of slots; with 5 nodes they end in 3.2 h, and no node can be launched now",
        ),
        (
            narrow(Demand(13, CPU, seconds=1.0), active=1, busy=1, boots={"nodes": 2.0}, target_wait=3.0),
            "13 tasks of about 1 s need 13 s of slots; with 1 node they end in 13 s, more than a boot of 2 s and the "
            "target of 3 s together",
        ),
        (
            narrow(Demand(11, CPU, seconds=1.0), active=1, busy=1, running=(RunningTasks(1, 1.0, age=0.5),)),
            "11 tasks of about 1 s need 11 s on one node; a boot takes 60 s",
        ),
        (narrow(active=4, busy=3), "3 of 4 slots are busy and no task waits"),
        (
            groups(
                PLAIN,
                WITH_GPU,
                demands=(Demand(4, GPU, seconds=300.0),),
                counts={"plain": Counts(active=1, busy=1, desired=1), "gpu": Counts()},
            ),
            "4 tasks of about 5 min need 20 min of slots; no node that can run them is up yet; 2 nodes of 'gpu' are "
            "asked for",
        ),
        (pool(booting=2), "2 booting nodes are not needed any more"),
        (
            pool(active=3, busy=1, idle=idle_nodes(0, 130, 130)),
            "2 nodes have been idle for 130 s, over the 120 s that it is worth keeping a node that takes 120 s to boot",
        ),
        (
            pool(active=3, busy=1, idle=idle_nodes(0, 120, 120)),
            "2 nodes have been idle for the 120 s that it is worth keeping a node that takes 120 s to boot",
        ),
        (
            pool(active=3, busy=1, idle=idle_nodes(0, 40, 40), idle_timeout=30.0, idle_timeout_given=True),
            "2 nodes have been idle for 40 s, longer than the idle timeout of 30 s",
        ),
        (
            pool(active=2, busy=1, idle=idle_nodes(0, 0.01), idle_timeout=0.0, idle_timeout_given=True),
            "1 node has been idle for a moment, and the idle timeout is 0 s",
        ),
        (
            groups(SMALL, LARGE, demands=(Demand(34, seconds=3600.0),)),
            "34 tasks of about 60 min need 34 h of slots; no node is up yet; 2 nodes of 'small' and 2 nodes of 'large' "
            "are asked for",
        ),
        (
            pool(Demand(8, seconds=7200.0), active=5, most=5),
            "8 tasks of about 2 h need 16 h of slots; with 5 nodes they end in 3.2 h, and no more nodes may be "
            "launched",
        ),
    ],
)
def test_reason_is_a_sentence_with_its_inputs(seen: Snapshot, reason: str) -> None:
    assert Adaptive().decide(seen).reason == reason


# Estimates.


@pytest.mark.parametrize(
    ("window", "seconds", "starts"),
    [(60.0, 600.0, 1.0), (60.0, 120.0, 1.0), (60.0, 60.0, 1.5), (60.0, 6.0, 10.5), (0.0, 1.0, 1.0)],
)
def test_free_slot_starts_one_task_and_more_when_they_are_short(window: float, seconds: float, starts: float) -> None:
    assert starts_of_free(window, seconds) == pytest.approx(starts)


def test_busy_slots_of_tasks_that_started_at_all_times_end_at_the_mean_rate() -> None:
    steady = RunningTasks(100, 300.0, age=150.0, spread=87.0)
    assert starts_of_busy((steady,), 60.0, 300.0) == pytest.approx(0.2, abs=0.01)
    assert starts_of_busy((), 60.0, 300.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0001, "1 ms"),
        (0.25, "250 ms"),
        (1.26, "1.3 s"),
        (42.4, "42 s"),
        (120.0, "120 s"),
        (180.0, "3 min"),
        (9000.0, "2.5 h"),
    ],
)
def test_duration_in_a_reason(seconds: float, text: str) -> None:
    assert rough_text(seconds) == text


# Invariants.


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    plain = Group("plain", draw(st.integers(0, 2)), draw(st.integers(2, 9)), draw(st.sampled_from([1, 2, 8])))
    plain = replace(plain, resources={"CPU": 4.0}, hourly_price=draw(st.sampled_from([0.0, 1.0, 3.0])))
    special = replace(WITH_GPU, max=draw(st.integers(1, 3)), slots=draw(st.sampled_from([1, 4])))
    of = draw(st.sampled_from([(plain,), (plain, special), (special, plain)]))
    counts = {}
    for group in of:
        active, booting = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        busy = draw(st.integers(0, active * group.slots))
        counts[group.name] = Counts(active, booting, 0, busy, active + booting, draw(st.integers(0, booting)))
    times = st.none() | st.sampled_from([0.01, 5.0, 60.0, 4000.0])
    return Snapshot(
        1000.0,
        of,
        counts,
        tuple(
            Demand(
                draw(st.integers(1, 500)),
                draw(st.sampled_from([NOTHING, GPU])),
                draw(times),
                draw(st.sampled_from([0.0, 30.0, 5000.0])),
                draw(st.sampled_from([0.0, 30.0, 5000.0])),
            )
            for _ in range(draw(st.integers(0, 3)))
        ),
        running=tuple(
            RunningTasks(draw(st.integers(1, 9)), draw(times), draw(st.sampled_from([0.0, 50.0, 9000.0])), 20.0)
            for _ in range(draw(st.integers(0, 2)))
        ),
        max_nodes=draw(st.none() | st.integers(1, 12)),
        boots=draw(st.sampled_from([{}, {"plain": 0.4}, {"plain": 400.0}])),
        pauses=draw(st.sampled_from([{}, {"plain": 5.0}, {"plain": 300.0}, {"plain": inf}])),
        target_wait=draw(st.sampled_from(["cheap", "balanced", "fast", 0.0, 1e6])),
    )


@given(seen=snapshots())
def test_decision_is_within_bounds_and_repeating_it_changes_nothing(seen: Snapshot) -> None:
    policy = Adaptive()
    decision = policy.decide(seen)
    before = sum(counts.active + counts.booting for counts in seen.counts.values())
    least = sum(max(g.min - seen.counts[g.name].active - seen.counts[g.name].booting, 0) for g in seen.groups)
    for group in seen.groups:
        counts = seen.counts[group.name]
        assert group.min <= decision.desired[group.name] <= max(group.max, counts.active + counts.booting)
        fewer = counts.active + counts.booting - decision.desired[group.name]
        assert decision.at_once.get(group.name, 0) <= max(fewer, 0) or group.max < counts.active + counts.booting
    if seen.max_nodes is not None:
        assert sum(decision.desired.values()) <= max(seen.max_nodes, before + least)
    assert policy.decide(seen).desired == decision.desired
    assert decision.look_in is None or decision.look_in > 0


@given(seen=snapshots())
def test_waiting_tasks_that_fit_lead_to_a_node_or_are_in_the_reason(seen: Snapshot) -> None:
    decision = Adaptive().decide(seen)
    if seen.queued:
        assert "task" in decision.reason
    nodes = sum(decision.desired.values())
    closed = {name for name, pause in seen.pauses.items() if pause == inf}
    able = [g for g in seen.groups if g.max and g.name not in closed and any(g.can_hold(d.needs) for d in seen.demands)]
    there = sum(counts.active + counts.booting for counts in seen.counts.values())
    if able and not there and (seen.max_nodes is None or seen.max_nodes):
        assert nodes > 0


def test_time_to_keep_idle_nodes_is_found_once_for_levels_with_the_same_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counting(Gaps):
        def best_keep(self, level: int, cost: float) -> float | None:
            asked.append(level)
            return super().best_keep(level, cost)

    monkeypatch.setattr("skyward.scaling.adaptive.Gaps", Counting)
    idle = idle_nodes(*[0.0] + [5.0] * 999)
    Adaptive().decide(pool(active=1000, busy=1, most=2000, nodes=idle, idle=idle))
    assert 0 < len(asked) <= 10


@pytest.mark.parametrize("nodes", [1, 10])
def test_short_tasks_behind_long_ones_of_the_same_function_get_a_node(nodes: int) -> None:
    """A function took 100 ms until now, but its present tasks run for minutes: their slots are not counted on."""
    running = (RunningTasks(nodes, 0.1, age=300.0),)
    early = pool(Demand(1, seconds=0.1, waited=1.0), active=nodes, running=running, boot=10.0)
    late = pool(Demand(1, seconds=0.1, waited=21.0), active=nodes, running=running, boot=10.0)
    assert nodes_for(late) == nodes + 1
    assert nodes_for(early) <= nodes + 1
