"""Scratch space on disk for what memory should not hold: a private file that is removed with its process."""

import os
import shutil
import tempfile
from pathlib import Path
from weakref import finalize

__all__ = ["ScratchFile"]


class ScratchFile:
    """File of bytes: append-only, random reads. It has no name, so nothing of it remains however its process ends.

    Args:
        directory: a directory on the disk to use; None for that of temporary files.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, directory: Path | None = None) -> None:
        with tempfile.TemporaryFile(dir=directory) as file:
            self._fd = os.dup(file.fileno())
        self.size = 0
        self._close = finalize(self, os.close, self._fd)

    @property
    def free(self) -> int:
        """Free bytes on the file's disk."""
        return shutil.disk_usage(self._fd).free

    def append(self, data: bytes) -> int:
        """Append all of `data` or nothing. Return the offset of its first byte.

        Raises:
            OSError: the disk is full.
        """
        start, rest = self.size, memoryview(data)
        try:
            while rest:
                rest = rest[os.pwrite(self._fd, rest, start + len(data) - len(rest)) :]
        except OSError:
            os.ftruncate(self._fd, start)
            raise
        self.size += len(data)
        return start

    def read(self, start: int, length: int) -> bytes:
        """Return up to `length` bytes from offset `start`; fewer at the end of the file."""
        parts = []
        while length > 0 and (part := os.pread(self._fd, length, start)):
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        """Drop the content and free its disk space."""
        os.ftruncate(self._fd, 0)
        self.size = 0

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._close()
