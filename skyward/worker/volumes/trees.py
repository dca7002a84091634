"""Copies of prefixes in the cache of a machine: immutable folders, one for each list of objects.

The cache of one prefix is a folder with a lock, its `trees`, each named by the digest of its list of objects, and for
each complete tree a `record` with the size and the modification time of every file. A file that is not as recorded is
fetched again. Objects that are the same in an earlier tree are linked, not fetched. Nodes on one machine share the
cache; one of them fetches at a time, and a tree in use is not removed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation
from skyward.worker.volumes.locks import is_locked, locked

__all__ = ["PART", "RECORD", "USED", "CachedTrees", "contents_of", "locked_prefix", "stat_of"]

RECORD, PART, USED = ".json", ".part", ".used"
"""Ends of the names of a tree's record, of the folder of one that is not complete, and of the mark of its users."""

_LOCK = "lock"

type Stat = tuple[int, int]
"""Size, and modification time in nanoseconds."""


def contents_of(entries: Iterable[ObjectEntry]) -> str:
    """Return the digest of a list of objects: it is equal if all keys, sizes and ETags are."""
    lines = sorted(json.dumps([each.key, each.size, each.etag]) for each in entries)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def stat_of(path: Path) -> Stat | None:
    """Return size and modification time of a file; None if there is no such file."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return None


@dataclass(slots=True)
class CachedTrees:
    """The trees of one prefix of a bucket in the cache of this machine.

    Attributes:
        folder: their folder.
    """

    folder: Path
    _used: int = -1

    @classmethod
    def of(cls, cache: Path, location: BucketLocation) -> "CachedTrees":
        """Return those of a location in the folder of the cache."""
        named = json.dumps([location.endpoint, location.bucket, location.prefix])
        folder = cache / hashlib.sha256(named.encode()).hexdigest()[:24]
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def fetching(self) -> contextlib.AbstractContextManager[bool]:
        """Return a context with the lock of the prefix: no other process here fetches it, or removes trees."""
        return locked(self.folder / _LOCK, waits=True)

    def tree(self, contents: str) -> Path:
        """Return the folder of a tree."""
        return self.folder / contents

    def part(self, contents: str) -> Path:
        """Return the folder of a tree that is not complete, and make it."""
        part = self.part_of(contents)
        part.mkdir(exist_ok=True)
        return part

    def part_of(self, contents: str) -> Path:
        """Return the path of the folder of a tree that is not complete."""
        return self.folder / f"{contents}{PART}"

    def damaged(self, contents: str, entries: Sequence[ObjectEntry]) -> list[ObjectEntry] | None:
        """Return the objects of a complete tree whose files were changed; None if there is no such tree."""
        record = self._record(contents)
        tree = self.tree(contents)
        if record is None or not tree.is_dir():
            return None
        return [each for each in entries if stat_of(tree / each.key) != record.get(each.key, (None, ""))[0]]

    def link_known(self, contents: str, entries: Sequence[ObjectEntry]) -> set[str]:
        """Link the objects that complete trees have into the incomplete one; return their keys."""
        part = self.part(contents)
        wanted = {(each.key, each.etag, each.size): each for each in entries}
        done: set[str] = set()
        for known in self.folder.glob(f"*{RECORD}"):
            for key, (stat, etag) in (self._record(known.stem) or {}).items():
                file = self.tree(known.stem) / key
                entry = wanted.get((key, etag, stat[0]))
                if entry is None or key in done or stat_of(file) != stat:
                    continue
                target = part / key
                with contextlib.suppress(OSError):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if not target.exists():
                        os.link(file, target)
                    done.add(key)
        return done

    def take_over(
        self, former: str, known: Sequence[ObjectEntry], contents: str, entries: Sequence[ObjectEntry]
    ) -> frozenset[str]:
        """Move what has arrived of an incomplete tree to the one that replaces it; return the keys.

        Args:
            former: digest of the list of the incomplete tree.
            known: the objects of that list.
            contents: digest of the other list.
            entries: the objects of the other list; those that are the same are moved.
        """
        if former == contents:
            return frozenset()
        here, there = self.part_of(former), self.part(contents)
        same = {(each.key, each.etag, each.size) for each in known}
        moved = set[str]()
        for entry in entries:
            found = stat_of(here / entry.key)
            if (entry.key, entry.etag, entry.size) in same and found is not None and found[0] == entry.size:
                (there / entry.key).parent.mkdir(parents=True, exist_ok=True)
                (here / entry.key).replace(there / entry.key)
                moved.add(entry.key)
        _remove(here)
        return frozenset(moved)

    def finish(self, contents: str, entries: Sequence[ObjectEntry]) -> Path:
        """Record a complete tree, and move it to its place."""
        part, tree = self.part_of(contents), self.tree(contents)
        if part.is_dir():
            if tree.is_dir():
                shutil.rmtree(tree)
            _finish(part, {each.key for each in entries})
            part.rename(tree)
        stats = {each.key: (*(stat_of(tree / each.key) or (-1, 0)), each.etag) for each in entries}
        new = self.folder / f"{contents}.new"
        new.write_text(json.dumps(stats))
        new.rename(self.folder / f"{contents}{RECORD}")
        return tree

    def use(self, contents: str) -> None:
        """Mark a tree as in use by this process, until `release`."""
        mark = self.folder / f"{contents}{USED}"
        self._used = os.open(mark, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._used, fcntl.LOCK_SH)
        os.utime(mark)

    def release(self) -> None:
        """End `use`. Idempotent."""
        if self._used >= 0:
            os.close(self._used)
            self._used = -1

    def remove_former(self, contents: str) -> None:
        """Remove the other trees of the prefix that no process uses. The caller holds the lock."""
        for record in self.folder.glob(f"*{RECORD}"):
            if record.stem != contents and not is_locked(self.folder / f"{record.stem}{USED}"):
                record.unlink()
                _remove(self.tree(record.stem))
                (self.folder / f"{record.stem}{USED}").unlink(missing_ok=True)
        for part in self.folder.glob(f"*{PART}"):
            if part.stem != contents:
                _remove(part)

    def _record(self, contents: str) -> Mapping[str, tuple[Stat, str]] | None:
        """Return what is recorded of each object: its file as it was, and its ETag; None if there is no record."""
        with contextlib.suppress(OSError, ValueError):
            known = json.loads((self.folder / f"{contents}{RECORD}").read_text())
            return {key: ((size, modified), etag) for key, (size, modified, etag) in known.items()}
        return None


def locked_prefix(folder: Path) -> contextlib.AbstractContextManager[bool]:
    """Return a context that holds the lock of a prefix if no other process has it, and whether that is so."""
    return locked(folder / _LOCK)


def _finish(folder: Path, keys: set[str]) -> None:
    """Make the files of a tree read-only, since pools share it, and remove what is left of interrupted transfers."""
    for parent, _, files in os.walk(folder):
        for name in files:
            path = Path(parent, name)
            if path.relative_to(folder).as_posix() in keys:
                path.chmod(path.stat().st_mode & 0o555 | 0o444)
            else:
                path.unlink()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
