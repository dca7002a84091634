"""The files of one cell, on their way: what goes along with its request, and what its results bring home."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from skyward.errors import UsageError
from skyward.files.disk import Content, Versions, below, read
from skyward.files.patterns import Glob, is_pattern
from skyward.files.request import SMALL, FilesRequest, Packing
from skyward.wire.payloads.digest import remember_address
from skyward.wire.protocol.text import encodable
from skyward_jupyter.files.arrival import Arrival
from skyward_jupyter.files.choice import Asked, Choice, choose, sizes
from skyward_jupyter.files.missing import missing_note

if TYPE_CHECKING:
    from skyward.worker.cells.cell import CellResult
    from skyward_jupyter.cells.cell import Shape

__all__ = ["Taken", "Trip"]

_KEPT = 16
"""Versions of one file that are remembered; the latest ones."""


class Taken:
    """What has come from nodes, in the life of one kernel. Paths are absolute.

    Attributes:
        versions: the versions of files here.
        copies: the versions that cells of several runs have left here under names with their labels.
    """

    def __init__(self) -> None:
        self.versions = Versions()
        self.copies: dict[str, bytes] = {}
        self._taken: dict[str, tuple[bytes, ...]] = {}
        self._had: set[str] = set()

    def note(self, path: str, version: bytes, *, is_here: bool) -> None:
        """Note that a version of a file has come; `is_here` if there is a file under its own name now."""
        known = [each for each in self._taken.get(path, ()) if each != version]
        self._taken[path] = (*known[1 - _KEPT :], version)
        if is_here:
            self._had.add(path)

    def note_sent(self, paths: Iterable[str]) -> None:
        """Note that these files were here, and were sent."""
        self._had.update(paths)

    def within(self, folder: str) -> dict[str, tuple[bytes, ...]]:
        """The versions that have come, by paths from `folder`."""
        start = f"{folder.rstrip('/')}/"
        return {path.removeprefix(start): found for path, found in self._taken.items() if path.startswith(start)}

    def gone(self, folder: str) -> frozenset[str]:
        """The files that were here, sent or brought home, and are not any more, by paths from `folder`."""
        start = f"{folder.rstrip('/')}/"
        inside = [path for path in self._had if path.startswith(start)]
        return frozenset(path.removeprefix(start) for path in inside if not os.path.lexists(path))


@dataclass
class Trip:
    """The files of one cell.

    Attributes:
        asked: what stands on its line.
        folder: the notebook's folder.
        taken: what has come from nodes before.
        shape: how the runs make up the cell.
        notify: takes a sentence for the user.
        quiet: whether only what went wrong is told.
    """

    asked: Asked
    folder: str
    taken: Taken
    shape: "Shape"
    notify: Callable[[str], None]
    quiet: bool = False
    choice: Choice = field(init=False)
    _request: FilesRequest = field(init=False)
    _results: "Sequence[CellResult]" = ()

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
        """Whether the cell says anything about files."""
        return bool(self.asked.files or self.asked.sync or self.asked.fetch)

    @property
    def described(self) -> str:
        """What goes along, in words; empty for nothing."""
        return sizes(self.choice.sent)

    def request(self, *, shared: bool) -> FilesRequest:
        """What goes along, as it is now. Where all nodes share the notebook's disk, no bytes do.

        Raises:
            UsageError, TooLargeError: a file cannot be read, or see `choose`.
        """
        if not self.is_asked:
            return self._request
        if shared:
            return replace(self._request, roots=(), fetch=())
        self.choice = choice = choose(self.asked, self.folder)  # again: a pool may take long to open
        packing, spans = Packing(), []
        large: list[tuple[bytes, bytes]] = []
        here = self._versions({path: each for path, each in choice.matching.items() if each.st_size <= choice.limit})
        for path, status in choice.sent.items():
            content = self._read(path)
            spans.append(packing.add(path, content, status.st_mtime_ns))
            here[path] = content.version
            if content.size > SMALL:
                large += zip(content.chunks, content.addresses, strict=True)
        concerned = {path: found for path, found in self.taken.within(self.folder).items() if self._concerns(path)}
        self._request = replace(
            self._request,
            sent=tuple(spans),
            here=here,
            taken=concerned,
            gone=frozenset(path for path in self.taken.gone(self.folder) if self._request.syncs(path)),
            folders=self._folders(),
        )
        self.taken.note_sent(os.path.join(self.folder, path) for path in choice.sent)
        request = replace(self._request, blobs=packing.blobs())  # not kept here: a handle may live for long
        for chunk, address in large:
            remember_address(chunk, address, request)
        return request

    def _concerns(self, path: str) -> bool:
        return path in self.choice.sent or self._request.allows(path)

    def _versions(self, listing: Mapping[str, os.stat_result]) -> dict[str, bytes]:
        found = {}
        for path, status in listing.items():
            version = self.taken.versions.of(os.path.join(self.folder, path), status)
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
                f"{path} is being written just now: send it when it is finished, or leave it out (with --sync, by "
                "--exclude)."
            )
        return content

    def _folders(self) -> tuple[str, ...]:
        """The folders that the cell finds: those that are synced, and those here that it is to write to."""
        choice = self.choice
        found = [root.path for root in choice.roots]
        for root in choice.roots:
            below(self.folder, root.path, root.excludes, folders=found)
        fixed = [Glob(text).folder for text in choice.fetch]
        whole = [text for text in choice.fetch if not is_pattern(text)]
        return tuple(
            dict.fromkeys(
                [*found, *(each for each in [*fixed, *whole] if os.path.isdir(os.path.join(self.folder, each)))]
            )
        )

    def arrive(self, results: "Sequence[CellResult]") -> None:
        """Put here what the runs of the cell have left of files, and tell what is to be told. Never raises."""
        self._results = results
        arrival = Arrival(self._request, self.taken.versions, self.taken.note, self.taken.copies)
        arrival.take([(result.node, result.files) for result in results], self.shape)
        for sentence in (*arrival.problems, *(() if self.quiet else arrival.told)):
            self.notify(encodable(sentence))

    def explain(self, error: BaseException) -> None:
        """Add to `error` of the cell what to do, where it misses a file of the notebook's folder."""
        failed = next((result for result in self._results if result.failure is not None), None)
        if failed is None or failed.files is None or failed.files.is_shared:
            return
        sent = {span.path for span in self._request.sent}
        if note := missing_note(error, self.folder, failed.files.folder, failed.node, sent):
            error.add_note(note)
