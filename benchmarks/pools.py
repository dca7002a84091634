"""Figure 8: opening and closing a pool."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figure import Figure, Peer, median, timed
from benchmarks.floors.process import Served
from benchmarks.peers import Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import noop
from skyward.compute import Compute

__all__ = ["figures"]


def figures(settings: Settings) -> Iterator[Figure]:
    """Seconds to open and to close pools of several sizes."""
    rounds = 2 if settings.quick else 5
    for nodes in (1, 2, 4, 8):
        floors, opened, closed = [], [], []
        for _ in range(rounds):
            floors.append(timed(lambda nodes=nodes: _bare(nodes)))  # type: ignore[misc]
            pool = Compute(nodes=nodes)
            opened.append(timed(pool.open))
            closed.append(timed(pool.close))
        name = f"{nodes} node{'s'[: nodes - 1]}"
        peers = _peers() if settings.peers and nodes == 2 else ()
        yield Figure(f"open {name}", "s", median(opened), median(floors), "bare casty processes", peers=peers)
        yield Figure(f"close {name}", "s", median(closed))


def _bare(number: int) -> None:
    """Start so many processes that serve the engine and nothing else, all at once."""
    with ThreadPoolExecutor(number) as threads:
        served = list(threads.map(lambda _: Served("casty_ask"), range(number)))
    for process in served:
        process.__exit__()


def _peers() -> list[Peer]:
    """Seconds until both workers of a peer answered."""
    from time import perf_counter

    start = perf_counter()

    def measure(peer: Running) -> float:
        nonlocal start
        peer.map(noop_of_two, [0, 1])
        return perf_counter() - start

    peers = []
    for name in ("ProcessPoolExecutor", "dask.distributed", "ipyparallel"):
        start = perf_counter()
        peers += measured(measure, only=[name])
    return peers


def noop_of_two(_: int) -> None:
    """Nothing."""
    noop()
