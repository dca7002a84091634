"""Figure 10: duration of a scaling decision: bin packing compared with Ray's scheduler, and the default policy."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.figure import Aim, Figure, Peer, timed
from benchmarks.floors.ray_scheduler import RayScheduler
from benchmarks.settings import Settings
from skyward.scaling import Counts, Demand, Group, Pressure, Snapshot
from skyward.scaling.ray.planner import Existing, NodeType, PlanRequest, ScalingPlan, plan

__all__ = ["figures"]

type Bundle = Mapping[str, float]

CPUS = (2, 4, 8, 8, 16, 16, 32, 32, 64, 64)
GPUS = (0, 0, 0, 1, 0, 2, 0, 3, 0, 4)
TYPES: dict[str, Bundle] = {
    f"type-{number}": {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}
    for number, (cpus, gpus) in enumerate(zip(CPUS, GPUS, strict=True))
}


def figures(settings: Settings) -> Iterator[Figure]:
    """Time 4,000 demands over 400 nodes and 10,000 over 1,000 in milliseconds; `pressure` in microseconds."""
    sizes = ((1000, 100),) if settings.quick else ((4000, 400), (10_000, 1000))
    for demands, nodes in sizes:
        bundles, kinds = _demands(demands), _kinds(nodes)
        ours = min(timed(partial(_plan, bundles, kinds)) for _ in range(5))
        peers = [_ray(bundles, kinds)] if settings.peers and nodes <= 400 else []
        aim = Aim("value", 1000.0) if nodes == 1000 else None
        name = f"binpack, {demands:,} demands over {nodes:,} nodes"
        yield Figure(name, "ms", ours * 1e3, aim=aim, peers=peers)
        ours = min(timed(partial(_plan, bundles, kinds, used=True)) for _ in range(5))
        yield Figure(f"{name} that all differ", "ms", ours * 1e3)
    snapshot = _snapshot()
    policy = Pressure()
    took = min(timed(lambda: [policy.decide(snapshot) for _ in range(1000)]) for _ in range(20))
    yield Figure("one decision of `pressure`", "µs", took * 1e3, aim=Aim("value", 20.0))


def _demands(count: int) -> list[Bundle]:
    chosen = random.Random(1)
    return [
        {"CPU": float(chosen.choice((1, 2, 4))), **({"GPU": 1.0} if chosen.random() < 0.2 else {})}
        for _ in range(count)
    ]


def _kinds(count: int) -> list[str]:
    return [f"type-{number % len(TYPES)}" for number in range(count)]


def _plan(demands: Sequence[Bundle], kinds: Sequence[str], *, used: bool = False) -> ScalingPlan:
    """Plan the nodes for demands; `used`: each node has another part of its resources in use."""
    types = {name: NodeType(owned, 0, 10_000) for name, owned in TYPES.items()}
    existing = [Existing(str(number), kind) for number, kind in enumerate(kinds)]
    if used:
        existing = [
            replace(node, free={kind: had * (number % 997) / 997 for kind, had in TYPES[node.type].items()})
            for number, node in enumerate(existing)
        ]
    return plan(PlanRequest(types, existing, [(demand, 1) for demand in demands]))


def _ray(demands: Sequence[Bundle], kinds: Sequence[str]) -> Peer:
    try:
        launches, took = RayScheduler(TYPES, kinds).plan(demands)
    except ImportError:
        return Peer("ray", None, "not installed")
    ours = _plan(demands, kinds).launch
    if launches != dict(ours):
        return Peer("ray", None, f"launches {launches}, and we {dict(ours)}")
    return Peer("ray, which launches the same", took * 1e3)


def _snapshot() -> Snapshot:
    group = Group("default", 2, 16, slots=2)
    return Snapshot(0.0, (group,), {"default": Counts(active=4, busy=8, desired=4)}, (Demand(12),))
