"""The processes that use a cache: each has a mark in a folder of the cache, and a shared lock on it while it lives."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skyward.caches.frameworks import cache_variables

__all__ = ["CACHES", "VOLUMES", "CacheUsers", "use_caches"]

CACHES, VOLUMES = "caches", "volumes"
"""Folders of Skyward's directory on a machine, with the caches of frameworks and of volumes."""

_USERS, _USED = ".users", ".used"


@dataclass(frozen=True, slots=True)
class CacheUsers:
    """The users of one cache.

    Attributes:
        cache: folder of the cache.
    """

    cache: Path

    def enter(self, name: str) -> None:
        """Count as a user for as long as this process lives.

        Raises:
            OSError: the folder cannot be written, or its disk has no file locks.
        """
        (self.cache / _USERS).mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.cache / _USERS / name
        while True:
            mark = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)  # stays open
            fcntl.flock(mark, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(mark), path.stat()):
                    break
            os.close(mark)  # `living` removed it before it was locked
        (self.cache / _USED).touch()

    def living(self) -> dict[str, float]:
        """Return the name of each user that is alive, and when it began. Removes the marks of the others."""
        found = dict(self._held())
        if found:
            (self.cache / _USED).touch()
        return found

    def last_use(self) -> float:
        """Return when the cache last had a user; 0 if it never had one."""
        with contextlib.suppress(OSError):
            return (self.cache / _USED).stat().st_mtime
        return 0.0

    def _held(self) -> Iterator[tuple[str, float]]:
        folder = self.cache / _USERS
        for mark in tuple(folder.iterdir()) if folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError), mark.open("r+") as stream:
                began = os.fstat(stream.fileno()).st_mtime
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield mark.name, began
                else:
                    mark.unlink()


def use_caches(folder: str) -> None:
    """Let the frameworks of this process have their caches in a folder, and count as a user of it.

    A folder that cannot be written is not used: then the caches are where the frameworks have them.
    """
    if folder:
        with contextlib.suppress(OSError):
            CacheUsers(Path(folder)).enter(f"{os.getpid()}-{secrets.token_hex(4)}")
            os.environ.update(cache_variables(Path(folder), os.environ, Path(os.path.expanduser("~"))))
