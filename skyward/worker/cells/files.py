"""The files of a cell on its node: written before the cell runs, inspected afterwards.

The node has copies, so a cell can write to them. The version that both sides had at the start is recorded beside the
working folder, in a record that the cells of all slots share.
"""

import contextlib
import errno
import fcntl
import io
import itertools
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward.errors import PayloadError
from skyward.files.disk import Content, Listing, TooManyFilesError, Versions, below, matching, read, signature, write
from skyward.files.patterns import Excludes, Glob, aside, is_inside, literal, parents
from skyward.files.plan import FilePlacement, bring, place, sync
from skyward.files.request import FetchedFile, FilesRequest, FilesResult, Packing, Span, pieces
from skyward.formatting import option_text, size_text
from skyward.process.clock import clock
from skyward.worker.machine.hardware import free_memory
from skyward.worker.tasks import folder as folders
from skyward.worker.tasks.folder import Directories

__all__ = ["CellFiles"]

_NOTICED = 2000
"""Most files in a working folder that is searched for files that a cell wrote and no option fetches."""

_RUNS = 64
"""Most recent cells that are recorded as having their files in place."""

_MEMORY_SHARE = 2
"""Returned files may take at most one part in so many of a node's free memory."""

_TICK = 100_000_000
"""Resolution of file times in nanoseconds: two changes within it may look the same."""


@dataclass(slots=True)
class _Record:
    """The known state of one working folder.

    Attributes:
        base: by path, the version that both sides had when the file was written to the node.
        runs: cells whose files are in place, latest last.
        versions: the last known versions of files, with the file status they belong to.
    """

    base: dict[str, bytes] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    versions: Versions = field(default_factory=Versions)

    @classmethod
    def load(cls, path: str) -> "_Record":
        """Read a record; an empty one if the file does not exist."""
        try:
            with open(path) as file:
                found = json.load(file)
        except FileNotFoundError:
            return cls()
        looks = {name: (tuple(look), bytes.fromhex(version)) for name, (look, version) in found["looks"].items()}
        base = {name: bytes.fromhex(version) for name, version in found["base"].items()}
        return cls(base, found["runs"], Versions(looks))

    def save(self, path: str) -> None:
        """Write the record to a file."""
        looks = {name: (look, version.hex()) for name, (look, version) in self.versions.known.items()}
        base = {name: version.hex() for name, version in self.base.items()}
        _save(path, {"base": base, "runs": self.runs[-_RUNS:], "looks": looks})


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
        with _placing(f"The working folder of the cell ({request.folder})", self._node):
            self._folder = request.folder if around.is_shared else _working_folder(around, request.folder)
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
            with _placing("A file", self._node), self._recorded() as record:
                is_first = self._run not in record.runs
                _Placement(request, root, record, self._node, self._notes).apply(is_first=is_first)
                if is_first:
                    record.runs.append(self._run)
        for name in request.folders:
            if not request.syncs_folder(name):
                with _placing(name, self._node), contextlib.suppress(FileExistsError, NotADirectoryError):
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
        gone = [path for path in self._before if path not in after and path in request.here and request.syncs(path)]
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

    def _chosen(self, request: FilesRequest, root: str, after: Listing, record: _Record) -> list[tuple[str, bool]]:
        """Choose the files to return, each with whether it may replace the notebook's file."""
        chosen = []
        for path, status in sorted(after.items()):
            version = record.versions.of(os.path.join(root, path), status)
            if version is None:
                self._notes.append(f"{path} on node {self._node} cannot be read, so it was not fetched.")
                continue
            if self._is_written(path, status, version):
                self._written.add(path)
            action = bring(
                request.here.get(path),
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
                f"with {_fetch(path)}."
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
    def _recorded(self) -> Iterator[_Record]:
        """Yield the record of the cell's folder; it is saved at the end.

        If it cannot be saved, unknown files count as changed on both sides, so that nothing is lost.
        """
        around, root = self._around, self._folder
        assert around is not None
        assert root is not None
        path = os.path.join(around.own, f"files-{os.path.basename(root)}.json")
        with _locked(around):
            record = _Record.load(path)
            try:
                yield record
            finally:
                with contextlib.suppress(OSError):
                    record.save(path)


class _Placement:
    """Writes the files of a cell to its folder. No file is overwritten or deleted without a note, unless a copy exists.

    Args:
        request: the files to write.
        root: the folder.
        record: the record of the folder.
        node: rank of the node.
        notes: collects a sentence for each file that was overwritten or renamed.
    """

    def __init__(self, request: FilesRequest, root: str, record: _Record, node: int, notes: list[str]) -> None:
        self._request = request
        self._root = root
        self._record = record
        self._node = node
        self._notes = notes
        self._spans = {span.path: span for span in request.sent}
        self._folders = frozenset(request.folders)

    def apply(self, *, is_first: bool) -> None:
        """Delete, then create folders, then write, so that a file may become a folder, and a folder a file.

        Args:
            is_first: True if no other part of this run of the cell has written the files to this node.

        Raises:
            PayloadError: a file or folder cannot be written.
        """
        request = self._request
        steps = self._steps(is_first=is_first)
        for path in (path for path, step in steps.items() if step == "remove"):
            with _placing(path, self._node):
                self._remove(path)
        for name in filter(request.syncs_folder, request.folders):
            with _placing(name, self._node):
                self._clear(name, is_synced=True, is_folder=True)
                os.makedirs(os.path.join(self._root, name), exist_ok=True)
        for path, span in sorted(self._spans.items()):
            if steps[path] != "keep":
                with _placing(path, self._node):
                    self._write(span, steps[path])
                self._record.base[path] = span.version

    def _steps(self, *, is_first: bool) -> dict[str, FilePlacement]:
        request, record = self._request, self._record
        with _placing(", ".join(each.path for each in request.roots), self._node):
            synced = {path for each in request.roots for path in below(self._root, each.path, each.excludes)}
        synced |= {path for path in self._spans if request.syncs(path)}
        steps: dict[str, FilePlacement] = {}
        for path in sorted(self._spans.keys() | synced):
            span = self._spans.get(path)
            here, base = None if span is None else span.version, record.base.get(path)
            taken = request.taken.get(path, ())
            with _placing(path, self._node):
                there = self._there(path)
            if here is not None and there == here:
                record.base[path] = here
            if path in synced:
                steps[path] = sync(here, there, base, taken, is_gone=path in request.gone)
            else:
                steps[path] = place(here, there, base, taken) if is_first else "keep"
        return steps

    def _write(self, span: Span, step: FilePlacement) -> None:
        path, is_synced = span.path, self._request.syncs(span.path)
        target = os.path.join(self._root, path)
        self._clear(path, is_synced=is_synced)
        if step == "replace":
            self._notes.append(
                f"{path} on node {self._node} had been changed by an earlier cell, and was overwritten with the "
                f"notebook's version. To keep such changes, fetch them with {_fetch(path)}, or use --sync."
            )
        elif step == "set aside":
            kept = self._set_aside(path)
            self._notes.append(f"{path} was changed here and on node {self._node}: the node's version is now {kept}.")
        write(target, pieces(span, self._request.blobs), span.modified, is_executable=span.is_executable)
        self._record.versions.note(target, span.version)

    def _remove(self, path: str) -> None:
        """Remove a file, and its parent folders that become empty and do not exist in the notebook's folder."""
        os.unlink(os.path.join(self._root, path))
        self._record.base.pop(path, None)
        for folder in parents(path):
            if folder in self._folders:
                break
            try:
                os.rmdir(os.path.join(self._root, folder))
            except OSError:  # not empty
                break

    def _clear(self, path: str, *, is_synced: bool, is_folder: bool = False) -> None:
        """Clear the path for a file or a folder: remove a folder in the place of the file, or the reverse.

        Files that were sent from the notebook, or have been fetched, are removed. Anything else is renamed.

        Raises:
            OSError: there is something else, and the path does not belong to a synced folder.
        """
        for each in (*reversed([*parents(path)]), path):
            target = os.path.join(self._root, each)
            wants_folder = is_folder or each != path
            if not os.path.lexists(target) or (os.path.isdir if wants_folder else os.path.isfile)(target):
                continue
            self._discard(each)
            if not os.path.lexists(target):
                continue
            if not is_synced:
                text = f"{each} is not a folder there" if wants_folder else "it is not a file there"
                raise NotADirectoryError(errno.ENOTDIR, text, target)
            kept = self._set_aside(each)
            one, other = ("folder", "file") if wants_folder else ("file", "folder")
            self._notes.append(f"{each} is a {one} here and a {other} on node {self._node}: the {other} is now {kept}.")

    def _discard(self, path: str) -> None:
        """Remove the files at a path that the notebook has sent or fetched, and folders that become empty."""
        target = os.path.join(self._root, path)
        is_folder = os.path.isdir(target) and not os.path.islink(target)
        for each in [*below(self._root, path, Excludes(()))] if is_folder else [path]:
            known = (self._record.base.get(each), *self._request.taken.get(each, ()))
            if (there := self._there(each)) is not None and there in known:
                os.unlink(os.path.join(self._root, each))
                self._record.base.pop(each, None)
        for folder, _, _ in os.walk(target, topdown=False) if is_folder else ():
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)

    def _set_aside(self, path: str) -> str:
        """Rename a path to a name that is free on both sides, and return that name."""
        taken = self._spans.keys() | self._folders | self._request.here.keys()
        kept = next(
            name
            for name in (aside(path, f"node{self._node}", number) for number in itertools.count(1))
            if name not in taken and not os.path.lexists(os.path.join(self._root, name))
        )
        os.rename(os.path.join(self._root, path), os.path.join(self._root, kept))
        return kept

    def _there(self, path: str) -> bytes | None:
        """Return the version of a file on the node; None if there is no file.

        Raises:
            OSError: the file cannot be read.
        """
        target = os.path.join(self._root, path)
        try:
            status = os.stat(target)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        version = self._record.versions.of(target, status)
        if version is None:
            raise PermissionError(errno.EACCES, "it cannot be read there", target)
        return version


@contextlib.contextmanager
def _placing(path: str, node: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise PayloadError(f"{path} cannot be put in place on node {node}: {why}.") from None


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
        found |= below(root, each.path, each.excludes, folders=folders)
    return found, frozenset(folders)


def _all_files(root: str) -> Listing | None:
    """Return all files of a working folder; None if there are too many."""
    try:
        return below(root, ".", Excludes(), _NOTICED)
    except (OSError, TooManyFilesError):
        return None


def _fetch(path: str) -> str:
    """Return the option that fetches one file."""
    return option_text("--fetch", literal(path))


def _working_folder(around: Directories, notebook: str) -> str:
    """Return the folder on this node for a folder of the notebook; for the first one, the node's own directory."""
    path = os.path.join(around.own, "folders.json")
    with _locked(around):
        try:
            with open(path) as file:
                known: dict[str, str] = json.load(file)
        except FileNotFoundError:
            known = {}
        if notebook not in known:
            name = os.path.join(around.own, f"work-{len(known) + 1}") if known else around.directory
            os.makedirs(name, exist_ok=True)
            known[notebook] = name
            _save(path, known)
    return known[notebook]


@contextlib.contextmanager
def _locked(around: Directories) -> Iterator[None]:
    """Lock the records against the other slots of the node."""
    with open(os.path.join(around.own, "files.lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _save(path: str, value: object) -> None:
    write(path, [json.dumps(value).encode()], clock.time_ns(), is_executable=False)
