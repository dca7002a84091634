"""A volume whose files are on the node's disk, and whose changes are uploaded when a task ends.

The last writer wins: a file that was also changed in the store, after this node had read it, is replaced there, and a
line says so. Between the nodes of a pool, a task sees what tasks that ended before it have written.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock  # tasks may replace the attributes of the module

from skyward.errors import CredentialsError, StorageError
from skyward.process.clock import clock
from skyward.storage.deletion import delete
from skyward.storage.failures import LASTING
from skyward.storage.listing import ObjectEntry, find, list_objects
from skyward.storage.trees import upload_many
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.copied import check_room
from skyward.worker.volumes.fetched import FetchedVolume
from skyward.worker.volumes.volume import AttachError, Fetcher, OnChange, Unsaved, check_names

__all__ = ["SyncedVolume"]

_PAUSES = (0.5, 2.0, 5.0)
"""Seconds between attempts to upload; the last one is repeated."""

_PAGE = 1000
"""Objects that a store lists at a time."""


type _Stat = tuple[int, int, int, int]
"""Size, times of the last change of content and of anything, and number of a file: `cp -p` keeps the first two."""


def _stat_of(path: Path) -> _Stat | None:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
    return None


@dataclass(frozen=True, slots=True)
class _Known:
    """A file as it was when it was the same as its object."""

    stat: _Stat
    etag: str


class SyncedVolume(FetchedVolume):
    """A writable copy of a prefix, synchronized with it.

    Args:
        volume: the volume.
        folder: an empty folder for its files.
        fetcher: source of its objects.
        show: shows a folder at the path of the volume.
        changed: called after changes of the state.
        say: tells the user a line.
        wrote: called with the files that were uploaded: key, and version tags of the object before and after.
    """

    def __init__(
        self,
        volume: NodeVolume,
        folder: Path,
        fetcher: Fetcher,
        show: Callable[[Path], Path],
        changed: OnChange,
        say: Callable[[str], None],
        wrote: Callable[[tuple[tuple[str, str, str], ...]], None],
    ) -> None:
        super().__init__(volume, "sync", changed)
        self._location = volume.location
        self._folder = folder
        self._fetcher = fetcher
        self._show = show
        self._say = say
        self._wrote = wrote
        self._known: dict[str, _Known] = {}
        self._written: list[tuple[str, str, str]] = []
        self._lock = Lock()
        self._skipped: set[str] = set()

    @property
    def contents(self) -> str:
        """No digest: its files change."""
        return ""

    def attach(self) -> Path:
        """Fetch all objects; return the path of the folder.

        Raises:
            AttachError: the store refuses, an object could not be fetched, or the disk has no room for it.
        """
        try:
            entries = list(list_objects(self._location))
            check_names(self._location, entries)
            size = sum(each.size for each in entries)
            check_room(self._folder, size)
            self._update(total=size)
            self._fetch(entries)
        except (StorageError, CredentialsError) as error:
            raise AttachError.of(error) from error
        except OSError as error:
            raise AttachError(f"its files cannot be written: {error.strerror or error}", is_final=True) from error
        path = self._show(self._folder)
        self._update(status="ready", path=str(path))
        return path

    def _fetch(self, entries: list[ObjectEntry]) -> None:
        self._fetcher.fetch(entries, self._folder, self._arrived)
        self._update(files=self._state.files + len(entries))
        for each in entries:
            if (stat := _stat_of(self._folder / each.key)) is not None:
                self._known[each.key] = _Known(stat, each.etag)

    def refresh(self) -> None:
        """Fetch what other nodes have written, except files that were changed here.

        Raises:
            StorageError: that is not possible.
        """
        with self._lock:
            entries = {each.key: each for each in list_objects(self._location)}
            here = dict(self._files())
            newer = [
                each
                for key, each in entries.items()
                if (known := self._known.get(key)) is None or known.etag != each.etag
                if not self._is_changed(key, here.get(key))
            ]
            for key in [key for key in self._known if key not in entries]:
                if not self._is_changed(key, here.get(key)):
                    self._remove(key)
                    del self._known[key]
            self._fetch(newer)

    def _remove(self, key: str) -> None:
        """Remove a file, and the folders that are empty without it: a file may take the name of one."""
        path = self._folder / key
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.relative_to(self._folder).parents[:-1]:
                (self._folder / folder).rmdir()

    def _is_changed(self, key: str, stat: _Stat | None) -> bool:
        """Return whether a file is not as it was last known, or is new."""
        known = self._known.get(key)
        return stat is not None if known is None else known.stat != stat

    def save(self, stalled: float) -> Unsaved:
        """Upload what was changed; return what could not be."""
        with self._lock:
            attempt, since = 0, clock.monotonic()
            while True:
                done, failed, error = self._save_once()
                if done:
                    written, self._written = tuple(self._written), []
                    self._wrote(written)
                    attempt, since = 0, clock.monotonic()
                if error is None:
                    self._count()
                    return Unsaved()
                why = str(error).rstrip(".").replace(str(self._folder), self._state.path)  # as tasks know it
                self._update(detail=why)
                lasts = isinstance(error, CredentialsError) or error.code in LASTING
                if lasts or clock.monotonic() - since > stalled:
                    return Unsaved(tuple(map(self._location.address, failed)), why)
                clock.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1

    def _save_once(self) -> tuple[int, list[str], StorageError | CredentialsError | None]:
        """Try to upload each changed file once; return the number of those that were, and the others with the error.

        A file that is written meanwhile belongs to a task that still runs: it is uploaded at the end of that one.
        """
        here = dict(self._files())
        changed = {key: stat for key, stat in here.items() if self._is_changed(key, stat)}
        gone = [key for key in self._known if key not in here]
        done: set[str] = set()
        self._count(changed)

        def on_file(_: Path, entry: ObjectEntry) -> None:
            before = self._known.get(entry.key)
            self._written.append((entry.key, "" if before is None else before.etag, entry.etag))
            self._known[entry.key] = _Known(changed[entry.key], entry.etag)
            done.add(entry.key)
            self._count({key: stat for key, stat in changed.items() if key not in done})

        try:
            if changed:
                self._name_losers(changed)
                files = [(self._folder / key, key) for key in changed]
                upload_many(self._location, files, progress=lambda _: self._changed(), on_file=on_file)
        except (StorageError, CredentialsError) as error:
            failed = [key for key, stat in changed.items() if key not in done and _stat_of(self._folder / key) == stat]
            if failed:
                return len(done), failed, error
        try:
            deleted = self._delete(gone)
        except (StorageError, CredentialsError) as error:
            return len(done), gone, error
        return len(done) + deleted, [], None

    def _name_losers(self, changed: Collection[str]) -> None:
        """Name the objects that were written by others after this node had read them, and are about to be replaced.

        Raises:
            StorageError: the store does not answer.
        """
        there = self._present(changed)
        for key in changed:
            known, entry = self._known.get(key), there.get(key)
            if entry is not None and entry.etag != ("" if known is None else known.etag):
                self._say(
                    f"{self._location.address(key)} was written by another node or program after this node had read "
                    "it; the version of this node, which was written last, replaces it."
                )

    def _present(self, keys: Collection[str]) -> dict[str, ObjectEntry]:
        """Return those of these objects that are in the store, with as few requests as possible.

        Raises:
            StorageError: the store does not answer.
        """
        if len(keys) > len(self._known) // _PAGE + 1:
            return {each.key: each for each in list_objects(self._location)}
        return {key: entry for key in keys if (entry := find(self._location, key)) is not None}

    def _delete(self, gone: list[str]) -> int:
        """Delete the objects of files that tasks have removed, unless they were written meanwhile; return how many."""
        done = []
        there = self._present(gone) if gone else {}
        for key in gone:
            if key not in there or there[key].etag != self._known[key].etag:
                del self._known[key]
            else:
                done.append(key)
        if done:
            delete(self._location, done)
        for key in done:
            del self._known[key]
        return len(done)

    def _count(self, changed: dict[str, _Stat] | None = None) -> None:
        left = changed or {}
        status = self._state.status if self._state.status == "detached" else "flushing" if left else "ready"
        size = sum(size for size, *_ in left.values())
        detail = self._state.detail if left else ""
        self._update(status=status, detail=detail, unflushed=len(left), unflushed_bytes=size)

    def _files(self) -> Iterator[tuple[str, _Stat]]:
        """Yield each regular file, and each link to one, by its key. Links to folders are left out, and named once."""
        for parent, folders, files in os.walk(self._folder):
            base = Path(parent).relative_to(self._folder)
            for name in folders:
                if Path(parent, name).is_symlink():
                    self._skip(str(base / name), "a link to a folder")
            for name in files:
                path = Path(parent, name)
                if not path.is_file():
                    self._skip(str(base / name), "no regular file")
                    continue
                if (stat := _stat_of(path)) is not None:
                    yield (base / name).as_posix(), stat

    def _skip(self, key: str, why: str) -> None:
        if key not in self._skipped:
            self._skipped.add(key)
            self._say(f"{self._location.address(key)} is not uploaded: it is {why}.")

    def detach(self) -> None:
        """Remove the files of the node if all of them are in the store. Idempotent."""
        if self._state.status == "detached":
            return
        is_saved = not self._state.unflushed
        self._update(status="detached")
        if is_saved:
            shutil.rmtree(self._folder, ignore_errors=True)
