"""The log of the scripts of a node: what they wrote, for `skyward logs`, also once their client is gone."""

import io
import os
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from skyward.worker.tasks.folder import directories

__all__ = ["SCRIPT_LOG", "ScriptLog"]

SCRIPT_LOG: Final = "scripts.log"
"""Name of the file in the node's own directory, which is removed with the node."""

_LARGEST = 32 * 1024 * 1024
"""Bytes at which the file is set aside, in place of the one that was set aside before."""


class ScriptLog:
    """The log, open for what one script writes. A disk that is full, or a node without a directory, has none.

    Args:
        name: name of the script. Its arguments may be secrets, so they are left out.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._file: io.FileIO | None = None
        around = directories()
        self._path = None if around is None else os.path.join(around.own, SCRIPT_LOG)

    def __enter__(self) -> Self:
        if self._path is not None:
            with suppress(OSError):
                self._file = self._opened(self._path)
                self.write(f"--- {datetime.now():%Y-%m-%d %H:%M:%S} {self._name}\n".encode())
        return self

    def write(self, data: bytes) -> None:
        """Append what the script wrote."""
        if self._file is None or self._path is None:
            return
        with suppress(OSError):
            if self._file.tell() > _LARGEST:
                os.replace(self._path, f"{self._path}.1")
                self._file.close()
                self._file = self._opened(self._path)
            self._file.write(data)

    @staticmethod
    def _opened(path: str) -> io.FileIO:
        return io.FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
