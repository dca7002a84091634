"""Hook for showing the progress of a group while its caller waits. Scripts have none; a notebook has a bar."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["MIN_TASKS", "Watcher", "watch_with", "watched"]

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
