"""Tasks on the nodes that have their data, compared with round robin."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any
from unittest import mock

from benchmarks.arrays import Fresh
from benchmarks.figure import Aim, Figure, median, timed
from benchmarks.settings import Settings
from benchmarks.tasks import remote
from skyward.control.decide.tasks.locality import Locality
from skyward.functions.decorator import gather
from skyward.pool.compute import Compute

__all__ = ["figures"]

NODES, ARRAYS, NBYTES = 4, 10, 40 * 2**20
ROUNDS = 4
"""Number of uses of each array; the first is not counted, as its data must be sent in any case."""


def figures(settings: Settings) -> Iterator[Figure]:
    """Return seconds and sent bytes for ten arrays that are used repeatedly, one after another and as a group."""
    fresh = Fresh(NBYTES)

    def in_turns(arrays: Sequence[Any], pool: Compute) -> None:
        for array in arrays:
            remote.read(array) >> pool

    def grouped(arrays: Sequence[Any], pool: Compute) -> None:
        gather(*map(remote.read, arrays)) >> pool

    ways: dict[str, Callable[[Sequence[Any], Compute], None]] = {"in turns": in_turns, "as a group": grouped}
    for name, use in ways.items():
        ours, floors = [], []
        for _ in range(1 if settings.quick else 5):
            ours.append(_measure(fresh, use, round_robin=False))
            floors.append(_measure(fresh, use, round_robin=True))
        seconds, sent = (median([each[place] for each in ours]) for place in (0, 1))
        floor, floor_sent = (median([each[place] for each in floors]) for place in (0, 1))
        yield Figure(
            f"{ARRAYS} arrays of 40 MiB {name}, {NODES} nodes, {ROUNDS - 1} times again",
            "s",
            seconds,
            floor,
            "round robin",
            aim=Aim("ratio", 1.0),
            note=f"{sent / 2**20:,.0f} of {floor_sent / 2**20:,.0f} MiB sent",
        )


def _measure(fresh: Fresh, use: Callable[[Sequence[Any], Compute], None], *, round_robin: bool) -> tuple[float, float]:
    """Return the seconds of the counted rounds, and the bytes sent in them."""
    blind = mock.patch.object(Locality, "stored") if round_robin else nullcontext()
    with blind, Compute(nodes=NODES, cluster=False) as pool:
        arrays = [fresh() for _ in range(ARRAYS)]
        use(arrays, pool)
        before = _sent(pool)

        def again() -> None:
            for _ in range(ROUNDS - 1):
                use(arrays, pool)

        seconds = timed(again)
        return seconds, _sent(pool) - before


def _sent(pool: Compute) -> int:
    return sum(node.sent for node in pool.snapshot().nodes)
