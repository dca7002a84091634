"""Log file of this user: events of pools, and records of the `skyward` loggers.

Events go to the logger `skyward.events`, so a program that configures `logging` gets them too. The file gets all of
them, regardless of that program's levels. No level is changed, and the root logger is not touched.
"""

import contextlib
import fcntl
import logging
import os
import threading
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from skyward.journal.installation import data_directory
from skyward.reporting.event_text import LOGGED, line_of

if TYPE_CHECKING:
    from skyward.events.bus import EventBus
    from skyward.events.kinds import BaseEvent

__all__ = ["EventLog", "log_path"]

LARGEST = 50 * 1024 * 1024
KEPT = 10
"""Size of the file at which it is rotated, and the number of old files to keep."""

_FORMAT = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"

_events = logging.getLogger("skyward.events")
_skyward = logging.getLogger("skyward")


def log_path() -> Path:
    """Return the path of the file: `logs/skyward.log` in the data directory of this user."""
    return data_directory() / "logs" / "skyward.log"


class _File(WatchedFileHandler):
    """Handler that appends to the file, which processes share. A record that cannot be written is dropped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        path.chmod(0o600)
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._rotate()
            super().emit(record)
        except OSError:
            self.handleError(record)

    def _rotate(self) -> None:
        if self.stream is None or self.stream.tell() < LARGEST:
            return
        path = Path(self.baseFilename)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_size >= LARGEST:  # no other process has rotated it meanwhile
                for number in range(KEPT - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{path}.{number}", f"{path}.{number + 1}")
                os.replace(path, f"{path}.1")

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the record: errors such as a full disk must not write to the user's screen."""


class _LastResort(logging.Handler):
    """Handler of last resort, as without the file: prints warnings if the program has not configured logging."""

    def emit(self, record: logging.LogRecord) -> None:
        python = logging.lastResort
        if python is None or record.name == _events.name or logging.getLogger().handlers:
            return
        if record.levelno >= python.level:
            python.handle(record)


class _Shared:
    """Reference-counted handlers of this process, installed while any pool has a log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._handlers: tuple[logging.Handler, ...] = ()

    def acquire(self) -> logging.Handler:
        """Install the handlers if needed, and return that of the file; pair with `release`.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            if not self._users:
                self._handlers = _File(log_path()), _LastResort()
                for handler in self._handlers:
                    _skyward.addHandler(handler)
            self._users += 1
            return self._handlers[0]

    def release(self) -> None:
        """Release the handlers; the last release removes them."""
        with self._lock:
            self._users -= 1
            if not self._users:
                for handler in self._handlers:
                    _skyward.removeHandler(handler)
                    handler.close()
                self._handlers = ()


_shared = _Shared()


class EventLog:
    """Log of one pool.

    Args:
        file: True to write events to the file, False to send them only to the logger.
    """

    def __init__(self, *, file: bool) -> None:
        self._file: logging.Handler | None = _shared.acquire() if file else None

    def attach(self, bus: "EventBus") -> None:
        """Log the events of a pool until it ends."""
        bus.on_end(self.close)
        bus.listen(self._log, *LOGGED)

    def _log(self, event: "BaseEvent") -> None:
        line = line_of(event)
        text = f"pool {event.pool!r}: {line.text}"
        record = _events.makeRecord(_events.name, line.level, __file__, 0, text, (), None)
        if _events.isEnabledFor(line.level):
            _events.handle(record)
        elif self._file is not None:
            self._file.handle(record)

    def close(self) -> None:
        """Release the file. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            _shared.release()
