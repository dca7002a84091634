"""The files of a cell, written to its folder on a node before it runs."""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator

from skyward.errors import PayloadError
from skyward.files.disk import list_files, write
from skyward.files.patterns import Excludes, literal, parents, version_name
from skyward.files.plan import FilePlacement, decide_placement, decide_sync
from skyward.files.request import FileSpan, FilesRequest, pieces
from skyward.formatting import option_text
from skyward.worker.cells.file_record import FolderRecord

__all__ = ["Placement", "fetch_option", "reporting_errors"]


class Placement:
    """Writes the files of a cell to its folder. No file is overwritten or deleted without a note, unless a copy exists.

    Args:
        request: the files to write.
        root: the folder.
        record: the record of the folder.
        node: rank of the node.
        notes: collects a sentence for each file that was overwritten or renamed.
    """

    def __init__(self, request: FilesRequest, root: str, record: FolderRecord, node: int, notes: list[str]) -> None:
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
            with reporting_errors(path, self._node):
                self._remove(path)
        for name in filter(request.syncs_folder, request.folders):
            with reporting_errors(name, self._node):
                self._clear(name, is_synced=True, is_folder=True)
                os.makedirs(os.path.join(self._root, name), exist_ok=True)
        for path, span in sorted(self._spans.items()):
            if steps[path] != "keep":
                with reporting_errors(path, self._node):
                    self._write(span, steps[path])
                self._record.base[path] = span.version

    def _steps(self, *, is_first: bool) -> dict[str, FilePlacement]:
        request, record = self._request, self._record
        with reporting_errors(", ".join(each.path for each in request.roots), self._node):
            synced = {path for each in request.roots for path in list_files(self._root, each.path, each.excludes)}
        synced |= {path for path in self._spans if request.syncs(path)}
        steps: dict[str, FilePlacement] = {}
        for path in sorted(self._spans.keys() | synced):
            span = self._spans.get(path)
            here, base = None if span is None else span.version, record.base.get(path)
            taken = request.taken.get(path, ())
            with reporting_errors(path, self._node):
                there = self._there(path)
            if here is not None and there == here:
                record.base[path] = here
            if path in synced:
                steps[path] = decide_sync(here, there, base, taken, is_gone=path in request.gone)
            else:
                steps[path] = decide_placement(here, there, base, taken) if is_first else "keep"
        return steps

    def _write(self, span: FileSpan, step: FilePlacement) -> None:
        path, is_synced = span.path, self._request.syncs(span.path)
        target = os.path.join(self._root, path)
        self._clear(path, is_synced=is_synced)
        if step == "replace":
            self._notes.append(
                f"{path} on node {self._node} had been changed there before, and was overwritten with "
                f"the version from here. To keep such changes, fetch them with {fetch_option(path)}, or use --sync."
            )
        elif step == "set aside":
            kept = self._set_aside(path)
            self._notes.append(
                f"{path} was changed here and on node {self._node}; the node's version was renamed to {kept}."
            )
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
            self._notes.append(
                f"{each} is a {one} here and a {other} on node {self._node}; the {other} was renamed to {kept}."
            )

    def _discard(self, path: str) -> None:
        """Remove the files at a path that the notebook has sent or fetched, and folders that become empty."""
        target = os.path.join(self._root, path)
        is_folder = os.path.isdir(target) and not os.path.islink(target)
        for each in [*list_files(self._root, path, Excludes(()))] if is_folder else [path]:
            known = (self._record.base.get(each), *self._request.taken.get(each, ()))
            if (there := self._there(each)) is not None and there in known:
                os.unlink(os.path.join(self._root, each))
                self._record.base.pop(each, None)
        for folder, _, _ in os.walk(target, topdown=False) if is_folder else ():
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)

    def _set_aside(self, path: str) -> str:
        """Rename a path to a name that is free on both sides, and return that name."""
        taken = self._spans.keys() | self._folders | self._request.client_versions.keys()
        kept = next(
            name
            for name in (version_name(path, f"node{self._node}", number) for number in itertools.count(1))
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
def reporting_errors(path: str, node: int) -> Iterator[None]:
    """Raise a `PayloadError` that names the path for an error of the file system in the block."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise PayloadError(f"{path} cannot be put in place on node {node}: {why}.") from None


def fetch_option(path: str) -> str:
    """Return the option that fetches one file."""
    return option_text("--fetch", literal(path))
