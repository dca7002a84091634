"""Names of the published library that are written differently here, or are not here yet, and what to write instead."""

import difflib
from collections.abc import Iterable

__all__ = ["OF_A_POOL", "OF_THE_MODULE", "PROVIDERS_TO_COME", "meant"]

OF_A_POOL = {
    "run_async": "`task(x) > pool` gives a future, as does `pool.submit(task(x))`",
    "run_parallel": "`(a() & b()) >> pool` runs a group, as does `pool.run_group(group)`",
    "current_nodes": "`len(pool.snapshot().nodes)` is the number of nodes, and `pool.snapshot()` says what they are",
    "concurrency": "`pool.spec` and `pool.options.worker` say how many tasks a node runs",
    "is_active": "it is `pool.is_open`",
    "stop": "it is `pool.close()`",
    "shutdown": "it is `pool.close()`",
}
"""By name: what takes the place of an attribute of a pool."""

OF_THE_MODULE = {
    "Session": "it is not needed: open each pool by itself, `with sky.Compute(...) as pool:`",
    "Pool": "a pool is a `sky.Compute`: `with sky.Compute(...) as pool:`",
    "ComputePool": "a pool is a `sky.Compute`: `with sky.Compute(...) as pool:`",
    "compute": "it is `sky.function`, for functions, and `sky.Compute`, for pools",
    "run": "`task(x) >> pool` runs a call, and `task(x) >> sky` does in the pool in scope",
    "broadcast": "`task(x) @ pool` runs a call on every node",
    "map": "it is `pool.map(fn, items)`",
    "stream": "a generator function streams by itself: put `@sky.function` on it",
    "metrics": "nodes are measured by themselves: `pool.metrics()` gives what they use, `metrics_interval=` how often",
    "containers": "`sky.Container(image=...)` takes the name of any image",
    "LogConfig": "`logging=False` of a pool leaves its log out; there is nothing more to configure",
    "redirect_output": "`pool.logs()` and `pool.follow()` give what tasks print",
    "registry": "collections are `sky.dict`, `sky.set`, `sky.queue`, `sky.counter`, `sky.barrier` and `sky.lock`",
    "plugins": "no plugins yet: import the framework inside the function, and set it up there",
    "Storage": "no storage yet: read and write it inside the function, with the client of your provider",
    "HealthChecker": "no health checks yet: a node that does not answer is replaced",
}
"""By name: what takes the place of an attribute of `skyward`."""

PROVIDERS_TO_COME = frozenset(
    [
        "AWS",
        "GCP",
        "Hyperstack",
        "JarvisLabs",
        "MassedCompute",
        "Novita",
        "RunPod",
        "Salad",
        "Scaleway",
        "TensorDock",
        "VastAI",
        "Verda",
        "Vultr",
    ]
)
"""Providers of the published library that are not here yet."""


def meant(name: str, public: Iterable[str]) -> str:
    """Return what to write in place of `skyward.NAME`, which is not public; empty where that cannot be told."""
    if name in OF_THE_MODULE:
        return OF_THE_MODULE[name]
    if name in PROVIDERS_TO_COME:
        return (
            f"no {name} yet: `sky.SSH(hosts=[...])` uses machines that you have, `sky.Container()` containers, and "
            "`sky.Local()` this machine"
        )
    from skyward import accelerators  # only for an error

    if name in accelerators.names():
        return f"it is `sky.accelerators.{name}`"
    by_lower = {each.lower(): each for each in public}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.65)
    return f"did you mean {' or '.join(repr(by_lower[each]) for each in close)}?" if close else ""
