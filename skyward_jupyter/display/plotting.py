"""Live plot of the numbers that a cell yields, for `--plot`."""

import html
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from skyward_jupyter.display.chart import caption, picture
from skyward_jupyter.display.curves import Curves
from skyward_jupyter.display.redraw import Redrawing

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_jupyter.display.recorder import OutputRecorder

__all__ = ["LivePlot"]


class LivePlot:
    """A display of the numbers of a stream, which are added within its context.

    In a notebook it is redrawn as numbers arrive, and the last state is saved. A terminal shows the last state as text.

    Args:
        shell: the shell of the cell.
        notify: shows a sentence to the user.
        recorder: records the picture for `%sky show`.
    """

    def __init__(
        self, shell: "InteractiveShell", notify: Callable[[str], object], recorder: "OutputRecorder | None" = None
    ) -> None:
        self._shell = shell
        self._notify = notify
        self._live = hasattr(shell, "kernel")
        self._recorder = recorder
        self._id = uuid4().hex
        self._curves = Curves()
        self._lock = Lock()
        self._drawn = 0
        self._skipped = False
        self._confirmed = self._placed = False
        self._redrawing = Redrawing(self._draw)

    def __enter__(self) -> Self:
        self._redrawing.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._redrawing.__exit__()
        self._publish()
        if self._skipped and not self._drawn:
            self._notify("--plot drew nothing: no element was a number, or a tuple or dict of numbers.")

    def place(self) -> None:
        """Place the display in the current cell, before there is a number."""
        if self._live:
            self._put("--plot: no numbers yet", "")

    def add(self, element: object) -> bool:
        """Add an element and return whether it holds a number, and is drawn."""
        with self._lock:
            is_drawn = self._curves.add(element)
        if is_drawn:
            self._redrawing.changed()
        else:
            self._skipped = True
        return is_drawn

    def _draw(self) -> None:
        if self._live:
            self._publish()

    def confirm(self) -> None:
        """Draw the last state once more, from the current cell.

        Programs that execute notebooks without a front end (nbclient) accept updates only from the current cell.
        """
        if self._live and self._drawn and not self._confirmed:
            self._confirmed = True
            self._publish(again=True)

    def _publish(self, *, again: bool = False) -> None:
        with self._lock:
            count = self._curves.count
            if count == self._drawn and not again:
                return
            text, svg = caption(self._curves), picture(self._curves)
        self._drawn = count
        self._put(text, svg)

    def _put(self, text: str, svg: str) -> None:
        data = {"text/plain": text, "text/html": f"<div>{svg or html.escape(text)}</div>"}
        update, self._placed = self._placed, True
        publisher: Any = self._shell.display_pub
        transient = {"display_id": self._id} if self._live else {}
        publisher.publish(data=data, metadata={}, transient=transient, update=update)
        if self._recorder is not None:
            self._recorder.display(data, {}, self._id, update)
