"""The files of a cell on its node: written before the cell runs, inspected afterwards.

The node has copies, so a cell can write to them. The version that both sides had at the start is recorded beside the
working folder, in a record that the cells of all slots share.
"""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any

from skyward.files.disk import Content, Listing, TooManyFilesError, list_files, matching, read, signature
from skyward.files.patterns import Excludes, Glob, is_inside
from skyward.files.plan import decide_fetch
from skyward.files.request import FetchedFile, FilesRequest, FilesResult, Packing
from skyward.formatting import size_text
from skyward.process.clock import clock
from skyward.worker.cells.file_placement import Placement, fetch_option, reporting_errors
from skyward.worker.cells.file_record import FolderRecord, locked, working_folder
from skyward.worker.machine.hardware import free_memory
from skyward.worker.tasks import folder as folders

__all__ = ["CellFiles"]


_NOTICED = 2000
"""Most files in a working folder that is searched for files that a cell wrote and no option fetches."""

_MEMORY_SHARE = 2
"""Returned files may take at most one part in so many of a node's free memory."""

_TICK = 100_000_000
"""Resolution of file times in nanoseconds: two changes within it may look the same."""


class CellFiles:
    """The working folder of one cell, and the files that are sent and fetched with it.

    Args:
        request: the files to send and fetch; None for none.
        run: id of this run of the cell, the same on all its nodes.
        node: rank of the node.
    """

    def __init__(self, request: FilesRequest | None, run: str, node: int) -> None:
        self._request = request
        self._run = run
        self._node = node
        self._around = folders.directories()
        self._folder: str | None = None
        self._began = 0.0
        self._before: Listing = {}
        self._folders_before: frozenset[str] = frozenset()
        self._recent: dict[str, bytes | None] = {}
        self._written: set[str] = set()
        self._all_before: Listing | None = None
        self._notes: list[str] = []
        self._is_inside = False
        self._is_placed = False

    def enter(self) -> None:
        """Make the cell's folder the working directory, and write the cell's files to it.

        Raises:
            PayloadError: the folder or a file cannot be created.
        """
        request, around = self._request, self._around
        if request is None or around is None:
            return
        with reporting_errors(f"The working folder of the cell ({request.folder})", self._node):
            self._folder = request.folder if around.is_shared else working_folder(around, request.folder)
            folders.enter(self._folder)
        self._is_inside = True
        if not around.is_shared:
            self._place(request, self._folder)
            self._look_before(request, self._folder)
            self._is_placed = True

    def leave(self) -> None:
        """Go back to the worker's own directory. Idempotent."""
        if self._folder is not None:
            self._note_move(self._folder)
            self._is_inside = False
            folders.leave()

    def _note_move(self, root: str) -> None:
        """Add a note if the cell has changed its working directory. Call before leaving the folder."""
        if not self._is_inside:
            return
        try:
            where = os.getcwd()
        except OSError:
            where = "a folder that it has removed"
        if where != os.path.realpath(root):
            self._is_inside = False  # one note is enough
            self._notes.append(
                f"The cell changed its working directory to {where}. This has no effect on the next cell, which "
                "starts in the notebook's folder again; %cd changes that folder."
            )

    # Before the cell.

    def _place(self, request: FilesRequest, root: str) -> None:
        if request.sent or request.roots:
            with reporting_errors("A file", self._node), self._recorded() as record:
                is_first = self._run not in record.runs
                Placement(request, root, record, self._node, self._notes).apply(is_first=is_first)
                if is_first:
                    record.runs.append(self._run)
        for name in request.folders:
            if not request.syncs_folder(name):
                with reporting_errors(name, self._node), contextlib.suppress(FileExistsError, NotADirectoryError):
                    os.makedirs(os.path.join(root, name), exist_ok=True)

    def _look_before(self, request: FilesRequest, root: str) -> None:
        self._all_before = _all_files(root)
        self._began = clock.monotonic()
        self._before, self._folders_before = _files_and_folders(request, root)
        soon = clock.time_ns() - _TICK
        recent = {path: each for path, each in self._before.items() if max(each.st_mtime_ns, each.st_ctime_ns) > soon}
        if recent:
            with self._recorded() as record:
                of = record.versions.of
                self._recent = {path: of(os.path.join(root, path), status) for path, status in recent.items()}

    # After the cell.

    def collect(self, namespace: Mapping[str, Any]) -> FilesResult | None:
        """Return the files to return; None without a request. Files that are open in `namespace` are flushed first."""
        request, root, around = self._request, self._folder, self._around
        if request is None or root is None or around is None:
            return None
        self._note_move(root)
        if around.is_shared or not self._is_placed:
            # Placing the files failed, so the folder's state does not come from the cell: return no files.
            return FilesResult(root, is_shared=around.is_shared, notes=tuple(self._notes))
        _flush(namespace)
        try:
            after, folders_after = _files_and_folders(request, root)
            files, blobs = self._brought(request, root, after)
        except OSError as error:
            self._notes.append(f"The files of node {self._node} could not be read: {error}.")
            after, folders_after, files, blobs = self._before, self._folders_before, (), ()
        gone = [
            path
            for path in self._before
            if path not in after and path in request.client_versions and request.syncs(path)
        ]
        return FilesResult(
            root,
            files=files,
            blobs=blobs,
            deleted=tuple(gone),
            made=tuple(sorted(folders_after - self._folders_before)),
            removed=tuple(sorted(self._folders_before - folders_after)),
            unmatched=tuple(text for text in request.fetch if not self._is_met(text, request, after)),
            left=self._left(request, root),
            notes=tuple(self._notes),
            began=self._began,
            ended=clock.monotonic(),
        )

    def _is_written(self, path: str, status: os.stat_result, version: bytes) -> bool:
        was = self._before.get(path)
        if was is None or signature(was) != signature(status):
            return True
        return path in self._recent and self._recent[path] != version

    def _is_met(self, text: str, request: FilesRequest, after: Listing) -> bool:
        return any(map(Glob(text).matches, self._written if request.only_written else after))

    def _brought(
        self, request: FilesRequest, root: str, after: Listing
    ) -> tuple[tuple[FetchedFile, ...], tuple[Any, ...]]:
        if not (request.fetch or request.roots):
            return (), ()
        with self._recorded() as record:
            chosen = self._chosen(request, root, after, record)
            record.versions.keep({os.path.join(root, path) for path in (*after, *record.base)})
        packing = Packing()
        found = []
        for path, may_replace in self._within(request.limit, chosen, after):
            status = after[path]
            content = self._content(os.path.join(root, path), path)
            if content is not None:
                span = packing.add(path, content, status.st_mtime_ns)
                found.append(FetchedFile(span, may_replace, path in self._written))
        return tuple(found), packing.blobs()

    def _chosen(self, request: FilesRequest, root: str, after: Listing, record: FolderRecord) -> list[tuple[str, bool]]:
        """Choose the files to return, each with whether it may replace the notebook's file."""
        chosen = []
        for path, status in sorted(after.items()):
            version = record.versions.of(os.path.join(root, path), status)
            if version is None:
                self._notes.append(f"{path} on node {self._node} cannot be read, so it was not fetched.")
                continue
            if self._is_written(path, status, version):
                self._written.add(path)
            action = decide_fetch(
                request.client_versions.get(path),
                version,
                record.base.get(path),
                request.taken.get(path, ()),
                is_written=path in self._written,
                only_written=request.only_written,
            )
            if action != "stay":
                chosen.append((path, action == "replace"))
        return chosen

    def _within(self, limit: int, chosen: list[tuple[str, bool]], after: Listing) -> list[tuple[str, bool]]:
        """Return the chosen files that fit in the limit and in free memory; leave out the largest first."""
        free = free_memory()
        room = limit if free is None else min(limit, free // _MEMORY_SHARE)
        total = sum(after[path].st_size for path, _ in chosen)
        staying = set()
        for path, _ in sorted(chosen, key=lambda each: -after[each[0]].st_size):
            if total <= room:
                break
            size = after[path].st_size
            total -= size
            staying.add(path)
            why = f"over the limit of {size_text(limit)}. Raise it with --file-limit, and fetch"
            if room < limit:
                why = f"more than half of the {size_text(room * _MEMORY_SHARE)} of free memory there. Fetch"
            self._notes.append(
                f"{path} ({size_text(size)}) stayed on node {self._node}: the returned files would be {why} it "
                f"with {fetch_option(path)}."
            )
        return [each for each in chosen if each[0] not in staying]

    def _content(self, target: str, path: str) -> Content | None:
        try:
            return read(target)
        except (MemoryError, OSError) as error:
            why = getattr(error, "strerror", None) or "out of memory"
            self._notes.append(f"{path} on node {self._node} cannot be read ({why}), so it was not fetched.")
            return None

    def _left(self, request: FilesRequest, root: str) -> tuple[str, ...]:
        """Return the paths that the cell wrote in its folder and that no option fetches."""
        before, after = self._all_before, _all_files(root)
        if before is None or after is None:
            return ()
        globs = [Glob(text) for text in request.fetch]
        return tuple(
            path
            for path, status in sorted(after.items())
            if (path not in before or signature(before[path]) != signature(status))
            and not any(is_inside(path, each.path) for each in request.roots)
            and not any(glob.matches(path) for glob in globs)
        )

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[FolderRecord]:
        """Yield the record of the cell's folder; it is saved at the end.

        If it cannot be saved, unknown files count as changed on both sides, so that nothing is lost.
        """
        around, root = self._around, self._folder
        assert around is not None
        assert root is not None
        path = os.path.join(around.own, f"files-{os.path.basename(root)}.json")
        with locked(around):
            record = FolderRecord.load(path)
            try:
                yield record
            finally:
                with contextlib.suppress(OSError):
                    record.save(path)


def _flush(namespace: Mapping[str, Any]) -> None:
    """Flush the open files in `namespace`."""
    for value in list(namespace.values()):
        if isinstance(value, io.IOBase) and not value.closed:
            with contextlib.suppress(OSError, ValueError):
                value.flush()


def _files_and_folders(request: FilesRequest, root: str) -> tuple[Listing, frozenset[str]]:
    """Return the files that may be returned, and the folders in synced folders."""
    found: Listing = {}
    folders: list[str] = []
    for text in request.fetch:
        found |= matching(root, Glob(text))
    for each in request.roots:
        found |= list_files(root, each.path, each.excludes, folders=folders)
    return found, frozenset(folders)


def _all_files(root: str) -> Listing | None:
    """Return all files of a working folder; None if there are too many."""
    try:
        return list_files(root, ".", Excludes(), _NOTICED)
    except (OSError, TooManyFilesError):
        return None
