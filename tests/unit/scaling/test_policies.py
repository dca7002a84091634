"""Policies: bounds, reasons, and decisions of those of Ray and Scaler."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.errors import SpecError
from skyward.scaling import (
    Binpack,
    Capability,
    Counts,
    Decision,
    Demand,
    FixedElastic,
    Group,
    No,
    NodeLoad,
    Pressure,
    Snapshot,
    Vanilla,
)
from skyward.scaling.registry import POLICIES, find_policy
from skyward.scaling.snapshot import GangDemand, NodeStage
from skyward.scaling.snapshot.bundles import floor_nodes
from skyward.specs.options import Options
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

ON_GPU = Needs({"GPU": 1})
FAST = Needs({}, {"fast"})
CPU = Group("cpu", 0, 8, 2, {"CPU": 4.0}, hourly_price=1.0)
GPU = Group("gpu", 0, 4, 2, {"CPU": 8.0, "GPU": 1.0}, frozenset({"fast"}), hourly_price=5.0)
BASE = Group("base", 0, 1, 2, {"CPU": 4.0})


def pool(*groups: Group, nodes: tuple[NodeLoad, ...] = (), desired: dict[str, int] | None = None) -> Snapshot:
    """Return a snapshot whose counts match its nodes."""
    counts = {}
    for group in groups:
        own = [node for node in nodes if node.group == group.name]
        stages = [node.stage for node in own]
        there = stages.count("active") + stages.count("booting")
        counts[group.name] = Counts(
            stages.count("active"),
            stages.count("booting"),
            stages.count("leaving"),
            sum(node.busy for node in own),
            there if desired is None else desired[group.name],
        )
    return Snapshot(1000.0, groups, counts, nodes=nodes)


def node(rank: int, group: Group, busy: int = 0, stage: NodeStage = "active", idle: float = 0.0) -> NodeLoad:
    free = {kind: had * (group.slots - busy) / group.slots for kind, had in group.resources.items()}
    return NodeLoad(rank, group.name, stage, busy, free, idle)


STAGES: st.SearchStrategy[NodeStage] = st.sampled_from(["active", "active", "booting", "leaving"])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    groups = []
    for each in draw(st.sampled_from([(CPU,), (CPU, GPU), (BASE, CPU), (GPU, BASE, CPU)])):
        least = draw(st.integers(0, min(2, each.max)))
        groups.append(replace(each, min=least, max=max(each.max, least)))
    nodes: list[NodeLoad] = []
    for group in groups:
        for _ in range(draw(st.integers(0, group.max))):
            stage = draw(STAGES)
            busy = draw(st.integers(0, group.slots)) if stage == "active" else 0
            idle = draw(st.sampled_from([0.0, 30.0, 61.0])) if stage == "active" and not busy else 0.0
            nodes.append(node(len(nodes), group, busy, stage, idle))
    seen = pool(*groups, nodes=tuple(nodes))
    working = bool(seen.inflight)
    return replace(
        seen,
        demands=tuple(
            Demand(draw(st.integers(1, 30)), each)
            for each in draw(st.lists(st.sampled_from([NOTHING, ON_GPU, FAST]), max_size=3, unique=True))
        ),
        idle_for=0.0 if working else draw(st.sampled_from([0.0, 61.0])),
        max_nodes=draw(st.none() | st.integers(8, 20)),
        floor=draw(st.sampled_from([(), (Demand(3),), (Demand(1, ON_GPU),)])),
    )


@pytest.mark.parametrize("name", POLICIES)
@given(seen=snapshots())
def test_every_policy_keeps_its_bounds(name: str, seen: Snapshot) -> None:
    decision = find_policy(name).decide(seen)
    groups = {group.name: group for group in seen.groups}
    assert set(decision.desired) <= set(groups)
    before = sum(seen.desired.values())
    owed = sum(max(0, group.min - seen.desired[group.name]) for group in seen.groups)
    for group, count in decision.desired.items():
        assert count <= groups[group].max
        if seen.max_nodes is None or before + owed <= seen.max_nodes:
            assert count >= groups[group].min
    if seen.max_nodes is not None:
        least = sum(max(group.min, seen.counts[group.name].desired) for group in seen.groups)
        assert sum({**seen.desired, **decision.desired}.values()) <= max(seen.max_nodes, before, least)
    assert decision.reason
    assert set(decision.victims) <= {node.rank for node in seen.nodes if node.stage != "leaving"}
    assert 0 not in decision.victims or len([node for node in seen.nodes if node.stage != "leaving"]) == 1
    assert all(not any(group.can_hold(needs) for group in seen.groups) for needs in decision.infeasible)


@pytest.mark.parametrize("name", POLICIES)
@given(seen=snapshots())
def test_every_policy_is_idempotent(name: str, seen: Snapshot) -> None:
    """The same snapshot with its decision applied gives the same decision, so repeated decisions do not run away."""
    policy = find_policy(name)
    first = policy.decide(seen)
    counts = {
        group: replace(count, desired=first.desired.get(group, count.desired)) for group, count in seen.counts.items()
    }
    again = policy.decide(replace(seen, counts=counts))
    assert {**first.desired, **again.desired} == first.desired


def test_every_policy_is_found_by_name() -> None:
    assert POLICIES == ("adaptive", "pressure", "no", "vanilla", "capability", "fixed_elastic", "binpack")
    assert [find_policy(name).name for name in POLICIES] == list(POLICIES)
    assert find_policy("binpack") is not find_policy("binpack")
    assert isinstance(find_policy("pressure"), Pressure)
    own = Vanilla(up=3)
    assert find_policy(own) is own


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("allocate=capability; scaling=vanilla", "vanilla"),
        (" scaling = fixed_elastic ;allocate=even_load;", "fixed_elastic"),
        ("scaling=no", "no"),
        ("allocate=even_load; scaling=binpack", "binpack"),
    ],
)
def test_policy_is_found_by_the_policy_content_of_scaler(content: str, name: str) -> None:
    assert find_policy(content).name == name
    assert Options(policy=content).policy == content


class Half:
    """Incomplete policy, without an interval."""

    name = "half"

    def decide(self, snapshot: Snapshot) -> Decision:
        return Decision({}, "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("presure", "There is no scaling policy 'presure'; did you mean 'pressure'?"),
        (
            "zzz",
            "There is no scaling policy 'zzz'; they are adaptive, binpack, capability, fixed_elastic, no, pressure, "
            "vanilla.",
        ),
        (
            "scaling=vanila",
            "There is no scaling policy 'vanila'; did you mean 'vanilla'?",
        ),
        (
            "allocate=even; scaling=no",
            "There is no allocation policy 'even'; they are capability, even_load.",
        ),
        (
            "allocate=capability",
            "The scaling policy 'allocate=capability' has no part 'scaling'; write it as in "
            "`policy='allocate=even_load; scaling=vanilla'`.",
        ),
        (
            "alocate=capability; scaling=no",
            "The scaling policy has an unknown part 'alocate'; the parts are 'allocate' and 'scaling', as in "
            "`policy='allocate=even_load; scaling=vanilla'`.",
        ),
        (
            "scaling=no; scaling=vanilla",
            "The scaling policy has the part 'scaling' twice; write it once, as in "
            "`policy='allocate=even_load; scaling=vanilla'`.",
        ),
        (
            "capability; scaling=no",
            "The scaling policy has the part 'capability'; write NAME=VALUE, as in "
            "`policy='allocate=even_load; scaling=vanilla'`.",
        ),
        (Vanilla, "The scaling policy must be an object, so write `Vanilla()`, not its class."),
    ],
)
def test_invalid_policies_are_refused(given: object, message: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        find_policy(given)


def test_policy_object_without_a_member_is_refused() -> None:
    with pytest.raises(SpecError, match=r"has no 'interval'\.$"):
        find_policy(Half())


@pytest.mark.parametrize("policy", [Vanilla, Capability, FixedElastic])
def test_invalid_thresholds_are_refused(policy: type[Vanilla | Capability | FixedElastic]) -> None:
    with pytest.raises(SpecError, match=r"^down must be a number of at least 0, but got -1\.$"):
        policy(up=1, down=-1)
    with pytest.raises(SpecError, match=r"^down must be at most up, but a group would stop below 3 and start above 2"):
        policy(up=2, down=3)


def test_policy_no_changes_nothing() -> None:
    seen = pool(CPU, nodes=(node(0, CPU, 2), node(1, CPU)))
    assert No().decide(replace(seen, demands=(Demand(99),))).desired == {"cpu": 2}


def test_vanilla_adds_one_node_and_counts_booting_nodes() -> None:
    seen = pool(CPU, nodes=(node(0, CPU, 2),))
    decision = Vanilla().decide(replace(seen, demands=(Demand(19),)))
    assert decision.desired == {"cpu": 2}
    assert decision.reason == "21 tasks for 2 slots are more than 10 per slot, so 1 node is added"
    assert Vanilla().decide(replace(seen, demands=(Demand(18),))).desired == {"cpu": 1}
    booting = pool(CPU, nodes=(node(0, CPU, 2), node(1, CPU, stage="booting")))
    assert Vanilla().decide(replace(booting, demands=(Demand(19),))).desired == {"cpu": 2}


def test_vanilla_removes_the_least_busy_node_but_never_the_head() -> None:
    seen = pool(CPU, nodes=(node(0, CPU), node(1, CPU, 1), node(2, CPU, 2), node(3, CPU, 1)))
    decision = Vanilla().decide(seen)
    assert decision.desired == {"cpu": 3}
    assert decision.victims == (3,)
    assert decision.reason == "4 tasks for 8 slots are fewer than 1 per slot, so node 3, the least busy one, is removed"
    assert Vanilla().decide(pool(CPU, nodes=(node(0, CPU),))).victims == (0,)
    kept = replace(CPU, min=4)
    assert Vanilla().decide(pool(kept, nodes=tuple(seen.nodes))).desired == {"cpu": 4}


def test_capability_starts_nodes_with_the_requested_capabilities() -> None:
    seen = replace(pool(CPU, GPU), demands=(Demand(3), Demand(2, ON_GPU), Demand(1, FAST)))
    decision = Capability().decide(seen)
    assert decision.desired == {"cpu": 1, "gpu": 2}
    assert decision.reason == (
        "3 tasks wait and no node is up, so 1 node of 'cpu' is added; "
        "2 tasks need 'GPU', which no node has, so 1 node of 'gpu' is added; "
        "1 task needs 'fast', which no node has, so 1 node of 'gpu' is added"
    )


def test_capability_removes_an_idle_special_node() -> None:
    seen = pool(CPU, GPU, nodes=(node(0, CPU), node(1, GPU)))
    decision = Capability().decide(seen)
    assert decision.desired == {"cpu": 1, "gpu": 0}
    assert decision.victims == (1,)


def test_capability_ignores_amounts_that_no_group_can_hold() -> None:
    seen = replace(pool(CPU, GPU), demands=(Demand(1, Needs({"GPU": 2})),))
    assert Capability().decide(seen).infeasible == (Needs({"GPU": 2}),)


def test_fixed_elastic_grows_for_demand_and_shrinks_idle_groups() -> None:
    policy = FixedElastic()
    seen = replace(pool(BASE, CPU), demands=(Demand(21),))
    assert policy.decide(seen).desired == {"base": 1, "cpu": 1}
    grown = pool(BASE, CPU, nodes=(node(0, BASE), node(1, CPU)))
    shrunk = policy.decide(grown)
    assert shrunk.desired == {"base": 1, "cpu": 0}
    assert shrunk.victims == (1,)
    lost = pool(BASE, CPU, desired={"base": 0, "cpu": 0})
    assert policy.decide(lost).desired["base"] == 1


def test_fixed_elastic_starts_its_primary_node_before_the_others() -> None:
    """Regression: both started for the first task; and a node of the other group kept the primary one from starting."""
    few = replace(pool(BASE, CPU), demands=(Demand(20),))
    assert FixedElastic().decide(few).desired == {"base": 1, "cpu": 0}
    woken = replace(pool(BASE, CPU, nodes=(node(0, CPU, 2),)), demands=(Demand(1),))
    assert FixedElastic().decide(woken).desired == {"base": 1, "cpu": 1}


def test_fixed_elastic_does_not_take_a_group_that_is_closed_for_a_while_as_primary() -> None:
    """Regression: a group whose maximum was lowered to the one node that it has kept that node for ever."""
    policy = FixedElastic()
    policy.decide(pool(BASE, CPU))
    closed = replace(CPU, max=1)
    seen = pool(BASE, closed, nodes=(node(0, BASE, 2), node(1, closed)))
    assert policy.decide(replace(seen, demands=(Demand(99),))).desired == {"base": 1, "cpu": 1}
    assert policy.decide(pool(BASE, closed, nodes=(node(0, BASE), node(1, closed)))).desired == {"base": 1, "cpu": 0}


def test_binpack_packs_by_resource() -> None:
    seen = replace(pool(CPU, GPU, nodes=(node(0, CPU, 1),)), demands=(Demand(5), Demand(2, ON_GPU)))
    decision = Binpack().decide(seen)
    assert decision.desired == {"cpu": 2, "gpu": 2}
    assert decision.reason == (
        "7 tasks wait, more than fits on 1 node, so 1 node of 'cpu' and 2 nodes of 'gpu' are added"
    )


def test_binpack_reports_infeasible_requests() -> None:
    small = replace(CPU, max=2)
    seen = replace(pool(small), demands=(Demand(9),), gangs=(GangDemand((ON_GPU,)),), floor=(Demand(50),))
    decision = Binpack().decide(seen)
    assert decision.desired == {"cpu": 2}
    assert decision.infeasible == (ON_GPU,)
    assert decision.reason == (
        "9 tasks wait, a gang of 1 task (placement 'pack') waits and `request_resources` reserves room for 50 tasks, "
        "and no node is up, so 2 nodes are added; 5 tasks wait for lack of room, because the maximum number of nodes "
        "is 2; "
        "1 gang of tasks does not fit at once; "
        "what `request_resources` reserves does not fit into the maximum number of nodes"
    )


def test_binpack_does_not_call_the_nodes_of_a_blocked_group_its_maximum() -> None:
    blocked = replace(CPU, max=1, can_launch=False)
    seen = replace(pool(blocked, nodes=(node(0, CPU, 2), node(1, CPU, 2))), demands=(Demand(9),), floor=(Demand(50),))
    reason = Binpack().decide(seen).reason
    assert "tasks wait for lack of room, because no more can be launched now of group 'cpu'" in reason
    assert "reserves does not fit, because no more can be launched now of group 'cpu'" in reason
    assert "1 node is removed: no more can be launched now" in reason
    assert "maximum" not in reason


def test_binpack_removes_idle_nodes_but_keeps_the_floor() -> None:
    nodes = (node(0, CPU, idle=90), node(1, CPU, idle=90), node(2, CPU, idle=90), node(3, CPU, idle=10))
    decision = Binpack().decide(pool(CPU, nodes=nodes))
    assert decision.desired == {"cpu": 2}
    assert decision.victims == (1, 2)
    assert decision.settled
    assert decision.reason == "2 nodes are removed: they were idle for longer than the idle timeout of 60 s"
    held = Binpack().decide(replace(pool(CPU, nodes=nodes), floor=(Demand(4),)))
    assert held.victims == (2,)
    assert Binpack().decide(pool(CPU, nodes=nodes[:1])).desired == {"cpu": 0}


@pytest.mark.parametrize("name", ["pressure", "binpack", "vanilla", "capability"])
def test_the_highest_of_equally_idle_nodes_goes_first(name: str) -> None:
    """Regression: the lowest went first, which left holes in the ranks."""
    kept = replace(CPU, min=3)
    seen = pool(kept, nodes=tuple(node(rank, kept, idle=90.0 + rank / 100) for rank in range(4)))
    decision = find_policy(name).decide(replace(seen, idle_for=90.0))
    assert decision.desired == {"cpu": 3}
    assert decision.victims[0] == 3


def test_binpack_cancels_a_boot_that_was_unneeded_for_the_idle_timeout() -> None:
    policy = Binpack()
    boot = pool(CPU, nodes=(node(0, CPU, 2), node(1, CPU, stage="booting")))
    assert policy.decide(boot).desired == {"cpu": 2}
    assert policy.decide(replace(boot, now=1060.0)).desired == {"cpu": 2}
    needed = replace(boot, now=1061.0, demands=(Demand(1),))
    assert policy.decide(needed).desired == {"cpu": 2}
    assert policy.decide(replace(boot, now=1062.0)).desired == {"cpu": 2}
    cancelled = policy.decide(replace(boot, now=1123.0))
    assert cancelled.desired == {"cpu": 1}
    assert cancelled.victims == (1,)


@pytest.mark.parametrize(
    ("floor", "counts", "expected"),
    [
        ((), {"cpu": 3}, {}),
        ((Demand(5),), {}, {"cpu": 3}),
        ((Demand(2, Needs({"CPU": 4})),), {"cpu": 7}, {"cpu": 2}),
        ((Demand(2, ON_GPU), Demand(1, Needs({"CPU": 4}))), {"cpu": 1}, {"cpu": 1, "gpu": 2}),
        ((Demand(5, ON_GPU),), {}, {}),
        ((Demand(1, Needs({"TPU": 1})),), {"cpu": 1}, {}),
    ],
)
def test_floor_adds_nodes_for_requested_capacity(
    floor: tuple[Demand, ...], counts: dict[str, int], expected: dict[str, int]
) -> None:
    assert floor_nodes((CPU, GPU), floor, counts) == expected


@pytest.mark.parametrize(
    ("tasks", "waits"),
    [
        (0, "a gang of 4 tasks (placement 'pack') waits"),
        (2, "2 tasks wait, a gang of 4 tasks (placement 'pack') waits"),
    ],
)
def test_steady_policy_names_the_gangs_that_wait(tasks: int, waits: str) -> None:
    """Regression: policy `no` said that no task waits while a gang did."""
    seen = replace(pool(CPU, nodes=(node(0, CPU, 2),)), gangs=(GangDemand((NOTHING,) * 4),))
    seen = replace(seen, demands=(Demand(tasks),) if tasks else ())
    assert No().decide(seen).reason == f"nothing to change: {waits} and all 2 slots are busy"
