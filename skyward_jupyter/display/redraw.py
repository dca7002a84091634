"""Throttled redrawing of something that changes."""

import time
from collections.abc import Callable
from contextvars import copy_context
from threading import Event, Thread
from typing import Self

__all__ = ["Redrawing"]

_EVERY = 0.25
_SHARE = 0.1
"""Minimum seconds between two drawings, and the share of the time that drawing may take."""


class Redrawing:
    """A context that calls `draw` on a thread of its own after changes, and once more at the end."""

    def __init__(self, draw: Callable[[], object]) -> None:
        self._draw = draw
        self._changed = Event()
        self._over = Event()
        context = copy_context()
        self._thread = Thread(target=context.run, args=(self._run,), name="skyward-redrawing", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._changed.set()
        self._thread.join()

    def changed(self) -> None:
        """Request a redraw."""
        if not self._changed.is_set():
            self._changed.set()

    def _run(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            is_over = self._over.is_set()
            started = time.monotonic()
            self._draw()
            if is_over:
                return
            now = time.monotonic()
            self._over.wait(max(_EVERY, (now - started) / _SHARE))
