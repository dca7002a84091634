"""Figure 5: streams out of a node, into it, and in both directions."""

import pickle
from collections.abc import Callable, Iterator

from benchmarks.figure import Aim, Figure, Peer, best, interleave, median, percentile, timed
from benchmarks.floors.casty_ask import CastyAsk
from benchmarks.floors.loopback import Loopback
from benchmarks.peers import Dask, Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import put_all, remote
from skyward.pool.compute import Compute

__all__ = ["figures"]

ITEMS = 100_000
ROUND_TRIPS = 200


def figures(settings: Settings) -> Iterator[Figure]:
    """Return elements per second in each direction, and the round trip of one element."""
    rounds = 3 if settings.quick else 7
    with Loopback() as floor, CastyAsk() as ask, Compute(nodes=1) as pool:
        streams: list[Callable[[], object]] = [
            lambda: floor.stream(ITEMS),
            lambda: sum(remote.count(ITEMS) >> pool),
            lambda: remote.total(iter(range(ITEMS))) >> pool,
        ]
        floors, out, into = interleave(streams, 1, rounds)
        trips = _Trips(pool)
        asks, both = interleave([ask.ask, trips.once], ROUND_TRIPS, rounds)
        trips.close()
    aim = Aim("value", 50_000, at_least=True)
    bare = ITEMS / median(floors)
    name = "a socket, each int pickled"
    peers = _peers() if settings.peers else []
    yield Figure(f"{ITEMS:,} ints out", "items/s", ITEMS / median(out), bare, name, min(floors) / min(out), aim, peers)
    yield Figure(f"{ITEMS:,} ints in", "items/s", ITEMS / median(into), bare, name, min(floors) / min(into), aim)
    for part in (0.5, 0.99):
        yield Figure(
            f"one element there and back, p{part * 100:.0f}",
            "ms",
            percentile(both, part) * 1e3,
            percentile(asks, part) * 1e3,
            "casty ask",
            best(both, ROUND_TRIPS) / best(asks, ROUND_TRIPS) if part == 0.5 else None,
        )


class _Trips:
    """Elements that are sent one at a time, each after the one before has returned."""

    def __init__(self, pool: Compute) -> None:
        self._over = False
        self._results: Iterator[int] = remote.double(self._feed()) >> pool

    def _feed(self) -> Iterator[int]:
        from queue import SimpleQueue

        self._queue: SimpleQueue[int | None] = SimpleQueue()
        return iter(self._queue.get, None)

    def once(self) -> None:
        """Send one element and wait for its return."""
        self._queue.put(1)
        if next(self._results) != 2:
            raise RuntimeError(f"received a wrong element; sent {pickle.dumps(1)!r}")

    def close(self) -> None:
        """End the stream."""
        self._queue.put(None)
        list(self._results)


def _peers() -> list[Peer]:
    def queue(peer: Running) -> float:
        import distributed

        assert isinstance(peer, Dask)
        number = 1000
        items = distributed.Queue("benchmark", client=peer.client)

        def run() -> None:
            putting = peer.client.submit(put_all, "benchmark", number, pure=False)
            for _ in range(number):
                items.get()
            putting.result()

        return number / median([timed(run) for _ in range(3)])

    found = [Peer("dask Queue", p.value, p.why_not) for p in measured(queue, only=["dask.distributed"])]
    return [*found, Peer("ipyparallel", None, "has no streams"), Peer("ProcessPoolExecutor", None, "has no streams")]
