"""The adaptive policy with waiting gangs."""

from dataclasses import replace

import pytest

from skyward.scaling.adaptive import Adaptive
from skyward.scaling.snapshot import Counts, Demand, GangDemand, Group, NodeLoad, Snapshot
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

ON_GPU = Needs({"GPU": 1.0})
PAIR = GangDemand((NOTHING, NOTHING))


def pool(
    *gangs: GangDemand, active: int = 0, busy: int = 0, booting: int = 0, most: int = 8, idle: float = 0.0
) -> Snapshot:
    """Return a pool of one group with one slot a node, the first `busy` of which are in use."""
    group = Group("nodes", 0, most, hourly_price=1.0)
    nodes = [NodeLoad(rank, "nodes", "active", int(rank < busy), {}, idle * (rank >= busy)) for rank in range(active)]
    nodes += [NodeLoad(active + place, "nodes", "booting") for place in range(booting)]
    counts = Counts(active, booting, 0, busy, active + booting)
    return Snapshot(
        1000.0,
        (group,),
        {"nodes": counts},
        boots={"nodes": 60.0},
        boot_seconds=60.0,
        gangs=gangs,
        nodes=tuple(nodes),
        idle=tuple(node for node in nodes if node.idle_for),
    )


def test_nodes_that_a_gang_lacks_are_launched_with_a_reason_that_names_it() -> None:
    decision = Adaptive().decide(pool(PAIR, active=1))
    assert decision.desired == {"nodes": 2}
    assert decision.reason == "a gang of 2 tasks (placement 'pack') waits, so 1 more node is needed"


def test_tasks_get_nodes_in_addition_to_those_of_gangs() -> None:
    long = Demand(2, seconds=7200.0)
    assert Adaptive().decide(replace(pool(active=2), demands=(long,))).desired == {"nodes": 2}
    assert Adaptive().decide(replace(pool(PAIR, active=2), demands=(long,))).desired == {"nodes": 4}
    assert Adaptive().decide(replace(pool(PAIR, booting=2), demands=(long,))).desired == {"nodes": 4}
    assert Adaptive().decide(replace(pool(PAIR), demands=(long,))).desired == {"nodes": 4}


def test_tasks_use_what_gangs_leave_free_of_a_node() -> None:
    large = Group("nodes", 0, 8, 4, hourly_price=1.0)
    seen = replace(pool(PAIR), groups=(large,), demands=(Demand(2, seconds=7200.0),))
    assert Adaptive().decide(seen).desired == {"nodes": 1}


@pytest.mark.parametrize("gangs", [1, 3])
def test_booting_nodes_that_gangs_wait_for_are_not_cancelled(gangs: int) -> None:
    seen = pool(*[PAIR] * gangs, booting=2, most=2)
    decision = Adaptive().decide(seen)
    assert decision.desired == {"nodes": 2}
    assert not decision.at_once


def test_idle_nodes_stay_while_a_gang_waits_for_busy_ones_and_go_otherwise() -> None:
    waiting = Adaptive().decide(pool(GangDemand((NOTHING,) * 3), active=3, busy=1, most=3, idle=900.0))
    assert (waiting.desired, waiting.victims) == ({"nodes": 3}, ())
    assert waiting.reason == "a gang of 3 tasks (placement 'pack') waits for slots that are in use"
    assert Adaptive().decide(pool(active=3, busy=1, most=3, idle=900.0)).desired == {"nodes": 1}


def test_idle_nodes_go_that_take_the_room_of_a_gang() -> None:
    cpus, gpus = Group("cpus", 0, 4, hourly_price=1.0), Group("gpus", 0, 2, resources={"GPU": 1.0}, hourly_price=9.0)
    nodes = tuple(NodeLoad(rank, "cpus", "active", idle_for=900.0) for rank in range(2))
    counts = {"cpus": Counts(2, desired=2), "gpus": Counts()}
    gang = GangDemand((ON_GPU, ON_GPU), "strict_spread")
    seen = Snapshot(
        1000.0, (cpus, gpus), counts, gangs=(gang,), max_nodes=2, nodes=nodes, idle=nodes, boot_seconds=60.0
    )
    decision = Adaptive().decide(seen)
    assert decision.desired == {"cpus": 0, "gpus": 0}


def test_group_that_can_launch_no_node_now_is_not_counted_on() -> None:
    sold_out = Group("cheap", 0, 0, hourly_price=1.0, can_launch=False)
    seen = Snapshot(
        1000.0,
        (sold_out, Group("dear", 0, 4, hourly_price=3.0)),
        {"cheap": Counts(desired=2), "dear": Counts()},
        gangs=(PAIR,),
    )
    assert Adaptive().decide(seen).desired["dear"] == 2
