"""What crosses with a cell: the files that go along, which are to come home, and those that do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from skyward.files.disk import Content
from skyward.files.patterns import Excludes, Glob, is_inside
from skyward.wire.payloads.payload import Packed

__all__ = ["SMALL", "Brought", "FilesRequest", "FilesResult", "Packing", "Root", "Span", "pieces"]

SMALL = 256 * 1024
"""Bytes up to which a file travels together with others: each blob costs a turn on the way."""

_FULL = 4 * 1024 * 1024
"""Bytes after which such a group of files ends."""


@dataclass(frozen=True, slots=True)
class Span:
    """One file, and where its bytes are: in the blobs from `first` on, `offset` bytes after the front of that.

    Attributes:
        path: relative, with "/".
        version: its content; see `skyward.files.disk`.
        size: bytes.
        modified: when it was modified, ns.
    """

    path: str
    version: bytes
    size: int
    modified: int
    first: int = 0
    offset: int = 0

    @property
    def is_executable(self) -> bool:
        """Whether it may be executed."""
        return len(self.version) > 32  # the address of the content has 32 bytes; see `skyward.files.disk`


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that is the same on both sides.

    Attributes:
        path: relative; "." for the whole.
        excludes: what of it is left out.
    """

    path: str
    excludes: Excludes = field(default_factory=Excludes)

    def has(self, path: str) -> bool:
        """Return whether a file is part of it."""
        if not is_inside(path, self.path):
            return False
        return not self.excludes.skip_any(path if self.path == "." else path.removeprefix(f"{self.path}/"))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FilesRequest:
    """The files of a cell.

    Attributes:
        folder: the notebook's folder. A node that shares the disk of the notebook runs the cell there.
        sent: what is to be in the cell's folder before it runs.
        blobs: the bytes of it.
        roots: folders that are the same on both sides.
        fetch: patterns of what is to come home.
        here: versions of files of `roots`, and of those that match `fetch`, here.
        taken: by path, versions that have come from nodes before.
        gone: paths that were here once, and were deleted since.
        folders: folders that are to be there.
        limit: bytes that may come home.
        only_written: whether files come home only from the run that wrote them.
    """

    folder: str
    sent: tuple[Span, ...] = ()
    blobs: tuple[Packed, ...] = ()
    roots: tuple[Root, ...] = ()
    fetch: tuple[str, ...] = ()
    here: Mapping[str, bytes] = field(default_factory=dict)
    taken: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    limit: int = 1 << 30
    only_written: bool = False

    def syncs(self, path: str) -> bool:
        """Return whether a file is of a folder that is the same on both sides."""
        return any(root.has(path) for root in self.roots)

    def syncs_folder(self, path: str) -> bool:
        """Return whether a folder is the same on both sides, or is in one."""
        return any(path == root.path or root.has(path) for root in self.roots)

    def allows(self, path: str) -> bool:
        """Return whether a file of this path may come home."""
        return self.syncs(path) or any(Glob(text).matches(path) for text in self.fetch)


@dataclass(frozen=True, slots=True)
class Brought:
    """A file that comes home.

    Attributes:
        span: the file, in the blobs of the result.
        may_replace: whether it may take the place of the version that was here when the cell was sent.
        is_written: whether the cell wrote it.
    """

    span: Span
    may_replace: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class FilesResult:
    """What a cell left of files.

    Attributes:
        folder: the folder that it ran in.
        is_shared: whether that is the notebook's own.
        files: what comes home.
        blobs: the bytes of it.
        deleted: files that it deleted, of folders that are the same on both sides.
        made, removed: folders in these that it made and removed.
        unmatched: patterns that no file matched.
        left: files that it wrote and that stay on the node.
        notes: a sentence each on what could not be as it was asked for.
        began, ended: when it ran, s on the clock of its node.
    """

    folder: str
    is_shared: bool = False
    files: tuple[Brought, ...] = ()
    blobs: tuple[Packed, ...] = ()
    deleted: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    began: float = 0.0
    ended: float = 0.0


class Packing:
    """Puts files into blobs: large ones chunk by chunk, small ones together.

    Where a group ends depends on the files in it, so that one that changes leaves the other groups as they are.
    """

    def __init__(self) -> None:
        self._blobs: list[Packed] = []
        self._group: list[bytes] = []
        self._size = 0

    def add(self, path: str, content: Content, modified: int) -> Span:
        """Add a file. The order counts: add those that are together in a folder one after the other."""
        if content.size > SMALL:
            self._close()
            span = Span(path, content.version, content.size, modified, len(self._blobs))
            self._blobs += map(Packed, content.chunks)
            return span
        span = Span(path, content.version, content.size, modified, len(self._blobs), self._size)
        self._group += content.chunks
        self._size += content.size
        if self._size >= _FULL or (self._size >= SMALL and content.version[0] < 16):
            self._close()
        return span

    def _close(self) -> None:
        if self._group:
            self._blobs.append(Packed(b"".join(self._group)))
        self._group, self._size = [], 0

    def blobs(self) -> tuple[Packed, ...]:
        """The bytes of all files that were added."""
        self._close()
        return tuple(self._blobs)


def pieces(span: Span, blobs: Sequence[Packed]) -> Iterator[memoryview]:
    """The bytes of a file, in order.

    Raises:
        ValueError: there are fewer than there should be.
    """
    left, offset, index = span.size, span.offset, span.first
    while left:
        if index >= len(blobs):
            raise ValueError(f"{span.path} is not whole")
        piece = memoryview(blobs[index].data).cast("B")[offset:][:left]
        left, offset, index = left - len(piece), 0, index + 1
        yield piece
