"""Mutual proof: only two ends with the same key succeed, and proofs are useless on other connections."""

import contextlib
import errno
import resource
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.wire.transport.proof import Steps, UnprovedError, call, prove_to_caller, prove_to_listener
from skyward.worker.blobs import gate as gates
from skyward.worker.blobs.gate import Gate, max_unproven

pytestmark = pytest.mark.unit

KEY, OTHER = b"k" * 32, b"o" * 32


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a non-blocking connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def run(*parts: Steps[None]) -> list[Exception | None]:
    """Run the parts of both ends in turn. Return the error of each, or None; an unfinished part counts as refused."""
    ends: list[Exception | None] = [TimeoutError() for _ in parts]
    left = dict(enumerate(parts))
    for _ in range(50):
        for number, steps in tuple(left.items()):
            try:
                next(steps)
            except StopIteration:
                ends[number] = None
                del left[number]
            except Exception as error:
                ends[number] = error
                del left[number]
    return ends


def test_peers_with_the_same_key_authenticate() -> None:
    with connected() as (caller, listener):
        assert run(prove_to_listener(caller, KEY), prove_to_caller(listener, KEY)) == [None, None]


def test_listener_without_the_key_receives_only_a_nonce() -> None:
    with connected() as (caller, listener):
        listener.send(b"x" * 64)
        (error,) = run(prove_to_listener(caller, KEY))
        assert isinstance(error, UnprovedError)
        received = listener.recv(1000)
    assert (len(received), received[:4]) == (36, b"SKY1")


def test_caller_without_the_key_is_refused() -> None:
    """The caller does not accept the listener either."""
    with connected() as (caller, listener):
        ours, theirs = run(prove_to_listener(caller, OTHER), prove_to_caller(listener, KEY))
        assert isinstance(ours, UnprovedError)
        assert theirs is not None


def test_two_callers_do_not_prove_themselves_to_each_other() -> None:
    """A caller's frames cannot be reflected back to it."""
    with connected() as (one, other):
        assert all(
            isinstance(end, Exception) for end in run(prove_to_listener(one, KEY), prove_to_listener(other, KEY))
        )


def test_replayed_proof_is_refused() -> None:
    with connected() as (caller, listener):
        recording = bytearray()
        with Recorder(listener, recording) as recorded:
            assert run(prove_to_listener(caller, KEY), prove_to_caller(recorded, KEY)) == [None, None]
        assert len(recording) == 68
    with connected() as (stranger, listener):
        stranger.send(recording)
        (error,) = run(prove_to_caller(listener, KEY))
        assert isinstance(error, UnprovedError)


class Recorder(socket.socket):
    """A socket that records what it receives."""

    def __init__(self, connection: socket.socket, recording: bytearray) -> None:
        super().__init__(fileno=connection.detach())
        self.setblocking(False)
        self._said = recording

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        self._said += data
        return data


@given(st.binary(max_size=200), st.booleans())
def test_caller_with_random_bytes_is_refused(recording: bytes, magic: bool) -> None:
    with connected() as (stranger, listener):
        stranger.send(b"SKY1" * magic + recording)
        stranger.shutdown(socket.SHUT_WR)
        (error,) = run(prove_to_caller(listener, KEY))
        assert isinstance(error, UnprovedError)


@given(st.binary(max_size=200))
def test_listener_with_random_bytes_is_refused(recording: bytes) -> None:
    with connected() as (caller, impostor):
        impostor.send(recording)
        impostor.shutdown(socket.SHUT_WR)
        (error,) = run(prove_to_listener(caller, KEY))
        assert isinstance(error, UnprovedError)


def test_silent_listener_times_out() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(UnprovedError, match=r"did not prove itself within 0\.05 s"):
        call(ours, KEY, within=0.05)


# The gate.


@contextlib.contextmanager
def gate(
    most: int = 64, within: float = 20.0, keep: float = 0.0, listener: Callable[[], socket.socket] = socket.socket
) -> Iterator[tuple[Callable[[], socket.socket], threading.Event]]:
    """Yield a gate: a function that connects to it, and one that returns whether it has admitted a connection."""
    entered = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            entered.set()

    def prove(connection: socket.socket) -> Steps[None]:
        return prove_to_caller(connection, KEY)

    with listener() as listening, contextlib.ExitStack() as connections:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        served = Gate(listening, prove, serve, "skyward-test", lambda each: each, most, within, keep)
        address = listening.getsockname()
        try:
            yield lambda: connections.enter_context(socket.create_connection(address, timeout=20)), entered
        finally:
            served.close()


def test_gate_drops_oldest_unproved_connection_for_a_new_one() -> None:
    with gate(most=2) as (connect, entered):
        first, second = connect(), connect()
        third = connect()
        assert first.recv(1) == b""
        call(third, KEY)
        call(second, KEY)
        assert entered.wait(20)


def test_gate_keeps_young_connections_and_leaves_new_ones_in_the_queue() -> None:
    with gate(most=2, keep=60.0) as (connect, entered):
        first, second = connect(), connect()
        third = connect()
        third.settimeout(0)
        third.sendall(b"SKY1" + bytes(32))
        call(first, KEY)
        assert entered.wait(20)
        third.settimeout(20)
        assert len(third.recv(64)) == 64, "there is room now"
        call(second, KEY)


def test_gate_drops_silent_connections_before_others() -> None:
    with gate(most=2) as (connect, _):
        speaking, silent = connect(), connect()
        speaking.sendall(b"SKY1" + bytes(32))
        assert len(speaking.recv(64)) == 64
        later = connect()
        assert silent.recv(1) == b""
        connect()
        assert later.recv(1) == b""
        speaking.settimeout(0)
        with pytest.raises(BlockingIOError):
            speaking.recv(1)


def test_gate_limits_unproved_connections_to_a_share_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((64, 16), (1024, 64), (65536, 1024), (resource.RLIM_INFINITY, 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert max_unproven() == most


def test_gate_survives_failure_to_start_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with gate() as (connect, entered):
        with monkeypatch.context() as patched:
            patched.setattr(gates, "Thread", NoThread)
            dropped = connect()
            call(dropped, KEY)
            assert dropped.recv(1) == b""
        call(connect(), KEY)
        assert entered.wait(20)


class Full(socket.socket):
    """A listener without free descriptors after the first connection."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = threading.Semaphore(0)
        self._has_one = False

    def accept(self) -> tuple[socket.socket, object]:
        if self._has_one:
            self.tried.release()
            raise OSError(errno.EMFILE, "Too many open files")
        accepted = super().accept()
        self._has_one = True
        return accepted


def test_gate_serves_existing_connections_without_free_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "_FULL", 60.0)
    full = Full()
    with gate(listener=lambda: full) as (connect, entered):
        first = connect()
        first.sendall(b"S")
        connect()
        assert full.tried.acquire(timeout=20)
        first.settimeout(20)
        first.sendall(b"KY1" + bytes(32))
        assert len(first.recv(64)) == 64
        assert not entered.is_set()


def test_gate_drops_connection_without_timely_proof() -> None:
    """A connection that sends a little now and then is dropped, too."""
    with gate(within=0.05) as (connect, entered):
        slow = connect()
        with contextlib.suppress(ConnectionError):
            slow.sendall(b"S")
            assert slow.recv(1) == b""
        assert not entered.is_set()


def test_gate_admits_valid_caller_after_many_unproved_ones() -> None:
    with gate() as (connect, entered):
        for _ in range(100):
            with contextlib.suppress(ConnectionError):
                connect().sendall(b"GET / HTTP/1.1\r\n\r\n")
        call(connect(), KEY)
        assert entered.wait(20)
