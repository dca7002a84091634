"""Figure 8: opening and closing a pool."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figure import Figure, Peer, median, timed
from benchmarks.floors.process import Served
from benchmarks.peers import Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import noop_of
from skyward.pool.compute import Compute

__all__ = ["figures"]


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the seconds to open and to close pools of several sizes."""
    rounds = 2 if settings.quick else 5
    for nodes in (1, 2, 4, 8):
        floors, opened, closed = [], [], []
        for _ in range(rounds):
            floors.append(timed(lambda nodes=nodes: _bare(nodes)))  # type: ignore[misc]
            pool = Compute(nodes=nodes)
            opened.append(timed(pool.open))
            closed.append(timed(pool.close))
        name = f"{nodes} node{'s'[: nodes - 1]}"
        quiet = min(opened) / min(floors)
        peers = _peers(rounds) if settings.peers and nodes == 2 else ()
        yield Figure(f"open {name}", "s", median(opened), median(floors), "bare casty processes", quiet, peers=peers)
        yield Figure(f"close {name}", "s", median(closed))


def _bare(number: int) -> None:
    """Start so many processes that serve the engine and nothing else, all at once."""
    with ThreadPoolExecutor(number) as threads:
        served = list(threads.map(lambda _: Served("casty_ask"), range(number)))
    for process in served:
        process.__exit__()


def _peers(rounds: int) -> list[Peer]:
    """Return the seconds from the start until both workers of a peer have answered."""
    return [_median(rounds, name) for name in ("ProcessPoolExecutor", "dask.distributed", "ipyparallel")]


def _median(rounds: int, name: str) -> Peer:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        (peer,) = measured(lambda running, start=start: _answered(running) - start, only=[name])  # type: ignore[misc]
        if peer.value is None:
            return peer
        times.append(peer.value)
    return Peer(name, median(times))


def _answered(running: Running) -> float:
    """Return the time at which both workers have answered."""
    running.map(noop_of, [0, 1])
    return time.perf_counter()
