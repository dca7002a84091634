"""Room on the disk for what memory should not hold: a file that nobody else sees, and that goes with its process."""

import os
import shutil
import tempfile
from pathlib import Path
from weakref import finalize

__all__ = ["ScratchFile"]


class ScratchFile:
    """Bytes, written at the end and read anywhere. It has no name, so nothing of it is left however its process ends.

    Args:
        directory: on the disk that it is to be on; that of temporary files where it is None.

    Raises:
        OSError: there can be no file.
    """

    def __init__(self, directory: Path | None = None) -> None:
        with tempfile.TemporaryFile(dir=directory) as file:
            self._fd = os.dup(file.fileno())
        self.size = 0
        self._close = finalize(self, os.close, self._fd)

    @property
    def free(self) -> int:
        """Bytes that its disk has room for."""
        return shutil.disk_usage(self._fd).free

    def append(self, data: bytes) -> int:
        """Write `data` at the end, all of it or nothing; where it begins.

        Raises:
            OSError: there is no room for it.
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
        """`length` bytes from `start`, as many as there are."""
        parts = []
        while length > 0 and (part := os.pread(self._fd, length, start)):
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        """Forget what was written, and give its room back."""
        os.ftruncate(self._fd, 0)
        self.size = 0

    def close(self) -> None:
        """Give it up. Twice does no harm."""
        self._close()
