"""Downloads: ranges of large objects in parallel, into a part file that a later call continues, then a rename."""

import contextlib
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.failures import CHANGED, NO_KEY, OF_STORE, Refusal
from skyward.storage.jobs import WORKERS, ByteProgress, TransferJob, run_jobs
from skyward.storage.listing import ObjectEntry, head
from skyward.storage.location import BucketLocation, printable
from skyward.storage.part_file import RANGE, PartFile, create_file, part_name

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import S3Store

__all__ = ["Download", "download"]

_CHUNK = 1 << 20
_MOST_BREAKS = 20
"""Connections that may break off one after the other without a byte in between."""


def download(
    location: BucketLocation,
    entry: ObjectEntry | str,
    target: Path,
    *,
    progress: ByteProgress | None = None,
    workers: int = WORKERS,
    client: BucketClient | None = None,
) -> ObjectEntry:
    """Download an object to a file, which appears complete or not at all.

    An interrupted download of a large object leaves a part file beside the target, and the next call for the same
    version of the object continues it.

    Args:
        entry: the object, which must not have been changed since; or its key relative to the prefix.
        progress: called with numbers of bytes.

    Raises:
        StorageError: the store refuses or does not answer, the object was changed, or the file cannot be written.
    """
    if client is None:
        with BucketClient(location) as own:
            return download(location, entry, target, progress=progress, workers=workers, client=own)
    if isinstance(entry, str):
        entry = head(location, entry, client=client)
    transfer = Download(client, entry, target, progress)
    try:
        run_jobs(transfer.jobs(), client, workers)
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
        self._part: PartFile | None = None
        self._left = 0
        self.is_unfinished = True
        self._name = client.location.address(entry.key)

    async def jobs(self) -> AsyncIterator[TransferJob]:
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
            self._finish(self._part)
        for number, start, end in missing:
            yield partial(self._fetch_range, self._part, number, start, end)

    def close(self) -> None:
        """Close the part file; it stays, for the next call."""
        if self._part is not None:
            self._part.close()

    async def _fetch_whole(self) -> None:
        part = part_name(self._target, os.getpid(), f"{id(self):x}")
        try:
            with self._disk():
                self._check_target()
                file = create_file(part)
            try:
                await self._fetch(file, 0, self._entry.size)
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

    async def _fetch_range(self, part: PartFile, number: int, start: int, end: int) -> None:
        await self._fetch(part.file, start, end)
        with self._disk():
            part.mark(number)
        self._left -= 1
        if not self._left:
            self._finish(part)

    def _finish(self, part: PartFile) -> None:
        with self._disk():
            self._check_target()
            part.complete(self._target)
        self._done()

    def _done(self) -> None:
        self.is_unfinished = False
        if self._on_done is not None:
            self._on_done()

    async def _fetch(self, file: int, start: int, end: int) -> None:
        """Write bytes `start` to `end` of the object to the same place of a file; go on where a connection broke."""
        entry, client = self._entry, self._client
        key = client.location.root + entry.key
        position, breaks = start, 0

        async def get(store: "S3Store") -> "GetResult":
            options: GetOptions = {}
            if entry.etag:
                options["if_match"] = entry.etag
            if (position, end) != (0, entry.size):
                options["range"] = (position, end)
            return await store.get_async(key, options=options)

        while True:
            reply = await self._asked(client.ask("read", key, get))
            self._check_version(reply.meta)
            try:
                async for data in _chunks(reply, end - position):
                    with self._disk():
                        _write(file, data, position)
                    position, breaks = position + len(data), 0
                    self._progress(len(data))
                if position >= end:
                    return
                failure: Exception = ConnectionResetError()
            except StorageError:
                raise
            except Exception as error:  # obstore itself has tried to go on
                failure = error
            breaks += 1
            if breaks > _MOST_BREAKS:
                raise Refusal.of(failure).error(client.location, "read", key)

    async def _asked(self, reply: Any) -> "GetResult":
        """Return a reply; name the file in an error that is about it."""
        try:
            found: GetResult = await reply
        except StorageError as error:
            if error.code == CHANGED:
                raise self._changed() from None
            if error.code == NO_KEY:
                raise StorageError(
                    f"{self._name} was deleted after it had been listed, or its key ends with a slash: start again, "
                    "or rename it with the store's own tools.",
                    code=NO_KEY,
                    names=(self._entry.key,),
                ) from None
            if error.code not in OF_STORE and not error.names:
                error.names = (self._entry.key,)
            raise
        return found

    def _check_version(self, meta: Any) -> None:
        """Check that a reply is of the version that was asked for: some stores do not look at it."""
        entry = self._entry
        etag = meta["e_tag"] or ""
        if (etag and entry.etag and _bare(etag) != _bare(entry.etag)) or meta["size"] != entry.size:
            raise self._changed()

    def _changed(self) -> StorageError:
        return StorageError(
            f"{self._name} was changed while it was downloaded: start again.", code=CHANGED, names=(self._entry.key,)
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


async def _chunks(reply: "GetResult", size: int) -> AsyncIterator[memoryview]:
    """Yield the content of a reply; a small one at once, which takes fewer turns of the loop."""
    if size <= _CHUNK:
        yield memoryview(await reply.bytes_async())
        return
    async for chunk in reply.stream(_CHUNK):
        yield memoryview(chunk)


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
