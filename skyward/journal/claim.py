"""Ownership of a pool: a lock on its key file, which the system releases when the owning process dies.

The file contains the secret that the keys of the pool's nodes are derived from. Only its user can read it, and it is
deleted with the pool. Its modification time is the owner's latest heartbeat. After the secret it has the number of the
owner's tasks that no node has, and whether its owner has left it without any task.
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

from skyward.journal.installation import data_directory, owner_id
from skyward.providers import PoolIdentity

__all__ = ["LIVING", "SELF_TERMINATION", "Claim"]

SELF_TERMINATION = 660.0
"""Seconds after its lease by which a node has terminated itself: running tasks have 600 to finish."""

LIVING = 60.0
"""Seconds since its latest heartbeat for which an owner on another computer may live. It has one every 20 seconds."""

_SECRET = 32
_NUMBER = 8
"""Bytes of the secret, and of the number of tasks."""

_LEFT_IDLE = b"\x01"
"""Byte after them in the file of a pool whose owner has left it without a task that has not ended."""

_SECRETS = "secrets in the journal"
"""Purpose of the key for records."""

_held: set[str] = set()
_held_lock = threading.Lock()


class Claim:
    """Ownership of a pool by this process, until `release`."""

    def __init__(self, path: Path, descriptor: int, secret: bytes) -> None:
        self.path = path
        self._descriptor = descriptor
        self._secret = secret
        self._released = False

    @classmethod
    def new(cls, pool: str) -> Self:
        """Claim a new pool, with a new secret."""
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
        """Claim a pool whose owner is dead; None if it has an owner, or does not exist any more."""
        path = data_directory() / "pools" / pool
        with _held_lock:
            if str(path) in _held:  # locks are per process: locking again would succeed
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
            if not os.fstat(descriptor).st_nlink:  # its owner has just deleted it
                os.close(descriptor)
                return None
            _held.add(str(path))
        return cls(path, descriptor, os.pread(descriptor, _SECRET, 0))

    @staticmethod
    def read_secrets_key(pool: str) -> bytes | None:
        """Return `secrets_key` of a pool of any owner, to read its records; None if this process owns it, or nobody.

        A process loses its locks on a file when it closes any descriptor of it, so that an own file is not opened.
        """
        path = data_directory() / "pools" / pool
        with _held_lock:
            if str(path) in _held:
                return None
            try:
                return _key_of(path.read_bytes()[:_SECRET], _SECRETS)
            except FileNotFoundError:
                return None

    @staticmethod
    def exists(pool: str) -> bool:
        """Return True if the pool has a key file: it has an owner, or may be claimed."""
        return (data_directory() / "pools" / pool).exists()

    @property
    def seen(self) -> float:
        """Time of the owner's latest heartbeat, in seconds since the epoch."""
        return os.fstat(self._descriptor).st_mtime

    @property
    def silent(self) -> float:
        """Seconds since the owner's latest heartbeat."""
        return max(0.0, time.time() - self.seen)

    def renew(self) -> None:
        """Record a heartbeat of the owner."""
        os.utime(self._descriptor)

    @property
    def unsent(self) -> int:
        """Number of the owner's tasks that it had not sent to a node, as recorded last."""
        return int.from_bytes(os.pread(self._descriptor, _NUMBER, _SECRET))

    @unsent.setter
    def unsent(self, number: int) -> None:
        os.pwrite(self._descriptor, number.to_bytes(_NUMBER), _SECRET)

    @property
    def left_idle(self) -> bool:
        """True if the owner has left the pool without a task that has not ended, so that no result can be lost."""
        return os.pread(self._descriptor, 1, _SECRET + _NUMBER) == _LEFT_IDLE

    @left_idle.setter
    def left_idle(self, is_idle: bool) -> None:
        os.pwrite(self._descriptor, _LEFT_IDLE if is_idle else bytes(1), _SECRET + _NUMBER)

    def derive(self, purpose: str) -> bytes:
        """Derive a key of 32 bytes for a purpose, deterministically. The secret cannot be recovered from it."""
        return _key_of(self._secret, purpose)

    @property
    def secrets_key(self) -> bytes:
        """Key that encrypts the pool's secrets in the journal."""
        return self.derive(_SECRETS)

    @property
    def identity(self) -> PoolIdentity:
        """Identity of the pool at providers."""
        return PoolIdentity(self.path.name, owner_id(), self._ssh_key_file, self.derive)

    @property
    def _ssh_key_file(self) -> Path:
        return self.path.parents[1] / "keys" / self.path.name

    def end(self) -> None:
        """Delete the key files, and release the claim: the pool has ended."""
        self._ssh_key_file.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Release the claim: other processes may attach to the pool, or reap it. Idempotent."""
        with _held_lock:
            if not self._released:
                self._released = True
                _held.discard(str(self.path))
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)


def _key_of(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, purpose.encode(), hashlib.sha256)
