"""The decision log of a pool as a file. A write that fails ends the log, and never the pool."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from skyward.control.decide.recorded_autoscaler import AutoscalerRecord
from skyward.decision_log.lines import LogHeader, encode_record

__all__ = ["DecisionFile"]


class DecisionFile:
    """Appends the records of one pool to a file, each line as it is made.

    Args:
        path: the file; it is created if it does not exist. Its folder must exist.
        failed: called once, with the reason, if the file cannot be written.
    """

    def __init__(self, path: Path, failed: Callable[[str], None]) -> None:
        self._path = path
        self._failed = failed
        self._file: int | None = None

    def open(self, header: LogHeader) -> None:
        """Open the file, and write the header."""
        try:
            # O_NONBLOCK: a named pipe that nobody reads is an error, instead of a pool that hangs.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            self._file = os.open(self._path, flags, 0o666)
            _lock(self._file)
            size = os.lseek(self._file, 0, os.SEEK_END)
            if size and _last_byte(self._file, size) != b"\n":  # the last line of a process that was killed
                self._append(b"\n")
            self._append(encode_record(header))
        except OSError as error:
            self._end(error)

    def write(self, records: Iterable[AutoscalerRecord]) -> None:
        """Write records."""
        for record in records:
            if self._file is None:
                return
            try:
                self._append(encode_record(record))
            except Exception as error:  # also of a value that a policy of the user has made
                self._end(error)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):  # of a network file system; what was written is there
                os.close(file)

    def _append(self, line: bytes) -> None:
        left = memoryview(line)
        while left and self._file is not None:
            left = left[os.write(self._file, left) :]

    def _end(self, error: Exception) -> None:
        self.close()
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        self._failed(f"the decision log '{self._path}' cannot be written ({reason})")


def _lock(file: int) -> None:
    """Keep other pools, of any process, from writing to a file until it is closed.

    Raises:
        OSError: another pool writes to it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(error.errno, "another pool writes to it") from error
    except OSError:  # a file system without locks
        return


def _last_byte(file: int, size: int) -> bytes:
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1)
