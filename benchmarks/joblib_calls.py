"""Two thousand tiny calls of joblib, on a pool and on loky's processes."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from benchmarks.figure import Aim, Figure, median, timed
from benchmarks.peers import measured
from benchmarks.settings import Settings
from benchmarks.tasks import noop_of
from skyward.pool.compute import Compute

__all__ = ["figures"]

CALLS = 2000
NAME = f"{CALLS:,} tiny calls of joblib, 2 nodes"


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the seconds of one call of `joblib.Parallel`."""
    if importlib.util.find_spec("joblib") is None:
        yield Figure(NAME, "s", None, note="joblib is not installed")
        return
    rounds = 5 if settings.quick else 15
    ours, floors = [], []
    with Compute(nodes=2):
        _calls("skyward")
        _calls("loky")
        for _ in range(rounds):
            floors.append(timed(lambda: _calls("loky")))
            ours.append(timed(lambda: _calls("skyward")))
    peers = measured(_dask, only=["dask.distributed"]) if settings.peers else ()
    quiet = min(ours) / min(floors)
    yield Figure(NAME, "s", median(ours), median(floors), "loky", quiet, Aim("ratio", 1), peers)


def _calls(backend: str) -> None:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend):
        Parallel(n_jobs=2)(delayed(noop_of)(number) for number in range(CALLS))


def _dask(_: Any) -> float:
    """Return the seconds with dask's backend, which finds the client that is running."""
    _calls("dask")
    return median([timed(lambda: _calls("dask")) for _ in range(3)])
