"""Uploads: large files in parts, of which a later call sends only those that are missing."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock
from xml.sax.saxutils import escape

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.jobs import WORKERS, ByteProgress, run_jobs
from skyward.storage.listing import ObjectEntry, entry_of, find
from skyward.storage.location import BucketLocation, printable
from skyward.storage.part_record import PartRecord
from skyward.storage.replies import CHANGED, xml_of

__all__ = ["PART", "Upload", "upload"]

PART = 8 << 20
"""Bytes of a part; larger files are uploaded in several parts at a time."""

_MOST_PARTS = 10_000
_LARGEST = 5 << 40


def upload(
    location: BucketLocation,
    path: Path,
    key: str,
    *,
    record: Path | None = None,
    progress: ByteProgress | None = None,
    workers: int = WORKERS,
    client: BucketClient | None = None,
    stop: Event | None = None,
) -> ObjectEntry:
    """Upload a file to an object, which is replaced as a whole or not at all.

    Args:
        key: relative to the prefix.
        record: file that remembers the parts of an interrupted upload, so that the next call with it sends only the
            others; without one, the parts of an upload that fails are removed from the store.
        progress: called with numbers of bytes.
        stop: ends the upload when it is set.

    Raises:
        StorageError: the store refuses or does not answer, or the file cannot be read or is changed meanwhile.
    """
    if client is None:
        with BucketClient(location) as own:
            return upload(location, path, key, record=record, progress=progress, workers=workers, client=own, stop=stop)
    found: list[ObjectEntry] = []
    transfer = Upload(client, path, key, record, progress, found.append)
    try:
        run_jobs(transfer.jobs(), client, workers, stop)
    finally:
        transfer.close()
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
    """Upload of one file, as jobs.

    Attributes:
        is_unfinished: True until the object is there.

    Args:
        client: its client.
        path: the file.
        key: relative to the prefix.
        record: file that remembers the parts of an interrupted upload; None if there is none.
        progress: called with numbers of bytes.
        on_done: called with the new object.
    """

    def __init__(
        self,
        client: BucketClient,
        path: Path,
        key: str,
        record: Path | None = None,
        progress: ByteProgress | None = None,
        on_done: Callable[[ObjectEntry], object] | None = None,
    ) -> None:
        self._client = client
        self._path = path
        self._key = key
        self._whole_key = client.location.root + key
        self._name = client.location.address(key)
        self._progress = progress or (lambda _: None)
        self._on_done = on_done or (lambda _: None)
        self._record = None if record is None else PartRecord(record)
        self._lock = Lock()
        self._file = -1
        self._version = _Version(0, 0, 0)
        self._upload_id = ""
        self._etags: dict[int, str] = {}
        self._left = 0
        self.is_unfinished = True
        self._part_size = PART

    def jobs(self) -> Iterator[Callable[[], None]]:
        """Yield the jobs: one, or one for each part that the store does not have."""
        if not self._key or self._key.endswith("/"):
            raise StorageError(f"The key {self._key!r} names a folder: give the key of an object.", names=(self._key,))
        try:
            self._whole_key.encode()
        except UnicodeEncodeError:
            raise StorageError(
                f"{printable(str(self._path))} cannot be uploaded, because its name is not UTF-8: rename it.",
                names=(printable(self._key),),
            ) from None
        with self._reading():
            size = os.stat(self._path).st_size
        if size <= PART:
            yield self._send_whole
            return
        if size > _LARGEST:
            raise StorageError(
                f"{printable(str(self._path))} has {size:,} bytes, and an object can have at most {_LARGEST:,}: split "
                "it.",
                names=(self._key,),
            )
        self._open()
        self._part_size = max(PART, -(-size // _MOST_PARTS))
        self._begin()
        count = -(-self._version.size // self._part_size)
        missing = [number for number in range(1, count + 1) if number not in self._etags]
        self._left = len(missing)
        if there := sum(self._length(number) for number in self._etags):
            self._progress(there)
        if not missing:
            yield self._complete
        for number in missing:
            yield partial(self._send_part, number)

    def close(self) -> None:
        """Close the file. Parts of an unfinished upload stay in the store if there is a record of them."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            upload_id, self._upload_id = self._upload_id, ""
        if self._record is not None:
            self._record.close()
            if self._record.is_kept:
                return
        if upload_id:
            self._abort(upload_id)

    def _send_whole(self) -> None:
        try:
            self._open()
            for _ in range(3):
                body = self._read(0, self._version.size)
                before, self._version = self._version, _Version.of(self._file)
                if self._version == before:
                    break
            else:
                raise self._changed()
        finally:
            with self._lock:
                if self._file >= 0:
                    os.close(self._file)
                    self._file = -1
        reply = self._client.call("PUT", self._whole_key, body=body)
        self._progress(len(body))
        self._end(ObjectEntry(self._key, len(body), reply.headers.get("etag", ""), entry_of(reply, "").modified))

    def _send_part(self, number: int) -> None:
        length = self._length(number)
        query = [("partNumber", str(number)), ("uploadId", self._upload_id)]
        with self._client.memory(length):
            body = self._read((number - 1) * self._part_size, length)
            reply = self._client.call("PUT", self._whole_key, query, body)
            del body
        with self._lock:
            self._etags[number] = reply.headers.get("etag", "")
            self._left -= 1
            is_last = not self._left
            if self._record is not None:
                self._record.add(number, self._etags[number])
        self._progress(length)
        if is_last:
            self._complete()

    def _begin(self) -> None:
        """Continue the upload that the record remembers, or begin another one."""
        if self._record is not None and self._record.open():
            about = [self._name, self._version.size, self._version.modified_ns, self._version.inode, self._part_size]
            upload_id = self._record.upload_id
            if upload_id and self._record.about != about:
                self._abort(upload_id)  # of another version of the file
                upload_id = ""
            there = self._parts_there(upload_id) if upload_id else None
            if there is not None:
                self._upload_id = upload_id
                self._etags = {n: etag for n, etag in self._record.etags.items() if there.get(n) == etag.strip('"')}
                return
            self._upload_id = self._create()
            self._record.begin(about, self._upload_id)
            return
        self._record = None
        self._upload_id = self._create()

    def _create(self) -> str:
        reply = self._client.call("POST", self._whole_key, [("uploads", "")])
        return _text(reply.body, "UploadId")

    def _parts_there(self, upload_id: str) -> dict[int, str] | None:
        """Return the ETags of the parts that the store has; None if it does not know the upload."""
        found: dict[int, str] = {}
        marker = ""
        while True:
            query = [("uploadId", upload_id)] + ([("part-number-marker", marker)] if marker else [])
            reply = self._client.call("GET", self._whole_key, query, accept=(404,))
            if reply.status == 404:
                return None
            page = xml_of(reply.body)
            space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            for each in page.iterfind(f"{space}Part"):
                found[int(each.findtext(f"{space}PartNumber") or 0)] = (each.findtext(f"{space}ETag") or "").strip('"')
            marker = page.findtext(f"{space}NextPartNumberMarker") or ""
            if (page.findtext(f"{space}IsTruncated") or "false").lower() != "true" or not marker:
                return found

    def _complete(self) -> None:
        if _Version.of(self._file) != self._version:
            raise self._changed()
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
            for number, etag in sorted(self._etags.items())
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        repeats = 0

        def repeated() -> None:
            nonlocal repeats
            repeats += 1

        reply = self._client.call(
            "POST", self._whole_key, [("uploadId", self._upload_id)], body, accept=(404,), on_repeat=repeated
        )
        there = find(self._client.location, self._key, client=self._client)
        # The reply to the first attempt may have been lost, and the upload is not known any more once it is complete.
        if (reply.status == 404 and not repeats) or there is None or there.size != self._version.size:
            raise StorageError(
                f"{self._name} was not put together from its parts, which are gone from the store: upload it again.",
                names=(self._key,),
            )
        with self._lock:
            self._upload_id = ""
        if self._record is not None:
            self._record.remove()
        self._end(there)

    def _end(self, entry: ObjectEntry) -> None:
        self.is_unfinished = False
        self._on_done(entry)

    def _abort(self, upload_id: str) -> None:
        """Remove the parts of an upload from the store, also after the client was stopped."""
        client = self._client
        with contextlib.suppress(StorageError):
            if not client.stopped.is_set():
                client.call("DELETE", self._whole_key, [("uploadId", upload_id)], accept=(404,))
                return
            with BucketClient(client.location, first_reply=5.0, patience=5.0) as other:
                other.call("DELETE", self._whole_key, [("uploadId", upload_id)], accept=(404,))

    def _open(self) -> None:
        with self._reading():
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                os.close(file)
                raise OSError(errno.EINVAL, "it is no regular file")
        with self._lock:
            self._file = file
        self._version = _Version.of(file)

    def _length(self, number: int) -> int:
        start = (number - 1) * self._part_size
        return min(self._part_size, self._version.size - start)

    def _read(self, start: int, length: int) -> bytes:
        with self._reading():
            parts = []
            while length and (data := os.pread(self._file, length, start)):
                parts.append(data)
                start, length = start + len(data), length - len(data)
        if length:
            raise self._changed()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _changed(self) -> StorageError:
        if self._record is not None:
            self._record.remove()  # the parts are of no use
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


def _text(body: bytes, name: str) -> str:
    page = xml_of(body)
    space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
    return page.findtext(f"{space}{name}") or ""
