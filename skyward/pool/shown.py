"""Display of a pool: live in a notebook, as text elsewhere. Views load on first use."""

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
    """Mixin of a pool with its display methods."""

    if TYPE_CHECKING:
        report: Any

    _at_close: list[Callable[[], object]] | None = None

    def when_closed(self, call: Callable[[], object]) -> None:
        """Call `call` once after the pool was closed or left, on the thread that did so."""
        self._at_close = [*(self._at_close or ()), call]

    def _was_closed(self) -> None:
        calls, self._at_close = self._at_close or (), None
        for call in calls:
            with contextlib.suppress(Exception):  # a failing view must not keep machines from being terminated
                call()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return the current state of the pool as HTML and text."""
        from skyward.views.static import bundle

        return bundle(self.report())

    def _ipython_display_(self) -> None:
        """Show a live view of the pool; without one, IPython falls back to `_repr_mimebundle_`."""
        from skyward.views.live import show_live

        if not show_live(self):
            raise NotImplementedError  # makes IPython fall back


def watch(pool: "Compute", *, every: float = 0.5) -> None:
    """Show a live view of a pool: nodes, tasks, cost and scaling decisions.

    In a notebook, returns at once and updates a view below the cell. In a terminal, updates a table until the pool is
    closed or you press Ctrl-C, which only ends the view. Other output, such as a file, gets the current state once.

    Args:
        every: seconds between updates, in a terminal.

    Raises:
        SpecError: `every` is not a number of seconds.

    Example:
        >>> sky.watch(pool)
    """
    number(every, "every", least=limits.INTERVAL, most=limits.SECONDS)
    from skyward.views.live import watch_live
    from skyward.views.terminal import watch_here

    if not watch_live(pool):
        watch_here(pool, sys.stdout, every)
