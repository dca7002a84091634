"""Files that come home: where each goes, and what is told of it.

What a node sends is checked against what was asked for, and nothing is written outside of the notebook's folder.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from skyward.files.disk import Versions, write
from skyward.files.patterns import aside, is_inside, is_relative, parents
from skyward.files.plan import Found, land, spread
from skyward.files.request import Brought, FilesRequest, FilesResult, pieces
from skyward.formatting import joined, nodes_text, size_text

if TYPE_CHECKING:
    from skyward_jupyter.cells.cell import Shape

__all__ = ["Arrival"]

_NAMED = 5
"""Files that one sentence names."""


class _Note(Protocol):
    def __call__(self, path: str, version: bytes, *, is_here: bool) -> None: ...


class Arrival:
    """Puts the files of the runs of one cell into the notebook's folder.

    Args:
        request: what went along.
        versions: of the files here.
        note: is told of each version that has come: the absolute path, the version, and whether a file is there now.
        copies: by absolute path, the versions that cells of several runs have left here under names with their labels.

    Attributes:
        problems: a sentence each on what is not as it was asked for.
        told: the same on what has come, and what has not.
    """

    def __init__(self, request: FilesRequest, versions: Versions, note: _Note, copies: dict[str, bytes]) -> None:
        self._request = request
        self._folder = request.folder
        self._versions = versions
        self._note = note
        self._copies = copies
        self._came: list[str] = []
        self._replaced: list[str] = []
        self._nbytes = 0
        self.problems: list[str] = []
        self.told: list[str] = []

    def take(self, came: "Sequence[tuple[int, FilesResult | None]]", shape: "Shape") -> None:
        """Put in place what has come: for each run the rank of its node, and what it left, if that came.

        Deletions come first, so that a file may become a folder, and a folder a file.
        """
        labels = [str(run) if shape == "map" else f"node{node}" for run, (node, _) in enumerate(came)]
        for _, result in came:
            if result is not None:
                self.problems += (note for note in result.notes if note not in self.problems)
        runs = {run: (node, result) for run, (node, result) in enumerate(came) if result and not result.is_shared}
        self._delete([result for _, result in runs.values()])
        for path, found in self._by_path(runs).items():
            names = spread(path, [each for each, _ in found], labels)
            for each, brought in found:
                if (name := names.get(each.run)) == path:
                    self._land(brought, runs[each.run])
                elif name is not None:
                    self._land_copy(brought, runs[each.run], name, labels[each.run])
        self._make_folders([result for _, result in runs.values()])
        self._tell(runs.values())

    def _by_path(self, runs: "Mapping[int, _Source]") -> dict[str, list[tuple[Found, Brought]]]:
        found: dict[str, list[tuple[Found, Brought]]] = {}
        for run, (node, result) in runs.items():
            for brought in result.files:
                path = brought.span.path
                if not (is_relative(path) and self._request.allows(path)):
                    self.problems.append(f"Node {node} sent {path!r}, which was not asked for: it was not written.")
                    continue
                one = Found(
                    run,
                    node,
                    result.began,
                    result.ended,
                    brought.span.version,
                    brought.is_written,
                    self._request.syncs(path),
                )
                found.setdefault(path, []).append((one, brought))
        return found

    def _land(self, brought: Brought, source: "_Source") -> None:
        """Write one file under its own name, or another one where the version here may not be replaced."""
        node, result = source
        span, path = brought.span, brought.span.path
        label = f"node{node}"
        with self._told(path, node):
            where = self._place(path)
            if (file := self._file_above(path)) is not None:
                other = self._free(path, label, span.version, above=file)
                self.problems.append(f"{file} is a file here, and a folder on node {node}: {path} is here as {other}.")
                self._write(other, brought, result)
                self._note(where, span.version, is_here=True)  # it has moved: what is on the node goes
                return
            then, now = self._request.here.get(path), self._version(where)
            step = "set aside" if now is _OTHER else land(now, then, span.version, may_replace=brought.may_replace)
            if step == "set aside":
                why = "was changed here while the cell ran" if now != then else "here is not what an earlier cell wrote"
                other = self._free(path, label, span.version)
                what = "is no file here" if now is _OTHER else why
                self.problems.append(f"{path} {what}: the version of node {node} is in {other}.")
                self._write(other, brought, result)
            elif step == "write":
                self._write(path, brought, result)
                if now is None and then is not None:
                    self.told.append(f"{path} was deleted here while the cell ran, which changed it: it is here again.")
            self._note(where, span.version, is_here=True)

    def _land_copy(self, brought: Brought, source: "_Source", name: str, label: str) -> None:
        """Write one of several versions of a file under a name of its own: over nothing but such a version."""
        node, result = source
        span = brought.span
        with self._told(name, node):
            where, is_synced = self._place(name), self._request.syncs(span.path)
            now, file = self._version(where), self._file_above(name)
            is_outdated = now is not None and now == self._copies.get(where) and not is_synced
            if file is not None or (now not in (None, span.version) and not is_outdated):
                other = self._free(span.path, f"node{node}" if is_synced else label, span.version, above=file)
                taken = f"{name} is here already, and stays" if file is None else f"{file} is a file here"
                self.problems.append(f"{taken}: the version of node {node} is in {other}.")
                name, where = other, self._place(other)
            self._write(name, brought, result)
            self._copies[where] = span.version
            self._note(os.path.join(self._folder, span.path), span.version, is_here=False)

    @contextlib.contextmanager
    def _told(self, name: str, node: int) -> Iterator[None]:
        """A context in which an error of writing a file is told."""
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.problems.append(f"{name} of node {node} could not be written here: {reason}.")

    def _write(self, name: str, brought: Brought, result: FilesResult) -> None:
        """Write a file, unless it is here."""
        span, where = brought.span, self._place(name)
        if (old := self._version(where)) == span.version:
            return
        write(where, pieces(span, result.blobs), span.modified, is_executable=span.is_executable)
        self._versions.note(where, span.version)
        self._came.append(os.path.relpath(where, self._folder))
        self._nbytes += span.size
        if old is not None:
            self._replaced.append(name)

    def _free(self, path: str, label: str, version: bytes, above: str | None = None) -> str:
        """A name for a version that may not take the place of the one here: one that nothing has, or this version.

        Args:
            above: what gets the label: a file in the place of a folder that the other is in; None for itself.
        """
        for number in itertools.count(1):
            name = aside(above or path, label, number) + path.removeprefix(above or path)
            if self._file_above(name) is None and self._version(self._place(name)) in (None, version):
                break
        return name

    def _file_above(self, path: str) -> str | None:
        """What is no folder here, in the place of one that `path` is in; None for nothing."""
        for folder in parents(path):
            where = os.path.join(self._folder, folder)
            if os.path.lexists(where):
                return None if os.path.isdir(where) else folder
        return None

    def _place(self, name: str) -> str:
        """Where a file goes here.

        Raises:
            ValueError: that is outside of the notebook's folder.
        """
        where = os.path.join(self._folder, name)
        home = os.path.realpath(self._folder)
        real = os.path.realpath(os.path.dirname(where))
        if real != home and not is_inside(real, home.rstrip("/")):
            raise ValueError(f"{os.path.dirname(name)} leads out of the notebook's folder, to {real}")
        return where

    def _version(self, path: str) -> bytes | None:
        """The version of what is here; `_OTHER` for what is no file of its own, and None for nothing."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return _OTHER
        return self._versions.of(path, status) or _OTHER

    def _delete(self, results: Sequence[FilesResult]) -> None:
        """Delete what the cell has deleted of folders that are the same on both sides."""
        kept = {brought.span.path for result in results for brought in result.files}
        gone = []
        for path in dict.fromkeys(path for result in results for path in result.deleted):
            if path in kept or not (is_relative(path) and self._request.syncs(path)):
                continue
            try:
                where = self._place(path)
                now = self._version(where)
                if now is None:
                    continue
                if now == self._request.here.get(path):
                    os.unlink(where)
                    gone.append(path)
                else:
                    self.problems.append(f"{path} was deleted by the cell, and changed here meanwhile: it stays.")
            except (OSError, ValueError) as error:
                self.problems.append(f"{path} was deleted by the cell, and could not be deleted here: {error}.")
        for path in sorted({path for result in results for path in result.removed}, reverse=True):
            if is_relative(path) and self._request.syncs_folder(path):
                with contextlib.suppress(OSError, ValueError):  # there is something in it that the cell did not delete
                    os.rmdir(self._place(path))
                    gone += [] if any(is_inside(each, path) for each in gone) else [f"{path}/"]
        if gone:
            self.told.append(f"Deleted here, as the cell did: {_names(gone)}.")

    def _make_folders(self, results: Sequence[FilesResult]) -> None:
        """Make the folders without files that the cell has made in folders that are the same on both sides."""
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
                self.problems.append(f"The folder {path}, which the cell made, could not be made here: {reason}.")
        if made:
            self.told.append(f"Made here, as the cell did: {_names(made)}.")

    def _tell(self, ours: "Collection[_Source]") -> None:
        if self._came:
            replaced = f" Replaced here: {_names(self._replaced)}." if self._replaced else ""
            self.told.append(f"Fetched {_names(self._came)} ({size_text(self._nbytes)}).{replaced}")
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
            self.told.append(
                f"Left on {keepers}, and lost when the pool closes: {_names(left)}. Bring such files home with --fetch."
            )


type _Source = tuple[int, FilesResult]
"""What a run left, after the rank of its node."""

_OTHER = b"other"
"""The version of what is there and is no file that may be written over."""


def _names(paths: Sequence[str]) -> str:
    return joined([*paths[:_NAMED], *([f"{len(paths) - _NAMED} more"] if len(paths) > _NAMED else [])])
