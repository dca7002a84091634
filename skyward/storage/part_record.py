"""Records of unfinished uploads: the parts that the store has, so that a later upload sends only the others."""

import contextlib
import fcntl
import json
import os
from pathlib import Path

__all__ = ["PartRecord"]

_RECORD = "skyward-upload-1"


class PartRecord:
    """Record of the parts of an unfinished upload, in a file: a line about the upload, and one for each part.

    Attributes:
        about: the file and the object, as the upload began.
        upload_id: name of the upload at the store; "" if there is none.
        etags: by number of the part.
        is_kept: True if the upload is to be continued later.
    """

    def __init__(self, path: Path) -> None:
        self.about: list[object] = []
        self.upload_id = ""
        self.etags: dict[int, str] = {}
        self.is_kept = False
        self._path = path
        self._file = -1

    def open(self) -> bool:
        """Read the record; return False if another upload uses it, or it cannot be kept."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = self._path.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            self.close()
            return False
        with contextlib.suppress(ValueError, KeyError, TypeError):
            first, *others = [json.loads(line) for line in lines if line.endswith("}")]
            if first["format"] == _RECORD:
                self.about, self.upload_id = first["about"], first["upload"]
                self.etags = {int(each["part"]): str(each["etag"]) for each in others}
                self.is_kept = True
        return True

    def begin(self, about: list[object], upload_id: str) -> None:
        """Begin a record."""
        self.about, self.upload_id, self.etags = about, upload_id, {}
        os.ftruncate(self._file, 0)
        self._write({"format": _RECORD, "about": about, "upload": upload_id})
        self.is_kept = True

    def add(self, number: int, etag: str) -> None:
        """Add a part."""
        if self._file >= 0:
            self._write({"part": number, "etag": etag})

    def remove(self) -> None:
        """Remove the record."""
        self.is_kept = False
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        """Close it."""
        if self._file >= 0:
            if not self.is_kept:
                self.remove()
            os.close(self._file)
            self._file = -1

    def _write(self, line: dict[str, object]) -> None:
        os.write(self._file, (json.dumps(line) + "\n").encode())
