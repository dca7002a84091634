"""Figure 2: ten thousand gathered no-op calls."""

from collections.abc import Iterator

from benchmarks.figure import Aim, Figure, median, timed
from benchmarks.floors.tcp import TcpCalls
from benchmarks.peers import Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import noop_of, remote
from skyward.functions.pending import gather
from skyward.pool.compute import Compute

__all__ = ["figures"]

TASKS = 10_000


def figures(settings: Settings) -> Iterator[Figure]:
    """Return tasks per second, from making the calls to having every result."""
    rounds = 3 if settings.quick else 7
    floors, ours = [], []
    with TcpCalls() as floor, Compute(nodes=2) as pool:

        def gathered() -> None:
            gather(*[remote.noop_of(n) for n in range(TASKS)]) >> pool

        gathered()
        for _ in range(rounds):
            floors.append(timed(lambda: floor.many(noop_of, TASKS)))
            ours.append(timed(gathered))
    number = TASKS // (10 if settings.quick else 2)

    def measure(peer: Running) -> float:
        peer.map(noop_of, range(100))
        return number / median([timed(lambda: peer.map(noop_of, range(number))) for _ in range(3)])

    yield Figure(
        f"{TASKS:,} gathered no-ops, 2 nodes",
        "tasks/s",
        TASKS / median(ours),
        TASKS / median(floors),
        "asyncio TCP, 1 process",
        min(floors) / min(ours),
        Aim("value", 5000, at_least=True),
        measured(measure) if settings.peers else (),
    )
