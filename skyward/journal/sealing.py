"""Encoding of values in the journal: pickles in which secrets are encrypted with the pool's key.

Secrets are recorded because a process that attaches to the pool needs them: new nodes must get the same variables as
earlier ones, and few of these are in the environment of the attaching process. The key file is deleted with the pool,
so a journal in a backup, or in free blocks of a disk, reveals no secrets.
"""

import base64
import io
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle

from skyward.values.validation import Secret

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

__all__ = ["JournalSeal"]

_HIDDEN = Secret("***")


class JournalSeal:
    """Encoder and decoder of such pickles. Without a `key` of 32 bytes, secrets are decoded as `***`."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def pack(self, value: object) -> bytes:
        """Encode a value."""
        file = io.BytesIO()
        _Pickler(file, self._fernet).dump(value)
        return file.getvalue()

    def unpack(self, data: bytes) -> Any:
        """Decode a value that `pack` encoded."""
        return _Unpickler(io.BytesIO(data), None if self._key is None else self._fernet).load()

    def _fernet(self) -> "Fernet":
        from cryptography.fernet import Fernet  # slow to load, and few pools have secrets

        if self._key is None:
            raise ValueError("a key is needed to write secrets")
        return Fernet(base64.urlsafe_b64encode(self._key))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def __init__(self, file: io.BytesIO, fernet: Any) -> None:
        super().__init__(file)
        self._fernet = fernet

    def persistent_id(self, value: object) -> bytes | None:
        """Return the encrypted form of a secret; None for all other values."""
        return self._fernet().encrypt(value.encode()) if isinstance(value, Secret) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fernet: Any) -> None:
        super().__init__(file)
        self._fernet = fernet

    def persistent_load(self, sealed: bytes) -> Secret:
        """Return the secret of its encrypted form."""
        return _HIDDEN if self._fernet is None else Secret(self._fernet().decrypt(sealed).decode())
