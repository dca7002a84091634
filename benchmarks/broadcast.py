"""Figure 11: one array to eight nodes: bytes that leave the client, and time."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import numpy as np

from benchmarks.arrays import MB, Fresh
from benchmarks.figure import Aim, Figure, Peer, median, timed
from benchmarks.kernel import bytes_sent
from benchmarks.peers import Dask, Running, measured
from benchmarks.settings import Settings
from benchmarks.tasks import remote, size
from skyward.functions.decorator import function
from skyward.pool.compute import Compute

__all__ = ["figures"]

NODES = 8
NBYTES = 100 * MB


@function
def _joined() -> int:
    """Return a number once the node has joined its cluster: nodes can reach each other then."""
    import skyward as sky

    return sky.counter("joined").increment()


def figures(settings: Settings) -> Iterator[Figure]:
    """Return MB that leave the client, and seconds, of `@` with an array, and of sending it to each node."""
    rounds = 3 if settings.quick else 5
    fresh = Fresh(NBYTES)
    peers = _peers(fresh) if settings.peers else ()
    for where, cluster in (("processes of one machine", _near), ("as on machines apart", _apart)):
        with cluster() as pool, Compute(nodes=NODES, cluster=False) as each:
            _joined() @ pool
            remote.size(np.ones(10)) @ each
            floors, ours, left = [], [], []
            for _ in range(rounds + 1):
                floors.append(_timed(each, fresh()))
                before = bytes_sent()
                ours.append(_timed(pool, fresh()))
                left.append(sum(count - before.get(own, 0) for own, count in bytes_sent().items()))
            counted = sum(node.sent for node in pool.snapshot().nodes) / (rounds + 1) / MB
        yield Figure(
            f"100 MB to {NODES} nodes, {where}: leaves the client",
            "MB",
            median(left[1:]) / MB,
            aim=Aim("value", 1.2 * NBYTES / MB),
            note=f"by the kernel's count; {counted:.3g} by the pool's own, of blobs",
        )
        yield Figure(
            f"100 MB to {NODES} nodes, {where}",
            "s",
            median(ours[1:]),
            median(floors[1:]),
            "sent to each",
            min(ours[1:]) / min(floors[1:]),
            peers=peers,
        )


def _near() -> Compute:
    return Compute(nodes=NODES)


@contextmanager
def _apart() -> Iterator[Compute]:
    """Nodes that do not detect their common machine: blobs use connections, as between machines."""
    with (
        mock.patch("skyward.control.act.nodes.replication.LocalAccess", type("ElsewhereAccess", (), {})),
        _near() as pool,
    ):
        yield pool


def _timed(pool: Compute, array: object) -> float:
    """Return the seconds of a broadcast, right after memory for all copies was touched (see `arrays`)."""
    np.ones((NODES + 1) * NBYTES, dtype=np.uint8)
    return timed(lambda: remote.size(array) @ pool)


def _peers(fresh: Fresh) -> list[Peer]:
    def measure(peer: Running) -> float:
        assert isinstance(peer, Dask)
        peer.broadcast(size, np.ones(10))
        times = []
        for _ in range(3):
            array = fresh()
            np.ones((NODES + 1) * NBYTES, dtype=np.uint8)
            times.append(timed(partial(peer.broadcast, size, array)))
        return median(times)

    found = measured(measure, only=["dask.distributed"], workers=NODES)
    return [Peer("dask scatter(broadcast=True)", peer.value, peer.why_not) for peer in found]
