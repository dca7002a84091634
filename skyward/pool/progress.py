"""Who shows how far a group of tasks is while its caller waits. In a script nobody does; a notebook has a bar."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["LEAST", "Watcher", "watch_with", "watched"]

LEAST = 10
"""Tasks from which a group is worth watching: fewer are seen to end one by one."""

type Watcher = Callable[[Sequence[Future[Any]]], AbstractContextManager[object]]
"""Makes a context that shows, while it lasts, how many of the futures are done."""

_watcher: Watcher | None = None


def watch_with(watcher: Watcher | None) -> None:
    """Have `watcher` show groups from now on; None for nobody."""
    global _watcher
    _watcher = watcher


def watched(futures: Sequence[Future[Any]]) -> AbstractContextManager[object]:
    """A context to wait for a group in."""
    return nullcontext() if _watcher is None or len(futures) < LEAST else _watcher(futures)
