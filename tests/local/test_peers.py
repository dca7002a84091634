"""Between two nodes: only members of the pool are served, and only content that matches the digest is kept."""

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from blake3 import blake3

import skyward as sky
from skyward.wire.protocol.messages import Blob
from skyward.wire.transport.peers import LENGTH, REQUEST, STREAM, contexts
from skyward.wire.transport.trust import Authority
from skyward.worker.blobs.incoming import IncomingBlobs
from skyward.worker.blobs.peers import BlobFetch, stream
from skyward.worker.blobs.store import BlobStore
from tests.listening import listening_at
from tests.local import tasks

pytestmark = pytest.mark.local

DATA = os.urandom(3_000_000)
BLOB = Blob(blake3(DATA).digest(), len(DATA))


@contextmanager
def another_node(serve: Callable[[ssl.SSLSocket], None]) -> Iterator[ssl.SSLSocket]:
    """A connection to a node of the same pool that runs `serve`."""
    authority = Authority("pool", bytes(32))
    giving, _ = contexts(authority.issue("giver"))
    _, asking = contexts(authority.issue("asker"))
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(20)

    def run() -> None:
        with suppress(OSError, EOFError), theirs, giving.wrap_socket(theirs, server_side=True) as connection:
            serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with ours, asking.wrap_socket(ours) as connection:
            yield connection
    finally:
        thread.join(20)


def says(*frames: bytes) -> Callable[[ssl.SSLSocket], None]:
    """Answer any request with these frames, and end."""

    def serve(connection: ssl.SSLSocket) -> None:
        verb, key, _ = REQUEST.unpack(connection.recv(REQUEST.size))
        assert (verb, key) == (STREAM, BLOB.key)
        for frame in frames:
            connection.sendall(LENGTH.pack(len(frame)) + frame)

    return serve


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Iterator[IncomingBlobs]:
    monkeypatch.setattr("skyward.worker.blobs.incoming.KEEP", 0.0)
    store = BlobStore()
    yield IncomingBlobs(store)
    store.drop([BLOB.key])


def get(arrivals: IncomingBlobs, serve: Callable[[ssl.SSLSocket], None], superseded: bool = False) -> None:
    with another_node(serve) as connection:
        BlobFetch(arrivals, BLOB, lambda: superseded).get(connection, near=False)


def test_blob_arrives_in_frames_of_any_length(arrivals: IncomingBlobs) -> None:
    get(arrivals, says(b"", DATA[:1], b"", DATA[1:1_000_000], DATA[1_000_000:2_000_000], DATA[2_000_000:]))
    assert arrivals.has(BLOB.key)


def test_content_with_another_digest_is_not_kept(arrivals: IncomingBlobs) -> None:
    other = bytes(1_000_000)
    with pytest.raises(EOFError, match="received bytes do not match the blob's digest"):
        get(arrivals, says(other, other, other))
    assert not arrivals.has(BLOB.key)


@pytest.mark.parametrize("frames", [(DATA[:1_000_000],), (b"",), ()])
def test_truncated_blob_is_not_kept(arrivals: IncomingBlobs, frames: tuple[bytes, ...]) -> None:
    with pytest.raises(EOFError):
        get(arrivals, says(*frames))
    assert not arrivals.has(BLOB.key)


def test_oversized_frame_is_refused(arrivals: IncomingBlobs) -> None:
    with pytest.raises(EOFError, match="peer sent more bytes than the blob's size"):
        get(arrivals, says(bytes(1024 * 1024 + 1)))


def test_transfer_attempt_ends_when_a_later_one_starts(arrivals: IncomingBlobs) -> None:
    with pytest.raises(EOFError, match="superseded"):
        get(arrivals, says(b"", b"", b""), superseded=True)


def test_starving_node_gives_up_after_its_timeout(arrivals: IncomingBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.worker.blobs.peers.STARVED", 0.0)
    with pytest.raises(EOFError, match="received nothing"):
        get(arrivals, says(b"", b"", b""))


def test_blob_is_forwarded(arrivals: IncomingBlobs) -> None:
    """A node receives what the other one sends."""
    far = IncomingBlobs(BlobStore())

    def serve(connection: ssl.SSLSocket) -> None:
        _, key, offset = REQUEST.unpack(connection.recv(REQUEST.size))
        with far.reading(key, 5) as source:
            assert source is not None
            stream(connection, source, offset)

    with far.writing(BLOB.key, BLOB.size) as arrival:
        arrival.write(memoryview(DATA), 0)
        get(arrivals, serve)
    assert arrivals.has(BLOB.key)


# At the ports of a pool's nodes.


def hears(address: tuple[str, int], shown: ssl.SSLContext) -> bytes | None:
    """Return the answer of a port to a request for a blob; None if it does not use TLS."""
    with socket.create_connection(address, timeout=20) as plain:
        try:
            connection = shown.wrap_socket(plain)
        except (OSError, EOFError):
            return None
        with connection:
            try:
                connection.sendall(REQUEST.pack(STREAM, BLOB.key, 0))
                return connection.recv(1)
            except OSError:
                return b""


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs the addresses of Linux")
def test_unauthenticated_peer_gets_no_answer() -> None:
    """With no certificate, or one of another pool: refused before its request is read."""
    nobody = ssl.create_default_context()
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    _, other = contexts(Authority("another", bytes(32)).issue("stranger"))
    other.verify_mode = ssl.CERT_NONE  # does not authenticate the server

    @sky.function
    def in_cluster() -> int:
        return sky.counter("in").increment()

    with sky.Compute(nodes=1) as pool:
        in_cluster() >> pool
        ports = listening_at(psutil.Process(tasks.pid() >> pool))
        for stranger in (nobody, other):
            answers = [hears(port, stranger) for port in ports]
            assert answers.count(b"") == 3, "ports of the engine, the cluster, and blobs between nodes"
            assert answers.count(None) == len(ports) - 3
