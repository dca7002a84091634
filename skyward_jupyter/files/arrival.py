"""Files that come home: where each goes, and what is told of it.

What a node sends is checked against what was asked for, and nothing is written outside of the notebook's folder.
"""

import itertools
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from skyward.files.disk import Versions, write
from skyward.files.patterns import aside, is_inside, is_relative
from skyward.files.plan import Found, land, spread
from skyward.files.request import Brought, FilesRequest, FilesResult, pieces
from skyward.words import nodes_text, size_text

if TYPE_CHECKING:
    from skyward_jupyter.sent import Shape

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

    Attributes:
        problems: a sentence each on what is not as it was asked for.
        told: the same on what has come, and what has not.
    """

    def __init__(self, request: FilesRequest, versions: Versions, note: _Note) -> None:
        self._request = request
        self._folder = request.folder
        self._versions = versions
        self._note = note
        self._came: list[str] = []
        self._replaced: list[str] = []
        self._nbytes = 0
        self.problems: list[str] = []
        self.told: list[str] = []

    def take(self, came: "Sequence[tuple[int, FilesResult | None]]", shape: "Shape") -> None:
        """Put in place what has come: for each run the rank of its node, and what it left, if that came."""
        labels = [str(run) if shape == "map" else f"node{node}" for run, (node, _) in enumerate(came)]
        for _, result in came:
            if result is not None:
                self.problems += (note for note in result.notes if note not in self.problems)
        runs = {run: (node, result) for run, (node, result) in enumerate(came) if result and not result.is_shared}
        for path, found in self._by_path(runs).items():
            names = spread(path, [each for each, _ in found], labels)
            for each, brought in found:
                if each.run in names:
                    self._land(brought, runs[each.run], names[each.run])
        self._delete([result for _, result in runs.values()])
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

    def _land(self, brought: Brought, source: "_Source", name: str) -> None:
        """Write one file, under its name or another one."""
        node, result = source
        span = brought.span
        try:
            where = self._place(name)
            then = self._request.here.get(name)
            now = self._version(where)
            may_replace = brought.may_replace if name == span.path else brought.is_written
            step = "set aside" if now is _OTHER else land(now, then, span.version, may_replace=may_replace)
            if step == "set aside":
                why = "was changed here while the cell ran" if now != then else "here is not what an earlier cell wrote"
                where = self._aside(name, node, span.version, "is no file here" if now is _OTHER else why)
            if step != "same" and (old := self._version(where)) != span.version:
                write(where, pieces(span, result.blobs), span.modified, is_executable=span.is_executable)
                self._versions.note(where, span.version)
                self._came.append(os.path.relpath(where, self._folder))
                self._nbytes += span.size
                if old is not None:
                    self._replaced.append(name)
                if step == "write" and now is None and then is not None:
                    self.told.append(f"{name} was deleted here while the cell ran, which changed it: it is here again.")
            self._note(os.path.join(self._folder, span.path), span.version, is_here=name == span.path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.problems.append(f"{name} of node {node} could not be written here: {reason}.")

    def _aside(self, name: str, node: int, version: bytes, why: str) -> str:
        """A name for a version that may not take the place of the one that is here, which is told."""
        number = itertools.count(1)
        while True:
            other = aside(name, f"node{node}", next(number))
            where = self._place(other)
            if self._version(where) in (None, version):
                break
        self.problems.append(f"{name} {why}: the version of node {node} is in {other}.")
        return where

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
        if gone:
            self.told.append(f"Deleted here, as the cell did: {_names(gone)}.")

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
    shown = [*paths[:_NAMED], *([f"{len(paths) - _NAMED} more"] if len(paths) > _NAMED else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
