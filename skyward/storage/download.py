"""Downloads: ranges of large objects in parallel, into a part file that a later call continues, then a rename."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from threading import Event, Lock, local

from skyward.errors import StorageError
from skyward.storage.client import Attempts, BucketClient
from skyward.storage.jobs import WORKERS, ByteProgress, run_jobs
from skyward.storage.listing import ObjectEntry, head
from skyward.storage.location import BucketLocation, printable
from skyward.storage.part_file import RANGE, PartFile, create_file, part_name
from skyward.storage.replies import CHANGED

__all__ = ["Download", "download"]

_BUFFER = 1 << 20
_own = local()
"""A buffer for each thread."""


def download(
    location: BucketLocation,
    entry: ObjectEntry | str,
    target: Path,
    *,
    if_match: bool = True,
    progress: ByteProgress | None = None,
    workers: int = WORKERS,
    client: BucketClient | None = None,
    stop: Event | None = None,
) -> ObjectEntry:
    """Download an object to a file, which appears complete or not at all.

    An interrupted download of a large object leaves a part file beside the target, and the next call for the same
    version of the object continues it.

    Args:
        entry: the object, or its key relative to the prefix.
        if_match: whether it must be the version of `entry`.
        progress: called with numbers of bytes.
        stop: ends the download when it is set.

    Raises:
        StorageError: the store refuses or does not answer, the object was changed, or the file cannot be written.
    """
    if client is None:
        with BucketClient(location) as own:
            return download(
                location, entry, target, if_match=if_match, progress=progress, workers=workers, client=own, stop=stop
            )
    if isinstance(entry, str) or not if_match:
        entry = head(location, entry if isinstance(entry, str) else entry.key, client=client)
    transfer = Download(client, entry, target, progress)
    try:
        run_jobs(transfer.jobs(), client, workers, stop)
    finally:
        transfer.close()
    return entry


class Download:
    """Download of one object, as jobs.

    Attributes:
        is_unfinished: True until the file is there.

    Args:
        client: its client.
        entry: the object.
        target: the file.
        progress: called with numbers of bytes.
        on_done: called when the file is there.
    """

    def __init__(
        self,
        client: BucketClient,
        entry: ObjectEntry,
        target: Path,
        progress: ByteProgress | None = None,
        on_done: Callable[[], object] | None = None,
    ) -> None:
        self._client = client
        self._entry = entry
        self._target = target
        self._progress = progress or (lambda _: None)
        self._on_done = on_done
        self._lock = Lock()
        self._part: PartFile | None = None
        self._left = 0
        self.is_unfinished = True
        self._name = client.location.address(entry.key)

    def jobs(self) -> Iterator[Callable[[], None]]:
        """Yield the jobs: one, or one for each range that is missing."""
        if self._entry.size <= RANGE:
            yield self._fetch_whole
            return
        with self._disk():
            self._part = PartFile.open(self._target, self._entry)
            missing = self._part.missing()
            self._left = len(missing)
            needed = sum(end - start for _, start, end in missing)
            self._check_room(needed)
        if needed < self._entry.size:
            self._progress(self._entry.size - needed)
        if not missing:
            yield self._finish
        for number, start, end in missing:
            yield partial(self._fetch_range, number, start, end)

    def close(self) -> None:
        """Close the part file; it stays, for the next call."""
        with self._lock:
            if self._part is not None:
                self._part.close()

    def _fetch_whole(self) -> None:
        part = part_name(self._target, os.getpid(), f"{id(self):x}")
        try:
            with self._disk():
                self._check_target()
                file = create_file(part)
            try:
                self._fetch(file, 0, self._entry.size)
                with self._disk():
                    self._check_size(os.fstat(file).st_size)
            finally:
                os.close(file)
            with self._disk():
                os.replace(part, self._target)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self._done()

    def _fetch_range(self, number: int, start: int, end: int) -> None:
        part = self._part
        assert part is not None
        self._fetch(part.file, start, end)
        with self._disk():
            part.mark(number)
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._finish()

    def _finish(self) -> None:
        part = self._part
        assert part is not None
        with self._disk():
            self._check_target()
            part.complete(self._target)
        self._done()

    def _done(self) -> None:
        self.is_unfinished = False
        if self._on_done is not None:
            self._on_done()

    def _fetch(self, file: int, start: int, end: int) -> None:
        """Write bytes `start` to `end` of the object to the same place of a file; go on where a connection broke."""
        entry, client = self._entry, self._client
        key = client.location.root + entry.key
        position = start
        attempts = Attempts(client, "GET", key)

        def read(response: HTTPResponse) -> None:
            nonlocal position
            self._check_version(response, position)
            buffer = _buffer()
            while position < end:
                count = response.readinto(buffer[: end - position])
                if not count:
                    raise ConnectionResetError(errno.ECONNRESET, "the connection broke off")
                with self._disk():
                    _write(file, buffer[:count], position)
                position += count
                attempts.progressed()
                self._progress(count)

        while True:
            headers = {"if-match": entry.etag} if entry.etag else {}
            if (position, end) != (0, entry.size):
                headers["range"] = f"bytes={position}-{end - 1}"
            if client.attempt(attempts, "GET", key, headers=headers, reader=read) is not None and position >= end:
                return

    def _check_version(self, response: HTTPResponse, position: int) -> None:
        """Check that a reply is of the version and the place that were asked for, as some stores look at neither."""
        entry = self._entry
        etag = response.getheader("etag") or ""
        whole = response.getheader("content-length") if response.status == 200 else None
        told = (response.getheader("content-range") or "").removeprefix("bytes ")
        if response.status == 206:
            first, _, rest = told.partition("-")
            whole = rest.partition("/")[2]
            if first != str(position):
                raise StorageError(f"{self._client.location.store} sent another part of {self._name} than asked for.")
        elif position:
            raise StorageError(f"{self._client.location.store} does not send parts of objects, as {self._name} needs.")
        if (etag and entry.etag and _bare(etag) != _bare(entry.etag)) or (whole not in (None, "*", str(entry.size))):
            raise StorageError(
                f"{self._name} was changed while it was downloaded: start again.", code=CHANGED, names=(entry.key,)
            )

    def _check_target(self) -> None:
        if self._target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _check_size(self, size: int) -> None:
        if size != self._entry.size:
            raise StorageError(
                f"{self._name} has {self._entry.size} bytes, but {size} arrived: start again.", names=(self._entry.key,)
            )

    def _check_room(self, needed: int) -> None:
        free = shutil.disk_usage(self._target.parent).free
        if needed > free:
            raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed and {free:,} are free")

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Turn an error of the file system into one that names the file."""
        try:
            yield
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if is_full and self._part is not None:
                self._part.discard()
            raise StorageError(
                f"{self._name} cannot be written to {printable(str(self._target))} ({_words(error)})"
                + (": free some space, then start again." if is_full else _hint(error)),
                code="DiskFull" if is_full else "",
                names=() if is_full else (self._entry.key,),
            ) from None


def _write(file: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(file, data, position)
        data, position = data[count:], position + count


def _buffer() -> memoryview:
    found: memoryview | None = getattr(_own, "buffer", None)
    if found is None:
        found = _own.buffer = memoryview(bytearray(_BUFFER))
    return found


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _words(error: OSError) -> str:
    text = error.strerror or type(error).__name__
    return text[:1].lower() + text[1:]


def _hint(error: OSError) -> str:
    match error:
        case IsADirectoryError() | NotADirectoryError() | FileExistsError():
            return ": a file and a folder cannot have the same name; the store has keys that would need both."
        case PermissionError():
            return ": choose a folder in which you may write."
    if error.errno == errno.ENAMETOOLONG:
        return ": a part of its key is too long for the name of a file."
    return "."
