"""Listing, reading and writing of files on a disk.

A file is read in chunks, each with its own content address: a change in part of a large file leaves the addresses of
the other chunks as they are. The version of a file is the address of its content and its executable bit.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from skyward.files.patterns import TEMPORARY, Excludes, Glob
from skyward.process.clock import clock
from skyward.wire.payloads.digest import content_address

__all__ = [
    "CHUNK",
    "SETTLED",
    "Content",
    "Listing",
    "Signature",
    "TooManyFilesError",
    "Versions",
    "is_executable",
    "list_files",
    "matching",
    "read",
    "signature",
    "write",
]

CHUNK = 16 * 1024 * 1024
"""Bytes of a chunk. The same on both sides, because the version of a file depends on it."""

SETTLED = 2_000_000_000
"""Nanoseconds after which a write to a file changes its signature, however coarse the clock of its disk."""

_TRIES = 3
"""Number of times that a file which changes during a read is read."""

type FileBuffer = bytes | memoryview
type Listing = dict[str, os.stat_result]
"""Files by their relative path."""

type Signature = tuple[int, int, int, int]
"""Attributes of a file that change on a write: equal signatures mean equal content."""


class TooManyFilesError(Exception):
    """A folder has more files than the limit."""


def signature(found: os.stat_result) -> Signature:
    """Return the signature of a file."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_executable(found: os.stat_result) -> bool:
    """Return whether its owner may execute the file."""
    return bool(found.st_mode & stat.S_IXUSR)


def list_files(
    root: str, folder: str, excludes: Excludes, most: float = float("inf"), folders: list[str] | None = None
) -> Listing:
    """Return the files in `folder`, which is relative to `root`, by their paths from `root`.

    Links to files count as files; links to folders and virtual environments are skipped. The patterns of `excludes` are
    compared with paths from `folder`. Subfolders are appended to `folders`.

    Raises:
        OSError: a folder cannot be read.
        TooManyFilesError: there are more than `most`.
    """
    found: Listing = {}
    start = "" if folder == "." else f"{folder}/"
    waiting = [start]
    while waiting:
        inside = waiting.pop()
        entries = _entries(root, inside)
        if inside != start and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        if inside != start and folders is not None:
            folders.append(inside[:-1])
        for entry in entries:
            path = inside + entry.name
            if excludes.skips(path.removeprefix(start)):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
            elif (status := _file(entry)) is not None:
                found[path] = status
                if len(found) > most:
                    raise TooManyFilesError(folder)
    return found


def matching(root: str, glob: Glob) -> Listing:
    """Return the files in `root` that match, including all files in a matching folder.

    Raises:
        OSError: a folder cannot be read.
    """
    found: Listing = {}
    waiting = [("", glob.start())]
    while waiting:
        inside, states = waiting.pop()
        if glob.is_met(states):
            found |= list_files(root, inside.rstrip("/") or ".", Excludes())
            continue
        for entry in _entries(root, inside):
            following = glob.step(states, entry.name)
            if not following or entry.name.startswith(TEMPORARY):
                continue
            path = inside + entry.name
            if _is_folder(entry, follow=not glob.is_met(following) and following.isdisjoint(states)):
                waiting.append((f"{path}/", following))
            elif glob.is_met(following) and (status := _file(entry)) is not None:
                found[path] = status
    return found


def _entries(root: str, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str], *, follow: bool) -> bool:
    """Return whether to descend into an entry. Links are followed only to a bounded depth: "**" could loop."""
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def _file(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        status = entry.stat()
    except OSError:  # a broken link, or the entry was just removed
        return None
    return status if stat.S_ISREG(status.st_mode) else None


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a file.

    Attributes:
        chunks: its bytes, in order; no chunk is empty.
        addresses: content address of each chunk.
        version: identifies the content.
        size: bytes.
        changed: True if the file was written during every attempt to read it.
    """

    chunks: tuple[bytes, ...]
    addresses: tuple[bytes, ...]
    version: bytes
    size: int
    is_executable: bool = False
    changed: bool = False


def read(path: str) -> Content:
    """Return the content of a file, as of one moment where possible.

    Raises:
        OSError: it cannot be read.
    """
    for left in reversed(range(_TRIES)):
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            chunks = tuple(_chunks(file))
            size = sum(map(len, chunks))
            changed = size != before.st_size or signature(os.fstat(file.fileno())) != signature(before)
            if not changed or not left:
                addresses = tuple(content_address(memoryview(chunk)) for chunk in chunks)
                version = _version(addresses, is_executable(before))
                return Content(chunks, addresses, version, size, is_executable(before), changed)
    raise AssertionError("unreachable: the last try returns")


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _version(addresses: Sequence[bytes], is_executable: bool) -> bytes:
    whole = addresses[0] if len(addresses) == 1 else content_address(memoryview(b"".join(addresses)))
    return whole + b"x" if is_executable else whole


def _version_on_disk(path: str) -> bytes:
    with open(path, "rb") as file:
        executable = is_executable(os.fstat(file.fileno()))
        return _version([content_address(memoryview(chunk)) for chunk in _chunks(file)], executable)


class Versions:
    """Versions of files; a file is read again only when its signature has changed.

    Attributes:
        known: by path, the signature of the file and its version then.
    """

    def __init__(self, known: Mapping[str, tuple[Signature, bytes]] | None = None) -> None:
        self.known = dict(known or {})

    def of(self, path: str, status: os.stat_result) -> bytes | None:
        """Return the version of a file; None if it cannot be read."""
        look = signature(status)
        found = self.known.get(path)
        if found is not None and found[0] == look:
            return found[1]
        try:
            version = _version_on_disk(path)
            same = signature(os.stat(path)) == look
        except OSError:
            self.known.pop(path, None)
            return None
        if same and _is_settled(status):
            self.known[path] = look, version
        return version

    def keep(self, paths: Collection[str]) -> None:
        """Forget the versions of all files except these."""
        self.known = {path: found for path, found in self.known.items() if path in paths}

    def note(self, path: str, version: bytes) -> None:
        """Record the version of a file that `write` has just written, with a time that no later change has."""
        with contextlib.suppress(OSError):
            self.known[path] = signature(os.stat(path)), version


def _is_settled(status: os.stat_result) -> bool:
    return clock.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED


def write(target: str, pieces: Iterable[FileBuffer], modified: int, *, is_executable: bool) -> None:
    """Write a file atomically, replacing an existing one, and create its parent folders.

    Args:
        target: its path.
        pieces: its bytes, in order.
        modified: its modification time, ns.
        is_executable: make it executable for those who may read it.

    Raises:
        OSError: it cannot be written. An existing file is unchanged.
    """
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, f"{TEMPORARY}{secrets.token_hex(6)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o777 if is_executable else 0o666)
    try:
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(target).st_mode) & ~0o111
                os.fchmod(descriptor, mode | (mode & 0o444) >> 2 if is_executable else mode)
        os.utime(part, ns=(modified, modified))
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise
