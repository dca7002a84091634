"""Manifests of folder transfers: the files that are equal to their objects, so that a later transfer skips them.

They are kept in the user's cache directory, never in the folder itself, and hold no secrets.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from pathlib import Path
from threading import Lock
from typing import Self

from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation

__all__ = ["FolderManifest"]

_FORMAT = "skyward-manifest-1"


class FolderManifest:
    """Manifest of a folder and a location. Use it in a `with` block.

    It is empty if another transfer of the same folder uses it, or if it cannot be kept.

    Args:
        location: the objects.
        folder: the files.
    """

    def __init__(self, location: BucketLocation, folder: Path) -> None:
        self._folder = folder
        self._path = _path(location, folder)
        self._known: dict[str, tuple[str, int, int, int]] = {}
        self._file = -1
        self._lock = Lock()

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = self._path.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            self._close()
            return self
        with contextlib.suppress(ValueError, TypeError, KeyError):
            if lines and json.loads(lines[0]) == _FORMAT:
                for line in lines[1:]:
                    key, etag, size, modified_ns, changed_ns = json.loads(line)
                    self._known[key] = etag, size, modified_ns, changed_ns
        with contextlib.suppress(OSError):  # rewritten, without the lines that later ones have replaced
            os.ftruncate(self._file, 0)
            os.write(self._file, "".join(f"{line}\n" for line in self._lines()).encode())
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __bool__(self) -> bool:
        return bool(self._known)

    def has(self, key: str, etag: str, path: Path) -> bool:
        """Return whether a file is known to be equal to the object of this version."""
        known = self._known.get(key)
        if known is None or not etag or known[0] != etag:
            return False
        try:
            found = path.stat()
        except OSError:
            return False
        # The time of change too: tools may keep the size and the time of modification.
        return known[1:] == (found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def add(self, entry: ObjectEntry, path: Path) -> None:
        """Record that a file is equal to an object."""
        if self._file < 0 or not entry.etag:
            return
        with contextlib.suppress(OSError):
            found = path.stat()
            line = json.dumps([entry.key, entry.etag, found.st_size, found.st_mtime_ns, found.st_ctime_ns]) + "\n"
            with self._lock:
                os.write(self._file, line.encode())

    def _lines(self) -> list[str]:
        return [json.dumps(_FORMAT), *(json.dumps([key, *known]) for key, known in self._known.items())]

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _path(location: BucketLocation, folder: Path) -> Path:
    """Return the path of a manifest, in the user's cache directory."""
    about = "\0".join((location.endpoint, location.bucket, location.prefix, str(folder.absolute())))
    name = hashlib.sha256(os.fsencode(about)).hexdigest()[:32]
    given = os.environ.get("SKYWARD_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute() / "transfers" / name
    import platformdirs  # slow to load

    return platformdirs.user_cache_path("skyward") / "transfers" / name
