"""Names of the published library that are written differently here, and how."""

__all__ = ["OF_A_POOL", "OF_THE_MODULE"]

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
}
"""By name: what takes the place of an attribute of `skyward`."""
