"""Signed requests to one bucket, repeated while the store is busy or the network fails, until a deadline."""

import contextlib
import hashlib
import random
from collections.abc import Buffer, Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Condition, Event, Lock
from typing import Self

from skyward.errors import StorageError
from skyward.process.clock import clock
from skyward.storage.connections import SILENCE, Connections
from skyward.storage.location import BucketLocation
from skyward.storage.replies import UNREACHABLE, StoreReply, refusal
from skyward.storage.role import RoleCredentials, role_credentials
from skyward.storage.signing import EMPTY_HASH, Signer, encoded, query_string

__all__ = ["FIRST_REPLY", "PATIENCE", "Attempts", "BucketClient", "StoppedError"]

FIRST_REPLY = 15.0
"""Seconds within which a store must answer for the first time."""

PATIENCE = 90.0
"""Seconds for which a request is repeated once the store has answered."""

_DEFAULT_REGION = "us-east-1"
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 8.0
_MOST_IN_MEMORY = 160 << 20
"""Bytes of parts that are being uploaded."""

_LONGEST_PAGE = 64 << 20
"""Bytes of a reply that is not an object."""

_DROPPED = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


class StoppedError(Exception):
    """The transfer was stopped. It never reaches a user."""


class BucketClient:
    """Client of one bucket, for any number of threads. Use it in a `with` block, which closes its connections.

    Attributes:
        location: the bucket.
        stopped: set when all requests are to end.
        region: region that requests are signed for.
    """

    def __init__(
        self, location: BucketLocation, *, first_reply: float = FIRST_REPLY, patience: float = PATIENCE
    ) -> None:
        self.location = location
        self.stopped = Event()
        self.region = location.region or _DEFAULT_REGION
        self._first_reply = first_reply
        self._patience = patience
        self._has_answered = False
        self._skew_ns = 0
        self._lock = Lock()
        self._room = Condition()
        self._in_memory = 0
        self._role: RoleCredentials | None = None
        self._signer: Signer | None = None
        self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all requests, also those that wait for the store."""
        self.stopped.set()
        self._connections.cut()

    @contextlib.contextmanager
    def memory(self, size: int) -> Iterator[None]:
        """Wait until `size` bytes may be held in memory: parts of very large files are large themselves.

        Raises:
            StoppedError: the client was stopped.
        """
        with self._room:
            while self._in_memory and self._in_memory + size > _MOST_IN_MEMORY:
                if self.stopped.is_set():
                    raise StoppedError
                self._room.wait(0.2)
            self._in_memory += size
        try:
            yield
        finally:
            with self._room:
                self._in_memory -= size
                self._room.notify_all()

    @property
    def patience(self) -> float:
        """Seconds for which a failing request is repeated."""
        return self._patience if self._has_answered else min(self._first_reply, self._patience)

    def call(
        self,
        method: str,
        key: str | None = None,
        query: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        accept: tuple[int, ...] = (),
        on_repeat: Callable[[], None] | None = None,
    ) -> StoreReply:
        """Send a request, and return the reply.

        Args:
            key: whole key of an object; None for a request about the bucket.
            accept: status codes of errors that are replies, rather than raised.
            on_repeat: called before the request is sent again, since the store may have acted on it.

        Raises:
            StorageError: the store refuses it, or keeps failing, or does not answer.
            StoppedError: the client was stopped.
        """
        attempts = Attempts(self, method, key)
        while True:
            reply = self.attempt(attempts, method, key, query, body, headers, accept=accept)
            if reply is not None:
                return reply
            if on_repeat is not None:
                on_repeat()

    def attempt(
        self,
        attempts: "Attempts",
        method: str,
        key: str | None,
        query: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        accept: tuple[int, ...] = (),
        reader: Callable[[HTTPResponse], None] | None = None,
    ) -> StoreReply | None:
        """Send a request once; return None if it is to be sent again, after a pause.

        Args:
            reader: reads the body of a reply that is no error.

        Raises:
            StorageError: the store refuses it, or has failed for too long.
            StoppedError: the client was stopped.
        """
        if self.stopped.is_set():
            raise StoppedError
        signed_for = self.region
        try:
            reply = self._exchange(method, key, query, body, headers or {}, signed_for, reader)
        except (OSError, HTTPException) as error:
            attempts.pause(error)
            return None
        self._has_answered = True
        if (reply.status < 300 and not reply.code) or (reply.status in accept and not reply.is_temporary):
            return reply
        if self._is_redirected(reply, signed_for) or self._is_clock_set(reply):
            return None
        if reply.is_temporary:
            attempts.pause(reply)
            return None
        raise refusal(reply, method, self.location, key, signed_for)

    def _exchange(
        self,
        method: str,
        key: str | None,
        query: Sequence[tuple[str, str]],
        body: bytes,
        headers: Mapping[str, str],
        region: str,
        reader: Callable[[HTTPResponse], None] | None,
    ) -> StoreReply:
        body_hash = hashlib.sha256(body).hexdigest() if body else EMPTY_HASH
        path = f"{self._base}/{encoded(key or '')}"
        text = query_string(query)
        for fresh in (False, True):
            connections = self._connections
            signed = self._current_signer().headers(
                method, connections.host, path, text, region, body_hash, clock.time_ns() + self._skew_ns, headers
            )
            with contextlib.ExitStack() as stack:
                connection, was_used = stack.enter_context(connections.lend(fresh=fresh))
                try:
                    response = _send(connection, method, connections.prefix + path, text, signed, body)
                except (*_DROPPED, HTTPException):
                    if was_used and not self.stopped.is_set():
                        continue  # the store closes connections that were idle for a while
                    raise
                if self.stopped.is_set():
                    raise StoppedError
                if reader is not None and response.status in (200, 206):
                    reader(response)
                content = response.read(_LONGEST_PAGE)
                if response.will_close or not response.isclosed():
                    connection.close()
                found = {name.lower(): value for name, value in response.getheaders()}
                return StoreReply.of(response.status, found, content)
        raise ConnectionResetError  # both were dropped

    def _connect(self) -> None:
        scheme, host, self._base = self.location.host_and_path(self.region)
        self._connections = Connections(scheme, host)

    def _current_signer(self) -> Signer:
        place = self.location
        if place.access_key:
            if self._signer is None:
                self._signer = Signer(place.access_key, place.secret_key, place.session_token)
            return self._signer
        with self._lock:
            if self._signer is None or self._role is None or self._role.is_expired():
                self._role = role = role_credentials()
                self._signer = Signer(role.access_key, role.secret_key, role.session_token)
            return self._signer

    def _is_redirected(self, reply: StoreReply, signed_for: str) -> bool:
        """Take the region that a reply tells, if none was given."""
        if not reply.is_elsewhere or self.location.region or not reply.region:
            return False
        with self._lock:
            if reply.region == signed_for:
                return False
            if self.region != reply.region:
                self.region = reply.region
                before = self._connections
                self._connect()
                if self.stopped.is_set():
                    self._connections.cut()
                before.retire()
        return True

    def _is_clock_set(self, reply: StoreReply) -> bool:
        """Take the time that a reply tells, if the store finds that of this machine too far away."""
        if reply.code != "RequestTimeTooSkewed" or self._skew_ns:
            return False
        try:
            there = parsedate_to_datetime(reply.headers.get("date", "")).timestamp()
        except ValueError:
            return False
        self._skew_ns = int(there * 1e9) - clock.time_ns()
        return True


class Attempts:
    """Attempts at one request: the pauses between them, and the deadline.

    Args:
        client: the client.
        method, key: the request, for messages.
    """

    def __init__(self, client: BucketClient, method: str, key: str | None) -> None:
        self._client = client
        self._method = method
        self._key = key
        self.progressed()

    def progressed(self) -> None:
        """Start anew: bytes have arrived."""
        self._since = clock.monotonic()
        self._pause = _FIRST_PAUSE

    def pause(self, failure: StoreReply | Exception) -> None:
        """Wait before the next attempt.

        Raises:
            StorageError: the time for this request is over, or it cannot succeed.
            StoppedError: the client was stopped.
        """
        client = self._client
        if client.stopped.is_set():
            raise StoppedError
        left = self._since + client.patience - clock.monotonic()
        pause = random.uniform(self._pause / 2, self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if isinstance(failure, StoreReply):
            if (asked := failure.headers.get("retry-after", "")).isdecimal():
                pause = max(pause, min(float(asked), 60.0))
            if left <= pause:
                raise refusal(failure, self._method, client.location, self._key, client.region)
        elif left <= pause or _is_final(failure):
            raise self._unreachable(failure) from None
        if client.stopped.wait(pause):
            raise StoppedError

    def _unreachable(self, error: Exception) -> StorageError:
        location = self._client.location
        store = location.store
        if _is_final(error):
            return StorageError(
                f"{store} could not prove who it is ({_reason(error)}): check the endpoint, or name the certificate "
                "of its authority in SSL_CERT_FILE.",
                code=UNREACHABLE,
            )
        waited = f"{max(1, round(clock.monotonic() - self._since))} s"
        return StorageError(
            f"{store} did not answer for {waited} ({_reason(error)}): check the endpoint, and that this machine can "
            "reach it.",
            code=UNREACHABLE,
        )


def _send(
    connection: HTTPConnection, method: str, path: str, query: str, headers: Mapping[str, str], body: Buffer
) -> HTTPResponse:
    if connection.sock is None:
        connection.connect()
        connection.sock.settimeout(SILENCE)  # type: ignore[attr-defined]  # it is connected
    connection.putrequest(method, f"{path}?{query}" if query else path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    size = memoryview(body).nbytes
    if size or method in ("PUT", "POST"):
        connection.putheader("content-length", str(size))
    try:
        connection.endheaders()
        if size:
            connection.send(body)
    except _DROPPED:
        # A store that refuses closes the connection before it has read all; its reply may be there.
        with contextlib.suppress(OSError, HTTPException):
            return connection.getresponse()
        raise
    return connection.getresponse()


def _is_final(error: Exception) -> bool:
    return type(error).__name__ == "SSLCertVerificationError"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no reply in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:120]
    return type(error).__name__
