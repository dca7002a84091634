"""Names of the published library that differ here or are not supported yet, and their replacements."""

import difflib
from collections.abc import Iterable

__all__ = ["OF_A_POOL", "OF_THE_MODULE", "PROVIDERS_TO_COME", "suggestion"]

OF_A_POOL = {
    "run_async": "`task(x) > pool` returns a future, as does `pool.submit(task(x))`",
    "run_parallel": "`(a() & b()) >> pool` runs a group, as does `pool.run_group(group)`",
    "current_nodes": "`len(pool.snapshot().nodes)` is the number of nodes; `pool.snapshot()` describes them",
    "concurrency": "`pool.options.worker.concurrency` is the number of tasks that a node runs at a time",
    "is_active": "use `pool.is_open`",
    "stop": "use `pool.close()`",
    "shutdown": "use `pool.close()`",
}
"""Replacements of the attributes of a pool, by name."""

OF_THE_MODULE = {
    "Session": "no session is needed: open a pool with `with sky.Compute(...) as pool:`",
    "Pool": "a pool is a `sky.Compute`: `with sky.Compute(...) as pool:`",
    "ComputePool": "a pool is a `sky.Compute`: `with sky.Compute(...) as pool:`",
    "compute": "use `sky.function` for functions and `sky.Compute` for pools",
    "run": "`task(x) >> pool` runs a call; `task(x) >> sky` runs it in the pool in scope",
    "broadcast": "`task(x) @ pool` runs a call on every node",
    "map": "use `pool.map(fn, items)`",
    "stream": "generator functions stream: decorate them with `@sky.function`",
    "metrics": "nodes are always measured: `pool.metrics()` returns the figures, `metrics_interval=` sets how often",
    "containers": "`sky.Container(image=...)` takes the name of any image",
    "LogConfig": "`logging=False` of a pool switches its log off; there is nothing else to configure",
    "redirect_output": "`pool.logs()` and `pool.follow()` return the output of tasks",
    "registry": "collections are `sky.dict`, `sky.set`, `sky.queue`, `sky.counter`, `sky.barrier` and `sky.lock`",
    **{
        name: f"presets are methods of `sky.Storage`: use `sky.Storage.{name.lower()}(...)`"
        for name in ("S3", "GCS", "R2", "Wasabi", "Backblaze")
    },
    "HealthChecker": "health checks are not supported yet: a node that does not answer is replaced",
}
"""Replacements of the attributes of `skyward`, by name."""

PROVIDERS_TO_COME = frozenset(
    [
        "JarvisLabs",
        "MassedCompute",
        "Novita",
        "Salad",
        "Scaleway",
        "TensorDock",
        "Vultr",
    ]
)
"""Providers of the published library that are not supported yet."""


def suggestion(name: str, public: Iterable[str]) -> str:
    """Return a hint for a name that `skyward` does not have; empty if no name is close."""
    if name in OF_THE_MODULE:
        return OF_THE_MODULE[name]
    if name in PROVIDERS_TO_COME:
        return (
            f"{name} is not supported yet: use `sky.SSH(hosts=[...])` for your own machines, `sky.Container()` for "
            "containers, or `sky.Local()` for this machine"
        )
    from skyward import accelerators  # only for an error

    if name in accelerators.names():
        return f"use `sky.accelerators.{name}`"
    by_lower = {each.lower(): each for each in public}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.65)
    return f"did you mean {' or '.join(repr(by_lower[each]) for each in close)}?" if close else ""
