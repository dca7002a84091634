"""Peers with two worker processes each on this machine, or as many as requested, behind one interface."""

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
    """A peer with running workers."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on a worker, and wait."""

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Call a function once for each item, all sent at once, and wait."""


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
        """Submit with `pure=False`, so that nothing is taken from a cache."""
        return self.client.submit(function, *args, pure=False).result()

    def scatter(self, value: Any) -> Any:
        """Put a value on a worker without the scheduler in between; return its handle."""
        return self.client.scatter(value, direct=True, hash=False)

    def broadcast(self, function: Callable[..., Any], value: Any) -> list[Any]:
        """Put a value on every worker, replicated from worker to worker, and call a function there with it."""
        everywhere = self.client.scatter(value, broadcast=True, direct=True, hash=False)
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        calls = [self.client.submit(function, everywhere, workers=[worker], pure=False) for worker in workers]
        return list(self.client.gather(calls))

    def map(self, function: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """Map with `pure=False`."""
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
    """Return the measurements of each peer; `only` selects peers by name."""
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
        except Exception as error:  # a failing peer is reported; the others are still measured
            peers.append(Peer(name, None, f"failed ({type(error).__name__}: {error})"))
    return peers
