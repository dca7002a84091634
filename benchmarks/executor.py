"""Ten thousand no-ops mapped by an executor, and by the standard library's."""

from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from benchmarks.figure import Aim, Figure, median, timed
from benchmarks.peers import Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import noop_of
from skyward.pool.compute import Compute

__all__ = ["figures"]

CALLS = 10_000


def figures(settings: Settings) -> Iterator[Figure]:
    """Return calls per second, from the call of `map` or `submit` to having every result."""
    rounds = 3 if settings.quick else 7
    peers = measured(_peer, only=["dask.distributed", "ipyparallel"]) if settings.peers else ()
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes,
        Compute(nodes=2) as pool,
        pool.executor() as executor,
    ):
        for name, send in (("map", _map), ("submit", _submit)):
            ours, floors = [], []
            send(processes)
            send(executor)
            for _ in range(rounds):
                floors.append(timed(partial(send, processes)))
                ours.append(timed(partial(send, executor)))
            yield Figure(
                f"{CALLS:,} no-ops by `executor.{name}`, 2 nodes",
                "calls/s",
                CALLS / median(ours),
                CALLS / median(floors),
                "ProcessPoolExecutor",
                min(floors) / min(ours),
                Aim("ratio", 0.5, at_least=True) if name == "map" else None,
                peers if name == "map" else (),
            )


def _map(executor: Executor) -> None:
    list(executor.map(noop_of, range(CALLS)))


def _submit(executor: Executor) -> None:
    for future in [executor.submit(noop_of, number) for number in range(CALLS)]:
        future.result()


def _peer(peer: Running) -> float:
    number = CALLS // 2
    peer.map(noop_of, range(100))
    return number / median([timed(lambda: peer.map(noop_of, range(number))) for _ in range(3)])
