"""Collectives of PyTorch: from `@` to the end of the first one, compared with `torchrun` on the same machine."""

import importlib.util
import os
import time
from collections.abc import Iterator
from unittest.mock import patch

from benchmarks.figure import Aim, Figure, median, timed
from benchmarks.floors.torchrun import first_collective
from benchmarks.settings import Settings
from benchmarks.tasks import remote
from skyward.plugins.torch_plugin import Torch
from skyward.pool.compute import Compute

__all__ = ["figures"]

PROCESSES = 2

CALLS = 10
"""Calls of ours beside each start of `torchrun`, which takes a hundred times as long."""


def figures(settings: Settings) -> Iterator[Figure]:
    """Measure the first collective of two processes of one node: in an open pool, and with its opening."""
    name = f"all_reduce of {PROCESSES} processes"
    if importlib.util.find_spec("torch") is None:
        yield Figure(name, "s", None, note="torch is not installed: see benchmarks/README.md")
        return
    rounds = 2 if settings.quick else 5
    with patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
        yield from _figures(name, rounds)


def _figures(name: str, rounds: int) -> Iterator[Figure]:
    floors: list[float] = []
    opened: list[float] = []
    warm: list[float] = []
    returned: list[float] = []
    first_collective(PROCESSES)  # the files of PyTorch are in memory from now on
    for _ in range(rounds):
        floors.append(first_collective(PROCESSES))
        start = time.perf_counter()
        with Compute(nodes=1, plugins=[Torch(procs_per_node=PROCESSES)]) as pool:
            opened.append(_collective(pool, start))
            for _ in range(CALLS):
                warm.append(_collective(pool, time.perf_counter()))
                returned.append(timed(lambda pool=pool: remote.all_reduce() @ pool))  # type: ignore[misc]
    floor = median(floors), "torchrun"
    yield Figure(name, "s", median(warm), *floor, min(warm) / min(floors), Aim("ratio", 1.0))
    yield Figure(f"{name}, and its result", "s", median(returned), *floor, min(returned) / min(floors))
    yield Figure(f"open 1 node, {name}", "s", median(opened), *floor, min(opened) / min(floors))


def _collective(pool: Compute, start: float) -> float:
    """Return the seconds from `start` to the end of a collective in the last of its members.

    All processes of one machine have the same clock.
    """
    return max(remote.time_all_reduce() @ pool) - start
