"""Nodes that get no more tasks because the others of their group have room for these."""

from dataclasses import replace

from skyward.scaling.adaptive import Adaptive
from skyward.scaling.snapshot import Counts, Demand, Group, NodeLoad, NodeWork, RetainedNodes, Snapshot
from skyward.values.needs import NOTHING, Needs

GROUP = Group("nodes", 0, 10, 8, hourly_price=3.0)


def pool(now: float, *busy: int, group: Group = GROUP, needs: Needs = NOTHING, **fields: object) -> Snapshot:
    """Return a pool of nodes with so many tasks each."""
    nodes = tuple(
        NodeLoad(
            rank,
            "nodes",
            "active",
            tasks,
            {name: amount - tasks * needs.resources.get(name, 0.0) for name, amount in group.resources.items()},
        )
        for rank, tasks in enumerate(busy)
    )
    work = tuple(NodeWork(rank, "nodes", group.hourly_price, {needs: tasks}) for rank, tasks in enumerate(busy))
    counts = Counts(active=len(busy), busy=sum(busy), desired=len(busy))
    seen = Snapshot(now, (group,), {"nodes": counts}, boots={"nodes": 60.0}, boot_seconds=60.0, nodes=nodes)
    seen = replace(seen, work=work)
    return replace(seen, **fields)  # type: ignore[arg-type]  # fields of a snapshot


def test_the_emptiest_node_gets_no_more_once_there_was_room_for_a_boot() -> None:
    policy = Adaptive()
    first = policy.decide(pool(0.0, 7, 2, 4))
    assert first.desired == {"nodes": 3}
    assert first.look_in is not None
    assert first.look_in <= 60.0
    then = policy.decide(pool(61.0, 7, 2, 4))
    assert (then.desired, then.victims) == ({"nodes": 2}, (1,))
    assert "node 1" in then.reason
    assert "2 tasks" in then.reason


def test_without_lasting_room_every_node_stays() -> None:
    policy = Adaptive()
    for now, busy in ((0.0, (7, 2, 4)), (30.0, (8, 8, 2)), (61.0, (7, 2, 4)), (90.0, (7, 2, 4))):
        assert policy.decide(pool(now, *busy)).desired == {"nodes": 3}, now


def test_the_head_stays() -> None:
    policy = Adaptive()
    policy.decide(pool(0.0, 1, 5))
    assert policy.decide(pool(100.0, 1, 5)).victims == (1,)


def test_nodes_stay_that_something_else_needs() -> None:
    for fields in (
        {"group": replace(GROUP, min=3)},
        {"group": replace(GROUP, idle_timeout=300.0)},
        {"group": replace(GROUP, hourly_price=0.0)},
        {"idle_timeout": 300.0, "idle_timeout_given": True},
        {"retained": {"nodes": RetainedNodes(2, "node 1 keeps a value")}},
        {"pinned": 1},
        {"floor": (Demand(20),)},
        {"demands": (Demand(1, seconds=10.0),)},
    ):
        policy = Adaptive()
        policy.decide(pool(0.0, 7, 2, 4, **fields))
        decision = policy.decide(pool(100.0, 7, 2, 4, **fields))
        assert decision.desired == {"nodes": 3}, fields


def test_node_stays_whose_tasks_need_resources_that_the_others_do_not_have() -> None:
    group = replace(GROUP, resources={"GPU": 2.0})
    policy = Adaptive()
    for now in (0.0, 61.0, 122.0):
        decision = policy.decide(pool(now, 2, 1, 2, group=group, needs=Needs({"GPU": 1})))
        assert decision.desired == {"nodes": 3}, "two GPUs of each other node are in use, whatever slots are free"
    assert policy.decide(pool(183.0, 2, 1, 1, group=group, needs=Needs({"GPU": 1}))).victims == (2,)


def test_nodes_that_are_full_with_few_tasks_have_no_room() -> None:
    """Their free slots counted as room for a boot already, so a node went as soon as one task was less."""
    cpu, group = Needs({"CPU": 1}), replace(GROUP, resources={"CPU": 2.0})
    policy = Adaptive()
    for now, busy in ((0.0, (2, 2)), (50.0, (1, 1)), (61.0, (1, 1)), (109.0, (1, 1))):
        shapes = {"nodes": Counts(active=2, busy=sum(busy), desired=2, shapes={cpu: sum(busy)})}
        decision = policy.decide(pool(now, *busy, group=group, needs=cpu, counts=shapes))
        assert decision.desired == {"nodes": 2}, now
    decision = policy.decide(pool(111.0, 1, 1, group=group, needs=cpu, counts=shapes))
    assert decision.victims == (1,)
