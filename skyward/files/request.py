"""Messages about the files of a cell: those sent with it, the patterns to fetch, and those fetched."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from skyward.files.disk import Content
from skyward.files.patterns import Excludes, Glob, is_inside
from skyward.wire.payloads.payload import Packed

__all__ = ["SMALL", "FetchedFile", "FileSpan", "FilesRequest", "FilesResult", "FilesRoot", "Packing", "pieces"]

SMALL = 256 * 1024
"""Bytes up to which a file shares a blob with others: each blob costs a round trip."""

_FULL = 4 * 1024 * 1024
"""Bytes after which such a group of files ends."""


@dataclass(frozen=True, slots=True)
class FileSpan:
    """One file and the position of its bytes: in the blobs from `first` on, from byte `offset` of that blob.

    Attributes:
        path: relative, with "/".
        version: identifies the content; see `skyward.files.disk`.
        size: bytes.
        modified: modification time, ns.
        first: index of its first blob.
        offset: bytes before it in that blob.
    """

    path: str
    version: bytes
    size: int
    modified: int
    first: int = 0
    offset: int = 0

    @property
    def is_executable(self) -> bool:
        """True if the file is executable."""
        return len(self.version) > 32  # the address of the content has 32 bytes; see `skyward.files.disk`


@dataclass(frozen=True, slots=True)
class FilesRoot:
    """A folder that is synced between both sides.

    Attributes:
        path: relative; "." for the whole.
        excludes: patterns of what is left out.
    """

    path: str
    excludes: Excludes = field(default_factory=Excludes)

    def has(self, path: str) -> bool:
        """Return whether a file is part of the folder."""
        if not is_inside(path, self.path):
            return False
        return not self.excludes.skip_any(path if self.path == "." else path.removeprefix(f"{self.path}/"))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FilesRequest:
    """The files of a cell.

    Attributes:
        folder: the notebook's folder. A node that shares the disk of the notebook runs the cell there.
        sent: files to place in the cell's folder before it runs.
        blobs: their bytes.
        roots: synced folders.
        fetch: patterns of the files to fetch.
        client_versions: versions on the client, of the files of `roots` and of those that match `fetch`.
        taken: by path, versions that were copied from nodes before.
        gone: paths that existed here and were deleted since.
        folders: folders to create.
        limit: maximum number of bytes to fetch.
        only_written: fetch files only from the run that wrote them.
    """

    folder: str
    sent: tuple[FileSpan, ...] = ()
    blobs: tuple[Packed, ...] = ()
    roots: tuple[FilesRoot, ...] = ()
    fetch: tuple[str, ...] = ()
    client_versions: Mapping[str, bytes] = field(default_factory=dict)
    taken: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    limit: int = 1 << 30
    only_written: bool = False

    def syncs(self, path: str) -> bool:
        """Return whether a file is in a synced folder."""
        return any(root.has(path) for root in self.roots)

    def syncs_folder(self, path: str) -> bool:
        """Return whether a folder is synced, or is in a synced one."""
        return any(path == root.path or root.has(path) for root in self.roots)

    def allows(self, path: str) -> bool:
        """Return whether a file of this path may be fetched."""
        return self.syncs(path) or any(Glob(text).matches(path) for text in self.fetch)


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A fetched file.

    Attributes:
        span: the file, in the blobs of the result.
        may_replace: True if it may replace the version that was here when the cell was sent.
        is_written: True if the cell wrote it.
    """

    span: FileSpan
    may_replace: bool
    is_written: bool


@dataclass(frozen=True, slots=True)
class FilesResult:
    """The files that a cell left.

    Attributes:
        folder: the folder that it ran in.
        is_shared: True if that is the notebook's own folder.
        files: fetched files.
        blobs: their bytes.
        deleted: files of synced folders that the cell deleted.
        made, removed: folders inside synced ones that the cell created and removed.
        unmatched: patterns that no file matched.
        left: files that the cell wrote and that stay on the node.
        notes: sentences about requests that could not be met.
        began, ended: start and end of the run, s on the clock of its node.
    """

    folder: str
    is_shared: bool = False
    files: tuple[FetchedFile, ...] = ()
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
    """Packs files into blobs: large ones chunk by chunk, small ones in groups.

    The end of a group depends on the content of its files, so that a changed file leaves the other groups as they are.
    """

    def __init__(self) -> None:
        self._blobs: list[Packed] = []
        self._group: list[bytes] = []
        self._size = 0

    def add(self, path: str, content: Content, modified: int) -> FileSpan:
        """Add a file. Add the files of one folder one after the other, so that they share groups."""
        if content.size > SMALL:
            self._close()
            span = FileSpan(path, content.version, content.size, modified, len(self._blobs))
            self._blobs += map(Packed, content.chunks)
            return span
        span = FileSpan(path, content.version, content.size, modified, len(self._blobs), self._size)
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
        """Return the bytes of all added files."""
        self._close()
        return tuple(self._blobs)


def pieces(span: FileSpan, blobs: Sequence[Packed]) -> Iterator[memoryview]:
    """Yield the bytes of a file, in order.

    Raises:
        ValueError: the blobs hold fewer bytes than the size of the file.
    """
    left, offset, index = span.size, span.offset, span.first
    while left:
        if index >= len(blobs):
            raise ValueError(f"{span.path} is incomplete")
        piece = memoryview(blobs[index].data).cast("B")[offset:][:left]
        left, offset, index = left - len(piece), 0, index + 1
        yield piece
