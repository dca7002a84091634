"""Registry of the open pools of this process, which are closed at exit, and hooks of a notebook kernel.

A kernel observes the pools that are opened, and shows the progress of a group while its caller waits.
"""

import atexit
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from skyward.process import background
from skyward.reporting.screen import notify

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a pool registers itself

__all__ = ["MIN_TASKS", "Observer", "Watcher", "observe_with", "observed", "opened", "watch_with", "watched"]

opened: "weakref.WeakSet[Compute]" = weakref.WeakSet()

type Observer = Callable[[Compute], AbstractContextManager[object]]
"""Function that returns a context in which each pool is opened. Entering may raise a `SkywardError` to refuse the pool
before anything is launched; the context exits when the pool is open or has failed to open."""

_observer: Observer | None = None


def observe_with(observer: Observer | None) -> None:
    """Set the observer of pools that are opened; None for none."""
    global _observer
    _observer = observer


def observed(pool: "Compute") -> AbstractContextManager[object]:
    """Return a context in which to open a pool."""
    return nullcontext() if _observer is None else _observer(pool)


def _after_fork() -> None:
    """Clear the registry in a forked child: the pools belong to the parent."""
    opened.clear()
    observe_with(None)


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    for pool in list(opened):
        try:
            pool.close()
        except Exception as error:
            notify(str(error))
    background.stop()


MIN_TASKS = 10
"""Minimum number of tasks of a group with a progress bar."""

type Watcher = Callable[[Sequence[Future[Any]]], AbstractContextManager[object]]
"""Function that returns a context which shows how many of the futures are done."""

_watcher: Watcher | None = None


def watch_with(watcher: Watcher | None) -> None:
    """Set the watcher of groups; None for none."""
    global _watcher
    _watcher = watcher


def watched(futures: Sequence[Future[Any]]) -> AbstractContextManager[object]:
    """Return a context in which to wait for a group."""
    return nullcontext() if _watcher is None or len(futures) < MIN_TASKS else _watcher(futures)
