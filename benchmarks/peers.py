"""The peers, each with two worker processes on this machine or as many as asked for, behind one face."""

import contextlib
import importlib.util
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Protocol

from benchmarks.figure import Peer

__all__ = ["Running", "measured"]

WORKERS = 2


class Running(Protocol):
    """A peer with its workers up."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call on a worker, and wait."""

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Call once for each item, all sent at once, and wait."""


class _Pool:
    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._pool.submit(function, *args).result()

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        return list(self._pool.map(function, items))


@contextlib.contextmanager
def _process_pool(workers: int) -> Iterator[Running]:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield _Pool(pool)


class Dask:
    """dask.distributed."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Submit, not pure, so that nothing is taken from a cache."""
        return self.client.submit(function, *args, pure=False).result()

    def scatter(self, value: Any) -> Any:
        """Put a value on a worker without the scheduler in between; what stands for it in a call."""
        return self.client.scatter(value, direct=True, hash=False)

    def broadcast(self, function: Callable[..., Any], value: Any) -> list[Any]:
        """Put a value on every worker, each of which gives it on, and call there with it."""
        everywhere = self.client.scatter(value, broadcast=True, direct=True, hash=False)
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        calls = [self.client.submit(function, everywhere, workers=[worker], pure=False) for worker in workers]
        return list(self.client.gather(calls))

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Map, not pure."""
        return list(self.client.gather(self.client.map(function, items, pure=False)))


@contextlib.contextmanager
def _dask(workers: int) -> Iterator[Running]:
    import dask.config
    import distributed

    quiet = {"distributed.admin.large-graph-warning-threshold": "2GB"}
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=logging.ERROR
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield Dask(client)


class _Parallel:
    def __init__(self, client: Any, workers: int) -> None:
        self._views = [client[number] for number in range(workers)]

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._views[0].apply_sync(function, *args)

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        answers = [self._views[n % len(self._views)].apply_async(function, item) for n, item in enumerate(items)]
        return [answer.get() for answer in answers]


@contextlib.contextmanager
def _ipyparallel(workers: int) -> Iterator[Running]:
    import ipyparallel

    cluster = ipyparallel.Cluster(n=workers, log_level=logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        client = cluster.__enter__()
    try:
        yield _Parallel(client, workers)
    finally:
        cluster.__exit__(None, None, None)


_PEERS: tuple[tuple[str, str, Callable[[int], contextlib.AbstractContextManager[Running]]], ...] = (
    ("ProcessPoolExecutor", "concurrent.futures", _process_pool),
    ("dask.distributed", "distributed", _dask),
    ("ipyparallel", "ipyparallel", _ipyparallel),
)


def measured(measure: Callable[[Running], float], only: Sequence[str] = (), workers: int = WORKERS) -> list[Peer]:
    """What each peer measures; `only` names those that are asked."""
    peers = []
    for name, module, start in _PEERS:
        if only and name not in only:
            continue
        if importlib.util.find_spec(module) is None:
            peers.append(Peer(name, None, "not installed"))
            continue
        try:
            with start(workers) as running:
                peers.append(Peer(name, measure(running)))
        except Exception as error:  # a peer that fails is said so; the rest is measured still
            peers.append(Peer(name, None, f"failed ({type(error).__name__}: {error})"))
    return peers
