"""A volume whose files are on the node's disk, and whose changes are uploaded when a task ends.

The last writer wins: a file that was also changed in the store, after this node had read it, is replaced there, and a
line says so. Between the nodes of a pool, a task sees what tasks that ended before it have written.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Lock  # tasks may replace the attributes of the module

from skyward.errors import CredentialsError, StorageError
from skyward.process.clock import clock
from skyward.storage.deletion import delete
from skyward.storage.failures import BAD_KEY, CHANGED, LASTING
from skyward.storage.keys import key_problem
from skyward.storage.listing import ObjectEntry, find, list_objects, marker_text
from skyward.storage.trees import upload_many
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.copied import check_room
from skyward.worker.volumes.fetched import FetchedVolume
from skyward.worker.volumes.volume import AttachError, Fetcher, OnChange, Unsaved, check_names, listed_again

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


def _may_be_moved(before: _Stat, after: _Stat) -> bool:
    """Return whether a file may be another one that was renamed, or moved with its time: it would be the only copy."""
    return before[:2] == after[:2] or before[3] == after[3]


def _in_place_of(keys: Collection[str], gone: Collection[str]) -> dict[str, set[str]]:
    """Return the files that are where removed ones were folders, or below where these were files; with those."""
    found: dict[str, set[str]] = {}
    for key in keys:
        if blocking := {str(each) for each in PurePosixPath(key).parents}.intersection(gone):
            found[key] = blocking
    for each in gone:
        for folder in map(str, PurePosixPath(each).parents):
            if folder in keys:
                found.setdefault(folder, set()).add(each)
    return found


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
            entries = list(list_objects(self._location, on_marker=self._name_marker))
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
        """Fetch objects; those that are changed meanwhile are fetched anew, and those that are deleted are left out."""
        left, tries = {each.key: each for each in entries}, 0
        while left:
            before = {key: _stat_of(self._folder / key) for key in left}
            tries += 1
            missing, there = set[str](), dict[str, ObjectEntry]()
            try:
                self._fetcher.fetch(list(left.values()), self._folder, self._arrived)
            except StorageError as error:
                there = listed_again(self._location, error, tries)
                missing = {key for key in left if _stat_of(self._folder / key) == before[key]}
            for key in left.keys() - missing:
                if (stat := _stat_of(self._folder / key)) is not None:
                    self._known[key] = _Known(stat, left[key].etag)
            self._update(files=self._state.files + len(left) - len(missing))
            left = {key: there[key] for key in missing if key in there}

    def _name_marker(self, marker: ObjectEntry) -> None:
        if text := marker_text(self._location, marker):
            self._say(text)

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
                done, left, error = self._save_once()
                if done:
                    written, self._written = tuple(self._written), []
                    self._wrote(written)
                    attempt, since = 0, clock.monotonic()
                if not left:
                    self._count()
                    return left
                self._update(detail=left.why)
                lasts = error is None or isinstance(error, CredentialsError) or error.code in {*LASTING, BAD_KEY}
                if lasts or clock.monotonic() - since > stalled:
                    return left
                clock.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1

    def _save_once(self) -> tuple[int, Unsaved, StorageError | CredentialsError | None]:
        """Try once to upload each changed file, and to delete the objects of those that are gone.

        A file that is written meanwhile belongs to a task that still runs: it is uploaded at the end of that one.

        Returns:
            The number of changes that are in the store now, what is left, and the error of the store.
        """
        here = dict(self._files())
        changed = {key: stat for key, stat in here.items() if self._is_changed(key, stat)}
        problems = {key: text for key in changed if (text := key_problem(self._location.root + key)) is not None}
        fit = changed.keys() - problems.keys()
        gone = [key for key in self._known if key not in here]
        in_place = _in_place_of(fit, gone)
        self._count(changed)
        done, failed, held, deleted = set[str](), set(problems), set[str](), 0
        why = [
            f"a name that {text} cannot be the key of an object: rename the file in the task"
            for text in dict.fromkeys(problems[key] for key in sorted(problems))
        ]
        error: StorageError | CredentialsError | None = None
        try:
            why += self._upload(changed, fit - in_place.keys(), done, failed)
            held = {key for key in gone if any(_may_be_moved(self._known[key].stat, changed[each]) for each in failed)}
            barred = {key for key, others in in_place.items() if not others.isdisjoint(held)}
            if barred:
                failed |= barred
                why.append("an object and a folder of one name cannot be in the store together")
            for key in sorted(in_place.keys() - barred):  # first: no pool could open a prefix that has both
                deleted += self._delete([each for each in in_place[key] if each in self._known], is_due=True)
            why += self._upload(changed, in_place.keys() - barred, done, failed)
            deleted += self._delete([key for key in gone if key in self._known and key not in held])
        except (StorageError, CredentialsError) as caught:
            error = caught
            why.append(self._reason(caught))
            failed |= self._not_done(changed, done)
            held = {key for key in gone if key in self._known}
        self._count({key: changed[key] for key in failed})
        names, kept = (tuple(map(self._location.address, sorted(keys))) for keys in (failed, held))
        return len(done) + deleted, Unsaved(names, "; ".join(why), kept, is_tried_again=error is not None), error

    def _upload(self, changed: dict[str, _Stat], keys: Collection[str], done: set[str], failed: set[str]) -> list[str]:
        """Upload files; add the keys of those that have arrived, and of those that could not be read.

        Returns:
            Why files could not be read, if there are such.

        Raises:
            StorageError, CredentialsError: the store refuses, or does not answer.
        """
        if not keys:
            return []

        def on_file(_: Path, entry: ObjectEntry) -> None:
            before = self._known.get(entry.key)
            self._written.append((entry.key, "" if before is None else before.etag, entry.etag))
            self._known[entry.key] = _Known(changed[entry.key], entry.etag)
            done.add(entry.key)
            self._count({key: stat for key, stat in changed.items() if key not in done})

        try:
            self._name_losers(keys)
            files = [(self._folder / key, key) for key in sorted(keys)]
            upload_many(self._location, files, progress=lambda _: self._changed(), on_file=on_file)
        except StorageError as error:
            if not error.names or error.code not in ("", CHANGED):
                raise
            if unread := self._not_done({key: changed[key] for key in keys}, done):
                failed |= unread
                return [self._reason(error)]
        return []

    def _not_done(self, changed: dict[str, _Stat], done: set[str]) -> set[str]:
        """Return the files that were not uploaded, without those that are written meanwhile."""
        return {key for key, stat in changed.items() if key not in done and _stat_of(self._folder / key) == stat}

    def _reason(self, error: StorageError | CredentialsError) -> str:
        """Return what an error says, with paths as tasks know them."""
        return str(error).rstrip(".").replace(str(self._folder), self._state.path)

    def _name_losers(self, changed: Collection[str]) -> None:
        """Name the objects that others have written since this node has seen them, and that are about to be replaced.

        Raises:
            StorageError: the store does not answer.
        """
        there = self._present(changed)
        for key in changed:
            known, entry = self._known.get(key), there.get(key)
            if entry is not None and entry.etag != ("" if known is None else known.etag):
                since = "meanwhile" if known is None else "after this node had read it"
                self._say(
                    f"{self._location.address(key)} was written by another node or program {since}; the version of "
                    "this node, which was written last, replaces it."
                )

    def _present(self, keys: Collection[str]) -> dict[str, ObjectEntry]:
        """Return those of these objects that are in the store, with as few requests as possible.

        Raises:
            StorageError: the store does not answer.
        """
        if len(keys) > len(self._known) // _PAGE + 1:
            return {each.key: each for each in list_objects(self._location)}
        return {key: entry for key in keys if (entry := find(self._location, key)) is not None}

    def _delete(self, gone: Collection[str], *, is_due: bool = False) -> int:
        """Delete the objects of files that tasks have removed; return how many.

        Args:
            gone: their keys.
            is_due: whether to delete also those that others have written meanwhile, and to name them.
        """
        done = []
        there = self._present(gone) if gone else {}
        for key in gone:
            if key not in there or (there[key].etag != self._known[key].etag and not is_due):
                del self._known[key]
                continue
            done.append(key)
            if there[key].etag != self._known[key].etag:
                self._say(
                    f"{self._location.address(key)} was written by another node or program after this node had read "
                    "it; it is deleted, since tasks of this node have made a folder or a file in its place."
                )
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
