"""Figure 1: a no-op call, on one node and on two."""

from collections.abc import Iterator
from functools import partial

from benchmarks.figure import Aim, Figure, Peer, best, interleave, median, percentile, timed
from benchmarks.floors.casty_ask import CastyAsk
from benchmarks.floors.tcp import TcpCalls
from benchmarks.peers import Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import noop, remote
from skyward.pool.compute import Compute

__all__ = ["figures"]

BATCH = 200


def figures(settings: Settings) -> Iterator[Figure]:
    """Return p50 and p99 of `noop() >> pool`, and of a bare casty ask from another thread."""
    rounds = 5 if settings.quick else 15
    peers50: list[Peer] = []
    peers99: list[Peer] = []
    tcp = _tcp(rounds)
    if settings.peers:
        for peer50, peer99 in _peers(100 if settings.quick else 400):
            peers50.append(peer50)
            peers99.append(peer99)
    for nodes in (1, 2):
        with CastyAsk() as floor, Compute(nodes=nodes) as pool:
            asks, calls = interleave([floor.ask, partial(_call, pool)], BATCH, rounds)
        for part, aim, peers in ((0.5, Aim("ratio", 1.5), peers50), (0.99, None, peers99)):
            yield Figure(
                f"no-op `>>`, {nodes} node{'s'[: nodes - 1]}, p{part * 100:.0f}",
                "ms",
                percentile(calls, part) * 1e3,
                percentile(asks, part) * 1e3,
                "casty ask",
                best(calls, BATCH) / best(asks, BATCH) if part == 0.5 else None,
                aim,
                [Peer("asyncio TCP", percentile(tcp, part) * 1e3), *peers],
            )


def _tcp(rounds: int) -> list[float]:
    with TcpCalls() as floor:
        floor.batch(noop, BATCH)
        return [seconds for _ in range(rounds) for seconds in floor.batch(noop, BATCH)]


def _peers(number: int) -> Iterator[tuple[Peer, Peer]]:
    times: list[list[float]] = []

    def measure(peer: Running) -> float:
        for _ in range(20):
            peer.call(noop)
        times.append([timed(lambda: peer.call(noop)) for _ in range(number)])
        return median(times[-1]) * 1e3

    for peer in measured(measure):
        yield peer, Peer(peer.name, None if peer.value is None else percentile(times.pop(0), 0.99) * 1e3, peer.why_not)


def _call(pool: Compute) -> None:
    remote.noop() >> pool
