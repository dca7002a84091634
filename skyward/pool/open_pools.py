"""The pools that this process has open: they are closed as it ends. A notebook kernel observes them."""

import atexit
import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from skyward.reporting.screen import notify

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a pool registers itself

__all__ = ["Observer", "observe_with", "observed", "opened"]

opened: "weakref.WeakSet[Compute]" = weakref.WeakSet()

type Observer = Callable[[Compute], AbstractContextManager[object]]
"""Makes a context that a pool opens in, whoever opens it. Entering it raises a `SkywardError` to refuse the pool, of
which nothing exists by then; it is left once the pool has opened, or has failed to."""

_observer: Observer | None = None


def observe_with(observer: Observer | None) -> None:
    """Have `observer` see each pool that opens from now on; None for nobody."""
    global _observer
    _observer = observer


def observed(pool: "Compute") -> AbstractContextManager[object]:
    """A context to open a pool in."""
    return nullcontext() if _observer is None else _observer(pool)


def _after_fork() -> None:
    """Forget the pools: they are the parent's, which closes and observes them."""
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
