"""Default policy: its rules, and invariants for every report."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.scaling import Counts, Demand, Group, NodeLoad, Pressure, Snapshot
from skyward.scaling.pressure import GroupDecision, desired_nodes
from skyward.scaling.snapshot import GangDemand
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

ONE = Group("nodes", 1, 8, 2)
CPU = Group("cpu", 0, 8, 2, {"CPU": 4.0}, hourly_price=1.0)
GPU = Group("gpu", 0, 4, 4, {"CPU": 8.0, "GPU": 1.0}, frozenset({"fast"}), hourly_price=5.0)
ON_GPU = Needs({"GPU": 1})


def snapshot(*groups: Group, queued: int = 0, **given: object) -> Snapshot:
    counts = {group.name: Counts() for group in groups} | given.pop("counts", {})  # type: ignore[operator]
    return replace(Snapshot(0.0, groups, counts, (Demand(queued),) if queued else ()), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("report", "outcome"),
    [
        (
            {"queued": 12, "inflight": 4},
            GroupDecision(8, "12 tasks wait and all 4 slots are busy, so 6 more nodes are needed, for 2 tasks each"),
        ),
        (
            {"queued": 13, "inflight": 4},
            GroupDecision(
                8,
                "13 tasks wait and all 4 slots are busy, so 7 more nodes are needed, for 2 tasks each, "
                "but the maximum is 8 nodes",
            ),
        ),
        ({"queued": 12, "inflight": 4, "desired": 8}, GroupDecision(8)),
        (
            {"idle_for": 61.4},
            GroupDecision(
                1,
                "no task has run for 61 s, longer than the idle timeout of 60 s, so the minimum of 1 node is enough",
                settled=True,
            ),
        ),
        (
            {"idle_for": 0.01, "idle_timeout": 0.0, "min": 0},
            GroupDecision(
                0, "no task has run for a moment, and the idle timeout is 0 s, so no node is needed", settled=True
            ),
        ),
        ({"idle_for": 60}, GroupDecision(2)),
        (
            {"nodes": 8, "desired": 8, "inflight": 3},
            GroupDecision(
                3, "3 of 16 slots are busy, less than 30%, so 3 nodes are enough: 2 for the running tasks and 1 spare"
            ),
        ),
        (
            {"nodes": 8, "desired": 8, "inflight": 1, "min": 4},
            GroupDecision(
                4,
                "1 of 16 slots is busy, less than 30%, so 2 nodes are enough: 1 for the running task and 1 spare, "
                "but the minimum is 4 nodes",
            ),
        ),
        ({"nodes": 8, "desired": 8, "inflight": 5}, GroupDecision(8)),
        ({"desired": 9, "inflight": 4}, GroupDecision(8, "9 nodes were desired, more than the maximum of 8")),
        ({"desired": 0, "nodes": 0}, GroupDecision(1, "0 nodes were desired, fewer than the minimum of 1")),
        (
            {"desired": 9, "inflight": 4, "can_launch": False},
            GroupDecision(8, "9 nodes were desired, 8 are there or on the way, and no more can be launched now"),
        ),
        (
            {"queued": 20, "inflight": 4, "desired": 3, "max": 4, "can_launch": False},
            GroupDecision(
                4,
                "20 tasks wait and all 4 slots are busy, so 10 more nodes are needed, for 2 tasks each "
                "(1 is already requested), but no more can be launched now",
            ),
        ),
        (
            {"idle_for": 61, "desired": 2, "min": 1, "can_launch": False},
            GroupDecision(
                1, "no task has run for 61 s, longer than the idle timeout of 60 s, so 1 node is enough", settled=True
            ),
        ),
    ],
)
def test_pressure_follows_the_rules_of_the_table(report: dict[str, Any], outcome: GroupDecision) -> None:
    whole = {"queued": 0, "inflight": 0, "nodes": 2, "desired": 2, "min": 1, "max": 8, "slots": 2, "idle_for": 0}
    assert desired_nodes(**{**whole, "idle_timeout": 60, **report}) == outcome


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(0, 4))
    most = least + draw(st.integers(0, 12))
    nodes, slots = draw(st.integers(0, most)), draw(st.integers(1, 8))
    return {
        "queued": draw(st.integers(0, 60)),
        "inflight": draw(st.integers(0, nodes * slots)),
        "nodes": nodes,
        "desired": draw(st.integers(least, max(least, most))),
        "min": least,
        "max": most,
        "slots": slots,
        "idle_for": draw(st.integers(0, 120)),
        "idle_timeout": 60,
    }


@given(reports(), st.integers(1, 20))
def test_longer_queue_never_means_fewer_nodes(report: dict[str, Any], more: int) -> None:
    longer = {**report, "queued": report["queued"] + more}
    assert desired_nodes(**longer).desired >= desired_nodes(**report).desired


@given(reports())
def test_repeated_report_is_idempotent(report: dict[str, Any]) -> None:
    first = desired_nodes(**report)
    assert desired_nodes(**{**report, "desired": first.desired}) == GroupDecision(first.desired)


@given(reports())
def test_outcome_keeps_its_bounds_and_every_change_has_a_reason(report: dict[str, Any]) -> None:
    outcome = desired_nodes(**report)
    assert report["min"] <= outcome.desired <= report["max"]
    assert bool(outcome.reason) == (outcome.desired != report["desired"])
    assert not outcome.settled or outcome.desired < report["desired"]
    if report["queued"]:
        assert outcome.desired >= report["desired"]


def test_pool_of_one_group_scales_with_its_queue() -> None:
    seen = snapshot(ONE, queued=12, counts={"nodes": Counts(active=2, busy=4, desired=2)})
    decision = Pressure().decide(seen)
    assert decision.desired == {"nodes": 8}
    assert decision.reason == "12 tasks wait and all 4 slots are busy, so 6 more nodes are needed, for 2 tasks each"
    steady = Pressure().decide(snapshot(ONE, counts={"nodes": Counts(active=2, busy=3, desired=2)}))
    assert steady.reason == "nothing to change: no task waits and 3 of 4 slots are busy"


def test_task_counts_for_the_cheapest_feasible_group() -> None:
    demands = (Demand(4), Demand(2, ON_GPU), Demand(1, Needs({}, {"fast"})))
    decision = Pressure().decide(snapshot(GPU, CPU, demands=demands))
    assert decision.desired == {"cpu": 2, "gpu": 3}
    assert decision.reason == (
        "gpu: 3 tasks wait and no node is up, so 3 more nodes are needed, for the resources that they request; "
        "cpu: 4 tasks wait and no node is up, so 2 more nodes are needed, for 2 tasks each"
    )


def test_gangs_count_as_waiting_tasks() -> None:
    decision = Pressure().decide(snapshot(CPU, GPU, gangs=(GangDemand((ON_GPU, ON_GPU)),)))
    assert decision.desired == {"cpu": 0, "gpu": 2}


def test_infeasible_tasks_start_no_nodes() -> None:
    never = Needs({"TPU": 1})
    decision = Pressure().decide(snapshot(CPU, replace(GPU, max=0), demands=(Demand(1, never), Demand(1, ON_GPU))))
    assert decision.infeasible == (never, ON_GPU)
    assert decision.desired == {"cpu": 0, "gpu": 0}


def test_limit_of_all_nodes_caps_the_groups() -> None:
    demands = (Demand(9), Demand(3, ON_GPU))
    decision = Pressure().decide(snapshot(CPU, GPU, demands=demands, max_nodes=6))
    assert decision.desired == {"cpu": 5, "gpu": 1}
    assert decision.reason.endswith("for the resources that they request, but the maximum of the pool is 6 nodes")


def test_idle_group_shrinks_while_another_is_busy() -> None:
    counts = {"cpu": Counts(active=1, busy=2, desired=1), "gpu": Counts(active=2, desired=2)}
    nodes = (
        NodeLoad(0, "cpu", "active", 2),
        NodeLoad(1, "gpu", "active", 0, {}, 30),
        NodeLoad(2, "gpu", "active", 0, {}, 90),
    )
    hurried = replace(GPU, idle_timeout=20)
    assert Pressure().decide(snapshot(CPU, GPU, counts=counts, nodes=nodes)).desired == {"cpu": 1, "gpu": 2}
    decision = Pressure().decide(snapshot(CPU, hurried, counts=counts, nodes=nodes))
    assert decision.desired == {"cpu": 1, "gpu": 0}
    assert (
        decision.reason == "gpu: no task has run for 30 s, longer than the idle timeout of 20 s, so no node is needed"
    )
    assert decision.settled


def test_shrink_without_idle_timeout_is_not_settled() -> None:
    counts = {"cpu": Counts(active=8, busy=1, desired=8), "gpu": Counts(active=1, desired=1)}
    nodes = (NodeLoad(9, "gpu", "active", 0, {}, 90),)
    decision = Pressure().decide(snapshot(CPU, GPU, counts=counts, nodes=nodes))
    assert decision.desired == {"cpu": 2, "gpu": 0}
    assert not decision.settled


def test_idle_nodes_are_removed_longest_idle_first() -> None:
    loads = [NodeLoad(rank, "nodes", "active", busy=2) for rank in range(5)]
    loads += [NodeLoad(5, "nodes", "active", idle_for=61.0), NodeLoad(6, "nodes", "active", idle_for=90.0)]
    loads += [NodeLoad(7, "nodes", "active", idle_for=59.0)]
    seen = snapshot(ONE, counts={"nodes": Counts(active=8, busy=10, desired=8)}, nodes=tuple(loads))
    decision = Pressure().decide(seen)
    assert (decision.desired, decision.victims, decision.settled) == ({"nodes": 6}, (6, 5, 7), True)
    assert decision.reason == "2 nodes were idle for longer than the idle timeout of 60 s, so 6 nodes are enough"
    assert Pressure().decide(replace(seen, demands=(Demand(1),))).desired == {"nodes": 8}, "not while a task waits"


def test_one_spare_node_stays() -> None:
    loads = tuple(
        NodeLoad(rank, "nodes", "active", busy=2 * (rank < 2), idle_for=99.0 * (rank >= 2)) for rank in range(4)
    )
    seen = snapshot(ONE, counts={"nodes": Counts(active=4, busy=4, desired=4)}, nodes=loads)
    assert Pressure().decide(seen).desired == {"nodes": 3}
