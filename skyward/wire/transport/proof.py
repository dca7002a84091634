"""Mutual proof that both ends of a plain connection belong to the same node, by a key that is never sent.

Three frames of fixed size: `MAGIC (4) | nonce (32)` from the caller; `nonce (32) | proof (32)` from the listener, which
so proves itself first; `proof (32)` from the caller. A proof is the HMAC-SHA256 of a role and both nonces, and is
useless on another connection. Nothing else is read before.

The proof authenticates whoever opened the connection; it does not protect what follows. Where another user could take
the place of the listener and relay the proofs, as at the local end of a forwarded TCP port, use TLS, or a Unix socket
in a private folder.
"""

import hashlib
import hmac
import secrets
import select
import selectors
import socket
from collections.abc import Generator

from skyward.process.clock import clock

__all__ = ["PROVE_WITHIN", "Steps", "UnprovedError", "call", "prove_to_caller", "prove_to_listener"]

PROVE_WITHIN = 5.0
"""Seconds that the other end has to prove itself."""

_MAGIC = b"SKY1"
_NONCE = 32
_PROOF = hashlib.sha256().digest_size

type Steps[T] = Generator[int, None, T]
"""Work on a non-blocking socket: yields the `selectors` event to wait for, and returns its result."""


class UnprovedError(ConnectionError):
    """The other end did not prove that it belongs to the pool."""


def prove_to_caller(connection: socket.socket, key: bytes) -> Steps[None]:
    """Perform the listener's part on a non-blocking connection.

    Raises:
        UnprovedError: the caller does not have `key`.
    """
    greeting = yield from _read(connection, len(_MAGIC) + _NONCE)
    if greeting[: len(_MAGIC)] != _MAGIC:
        raise UnprovedError("the caller uses another protocol")
    their_nonce, our_nonce = greeting[len(_MAGIC) :], secrets.token_bytes(_NONCE)
    yield from _write(connection, our_nonce + _proof(key, b"listener", their_nonce, our_nonce))
    proof = yield from _read(connection, _PROOF)
    if not hmac.compare_digest(proof, _proof(key, b"caller", their_nonce, our_nonce)):
        raise UnprovedError("the caller does not have the key of this node")


def prove_to_listener(connection: socket.socket, key: bytes) -> Steps[None]:
    """Perform the caller's part on a non-blocking connection.

    Raises:
        UnprovedError: the listener does not have `key`. It has received only a nonce.
    """
    our_nonce = secrets.token_bytes(_NONCE)
    yield from _write(connection, _MAGIC + our_nonce)
    answer = yield from _read(connection, _NONCE + _PROOF)
    their_nonce, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _proof(key, b"listener", our_nonce, their_nonce)):
        raise UnprovedError("another program listens at the node's address")
    yield from _write(connection, _proof(key, b"caller", our_nonce, their_nonce))


def call(connection: socket.socket, key: bytes, within: float = PROVE_WITHIN) -> None:
    """Prove ourselves to the listener of a connection and verify its proof; the connection is blocking afterwards.

    Raises:
        UnprovedError: the listener failed to prove itself, or not `within` so many seconds.
        OSError: the connection was lost.
    """
    connection.setblocking(False)
    until = clock.monotonic() + within
    poll = select.poll()  # unlike `select`, it takes descriptors over 1,023
    try:
        for event in prove_to_listener(connection, key):
            poll.register(connection, select.POLLIN if event == selectors.EVENT_READ else select.POLLOUT)
            if not poll.poll(max(0.0, until - clock.monotonic()) * 1000):
                raise UnprovedError(f"the listener did not prove itself within {within:g} s")
    except (ConnectionResetError, BrokenPipeError) as error:
        raise UnprovedError(f"the connection ended before the proof: {error}") from None
    connection.setblocking(True)


def _proof(key: bytes, role: bytes, callers: bytes, listeners: bytes) -> bytes:
    return hmac.digest(key, b"skyward bulk 1 " + role + callers + listeners, hashlib.sha256)


def _read(connection: socket.socket, size: int) -> Steps[bytes]:
    data = b""
    while len(data) < size:
        yield selectors.EVENT_READ
        try:
            more = connection.recv(size - len(data))
        except BlockingIOError:
            continue
        if not more:
            raise UnprovedError("the connection ended before the proof")
        data += more
    return data


def _write(connection: socket.socket, data: bytes) -> Steps[None]:
    while data:
        yield selectors.EVENT_WRITE
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            continue
