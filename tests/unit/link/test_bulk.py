"""A lane of the bulk path: every transfer ends, successfully or not, and so does the lane."""

import mmap
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from skyward.link.bulk import BulkLane, NodeFullError
from skyward.wire.protocol.messages import Blob
from skyward.wire.transport.bulk import FULL, GET, OK, PUT, SIZE, BulkRequest, read_exactly
from tests.mutual_proof import accept

pytestmark = pytest.mark.unit

KEY = bytes(32)
BLOB = Blob(b"k" * 32, 5)
NO_ROOM = 2**62
"""Size in bytes that exceeds any address space."""


@contextmanager
def lane_to(listener: socket.socket) -> Iterator[BulkLane]:
    """Open a lane to a listener; check that its thread ends."""
    host, port = listener.getsockname()
    lane = BulkLane(f"{host}:{port}", KEY, "skyward-bulk-test")
    try:
        yield lane
    finally:
        lane.close()
        assert lane._thread is not None
        lane._thread.join(20)
        assert not lane._thread.is_alive(), "the closed lane did not end"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        yield listener


@pytest.mark.parametrize("large_pages", [True, False])
def test_blob_too_large_for_the_client_fails_and_next_one_is_transferred(
    listener: socket.socket, large_pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not large_pages:
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    with lane_to(listener) as lane:
        failed, moved = lane.move(GET, BLOB), lane.move(GET, BLOB)
        with accept(listener, KEY) as connection:
            assert BulkRequest.read(connection)
            connection.sendall(OK + SIZE.pack(NO_ROOM) + b"the rest of the blob")
            assert isinstance(failed.exception(20), MemoryError)
        with accept(listener, KEY) as connection:
            assert BulkRequest.read(connection)
            connection.sendall(OK + SIZE.pack(5) + b"bytes")
            assert bytes(moved.result(20)) == b"bytes"


def test_blob_too_large_for_the_node_fails_and_next_one_is_transferred(listener: socket.socket) -> None:
    with lane_to(listener) as lane:
        failed, moved = (lane.move(PUT, BLOB, memoryview(b"bytes")) for _ in range(2))
        for answer in (FULL, OK):
            with accept(listener, KEY) as connection:
                assert BulkRequest.read(connection)
                assert read_exactly(connection, 5) == b"bytes"
                connection.sendall(answer)
                if answer == FULL:
                    with pytest.raises(NodeFullError, match="a node has no memory for 5 bytes"):
                        failed.result(20)
        assert bytes(moved.result(20)) == b"bytes"


def test_queued_transfers_fail_on_close_without_connecting(listener: socket.socket) -> None:
    with lane_to(listener) as lane:
        moves = [lane.move(GET, BLOB) for _ in range(3)]
        with accept(listener, KEY) as silent:
            assert BulkRequest.read(silent), "the first transfer is in progress"
            lane.close()
            for move in moves:
                assert isinstance(move.exception(20), ConnectionError)
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
