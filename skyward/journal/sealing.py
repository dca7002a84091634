"""How values stand in the journal: as pickles, in which secrets can be read with the pool's key only.

They are kept at all because whoever attaches to the pool needs them: a node that is started then must get what those
before it have, and few variables of an image stand in the environment of the process that attaches. The key file goes
with the pool, so what is left of a journal in a backup or in a free block of a disk tells nothing.
"""

import base64
import io
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle

from skyward.values.validation import Secret

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

__all__ = ["Seal"]

_HIDDEN = Secret("***")


class Seal:
    """What makes such pickles, and reads them. Without a `key` of 32 bytes, secrets are read as three stars."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def pack(self, value: object) -> bytes:
        """`value` as the journal keeps it."""
        file = io.BytesIO()
        _Pickler(file, self._fernet).dump(value)
        return file.getvalue()

    def unpack(self, data: bytes) -> Any:
        """The value that `pack` was given."""
        return _Unpickler(io.BytesIO(data), None if self._key is None else self._fernet).load()

    def _fernet(self) -> "Fernet":
        from cryptography.fernet import Fernet  # slow to load, and few pools have secrets

        if self._key is None:
            raise ValueError("secrets are written with a key only")
        return Fernet(base64.urlsafe_b64encode(self._key))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def __init__(self, file: io.BytesIO, fernet: Any) -> None:
        super().__init__(file)
        self._fernet = fernet

    def persistent_id(self, value: object) -> bytes | None:
        """What stands for a secret; None for all else."""
        return self._fernet().encrypt(value.encode()) if isinstance(value, Secret) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, fernet: Any) -> None:
        super().__init__(file)
        self._fernet = fernet

    def persistent_load(self, sealed: bytes) -> Secret:
        """The secret that `sealed` stands for."""
        return _HIDDEN if self._fernet is None else Secret(self._fernet().decrypt(sealed).decode())
