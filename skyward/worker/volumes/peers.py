"""Copies of volumes from other nodes of the cluster, so that the bytes of an object leave the store once.

A node fetches each object from one node that has it, or is getting it, and waits there until it has arrived. What no
node can give comes from the store.
"""

import contextlib
import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from threading import Lock  # tasks may replace the attributes of the module

from skyward.storage.listing import ObjectEntry
from skyward.wire.transport.bulk import read_exactly, read_into
from skyward.wire.transport.peers import BEAT, FILE, FRAME, LENGTH, REQUEST
from skyward.worker.volumes.volume import Fetcher

__all__ = ["Connect", "PeerFetcher", "SharedFiles", "file_key"]

_AT_ONCE = 4
"""Connections to one other node."""

type Connect = Callable[[str], socket.socket]
"""Opens an authenticated connection to the port of another node."""


def file_key(contents: str, key: str) -> bytes:
    """Return the name by which nodes ask each other for an object of a copy."""
    return hashlib.sha256(f"{contents}\n{key}".encode()).digest()


class SharedFiles:
    """The files of the copies of this node, for other nodes. Its methods may be called from any thread.

    Attributes:
        attaching: True until the copies are complete: what is not here may still come.
    """

    def __init__(self) -> None:
        self.attaching = True
        self._lock = Lock()
        self._places: dict[bytes, tuple[Path, Path, int]] = {}

    def expect(self, contents: str, entries: Sequence[ObjectEntry], part: Path, tree: Path) -> None:
        """Announce the objects of a copy: they are in `part` at first, and in `tree` once all are here."""
        places = {file_key(contents, each.key): (part / each.key, tree / each.key, each.size) for each in entries}
        with self._lock:
            self._places.update(places)

    def open(self, key: bytes) -> tuple[FileIO, int] | None:
        """Open the file of an object; return it with its size, or None if it is not here yet.

        Raises:
            LookupError: it will not come.
        """
        attaching = self.attaching  # before the look: what comes after it may be the last
        with self._lock:
            place = self._places.get(key)
        if place is not None:
            part, tree, size = place
            for path in (tree, part):
                with contextlib.suppress(OSError):
                    file = path.open("rb", buffering=0)
                    if os.fstat(file.fileno()).st_size == size:
                        return file, size
                    file.close()
        if not attaching:
            raise LookupError("this node has no copy of the object")
        return None

    def serve(self, connection: socket.socket, key: bytes, pause: Callable[[float], None]) -> None:
        """Send a file as frames, once it is here; close the connection if it will not come.

        Raises:
            OSError, EOFError: the other node is gone.
        """
        try:
            while (opened := self.open(key)) is None:
                connection.sendall(LENGTH.pack(0))
                pause(BEAT / 4)
        except LookupError:
            return
        file, size = opened
        with file:
            buffer = memoryview(bytearray(min(FRAME, size)))
            sent = 0
            while sent < size:
                count = file.readinto(buffer)
                if not count:
                    return
                connection.sendall(LENGTH.pack(count))
                connection.sendall(buffer[:count])
                sent += count


class PeerFetcher:
    """Source that fetches objects from other nodes, and what they do not give from another source.

    Args:
        peers: transfer ports of the other nodes.
        connect: opens a connection to one.
        otherwise: the other source.
    """

    def __init__(self, peers: Sequence[str], connect: Connect, otherwise: Fetcher) -> None:
        self._peers = peers
        self._connect = connect
        self._otherwise = otherwise

    def fetch(
        self, entries: Sequence[ObjectEntry], folder: Path, arrived: Callable[[int, bool], None], contents: str = ""
    ) -> None:
        """Fetch objects into a folder.

        Raises:
            StorageError: an object could not be fetched.
        """
        left = list(entries)
        for peer in self._peers:
            if left:
                left = self._fetch_from(peer, contents, left, folder, arrived)
        if left:
            self._otherwise.fetch(left, folder, arrived, contents)

    def _fetch_from(
        self,
        peer: str,
        contents: str,
        entries: Sequence[ObjectEntry],
        folder: Path,
        arrived: Callable[[int, bool], None],
    ) -> list[ObjectEntry]:
        """Fetch objects from one node; return those that it did not give."""
        left: list[ObjectEntry] = []
        waiting = list(reversed(entries))
        lock = Lock()

        def work() -> None:
            while True:
                with lock:
                    if not waiting:
                        return
                    entry = waiting.pop()
                try:
                    self._fetch_one(peer, contents, entry, folder, arrived)
                except (OSError, EOFError):
                    with lock:  # the node is gone, or has another copy: it gives none of the others either
                        left.append(entry)
                        left.extend(waiting)
                        waiting.clear()

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="skyward-volume-peer") as pool:
            for done in [pool.submit(work) for _ in range(_AT_ONCE)]:
                done.result()
        return left

    def _fetch_one(
        self, peer: str, contents: str, entry: ObjectEntry, folder: Path, arrived: Callable[[int, bool], None]
    ) -> None:
        target = folder / entry.key
        target.parent.mkdir(parents=True, exist_ok=True)
        if not entry.size:
            target.touch()
            return
        part = target.with_name(f".{hashlib.sha256(target.name.encode()).hexdigest()[:16]}.peer")
        try:
            with self._connect(peer) as connection, part.open("wb", buffering=0) as file:
                connection.sendall(REQUEST.pack(FILE, file_key(contents, entry.key), 0))
                buffer = memoryview(bytearray(FRAME))
                got = 0
                while got < entry.size:
                    (length,) = LENGTH.unpack(read_exactly(connection, LENGTH.size))
                    if length > min(FRAME, entry.size - got):
                        raise EOFError("the other node sends more bytes than the object has")
                    if length:
                        read_into(connection, buffer[:length])
                        file.write(buffer[:length])
                        got += length
                        arrived(length, True)
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)  # it must not become a file of the copy
            raise
