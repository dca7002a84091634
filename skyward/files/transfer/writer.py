"""Returned files: their destinations, and the report to the user.

Files from a node are checked against the request, and nothing is written outside the notebook's folder.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from skyward.files.disk import Versions, write
from skyward.files.patterns import is_inside, is_relative, parents, version_name
from skyward.files.plan import FileVersions, decide_landing, version_names
from skyward.files.request import FetchedFile, FilesRequest, FilesResult, pieces
from skyward.formatting import joined, nodes_text, size_text

__all__ = ["FileWriter", "Shape"]

type Shape = Literal["single", "all", "map"]
"""Runs of a cell or a script: one, one on each of several nodes, or one for each element of an iterable."""

_NAMED = 5
"""Most files named in one sentence."""


class _Note(Protocol):
    def __call__(self, path: str, version: bytes, *, is_here: bool) -> None: ...


class FileWriter:
    """Writer of the returned files of one cell to the notebook's folder.

    Args:
        request: the request of the cell.
        versions: the known versions of local files.
        note: called for each version: the absolute path, the version, and whether a file exists there now.
        copies: by absolute path, versions of several runs that were written here under labelled names.

    Attributes:
        problems: sentences on problems and on anything that differs from the request.
        outcomes: sentences on files that were written or left behind.
    """

    def __init__(self, request: FilesRequest, versions: Versions, note: _Note, copies: dict[str, bytes]) -> None:
        self._request = request
        self._folder = request.folder
        self._versions = versions
        self._note = note
        self._copies = copies
        self._written: list[str] = []
        self._replaced: list[str] = []
        self._nbytes = 0
        self.problems: list[str] = []
        self.outcomes: list[str] = []

    def write(self, results: "Sequence[tuple[int, FilesResult | None]]", shape: Shape) -> None:
        """Write the files of all runs: for each run, the rank of its node, and its files if there are any.

        Deletions come first, so that a file may become a folder, and a folder a file.
        """
        labels = [str(run) if shape == "map" else f"node{node}" for run, (node, _) in enumerate(results)]
        for _, result in results:
            if result is not None:
                self.problems += (note for note in result.notes if note not in self.problems)
        runs = {run: (node, result) for run, (node, result) in enumerate(results) if result and not result.is_shared}
        self._delete([result for _, result in runs.values()])
        for path, found in self._by_path(runs).items():
            names = version_names(path, [each for each, _ in found], labels)
            for each, fetched in found:
                if (name := names.get(each.run)) == path:
                    self._write_file(fetched, runs[each.run])
                elif name is not None:
                    self._write_copy(fetched, runs[each.run], name, labels[each.run])
        self._make_folders([result for _, result in runs.values()])
        self._report(runs.values())

    def _by_path(self, runs: "Mapping[int, _Source]") -> dict[str, list[tuple[FileVersions, FetchedFile]]]:
        found: dict[str, list[tuple[FileVersions, FetchedFile]]] = {}
        for run, (node, result) in runs.items():
            for fetched in result.files:
                path = fetched.span.path
                if not (is_relative(path) and self._request.allows(path)):
                    self.problems.append(f"Node {node} sent {path!r}, which was not requested: it was not written.")
                    continue
                one = FileVersions(
                    run,
                    node,
                    result.began,
                    result.ended,
                    fetched.span.version,
                    fetched.is_written,
                    self._request.syncs(path),
                )
                found.setdefault(path, []).append((one, fetched))
        return found

    def _write_file(self, fetched: FetchedFile, source: "_Source") -> None:
        """Write one file under its own name, or another one if the local version must not be replaced."""
        node, result = source
        span, path = fetched.span, fetched.span.path
        label = f"node{node}"
        with self._reporting(path, node):
            where = self._place(path)
            if (file := self._file_above(path)) is not None:
                other = self._free(path, label, span.version, above=file)
                self.problems.append(
                    f"{file} is a file here, and a folder on node {node}: {path} was written as {other}."
                )
                self._write(other, fetched, result)
                self._note(where, span.version, is_here=True)  # moved here, so the node's file is to be removed
                return
            sent, now = self._request.client_versions.get(path), self._version(where)
            step = (
                "set aside"
                if now is _OTHER
                else decide_landing(now, sent, span.version, may_replace=fetched.may_replace)
            )
            if step == "set aside":
                why = "was changed here meanwhile" if now != sent else "here differs from what was written before"
                other = self._free(path, label, span.version)
                what = "is not a regular file here" if now is _OTHER else why
                self.problems.append(f"{path} {what}: the version of node {node} is in {other}.")
                self._write(other, fetched, result)
            elif step == "write":
                self._write(path, fetched, result)
                if now is None and sent is not None:
                    self.outcomes.append(
                        f"{path} was deleted here meanwhile, but changed on its node: it was written again."
                    )
            self._note(where, span.version, is_here=True)

    def _write_copy(self, fetched: FetchedFile, source: "_Source", name: str, label: str) -> None:
        """Write one of several versions under a labelled name, which may replace only an earlier such version."""
        node, result = source
        span = fetched.span
        with self._reporting(name, node):
            where, is_synced = self._place(name), self._request.syncs(span.path)
            now, file = self._version(where), self._file_above(name)
            is_outdated = now is not None and now == self._copies.get(where) and not is_synced
            if file is not None or (now not in (None, span.version) and not is_outdated):
                other = self._free(span.path, f"node{node}" if is_synced else label, span.version, above=file)
                taken = f"{name} already exists here" if file is None else f"{file} is a file here"
                self.problems.append(f"{taken}: the version of node {node} is in {other}.")
                name, where = other, self._place(other)
            self._write(name, fetched, result)
            self._copies[where] = span.version
            self._note(os.path.join(self._folder, span.path), span.version, is_here=False)

    @contextlib.contextmanager
    def _reporting(self, name: str, node: int) -> Iterator[None]:
        """Turn an error while writing a file into a problem for the report."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.problems.append(f"{name} of node {node} could not be written here: {reason}.")

    def _write(self, name: str, fetched: FetchedFile, result: FilesResult) -> None:
        """Write a file, unless this version exists."""
        span, where = fetched.span, self._place(name)
        if (old := self._version(where)) == span.version:
            return
        write(where, pieces(span, result.blobs), span.modified, is_executable=span.is_executable)
        self._versions.note(where, span.version)
        self._written.append(os.path.relpath(where, self._folder))
        self._nbytes += span.size
        if old is not None:
            self._replaced.append(name)

    def _free(self, path: str, label: str, version: bytes, above: str | None = None) -> str:
        """Return a name for a version that must not replace the local one: a free name, or one with this version.

        Args:
            above: the part of the path that gets the label, if a file is in the place of a folder; None for the last.
        """
        for number in itertools.count(1):
            name = version_name(above or path, label, number) + path.removeprefix(above or path)
            if self._file_above(name) is None and self._version(self._place(name)) in (None, version):
                break
        return name

    def _file_above(self, path: str) -> str | None:
        """Return the parent of `path` that exists and is not a folder; None if there is none."""
        for folder in parents(path):
            where = os.path.join(self._folder, folder)
            if os.path.lexists(where):
                return None if os.path.isdir(where) else folder
        return None

    def _place(self, name: str) -> str:
        """Return the local path for a file.

        Raises:
            ValueError: the path is outside the notebook's folder.
        """
        where = os.path.join(self._folder, name)
        home = os.path.realpath(self._folder)
        real = os.path.realpath(os.path.dirname(where))
        if real != home and not is_inside(real, home.rstrip("/")):
            raise ValueError(f"{os.path.dirname(name)} leads out of the notebook's folder, to {real}")
        return where

    def _version(self, path: str) -> bytes | None:
        """Return the version of a local file; `_OTHER` for anything but a regular file, None if nothing exists."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return _OTHER
        return self._versions.of(path, status) or _OTHER

    def _delete(self, results: Sequence[FilesResult]) -> None:
        """Delete the files and folders that the cell has deleted in synced folders."""
        kept = {fetched.span.path for result in results for fetched in result.files}
        gone = []
        for path in dict.fromkeys(path for result in results for path in result.deleted):
            if path in kept or not (is_relative(path) and self._request.syncs(path)):
                continue
            try:
                where = self._place(path)
                now = self._version(where)
                if now is None:
                    continue
                if now == self._request.client_versions.get(path):
                    os.unlink(where)
                    gone.append(path)
                else:
                    self.problems.append(f"{path} was deleted on its node, but changed here meanwhile: it was kept.")
            except (OSError, ValueError) as error:
                self.problems.append(f"{path} was deleted on its node, but could not be deleted here: {error}.")
        for path in sorted({path for result in results for path in result.removed}, reverse=True):
            if is_relative(path) and self._request.syncs_folder(path):
                with contextlib.suppress(OSError, ValueError):  # not empty: the cell has not deleted all of it
                    os.rmdir(self._place(path))
                    gone += [] if any(is_inside(each, path) for each in gone) else [f"{path}/"]
        if gone:
            self.outcomes.append(f"Deleted here, as on the node: {joined(gone, _NAMED)}.")

    def _make_folders(self, results: Sequence[FilesResult]) -> None:
        """Create the empty folders that the cell has created in synced folders."""
        made = []
        for path in sorted({path for result in results for path in result.made}):
            if not (is_relative(path) and self._request.syncs_folder(path)):
                continue
            try:
                where = self._place(path)
                if not os.path.isdir(where):
                    os.makedirs(where)
                    made.append(f"{path}/")
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or error
                self.problems.append(
                    f"The folder {path}, which was created on the node, could not be created here: {reason}."
                )
        if made:
            self.outcomes.append(f"Created here, as on the node: {joined(made, _NAMED)}.")

    def _report(self, ours: "Collection[_Source]") -> None:
        if self._written:
            replaced = f" Replaced here: {joined(self._replaced, _NAMED)}." if self._replaced else ""
            self.outcomes.append(f"Fetched {joined(self._written, _NAMED)} ({size_text(self._nbytes)}).{replaced}")
        nodes = sorted({node for node, _ in ours})
        if not nodes:
            return
        where = nodes_text(nodes)
        for text in self._request.fetch:
            if all(text in result.unmatched for _, result in ours):
                self.problems.append(f"--fetch {text}: there is no such file on {where}.")
        left = sorted({path for _, result in ours for path in result.left})
        if left:
            keepers = nodes_text(sorted({node for node, result in ours if result.left}))
            named = joined(left, _NAMED)
            self.outcomes.append(
                f"Left on {keepers}, and lost when the pool closes: {named}. Fetch such files with --fetch."
            )


type _Source = tuple[int, FilesResult]
"""Rank of a node, and the files of a run on it."""

_OTHER = b"other"
"""Version of anything but a regular file, which must not be overwritten."""
