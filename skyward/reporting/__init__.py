"""Reports about a pool, made from its events: lines on the console, and records in the log."""

from typing import TYPE_CHECKING

from skyward import events
from skyward.errors import JournalError
from skyward.reporting.console import PoolConsole, style_of
from skyward.reporting.log import EventLog, log_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from skyward.control.observe.snapshot import PoolSnapshot
    from skyward.events.bus import EventBus
    from skyward.specs import Options

__all__ = ["PoolConsole", "report"]


def report(bus: "EventBus", options: "Options", snapshot: "Callable[[], PoolSnapshot | None]") -> PoolConsole:
    """Report on a pool from before it opens until its last event, as its options say; return its console."""
    console = PoolConsole(style_of(options.console), snapshot, can_be_quiet=options.console is True)
    console.attach(bus)
    if options.logging or options.console == "log":
        try:
            EventLog(file=options.logging).attach(bus)
        except (OSError, JournalError) as error:  # a pool can open without a log
            bus.emit(events.PoolNote, f"The log {log_path()} cannot be written: {error}.")
    return console
