"""Displaying a pool: live in a notebook, as text elsewhere. The views load when one is asked for."""

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skyward.values import limits
from skyward.values.validation import number

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a pool displays itself

__all__ = ["Shown", "watch"]


class Shown:
    """The part of a pool's face that is looked at."""

    if TYPE_CHECKING:
        report: Any

    _at_close: list[Callable[[], object]] | None = None

    def when_closed(self, call: Callable[[], object]) -> None:
        """Call `call` once, when the pool has been closed, or left to another process, on the thread that did so."""
        self._at_close = [*(self._at_close or ()), call]

    def _was_closed(self) -> None:
        calls, self._at_close = self._at_close or (), None
        for call in calls:
            with contextlib.suppress(Exception):  # a view that cannot be ended must not keep machines from ending
                call()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """The pool at this moment, as HTML and as text."""
        from skyward.views.static import bundle

        return bundle(self.report())

    def _ipython_display_(self) -> None:
        """Show the pool live, where that can be done; IPython shows what `_repr_mimebundle_` gives elsewhere."""
        from skyward.views.live import show_live

        if not show_live(self):
            raise NotImplementedError  # what IPython takes for "not this way"


def watch(pool: "Compute", *, every: float = 0.5) -> None:
    """Show a pool as it changes: its nodes, its tasks, what it costs, and why it grows and shrinks.

    A notebook shows it live below the cell, and this returns at once. A terminal shows a table that is drawn anew,
    until the pool is closed or you press Ctrl-C, which only ends the watching. Where output goes to neither, such as to
    a file, the pool is written once, as it is now.

    Args:
        every: seconds between two looks, in a terminal.

    Raises:
        SpecError: `every` is no number of seconds.
    """
    number(every, "every", least=limits.INTERVAL, most=limits.SECONDS)
    from skyward.views.live import watch_live
    from skyward.views.terminal import watch_here

    if not watch_live(pool):
        watch_here(pool, sys.stdout, every)
