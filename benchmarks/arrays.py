"""Figures 3 and 4: a large array as argument and as result, the first time and repeated."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.figure import Aim, Figure, Peer, median, timed
from benchmarks.floors.loopback import Loopback
from benchmarks.peers import Dask, Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import make, read, remote, size
from skyward.pool.compute import Compute

__all__ = ["MB", "Fresh", "figures", "timed_touched"]

MB = 1_000_000


def figures(settings: Settings) -> Iterator[Figure]:
    """Return MB/s of arguments and results, and the cost of an argument that the node already has."""
    with Loopback() as floor, Compute(nodes=1) as pool:
        for nbytes, rounds in ((100 * MB, 5 if settings.quick else 11), (1000 * MB, 0 if settings.quick else 3)):
            if rounds:
                yield from _moved(floor, pool, nbytes, rounds, peers=settings.peers and nbytes <= 100 * MB)
        yield from _again(pool, 100 * MB, 5 if settings.quick else 11)


def timed_touched(nbytes: int, call: Callable[..., object], *args: Any) -> float:
    """Return the seconds of a call, right after memory for three arrays was touched.

    A virtual machine gets memory from its host at the first touch, thirty times slower than later, and returns it a few
    seconds after it is freed.
    """
    np.ones(3 * nbytes, dtype=np.uint8)
    return timed(partial(call, *args))


def _moved(floor: Loopback, pool: Compute, nbytes: int, rounds: int, *, peers: bool) -> Iterator[Figure]:
    fresh = Fresh(nbytes)
    kinds: tuple[tuple[str, Callable[[], Any], Callable[[Any], object], Callable[[Any], object]], ...] = (
        ("argument", fresh, floor.take, lambda array: remote.size(array) >> pool),
        ("argument, read there", fresh, floor.read, lambda array: remote.read(array) >> pool),
        ("result", lambda: nbytes, floor.give, lambda number: remote.make(number) >> pool),
    )
    for name, prepare, bare, call in kinds:
        floors, ours = [], []
        for _ in range(rounds + 1):
            given = prepare()
            floors.append(timed_touched(nbytes, bare, given))
            given = prepare()
            ours.append(timed_touched(nbytes, call, given))
        speed = nbytes / MB
        yield Figure(
            f"{speed:,.0f} MB {name}",
            "MB/s",
            speed / median(ours[1:]),
            speed / median(floors[1:]),
            "raw loopback",
            min(floors[1:]) / min(ours[1:]),
            Aim("ratio", 0.7, at_least=True) if name == "argument" else None,
            _peers(name, fresh, nbytes) if peers else (),
        )


class Fresh:
    """Creates arrays in fresh memory, each with different content."""

    def __init__(self, nbytes: int) -> None:
        self._base = np.random.default_rng(0).integers(0, 256, nbytes, dtype=np.uint8)
        self._number = 0

    def __call__(self) -> Any:
        self._number += 1
        array = self._base.copy()
        array[:8].view(np.uint64)[0] = self._number
        return array


def _peers(name: str, fresh: Fresh, nbytes: int) -> list[Peer]:
    def measure(peer: Running) -> float:
        peer.call(size, np.ones(10))
        if name == "result":
            times = [timed_touched(nbytes, peer.call, make, nbytes) for _ in range(3)]
        else:
            function = read if "read" in name else size
            arrays = [fresh() for _ in range(3)]
            times = [timed_touched(nbytes, peer.call, function, array) for array in arrays]
        return nbytes / MB / median(times)

    def scatter(peer: Running) -> float:
        assert isinstance(peer, Dask)
        peer.call(size, np.ones(10))
        arrays = [fresh() for _ in range(3)]
        times = [timed_touched(nbytes, lambda array: peer.call(size, peer.scatter(array)), array) for array in arrays]
        return nbytes / MB / median(times)

    peers = measured(measure)
    if name == "argument":
        peers += [Peer("dask scatter", p.value, p.why_not) for p in measured(scatter, only=["dask.distributed"])]
    return peers


def _again(pool: Compute, nbytes: int, rounds: int) -> Iterator[Figure]:
    def send(array: Any) -> int:
        return remote.size(array) >> pool

    fresh = Fresh(nbytes)
    for name, writeable in (("writable", True), ("read-only", False)):
        firsts, agains = [], []
        for _ in range(rounds):
            array = fresh()
            array.flags.writeable = writeable
            firsts.append(timed_touched(nbytes, send, array))
            agains.append(timed(partial(send, array)))
        share = median(agains) / median(firsts) * 100
        note = f"{median(agains) * 1e3:.3g} of {median(firsts) * 1e3:.3g} ms"
        yield Figure(f"{nbytes / MB:,.0f} MB again, {name}", "% of first", share, aim=Aim("value", 2), note=note)
