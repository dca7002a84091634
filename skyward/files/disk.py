"""Files on a disk: which there are, what is in them, and writing them.

A file is read in chunks, each of which has a content address: where part of a large file changes, the other chunks keep
theirs. The version of a file is the address of its content, and whether it may be executed.
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
    "below",
    "is_executable",
    "matching",
    "read",
    "signature",
    "write",
]

CHUNK = 16 * 1024 * 1024
"""Bytes that a file is read by. Both ends read alike, because the version of a file depends on it."""

SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is written looks different, however coarse the clock of its disk is."""

_TRIES = 3
"""Times that a file which changes while it is read is read again."""

type Buffer = bytes | memoryview
type Listing = dict[str, os.stat_result]
"""Files by their relative path."""

type Signature = tuple[int, int, int, int]
"""What of a file changes when it is written: two looks that see the same have seen the same content."""


class TooManyFilesError(Exception):
    """A folder has more files than were to be looked at."""


def signature(found: os.stat_result) -> Signature:
    """Return what of a file changes when it is written."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_executable(found: os.stat_result) -> bool:
    """Return whether its owner may execute the file."""
    return bool(found.st_mode & stat.S_IXUSR)


def below(
    root: str, folder: str, excludes: Excludes, most: float = float("inf"), folders: list[str] | None = None
) -> Listing:
    """The files in `folder`, which is relative to `root`, with their paths from `root`.

    Links to files count as files, links to folders are left out; so are virtual environments. The patterns of
    `excludes` are compared with paths from `folder`. The folders in it are added to `folders`.

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
    """The files in `root` that match; all that is in a folder that matches.

    Raises:
        OSError: a folder cannot be read.
    """
    found: Listing = {}
    waiting = [("", glob.start())]
    while waiting:
        inside, states = waiting.pop()
        if glob.is_met(states):
            found |= below(root, inside.rstrip("/") or ".", Excludes())
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
    """Whether to look into it. A link is followed only where that has an end: "**" would follow a circle for ever."""
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def _file(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        status = entry.stat()
    except OSError:  # a link that leads nowhere, or it has just gone
        return None
    return status if stat.S_ISREG(status.st_mode) else None


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a file.

    Attributes:
        chunks: its bytes, in order; none of them is empty.
        addresses: the content address of each.
        version: what tells it from other content.
        size: bytes.
        changed: whether it was written while it was read, however often that was tried.
    """

    chunks: tuple[bytes, ...]
    addresses: tuple[bytes, ...]
    version: bytes
    size: int
    is_executable: bool = False
    changed: bool = False


def read(path: str) -> Content:
    """What is in a file, as it was at one moment where that can be had.

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
    """Versions of files, each read once for as long as the file looks the same.

    Attributes:
        known: by path, what the file looked like, and its version then.
    """

    def __init__(self, known: Mapping[str, tuple[Signature, bytes]] | None = None) -> None:
        self.known = dict(known or {})

    def of(self, path: str, status: os.stat_result) -> bytes | None:
        """The version of a file; None where it cannot be read."""
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
        """Forget what is known of other files than these."""
        self.known = {path: found for path, found in self.known.items() if path in paths}

    def note(self, path: str, version: bytes) -> None:
        """Note the version of a file that `write` has just written: with a time that no later change has."""
        with contextlib.suppress(OSError):
            self.known[path] = signature(os.stat(path)), version


def _is_settled(status: os.stat_result) -> bool:
    return clock.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED


def write(target: str, pieces: Iterable[Buffer], modified: int, *, is_executable: bool) -> None:
    """Write a file as a whole, over the one that is there, with the folders that it is in.

    Args:
        target: its path.
        pieces: its bytes, in order.
        modified: its time of modification, ns.
        is_executable: whether those who may read it may execute it.

    Raises:
        OSError: it cannot be written. What was there is as it was.
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
