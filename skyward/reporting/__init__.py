"""What the user is told of a pool besides results: lines on the console, and records in the log, made from events."""

from typing import TYPE_CHECKING

from skyward import events
from skyward.errors import JournalError
from skyward.reporting.console import Console, style_of
from skyward.reporting.log import EventLog, log_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from skyward.control.observe.snapshot import PoolSnapshot
    from skyward.events.bus import EventBus
    from skyward.specs import Options

__all__ = ["Console", "report"]


def report(bus: "EventBus", options: "Options", snapshot: "Callable[[], PoolSnapshot | None]") -> Console:
    """Report on a pool that is about to open, as its options say, until its last event; return its console."""
    console = Console(style_of(options.console), snapshot)
    console.attach(bus)
    if options.logging or options.console == "log":
        try:
            EventLog(file=options.logging).attach(bus)
        except (OSError, JournalError) as error:  # no reason not to open a pool
            bus.emit(events.PoolNote, f"The log {log_path()} cannot be written: {error}.")
    return console
