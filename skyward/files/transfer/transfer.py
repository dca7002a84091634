"""The files of one cell: those sent with its request, and those returned with its results."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from skyward.errors import UsageError
from skyward.files.disk import Content, Versions, list_files, read
from skyward.files.patterns import Glob, is_pattern
from skyward.files.request import SMALL, FilesRequest, FilesResult, Packing
from skyward.files.transfer.choice import FileChoice, FileOptions, choose, sizes
from skyward.files.transfer.missing import missing_note
from skyward.files.transfer.writer import FileWriter, Shape
from skyward.wire.payloads.digest import remember_address
from skyward.wire.protocol.text import encodable

__all__ = ["FetchedVersions", "FileTransfer", "RunWithFiles"]


class RunWithFiles(Protocol):
    """The end of a run of a cell, or of a script, with its files."""

    @property
    def node(self) -> int:
        """Rank of its node."""

    @property
    def files(self) -> FilesResult | None:
        """Its files; None if it had none."""

    @property
    def failure(self) -> object:
        """The exception that ended it; None for none."""


_KEPT = 16
"""Most versions remembered of one file; the latest ones."""


class FetchedVersions:
    """The file versions fetched from nodes in the life of one kernel. Paths are absolute.

    Attributes:
        versions: the known versions of local files.
        copies: versions of several runs that were written here under labelled names.
    """

    def __init__(self) -> None:
        self.versions = Versions()
        self.copies: dict[str, bytes] = {}
        self._fetched: dict[str, tuple[bytes, ...]] = {}
        self._had: set[str] = set()

    def note(self, path: str, version: bytes, *, is_here: bool) -> None:
        """Record the arrival of a version; `is_here` if the file now exists under its own name."""
        known = [each for each in self._fetched.get(path, ()) if each != version]
        self._fetched[path] = (*known[1 - _KEPT :], version)
        if is_here:
            self._had.add(path)

    def note_sent(self, paths: Iterable[str]) -> None:
        """Record files that existed here and were sent."""
        self._had.update(paths)

    def within(self, folder: str) -> dict[str, tuple[bytes, ...]]:
        """Return the fetched versions, by paths relative to `folder`."""
        start = f"{folder.rstrip('/')}/"
        return {path.removeprefix(start): found for path, found in self._fetched.items() if path.startswith(start)}

    def gone(self, folder: str) -> frozenset[str]:
        """Return the files that were sent or fetched and no longer exist, relative to `folder`."""
        start = f"{folder.rstrip('/')}/"
        inside = [path for path in self._had if path.startswith(start)]
        return frozenset(path.removeprefix(start) for path in inside if not os.path.lexists(path))


@dataclass
class FileTransfer:
    """The files of one cell.

    Attributes:
        asked: the options of its line.
        folder: the notebook's folder.
        fetched: file versions fetched before.
        shape: the runs of the cell.
        notify: shows a sentence to the user.
        quiet: True to report problems only.
    """

    asked: FileOptions
    folder: str
    fetched: FetchedVersions
    shape: Shape
    notify: Callable[[str], None]
    quiet: bool = False
    choice: FileChoice = field(init=False)
    _request: FilesRequest = field(init=False)
    _results: Sequence[RunWithFiles] = ()

    def __post_init__(self) -> None:
        """Choose the files.

        Raises:
            UsageError, TooLargeError: see `choose`.
        """
        self.choice = choice = choose(self.asked, self.folder)
        self._request = FilesRequest(
            self.folder,
            roots=choice.roots,
            fetch=choice.fetch,
            limit=choice.limit,
            only_written=self.shape == "map",
        )

    @property
    def is_asked(self) -> bool:
        """True if the cell has options for files."""
        return bool(self.asked.files or self.asked.sync or self.asked.fetch)

    @property
    def described(self) -> str:
        """The files to send, in words; empty for none."""
        return sizes(self.choice.sent)

    def request(self, *, shared: bool) -> FilesRequest:
        """Return the request with the current contents of the files; without any if nodes share the notebook's disk.

        Raises:
            UsageError, TooLargeError: a file cannot be read; see also `choose`.
        """
        if not self.is_asked:
            return self._request
        if shared:
            return replace(self._request, roots=(), fetch=())
        self.choice = choice = choose(self.asked, self.folder)  # choose again: opening a pool may take long
        packing, spans = Packing(), []
        large: list[tuple[bytes, bytes]] = []
        here = self._versions({path: each for path, each in choice.matching.items() if each.st_size <= choice.limit})
        for path, status in choice.sent.items():
            content = self._read(path)
            spans.append(packing.add(path, content, status.st_mtime_ns))
            here[path] = content.version
            if content.size > SMALL:
                large += zip(content.chunks, content.addresses, strict=True)
        concerned = {path: found for path, found in self.fetched.within(self.folder).items() if self._concerns(path)}
        self._request = replace(
            self._request,
            sent=tuple(spans),
            client_versions=here,
            taken=concerned,
            gone=frozenset(path for path in self.fetched.gone(self.folder) if self._request.syncs(path)),
            folders=self._folders(),
        )
        self.fetched.note_sent(os.path.join(self.folder, path) for path in choice.sent)
        request = replace(self._request, blobs=packing.blobs())  # not stored: a handle may live long
        for chunk, address in large:
            remember_address(chunk, address, request)
        return request

    def _concerns(self, path: str) -> bool:
        return path in self.choice.sent or self._request.allows(path)

    def _versions(self, listing: Mapping[str, os.stat_result]) -> dict[str, bytes]:
        found = {}
        for path, status in listing.items():
            version = self.fetched.versions.of(os.path.join(self.folder, path), status)
            if version is not None:
                found[path] = version
        return found

    def _read(self, path: str) -> Content:
        try:
            content = read(os.path.join(self.folder, path))
        except OSError as error:
            raise UsageError(f"{path} cannot be sent: {error.strerror}.") from None
        if content.changed:
            raise UsageError(
                f"{path} is being written to: send it when it is finished, or leave it out (with --sync, use "
                "--exclude)."
            )
        return content

    def _folders(self) -> tuple[str, ...]:
        """Return the folders to create for the cell: synced ones, and existing ones that it will write to."""
        choice = self.choice
        found = [root.path for root in choice.roots]
        for root in choice.roots:
            list_files(self.folder, root.path, root.excludes, folders=found)
        fixed = [Glob(text).folder for text in choice.fetch]
        whole = [text for text in choice.fetch if not is_pattern(text)]
        return tuple(
            dict.fromkeys(
                [*found, *(each for each in [*fixed, *whole] if os.path.isdir(os.path.join(self.folder, each)))]
            )
        )

    def write_results(self, results: Sequence[RunWithFiles]) -> None:
        """Write the returned files here, and report the outcome to the user. Never raises."""
        self._results = results
        writer = FileWriter(self._request, self.fetched.versions, self.fetched.note, self.fetched.copies)
        writer.write([(result.node, result.files) for result in results], self.shape)
        for sentence in (*writer.problems, *(() if self.quiet else writer.outcomes)):
            self.notify(encodable(sentence))

    def explain(self, error: BaseException) -> None:
        """Add a hint to `error` if the cell misses a file of the notebook's folder."""
        failed = next((result for result in self._results if result.failure is not None), None)
        if failed is None or failed.files is None or failed.files.is_shared:
            return
        sent = {span.path for span in self._request.sent}
        if note := missing_note(error, self.folder, failed.files.folder, failed.node, sent):
            error.add_note(note)
