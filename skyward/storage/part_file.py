"""Part files: unfinished downloads, beside their targets, with a record of the ranges that have arrived."""

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path

from skyward.storage.listing import ObjectEntry

__all__ = ["PART_SUFFIX", "RANGE", "PartFile", "create_file", "part_name"]

RANGE = 8 << 20
"""Bytes of a range; larger objects are downloaded in several ranges at a time."""

PART_SUFFIX = ".skyward-part"
"""End of the names of part files."""

_MAGIC = b"skyward-part-1\0\0"


class PartFile:
    """File of an unfinished download: the bytes, and after them a record of the ranges that have arrived.

    The record names the version of the object and this start of the machine: bytes that were not yet on the disk when
    the machine stopped must not count as there.
    """

    def __init__(self, file: int, path: Path, entry: ObjectEntry) -> None:
        self.file = file
        self._path = path
        self._size = entry.size
        self._count = -(-entry.size // RANGE)
        self._header = _MAGIC + hashlib.sha256(f"{entry.etag}\0{entry.size}\0{RANGE}\0{_boot()}".encode()).digest()
        self._is_open = True

    @classmethod
    def open(cls, target: Path, entry: ObjectEntry) -> "PartFile":
        """Open the part file of a target; continue the one that is there, if it is of the same version."""
        path = part_name(target)
        file = create_file(path, keep=True)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another download writes it
                os.close(file)
                path = part_name(target, os.getpid(), os.urandom(4).hex())
                file = create_file(path)
            part = cls(file, path, entry)
            part._prepare()
        except BaseException:
            os.close(file)
            raise
        return part

    def missing(self) -> list[tuple[int, int, int]]:
        """Return number, start and end of the ranges that have not arrived."""
        marks = os.pread(self.file, self._count, self._size + len(self._header))
        return [
            (number, number * RANGE, min((number + 1) * RANGE, self._size))
            for number in range(self._count)
            if marks[number] != 1
        ]

    def mark(self, number: int) -> None:
        """Record that a range has arrived."""
        if self._is_open:
            os.pwrite(self.file, b"\1", self._size + len(self._header) + number)

    def complete(self, target: Path) -> None:
        """Make it the target."""
        os.ftruncate(self.file, self._size)
        os.replace(self._path, target)
        self.close()

    def discard(self) -> None:
        """Remove it."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with contextlib.suppress(OSError):
            os.ftruncate(self.file, 0)

    def close(self) -> None:
        """Close it."""
        if self._is_open:
            self._is_open = False
            os.close(self.file)

    def _prepare(self) -> None:
        length = self._size + len(self._header) + self._count
        if os.fstat(self.file).st_size == length and os.pread(self.file, len(self._header), self._size) == self._header:
            return
        os.ftruncate(self.file, 0)
        os.ftruncate(self.file, length)
        os.pwrite(self.file, self._header, self._size)


def create_file(path: Path, *, keep: bool = False) -> int:
    """Open a file for reading and writing, and make it and its folder if needed; `keep` what is in it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if keep else os.O_TRUNC)
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def part_name(target: Path, *more: object) -> Path:
    """Return the path of a part file of a target; `more` tells several apart."""
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    return target.parent / f".{'.'.join([digest, *map(str, more)])}{PART_SUFFIX}"


def _boot() -> str:
    """Return an identifier of this start of the machine; one that is never the same where the system tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.urandom(16).hex()
