"""Consolidation: which dear nodes cheaper ones replace, when that pays, and how it is carried out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.scaling.adaptive import Adaptive
from skyward.scaling.consolidation import Replacement, find_replacement
from skyward.scaling.gaps import Gaps
from skyward.scaling.need_history import NeedHistory
from skyward.scaling.replacing import ConsolidatedDecision, Consolidation
from skyward.scaling.snapshot import (
    Counts,
    Demand,
    GangDemand,
    Group,
    NodeLoad,
    NodeWork,
    RetainedNodes,
    RunningTasks,
    Snapshot,
)
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1})
CHEAP = Group("cheap", 0, 10, hourly_price=0.3)
DEAR = Group("dear", 0, 10, hourly_price=1.1)
BIG = Group("big", 0, 10, 16, hourly_price=4.0)


@dataclass
class Pool:
    """A pool whose nodes are set by the test, and a stream of tasks that keeps some of their slots busy.

    Attributes:
        busy: by group, the tasks on each of its nodes.
        ends_in: seconds until the tasks of each node end.
        given: other fields of the snapshot.
    """

    groups: tuple[Group, ...] = (CHEAP, DEAR)
    busy: dict[str, list[int]] = field(default_factory=lambda: {"cheap": [1], "dear": [1, 1]})
    booting: Mapping[str, int] = field(default_factory=dict)
    ends_in: float | None = 100.0
    seconds: float = 200.0
    arrived: int = 0
    now: float = 0.0
    desired: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, object] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        work: list[NodeWork] = []
        nodes: list[NodeLoad] = []
        counts: dict[str, Counts] = {}
        for group in self.groups:
            tasks = self.busy.get(group.name, [])
            booting = self.booting.get(group.name, 0)
            desired = self.desired.get(group.name, len(tasks) + booting)
            counts[group.name] = Counts(len(tasks), booting, 0, sum(tasks), desired, started=self.arrived)
            for number in tasks:
                rank = len(work)
                shapes = {NOTHING: number} if number else {}
                ends_in = self.ends_in if number else 0.0
                work.append(NodeWork(rank, group.name, group.hourly_price, shapes, ends_in))
                nodes.append(NodeLoad(rank, group.name, "active", number))
        running = sum(sum(each) for each in self.busy.values())
        seen = Snapshot(
            self.now,
            self.groups,
            counts,
            running=(RunningTasks(running, self.seconds, 50.0, 30.0),),
            submitted=self.arrived,
            boot_seconds=60.0,
            nodes=tuple(nodes),
            work=tuple(work),
        )
        return replace(seen, **self.given)  # type: ignore[arg-type]  # fields of a snapshot

    def history(self, minutes: float = 20.0, per_minute: float = 1.0) -> NeedHistory:
        """Return the history of a stream of tasks that has run on these nodes for some minutes."""
        history = NeedHistory()
        steps = int(minutes * 4)
        start, before = self.now, self.arrived
        for step in range(steps + 1):
            self.now = start + step * 15.0
            self.arrived = before + int(step * per_minute / 4)
            history.observe(self.snapshot())
        return history


def replacement(pool: Pool, minutes: float = 20.0, per_minute: float = 1.0) -> Replacement | None:
    history = pool.history(minutes, per_minute)
    return find_replacement(pool.snapshot(), history)


def test_dear_nodes_of_a_stream_are_replaced_with_a_reason_that_has_its_numbers() -> None:
    found = replacement(Pool())
    assert found is not None
    assert (found.group, set(found.victims), found.launch) == ("dear", {1, 2}, {"cheap": 2})
    assert found.payback == pytest.approx(0.6 * (60 + 100) / 1.6)
    assert found.reason == (
        "2 nodes of 'dear' at $1.10 per hour can be replaced by 2 of 'cheap' at $0.30: their tasks have kept coming "
        "for 20 min, and the change pays back in 4 min, for the first 160 s of which both run"
    )


def test_waiting_tasks_are_work_that_remains() -> None:
    waiting = {"demands": (Demand(60, seconds=200.0),)}
    found = replacement(Pool(given=waiting), minutes=0.5, per_minute=0.0)
    assert found is not None
    assert found.reason == (
        "2 nodes of 'dear' at $1.10 per hour can be replaced by 2 of 'cheap' at $0.30: 67 min of work remain, and the "
        "change pays back in 4 min, for the first 160 s of which both run"
    )


def test_large_node_is_replaced_by_as_many_small_ones_as_its_tasks_need() -> None:
    pool = Pool(groups=(replace(CHEAP, hourly_price=1.0), BIG), busy={"cheap": [1], "big": [2]}, seconds=60.0)
    found = replacement(pool, per_minute=3.0)
    assert found is not None
    assert (found.victims, found.launch, found.saving) == ((1,), {"cheap": 2}, 2.0)


def test_small_nodes_are_replaced_by_a_large_one_that_costs_less() -> None:
    pool = Pool(groups=(BIG, DEAR), busy={"dear": [1] * 10})
    found = replacement(pool, per_minute=3.0)
    assert found is not None
    assert (len(found.victims), found.launch) == (9, {"big": 1}), "the head stays"


def test_free_slots_of_cheaper_nodes_are_used_before_any_is_launched() -> None:
    pool = Pool(groups=(BIG, DEAR), busy={"big": [8], "dear": [1, 1]}, seconds=60.0)
    found = replacement(pool, per_minute=10.0)
    assert found is not None
    assert (set(found.victims), found.launch, found.payback) == ({1, 2}, {}, 0.0)
    assert found.reason == (
        "2 nodes of 'dear' at $1.10 per hour are not needed: their tasks have kept coming for 20 min, and cheaper "
        "nodes have room for them"
    )


def test_slots_that_were_used_lately_are_no_free_slots() -> None:
    pool = Pool(groups=(BIG, DEAR), busy={"big": [16], "dear": [1, 1]}, seconds=60.0)
    history = pool.history(per_minute=20.0)
    pool.busy["big"] = [8]
    pool.now += 120.0
    assert find_replacement(pool.snapshot(), history) is None


def test_nodes_of_a_dear_source_of_the_same_group_are_replaced() -> None:
    pool = Pool(groups=(DEAR,), busy={"dear": [1, 1]}, given={"prices": {"dear": 0.4}})
    found = replacement(pool)
    assert found is not None
    assert (found.victims, found.launch, found.costs) == ((1,), {"dear": 1}, {"dear": 0.4})
    assert replacement(Pool(groups=(DEAR,), busy={"dear": [1, 1]})) is None


def test_shape_that_was_seen_lately_must_be_held_by_the_new_nodes() -> None:
    cheap, dear = replace(CHEAP, resources={"CPU": 4.0}), replace(DEAR, resources={"CPU": 4.0, "GPU": 1.0})
    pool = Pool(groups=(cheap, dear))
    history = pool.history()
    assert find_replacement(pool.snapshot(), history) is not None
    history.add_shapes("dear", [GPU], pool.now)
    assert find_replacement(pool.snapshot(), history) is None
    pool.now += 700.0
    pool.arrived += 11
    assert find_replacement(pool.snapshot(), history) is not None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"consolidate_within": 0.0}, id="turned off"),
        pytest.param({"consolidate_within": 50.0}, id="it pays too late"),
        pytest.param({"gangs": (GangDemand((NOTHING,)),)}, id="a gang waits"),
        pytest.param({"pinned": 1}, id="a task waits for a certain node"),
        pytest.param({"floor": (Demand(1),)}, id="capacity is reserved"),
        pytest.param({"retained": {"dear": RetainedNodes(1, "node 1 keeps model")}}, id="a node keeps values"),
        pytest.param({"max_nodes": 3}, id="no room in the pool"),
        pytest.param({"pauses": {"cheap": 9.0}}, id="sold out"),
        pytest.param({"prices": {"cheap": 1.0}}, id="the price has risen"),
        pytest.param({"running": (RunningTasks(3),), "task_seconds": None}, id="no task has ended"),
        pytest.param({"groups": (CHEAP, replace(DEAR, min=2))}, id="the minimum"),
        pytest.param({"groups": (replace(CHEAP, max=1), DEAR)}, id="the maximum"),
        pytest.param({"groups": (replace(CHEAP, can_launch=False), DEAR)}, id="it cannot launch nodes"),
        pytest.param({"groups": (replace(CHEAP, hourly_price=0.0), DEAR)}, id="a price is unknown"),
    ],
)
def test_nothing_is_replaced_if_it_must_not_or_does_not_pay(changed: Mapping[str, object]) -> None:
    pool = Pool()
    history = pool.history()
    seen = pool.snapshot()
    assert find_replacement(seen, history) is not None
    assert find_replacement(replace(seen, **changed), history) is None  # type: ignore[arg-type]


def test_end_of_a_batch_is_no_stream() -> None:
    """All tasks came at once 20 minutes ago, and the last ones run."""
    assert replacement(Pool(), per_minute=0.0) is None


def test_stream_that_has_just_begun_is_not_expected_to_last() -> None:
    assert replacement(Pool(), minutes=2.0) is None


def test_nodes_whose_tasks_have_an_unknown_end_stay() -> None:
    assert replacement(Pool(ends_in=None)) is None
    assert replacement(Pool(ends_in=700.0)) is None


def test_head_is_never_replaced() -> None:
    assert replacement(Pool(groups=(DEAR, CHEAP), busy={"dear": [1]})) is None
    found = replacement(Pool(groups=(DEAR, CHEAP), busy={"dear": [1, 1]}))
    assert found is not None
    assert found.victims == (1,)


def test_few_of_many_prices_are_looked_at() -> None:
    looked: list[str] = []

    class Counting(NeedHistory):
        def shapes(self, group: Group, snapshot: Snapshot) -> list[Needs]:
            looked.append(group.name)
            return super().shapes(group, snapshot)

    history = Counting()
    pool = Pool(groups=(CHEAP, replace(DEAR, max=200)), busy={"cheap": [1], "dear": [1] * 200})
    for _ in range(81):
        pool.now, pool.arrived = pool.now + 15.0, pool.arrived + 25
        history.observe(pool.snapshot())
    seen = pool.snapshot()
    work = tuple(replace(node, price=node.price + 0.001 * node.rank) for node in seen.work)
    found = find_replacement(replace(seen, work=work), history)
    assert found is not None
    assert found.price == pytest.approx(1.1 + 0.200), "the dearest"
    assert len(looked) <= 16


# How it is carried out.


def started(pool: Pool) -> tuple[Consolidation, ConsolidatedDecision]:
    """Return the state of a replacement that has just begun, and the decision with which it did."""
    consolidation = Consolidation()
    for step in range(81):
        pool.now, pool.arrived = step * 15.0, step // 4
        consolidation.observe(pool.snapshot())
    return consolidation, decided(consolidation, pool, observed=True)


def decided(consolidation: Consolidation, pool: Pool, *, observed: bool = False) -> ConsolidatedDecision:
    seen = pool.snapshot()
    if not observed:
        consolidation.observe(seen)
    nodes = {name: counts.active + counts.booting for name, counts in seen.counts.items()}
    return consolidation.change(seen, nodes, ())


def test_nodes_go_once_the_cheaper_ones_are_active_and_not_before() -> None:
    pool = Pool()
    consolidation, change = started(pool)
    assert (change.desired, change.victims) == ({"cheap": 3, "dear": 2}, ())
    assert "can be replaced" in change.reason
    assert change.look_in < 60
    pool.booting, pool.now = {"cheap": 2}, pool.now + 5
    change = decided(consolidation, pool)
    assert (change.desired, change.victims, change.reason) == ({"cheap": 3, "dear": 2}, (), "")
    assert consolidation.held("cheap", pool.snapshot()) == 2
    assert consolidation.holds("cheap")


def test_nodes_that_boot_to_replace_others_are_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []

    class Recorded(Gaps):
        def observe(self, load: int, now: float, fell_at: float | None = None) -> None:
            loads.append(load)
            super().observe(load, now, fell_at)

    monkeypatch.setattr("skyward.scaling.adaptive.Gaps", Recorded)
    policy, pool = Adaptive(), Pool(groups=(CHEAP, DEAR), busy={"dear": [1, 1, 1], "cheap": []})
    while pool.now < 3000 and pool.booting == {}:
        pool.now, pool.arrived = pool.now + 15.0, int(pool.now // 60)
        if wanted := policy.decide(pool.snapshot()).desired["cheap"]:
            pool.booting = {"cheap": wanted}
    assert pool.booting == {"cheap": 2}
    loads.clear()
    decision = policy.decide(pool.snapshot())
    assert decision.desired == {"cheap": 2, "dear": 3}, "they are not given up"
    assert loads == [0, 3], "no task is to run on them yet"


def test_nodes_that_have_taken_the_ranks_of_the_chosen_ones_stay() -> None:
    pool = Pool()
    consolidation, _ = started(pool)
    pool.busy = {"cheap": [1, 0, 0], "dear": [1, 1]}  # ranks 1 and 2 are cheap now
    change = decided(consolidation, pool)
    assert (change.desired, change.victims) == ({"cheap": 3, "dear": 2}, ())


def test_reason_says_who_leaves_and_launched_nodes_are_kept_until_tasks_come() -> None:
    pool = Pool(groups=(DEAR, CHEAP), busy={"dear": [1, 1, 1], "cheap": []})
    consolidation, change = started(pool)
    assert change.desired == {"dear": 3, "cheap": 2}
    pool.busy, pool.now = {"dear": [1, 1, 1], "cheap": [0, 0]}, pool.now + 60
    change = decided(consolidation, pool)
    assert change.desired == {"dear": 1, "cheap": 2}
    assert set(change.victims) == {1, 2}
    assert change.at_once == {"dear": 2}, "without a cooldown"
    assert change.reason == (
        "2 nodes of 'dear' at $1.10 per hour leave once their tasks have ended, since 2 of 'cheap' at $0.30 have taken "
        "their place"
    )
    pool.desired = {"dear": 1}
    decided(consolidation, pool)
    assert consolidation.holds("cheap")
    assert not consolidation.holds("dear")
    pool.now += 101
    decided(consolidation, pool)
    assert not consolidation.holds("cheap")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"pauses": {"cheap": 300.0}}, id="sold out"),
        pytest.param({"prices": {"cheap": 0.9}}, id="it comes from a dearer source"),
        pytest.param({"gangs": (GangDemand((NOTHING,)),)}, id="a gang waits"),
        pytest.param({"retained": {"dear": RetainedNodes(1, "it keeps model")}}, id="a value is kept"),
    ],
)
def test_replacement_that_fails_is_given_up_and_the_group_rests(given: Mapping[str, object]) -> None:
    pool = Pool(groups=(DEAR, CHEAP), busy={"dear": [1, 1, 1], "cheap": []})
    consolidation, _ = started(pool)
    before = pool.now
    pool.given = given
    change = decided(consolidation, pool)
    assert (change.desired, change.victims) == ({"dear": 3, "cheap": 0}, ())
    pool.given = {}
    begun: list[tuple[float, int]] = []
    while pool.now < before + 1300:
        pool.now += 15
        pool.arrived = int(pool.now // 60)
        change = decided(consolidation, pool)
        if change.reason:
            begun.append((pool.now - before, change.desired["cheap"]))
            break
    ((at, number),) = begun
    assert at >= 600
    assert number == 1, "one node is tried first"


def test_fewer_nodes_go_if_fewer_come() -> None:
    pool = Pool(groups=(DEAR, CHEAP), busy={"dear": [1, 1, 1, 1, 1], "cheap": []})
    consolidation, change = started(pool)
    assert change.desired == {"dear": 5, "cheap": 4}
    pool.busy["cheap"], pool.given, pool.now = [0, 0, 0], {"pauses": {"cheap": 300.0}}, pool.now + 60
    change = decided(consolidation, pool)
    assert change.desired == {"dear": 2, "cheap": 3}
    assert len(change.victims) == 3


def test_policy_gives_a_replacement_up_for_tasks_that_need_its_nodes() -> None:
    pool = Pool(groups=(DEAR, CHEAP), busy={"dear": [1, 1, 1], "cheap": []})
    consolidation, _ = started(pool)
    pool.busy, pool.now = {"dear": [1, 1, 1], "cheap": [0, 0]}, pool.now + 60
    seen = pool.snapshot()
    consolidation.observe(seen)
    change = consolidation.change(seen, {"dear": 4, "cheap": 2}, ())
    assert (change.desired, change.victims) == ({"dear": 4, "cheap": 2}, ())


@given(
    least=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    most=st.tuples(st.integers(2, 6), st.integers(2, 6)),
    prices=st.tuples(st.floats(0, 3), st.floats(0, 3)),
    slots=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 4), max_size=4),
            st.lists(st.integers(0, 4), max_size=4),
            st.sampled_from([0, 0, 1, 3]),
            st.sampled_from([0.0, 0.0, 200.0]),
            st.integers(0, 3),
        ),
        min_size=5,
        max_size=40,
    ),
    max_nodes=st.none() | st.integers(2, 8),
)
def test_policy_with_consolidation_stays_within_bounds_whatever_it_sees(
    least: tuple[int, int],
    most: tuple[int, int],
    prices: tuple[float, float],
    slots: tuple[int, int],
    steps: list[tuple[list[int], list[int], int, float, int]],
    max_nodes: int | None,
) -> None:
    names = ("one", "two")
    groups = tuple(
        Group(name, low, high, slot, hourly_price=price)
        for name, low, high, slot, price in zip(names, least, most, slots, prices, strict=True)
    )
    pool = Pool(groups=groups, seconds=40.0, ends_in=20.0)
    policy = Adaptive()
    for ones, twos, booting, pause, arrived in steps:
        pool.now += 60.0
        pool.arrived += arrived
        pool.busy = {"one": [min(n, slots[0]) for n in ones], "two": [min(n, slots[1]) for n in twos]}
        pool.booting = {"one": booting}
        pool.given = {"pauses": {"one": pause} if pause else {}, "max_nodes": max_nodes}
        seen = pool.snapshot()
        decision = policy.decide(seen)
        there = {name: counts.active + counts.booting for name, counts in seen.counts.items()}
        for group in groups:
            assert group.min <= decision.desired[group.name] <= max(group.max, there[group.name])
        if max_nodes is not None:
            needed = sum(max(group.min - there[group.name], 0) for group in groups)
            assert sum(decision.desired.values()) <= max(max_nodes, sum(there.values()) + needed)
        assert 0 not in decision.victims or not any(decision.desired[group.name] > group.min for group in groups)
        assert decision.look_in is None or decision.look_in > 0
