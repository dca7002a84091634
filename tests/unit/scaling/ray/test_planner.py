"""Planner: invariants of every plan."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.scaling.ray.packing import score
from skyward.scaling.ray.planner import Existing, Gang, NodeType, PlanRequest, plan

pytestmark = pytest.mark.unit

TOTALS: list[dict[str, float]] = [
    {"CPU": 1},
    {"CPU": 4},
    {"CPU": 16},
    {"CPU": 8, "GPU": 2},
    {"GPU": 1},
    {"CPU": 0, "m": 1},
]
BUNDLES: list[dict[str, float]] = [{"CPU": 1}, {"CPU": 3}, {"GPU": 1}, {"CPU": 1, "GPU": 1}, {"CPU": 0.5}, {"m": 1}]

bundles = st.sampled_from(BUNDLES)
demands = st.lists(st.tuples(bundles, st.integers(0, 12)), max_size=4)
gangs = st.lists(
    st.builds(
        Gang,
        st.lists(bundles, min_size=1, max_size=3).map(tuple),
        st.sampled_from(["none", "same_node", "different_nodes"]),
    ),
    max_size=3,
)


@st.composite
def node_types(draw: st.DrawFn) -> NodeType:
    least = draw(st.sampled_from([0, 0, 0, 1, 3]))
    timeout = draw(st.sampled_from([None, None, 5.0]))
    return NodeType(
        draw(st.sampled_from(TOTALS)), least, least + draw(st.integers(0, 5)), timeout, draw(st.sampled_from(["", "h"]))
    )


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    types = {name: draw(node_types()) for name in "abcd"[: draw(st.integers(1, 4))]}
    existing = []
    for number in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(sorted(types)))
        free = {kind: draw(st.sampled_from([0.0, had / 2, had])) for kind, had in types[name].resources.items()}
        running = draw(st.booleans())
        node = Existing(str(number), name, running, number == 0, None, free, draw(st.sampled_from([0.0, 61.0])), "h")
        existing.append(replace(node, launch_hash=draw(st.sampled_from(["h", "h", "old"]))))
    return PlanRequest(
        types,
        existing,
        draw(demands),
        draw(gangs),
        draw(demands),
        draw(st.none() | st.integers(1, 12)),
        draw(st.sampled_from([None, 60.0])),
    )


@given(requests())
def test_plan_keeps_every_limit(request: PlanRequest) -> None:
    made = plan(request)
    going = dict(made.terminate)
    retained = [node for node in request.existing if node.id not in going]
    assert all(not node.head for node in request.existing if node.id in going)
    assert len(going) == len(made.terminate)
    counts = Counter(node.type for node in retained)
    for name, each in request.types.items():
        heads = sum(node.head for node in retained if node.type == name)
        assert counts[name] + made.launch.get(name, 0) <= max(each.max, heads)
        if request.max_nodes is None:
            assert counts[name] + made.launch.get(name, 0) >= each.min
    if request.max_nodes is not None:
        assert len(retained) + sum(made.launch.values()) <= max(request.max_nodes, 1)
    assert not {node for node, cause in made.terminate if cause == "IDLE"} & made.needed


@given(requests())
def test_placements_fit_into_free_and_launched_resources(request: PlanRequest) -> None:
    """Placements fit into free and launched resources, resource by resource."""
    made = plan(request)
    room: Counter[str] = Counter()
    for node in request.existing:
        room.update((node.free or {}) if node.running else request.types[node.type].resources)
    for name, count in made.launch.items():
        room.update({kind: had * count for kind, had in request.types[name].resources.items()})
    placed: Counter[str] = Counter()
    for bundle, count in request.demands:
        placed.update({kind: amount * count for kind, amount in bundle.items()})
    for bundle, count in made.infeasible:
        placed.subtract({kind: amount * count for kind, amount in bundle.items()})
    failed = list(made.infeasible_gangs)
    for gang in request.gangs:
        if gang in failed:
            failed.remove(gang)
            continue
        for bundle in gang.bundles:
            placed.update(bundle)
    assert not failed
    assert all(room[kind] + 1e-6 >= amount for kind, amount in placed.items())


@given(requests())
def test_every_launch_has_a_reason(request: PlanRequest) -> None:
    made = plan(request)
    there = Counter(node.type for node in request.existing if not _outdated(request, node))
    required = sum(max(0, each.min - there[name]) for name, each in request.types.items())
    asked = sum(count for _, count in [*request.demands, *request.floor])
    asked += sum(1 if gang.placement == "same_node" else len(gang.bundles) for gang in request.gangs)
    assert sum(made.launch.values()) <= required + asked
    idle = plan(replace(request, demands=(), gangs=(), floor=(), max_nodes=None))
    assert dict(idle.launch) == {
        name: each.min - there[name] for name, each in request.types.items() if each.min > there[name]
    }


def _outdated(request: PlanRequest, node: Existing) -> bool:
    wanted = request.types[node.type].launch_hash
    return bool(wanted) and wanted != node.launch_hash and not node.head


@given(requests())
def test_grouping_of_demands_makes_no_difference(request: PlanRequest) -> None:
    single = [(dict(bundle), 1) for bundle, count in request.demands for _ in range(count)]
    assert repr(plan(replace(request, demands=single[::-1]))) == repr(plan(request))


def test_minimum_above_max_nodes_is_not_launched() -> None:
    made = plan(PlanRequest({"a": NodeType({"CPU": 1}, 5, 9)}, max_nodes=2))
    assert dict(made.launch) == {"a": 2}
    assert not made.terminate


def test_unneeded_pending_node_is_terminated() -> None:
    pending = Existing("1", "a", running=False, idle=61)
    types = {"a": NodeType({"CPU": 1}, 0, 9)}
    assert plan(PlanRequest(types, [pending], idle_timeout=60)).terminate == (("1", "IDLE"),)
    assert not plan(PlanRequest(types, [pending], [({"CPU": 1}, 1)], idle_timeout=60)).terminate


def test_pending_node_of_unknown_type_is_skipped_without_hash_check() -> None:
    gone = Existing("1", "gone", running=False)
    types = {"a": NodeType({"CPU": 1}, 0, 9)}
    assert plan(PlanRequest(types, [gone])).terminate == (("1", "OUTDATED"),)
    assert not plan(PlanRequest(types, [gone], check_launch_hash=False)).terminate


def test_score_of_the_example_in_the_specification() -> None:
    """Type A of the example wins by the third part of the score: B would leave a TPU unused."""
    a, _ = score({"GPU": 6}, [{"GPU": 2}])
    b, _ = score({"GPU": 2, "TPU": 1}, [{"GPU": 2}])
    assert a > b
    assert a.least == pytest.approx(2 / 9)
    assert (b.least, b.mean) == (0.0, 1.0)


def test_cheapest_of_equally_good_types_is_launched() -> None:
    types = {
        "dear": NodeType({"CPU": 4}, 0, 9, hourly_price=2.0),
        "cheap": NodeType({"CPU": 4}, 0, 1, hourly_price=1.0),
    }
    assert plan(PlanRequest(types, demands=[({"CPU": 4}, 1)])).launch == {"cheap": 1}
    assert plan(PlanRequest(types, demands=[({"CPU": 4}, 3)])).launch == {"dear": 2, "cheap": 1}
