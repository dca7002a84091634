"""Console: events of a pool as lines on standard error; see the option `console`."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from skyward import events
from skyward.formatting import duration_text, money_text
from skyward.reporting.event_text import SHOWN, line_of
from skyward.reporting.latest_cell import follow_cells, latest_cell, notebook_shell
from skyward.reporting.screen import Screen, is_terminal, notify, screen

if TYPE_CHECKING:
    from skyward.control.observe.snapshot import PoolSnapshot
    from skyward.events.bus import EventBus
    from skyward.specs.options import Console as Option

__all__ = ["PoolConsole", "opening_quietly", "style_of"]

type Style = Literal["rich", "minimal", "notebook", "none"]

DRAW_EVERY = 0.25
PATIENCE = 0.5
SHARE = 0.01
"""Seconds between updates of the status line, seconds before the first one, and the maximum share of the loop's time
that updates may take: a snapshot of a thousand nodes is slow."""

_MARK = {logging.WARNING: "warning: "}


type _Quiet = Literal["never", "opening", "always"]

_quiet: ContextVar[_Quiet] = ContextVar("quiet", default="never")


@contextmanager
def opening_quietly(*, stays: bool = False) -> Iterator[None]:
    """Show only notes and warnings of the pools that are opened in this context, until they are open.

    No effect on pools whose option `console` is not True.

    Args:
        stays: also once they are open, until they are closed.
    """
    before = _quiet.set("always" if stays else "opening")
    try:
        yield
    finally:
        _quiet.reset(before)


def style_of(option: "bool | Option") -> Style:
    """Return the style for the option `console`: "rich" needs a terminal, and a notebook has its own views."""
    match option:
        case False | "silent" | "log":  # the log is `skyward.reporting.log`
            return "none"
        case "minimal":
            return "minimal"
        case True if notebook_shell() is not None:
            return "notebook"
        case _:
            return "rich" if is_terminal(sys.stderr) else "minimal"


class PoolConsole:
    """Console of one pool, from before it is opened until it is closed.

    Also a context manager for callers that wait for the pool: the style "rich" shows a status line meanwhile.

    Args:
        snapshot: returns the current state of the pool; None before it has a control plane. Called on the loop.
        write: function that writes a line, with its newline.
        can_be_quiet: False if `opening_quietly` has no effect on it.
    """

    def __init__(
        self,
        style: Style,
        snapshot: "Callable[[], PoolSnapshot | None]",
        write: Callable[[str], object] | None = None,
        at: Screen = screen,
        *,
        can_be_quiet: bool = True,
    ) -> None:
        self.style = style
        self._quiet: _Quiet = _quiet.get() if can_be_quiet else "never"
        self._snapshot = snapshot
        self._write = write or (lambda line: at.write(sys.stderr, line))
        self._screen = at
        self._waiting = 0
        self._since = 0.0
        self._lock = threading.Lock()
        self._ended = False
        self._context = copy_context()
        follow_cells()
        self._phases: dict[int, tuple[str, float]] = {}
        self._opened = False

    def show_here(self) -> None:
        """Show further lines in the caller's context, which is at first that of the opener; see `latest_cell`."""
        self._context = copy_context()

    def attach(self, bus: "EventBus") -> None:
        """Subscribe to the events of a pool."""
        bus.on_end(self._end)
        match self.style:
            case "none":
                pass
            case "notebook":
                losses = events.NodeLost, events.NodeFailed, events.NodeValuesLost
                bus.listen(self._note, events.PoolNote, *losses, events.ScalingDecided)
            case "minimal":
                bus.listen(self._show, *SHOWN)
            case "rich":
                bus.listen(self._show, *SHOWN)
                bus.listen(self._follow, events.PoolRequesting, events.NodeEvent)

    def _note(self, event: events.BaseEvent) -> None:
        """Show a notice; of the decisions, only those that keep nodes which were to be removed, and failures."""
        if isinstance(event, events.ScalingDecided):
            decision = event.decision
            if not decision.failed and not (decision.by == "reconciler" and decision.change):
                return
        line = line_of(event)
        text = line.text if isinstance(event, events.PoolNote) else f"Pool {event.pool!r}: {line.text}"
        latest_cell(self._context).run(notify, text)

    def _show(self, event: events.BaseEvent) -> None:
        """Write a line about an event, if it is important enough."""
        match event:
            case events.PoolReady():
                self._opened = True
            case events.NodeReady(ready=ready, wanted=wanted) if not self._opened or ready != wanted:
                return  # opening has its own line; of later nodes only the last one is shown
            case events.ScalingDecided(decision=decision) if not decision.failed and (
                decision.held_back or not decision.change
            ):
                return
            case _:
                pass
        line = line_of(event)
        if self._quiet != "never":
            if self._opened and self._quiet == "opening":
                self._quiet = "never"
            if line.level < logging.WARNING and not isinstance(event, events.PoolNote):
                return
        prefix = "" if isinstance(event, events.PoolNote) else f"skyward: pool {event.pool!r}: "
        latest_cell(self._context).run(self._write, f"{prefix}{_MARK.get(line.level, '')}{line.text}\n")

    # The status line.

    def __enter__(self) -> None:
        if self.style == "rich":
            with self._lock:
                if not self._waiting:
                    self._since = time.monotonic()
                self._waiting += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.style == "rich":
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._screen.erase()

    def _follow(self, event: events.BaseEvent) -> None:
        match event:
            case events.PoolRequesting():
                self._draw_later()
            case events.NodePhaseStarted(node=node, phase=phase):
                self._phases[node] = phase, time.monotonic()
            case events.NodeEvent(node=node):
                self._phases.pop(node, None)
            case _:
                pass

    def _draw_later(self, after: float = 0.0) -> None:
        asyncio.get_running_loop().call_later(max(DRAW_EVERY, after), self._draw)

    def _end(self) -> None:
        self._ended = True
        self._screen.erase()

    def _draw(self) -> None:
        if self._ended:
            return
        began = time.perf_counter()
        with self._lock:  # so that nothing is drawn after the last waiter has left
            if self._waiting and self._quiet == "never" and time.monotonic() >= self._since + PATIENCE:
                self._screen.draw(self._status())
        self._draw_later((time.perf_counter() - began) / SHARE)

    def _status(self) -> str:
        pool = self._snapshot()
        if pool is None:
            return "skyward: looking for offers"
        parts = [f"{pool.active}/{pool.desired} nodes ready"]
        if self._phases:
            node, (phase, since) = min(self._phases.items(), key=lambda item: item[1][1])
            parts.append(f"node {node}: {phase} for {duration_text(time.monotonic() - since)}")
        if pool.queued or pool.running:
            parts.append(f"{pool.running} running, {pool.queued} queued, {pool.done} done")
        if pool.failed:
            parts.append(f"{pool.failed} failed")
        if pool.per_hour:
            parts.append(f"{money_text(pool.spent)} ({money_text(pool.per_hour)}/h)")
        return f"skyward: pool {pool.name!r}: {', '.join(parts)}"
