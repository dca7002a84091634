"""Figure 9: small calls while a large argument is in transfer to the same node."""

import threading
from collections.abc import Iterator

import numpy as np

from benchmarks.figure import Figure, percentile, timed
from benchmarks.settings import Settings
from benchmarks.tasks import remote
from skyward.pool.compute import Compute

__all__ = ["figures"]

MB = 1_000_000


def figures(settings: Settings) -> Iterator[Figure]:
    """Return p50 and p99 of `noop() >> pool` on one thread while another sends an array, and of an idle pool."""
    nbytes = (200 if settings.quick else 1000) * MB
    rounds = 2 if settings.quick else 4
    rest: list[float] = []
    busy: list[float] = []
    with Compute(nodes=1) as pool:
        for _ in range(300):
            remote.noop() >> pool
        for number in range(rounds):
            rest.extend(timed(lambda: remote.noop() >> pool) for _ in range(500))
            array = np.full(nbytes, number, dtype=np.uint8)
            sending = threading.Thread(target=lambda array=array: remote.size(array) >> pool)
            sending.start()
            while sending.is_alive():
                busy.append(timed(lambda: remote.noop() >> pool))
    for part in (0.5, 0.99):
        yield Figure(
            f"no-op p{part * 100:.0f} beside {nbytes // MB:,} MB to the same node",
            "ms",
            percentile(busy, part) * 1e3,
            percentile(rest, part) * 1e3,
            "same pool at rest",
            note=f"{len(busy):,} calls" if part == 0.5 else f"worst {max(busy) * 1e3:.3g} ms",
        )
