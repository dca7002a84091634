"""Who a pool belongs to: the process that holds the lock on its key file. The system lets go of it for the dead.

The file holds the secret that the keys of the pool's nodes are derived from, for its user alone, and goes with the
pool. It was touched when its owner was last seen alive.
"""

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Self

from skyward.errors import JournalError

__all__ = ["Claim", "data_directory"]

_SECRET = 32

_held: set[str] = set()
_held_lock = threading.Lock()


def data_directory() -> Path:
    """The directory of the journal: `SKYWARD_DATA_DIR`, or "skyward" where the user's data is. Made if it is not there.

    Raises:
        JournalError: it cannot be.
    """
    given = os.environ.get("SKYWARD_DATA_DIR")
    path = Path(given).expanduser() if given else _users()
    try:
        (path / "pools").mkdir(parents=True, exist_ok=True, mode=0o700)
        return path
    except OSError as error:
        raise JournalError(
            f"Skyward writes down what it launches in {path}, which cannot be made ({error.strerror}); "
            "name another directory in the environment variable SKYWARD_DATA_DIR."
        ) from error


def _users() -> Path:
    from platformdirs import user_data_path

    return user_data_path("skyward")


class Claim:
    """A pool that is this process's, until `release`."""

    def __init__(self, path: Path, descriptor: int, secret: bytes) -> None:
        self.path = path
        self._descriptor = descriptor
        self._secret = secret
        self._released = False

    @classmethod
    def new(cls, pool: str) -> Self:
        """The claim on a new pool, with a new secret."""
        path = data_directory() / "pools" / pool
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with _held_lock:
            _held.add(str(path))
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        secret = secrets.token_bytes(_SECRET)
        os.write(descriptor, secret)
        return cls(path, descriptor, secret)

    @classmethod
    def take(cls, pool: str) -> Self | None:
        """The claim on a pool whose owner is gone; None while it has one, or is gone itself."""
        path = data_directory() / "pools" / pool
        with _held_lock:
            if str(path) in _held:  # the lock is of the whole process, and would be given to it again
                return None
            try:
                descriptor = os.open(path, os.O_RDWR)
            except FileNotFoundError:
                return None
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return None
            if not os.fstat(descriptor).st_nlink:  # its owner has just put an end to it
                os.close(descriptor)
                return None
            _held.add(str(path))
        return cls(path, descriptor, os.pread(descriptor, _SECRET, 0))

    @property
    def seen(self) -> float:
        """When its owner was last seen, in seconds since the epoch."""
        return os.fstat(self._descriptor).st_mtime

    @property
    def silent(self) -> float:
        """Seconds since its owner was last seen."""
        return max(0.0, time.time() - self.seen)

    def renew(self) -> None:
        """Its owner lives."""
        os.utime(self._descriptor)

    def derive(self, purpose: str) -> bytes:
        """A key of 32 bytes, the same for the same purpose. From it, the secret cannot be found."""
        return hmac.digest(self._secret, purpose.encode(), hashlib.sha256)

    @property
    def secrets_key(self) -> bytes:
        """What secrets of the pool are sealed with in the journal."""
        return self.derive("secrets in the journal")

    def end(self) -> None:
        """The pool is no more."""
        self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Let go of it: it may be attached to, or reaped. Twice does no harm."""
        with _held_lock:
            if not self._released:
                self._released = True
                _held.discard(str(self.path))
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)
