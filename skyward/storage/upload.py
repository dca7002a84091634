"""Uploads: large files in parts, which the store puts together at the end or removes."""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.errors import StorageError
from skyward.process.clock import clock
from skyward.storage.client import BucketClient, StoppedError
from skyward.storage.failures import BAD_KEY, CHANGED, OF_STORE
from skyward.storage.jobs import WORKERS, ByteProgress, TransferJob, run_jobs
from skyward.storage.keys import key_problem
from skyward.storage.listing import ObjectEntry, find_object
from skyward.storage.location import BucketLocation, printable

if TYPE_CHECKING:
    from obstore import PutResult
    from obstore.store import S3Store

__all__ = ["PART", "Upload", "upload"]

PART = 8 << 20
"""Bytes of a part; larger files are uploaded in several parts at a time."""

_PARTS_AT_ONCE = 8
_MOST_OF_A_FILE = 128 << 20
"""Bytes of the parts of one file that are in memory."""

_MOST_PARTS = 9_990
_LARGEST = 5 << 40
_ABORT_WITHIN = 5.0
"""Seconds that a stopped upload has to remove its parts from the store."""


def upload(
    location: BucketLocation,
    path: Path,
    key: str,
    *,
    progress: ByteProgress | None = None,
    workers: int = WORKERS,
    client: BucketClient | None = None,
) -> ObjectEntry:
    """Upload a file to an object, which is replaced as a whole or not at all.

    The parts of an upload that fails or is stopped are removed from the store, if it can be reached.

    Args:
        key: relative to the prefix.
        progress: called with numbers of bytes.

    Raises:
        StorageError: the store refuses or does not answer, or the file cannot be read or is changed meanwhile.
    """
    if client is None:
        with BucketClient(location) as own:
            return upload(location, path, key, progress=progress, workers=workers, client=own)
    found: list[ObjectEntry] = []
    run_jobs(Upload(client, path, key, progress, found.append).jobs(), client, workers)
    return found[0]


@dataclass(frozen=True, slots=True)
class _Version:
    """State of a file that tells whether its content was changed."""

    size: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, file: int) -> "_Version":
        found = os.fstat(file)
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)


class Upload:
    """Upload of one file, as a job.

    Args:
        client: its client.
        path: the file.
        key: relative to the prefix.
        progress: called with numbers of bytes.
        on_done: called with the new object.
    """

    def __init__(
        self,
        client: BucketClient,
        path: Path,
        key: str,
        progress: ByteProgress | None = None,
        on_done: Callable[[ObjectEntry], object] | None = None,
    ) -> None:
        self._client = client
        self._path = path
        self._key = key
        self._whole_key = client.location.root + key
        self._progress = progress or (lambda _: None)
        self._on_done = on_done or (lambda _: None)
        self._is_stopped = False

    async def jobs(self) -> AsyncIterator[TransferJob]:
        """Yield the job."""
        yield self.send

    async def send(self) -> None:
        """Send the file."""
        self._check_key()
        with self._reading():
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            with self._reading():
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise OSError(errno.EINVAL, "it is no regular file")
                version = _Version.of(file)
            if version.size <= PART:
                size, reply = await self._send_whole(file, version)
            else:
                size, reply = version.size, await self._send_parts(file, version)
        except StorageError as error:
            if not error.names and error.code not in OF_STORE:
                error.names = (self._key,)
            raise
        finally:
            os.close(file)
        self._on_done(ObjectEntry(self._key, size, reply["e_tag"] or "", clock.time_ns() / 1e9))

    async def _send_whole(self, file: int, version: _Version) -> "tuple[int, PutResult]":
        async with self._client.memory(version.size):
            for _ in range(3):
                body = self._read(file, 0, version.size)
                before, version = version, _Version.of(file)
                if version == before:
                    break
            else:
                raise self._changed()
            key = self._whole_key
            reply = await self._client.ask("write", key, lambda store: store.put_async(key, body, use_multipart=False))
        self._progress(len(body))
        return len(body), reply

    async def _send_parts(self, file: int, version: _Version) -> "PutResult":
        if version.size > _LARGEST:
            raise StorageError(
                f"{printable(str(self._path))} has {version.size:,} bytes, and an object can have at most "
                f"{_LARGEST:,}: split it."
            )
        client, key = self._client, self._whole_key
        if not client.has_answered:  # a wrong endpoint is to be found before a part of the file is read
            await find_object(client, client.location, self._key)
        size = max(PART, -(-version.size // _MOST_PARTS))
        at_once = max(1, min(_PARTS_AT_ONCE, _MOST_OF_A_FILE // size))

        async def put(store: "S3Store") -> "PutResult":
            sent = 0

            async def parts() -> AsyncIterator[bytes]:
                nonlocal sent
                for start in range(0, version.size, size):
                    if self._is_stopped:
                        raise StoppedError
                    body = self._read(file, start, min(size, version.size - start))
                    yield body
                    sent += len(body)
                    self._progress(len(body))
                if _Version.of(file) != version:
                    raise self._changed()  # obstore then removes the parts

            try:
                return await self._ended_softly(store.put_async(key, parts(), chunk_size=size, max_concurrency=at_once))
            except Exception:
                self._progress(-sent)
                raise

        async with client.memory(size * at_once):
            return await client.ask("write", key, put)

    async def _ended_softly(self, request: "Coroutine[Any, Any, PutResult]") -> "PutResult":
        """Wait for an upload in parts; if this is cancelled, let it remove its parts from the store first."""

        async def wait() -> "PutResult":
            return await request

        task = asyncio.ensure_future(wait())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._is_stopped = True
            await asyncio.wait({task}, timeout=_ABORT_WITHIN)
            if task.done():
                task.cancelled() or task.exception()
            else:
                task.cancel()
            raise

    def _check_key(self) -> None:
        if not self._key or self._key.endswith("/"):
            raise StorageError(f"The key {self._key!r} names a folder: give the key of an object.", names=(self._key,))
        if (problem := key_problem(self._whole_key)) is None:
            return
        path = printable(str(self._path))
        own = self._path.absolute().parts
        if any(part in own and key_problem(part) for part in self._whole_key.split("/")):
            text = f"{path} cannot be uploaded, because its name {problem}: rename it."
        else:
            key = printable(self._whole_key)
            text = f"{path} cannot be uploaded to the key {key!r}, because that {problem}: change the key."
        raise StorageError(text, code=BAD_KEY, names=(self._key.encode(errors="backslashreplace").decode(),))

    def _read(self, file: int, start: int, length: int) -> bytes:
        with self._reading():
            parts = []
            while length and (data := os.pread(file, length, start)):
                parts.append(data)
                start, length = start + len(data), length - len(data)
        if length:
            raise self._changed()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _changed(self) -> StorageError:
        return StorageError(
            f"{printable(str(self._path))} was changed while it was uploaded: upload it again when nothing writes to "
            "it.",
            code=CHANGED,
            names=(self._key,),
        )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn an error of the file system into one that names the file."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageError(
                f"{printable(str(self._path))} cannot be read ({reason[:1].lower()}{reason[1:]}).", names=(self._key,)
            ) from None
