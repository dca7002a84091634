"""Client of one bucket: requests by obstore on a loop of its own, which can all be ended at once."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from skyward.errors import StorageError
from skyward.process.background import new_event_loop
from skyward.process.clock import clock
from skyward.storage.failures import Refusal
from skyward.storage.location import BucketLocation

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Store

__all__ = ["FIRST_REPLY", "PATIENCE", "BucketClient", "StoppedError"]

FIRST_REPLY = 15.0
"""Seconds within which a store must answer for the first time."""

PATIENCE = 90.0
"""Seconds for which a request is repeated once the store has answered."""

_CONNECT_WITHIN = 5.0
_SILENCE = 30.0
"""Seconds without a byte after which a connection counts as dead."""

_GCS = "https://storage.googleapis.com"
_DEFAULT_REGION = "us-east-1"
_MOST_IN_MEMORY = 160 << 20
"""Bytes of parts that are being uploaded."""

_POLL = 0.2
_END_WITHIN = 10.0
"""Seconds that requests have to end, once they are to."""

_used = False
_forked = False


class StoppedError(Exception):
    """The transfer was stopped. It never reaches a user."""


@dataclass
class _Work:
    """A coroutine on the loop of a client, and its end."""

    done: Event = field(default_factory=Event)
    result: Any = None
    error: BaseException | None = None


class BucketClient:
    """Client of one bucket, for any number of threads. Use it in a `with` block, which ends its requests and its loop.

    Attributes:
        location: the bucket.
        stopped: set when all requests are to end.
        region: region that requests are signed for.
        deletes_together: whether one request may delete several objects; some stores have no such request.
    """

    def __init__(
        self, location: BucketLocation, *, first_reply: float = FIRST_REPLY, patience: float = PATIENCE
    ) -> None:
        if _forked:
            raise StorageError(
                "Object stores do not work in a process that was forked from one that has used them: use them in the "
                "parent, or start a new process, as with `subprocess`."
            )
        self.location = location
        self.stopped = Event()
        self.region = location.region or _default_region(location)
        self.deletes_together = location.endpoint != _GCS
        self._first_reply = first_reply
        self._patience = patience
        self._has_answered = False
        self._in_memory = 0
        self._room = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._stores: dict[tuple[float, bool], S3Store] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def run[T](self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's loop, and wait for it; Ctrl-C ends it, and all requests of the client.

        Raises:
            StoppedError: the client was stopped.
        """
        if self.stopped.is_set():
            coroutine.close()
            raise StoppedError
        work = _Work()
        loop = self._running_loop()
        loop.call_soon_threadsafe(self._start, coroutine, work)
        try:
            while not work.done.wait(_POLL):
                if self.stopped.is_set():
                    work.done.wait(_END_WITHIN)
                    break
        except BaseException:
            self.stop()
            work.done.wait(_END_WITHIN)
            raise
        if work.error is not None:
            raise work.error
        if not work.done.is_set():
            raise StoppedError
        result: T = work.result
        return result

    def stop(self) -> None:
        """End all requests, also those that wait for the store."""
        if not self.stopped.is_set():
            self.stopped.set()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel_all)

    async def ask[T](
        self,
        verb: str,
        key: str | None,
        request: "Callable[[S3Store], Awaitable[T]]",
        *,
        missing: T | None = None,
        patience: float | None = None,
    ) -> T:
        """Send a request, repeat it while the store is busy, and return the reply.

        Args:
            verb: "read", "write", "list" or "delete", for messages.
            key: whole key of the object; None for a request about the bucket.
            request: sends it.
            patience: seconds for which obstore repeats it, if fewer than for others.
            missing: returned if there is no such object; None if that is an error.

        Raises:
            StorageError: the store refuses, or keeps failing, or does not answer.
        """
        since, pause, has_moved = clock.monotonic(), 0.2, False
        while True:
            signed_for = self.region
            try:
                reply = await request(self.store(patience))
            except (StorageError, StoppedError):  # of ours, from within the request
                raise
            except Exception as error:
                refusal = Refusal.of(error)
                self._has_answered |= refusal.status != 0
                if missing is not None and refusal.status == 404 and refusal.code in ("", "NoSuchKey"):
                    return missing
                if not has_moved and self._is_elsewhere(refusal, signed_for):
                    has_moved = True
                    continue
                # Those without a reply, and most errors of the store, have been repeated by obstore.
                waits = refusal.is_temporary and refusal.status not in (0, 500, 502, 503, 504)
                if not waits or clock.monotonic() - since > self._patience:
                    raise refusal.error(self.location, verb, key, signed_for) from None
                await asyncio.sleep(random.uniform(pause / 2, pause))
                pause = min(2 * pause, 8.0)
            else:
                self._has_answered = True
                return reply

    def store(self, most: float | None = None) -> "S3Store":
        """Return the client of obstore, which gives up after `most` seconds if given; sooner before the first reply."""
        patience = self._patience if self._has_answered else min(self._first_reply, self._patience)
        patience = patience if most is None else min(patience, most)
        kind = patience, self.deletes_together
        found = self._stores.get(kind)
        if found is None:
            found = self._stores[kind] = _store(self.location, self.region, patience, self.deletes_together)
        return found

    def marker(self, key: str) -> "S3Store":
        """Return a client of obstore whose object "" is that of a key with a slash after it, which others cannot have.

        Args:
            key: the whole key, without the slash.
        """
        return _store(self.location, self.region, self._patience, False, marker=key)

    @property
    def has_answered(self) -> bool:
        """True if the store has answered a request."""
        return self._has_answered

    @asynccontextmanager
    async def memory(self, size: int) -> AsyncIterator[None]:
        """Wait until `size` bytes may be held in memory."""
        async with self._room:
            await self._room.wait_for(lambda: not self._in_memory or self._in_memory + size <= _MOST_IN_MEMORY)
            self._in_memory += size
        try:
            yield
        finally:
            self._in_memory -= size
            async with self._room:
                self._room.notify_all()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            global _used
            _used = True
            self._loop = loop = new_event_loop()
            self._thread = Thread(target=_run, args=(loop,), name="skyward-storage", daemon=True)
            self._thread.start()
        return self._loop

    def _start(self, coroutine: Coroutine[Any, Any, Any], work: _Work) -> None:
        async def run() -> None:
            try:
                work.result = await coroutine
            except asyncio.CancelledError:
                work.error = StoppedError()
            except BaseException as error:
                work.error = error
            finally:
                work.done.set()

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.stopped.is_set():
            task.cancel()

    def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _is_elsewhere(self, refusal: Refusal, signed_for: str) -> bool:
        """Take the region that a refusal tells, if none was given."""
        if self.location.region or not refusal.region or refusal.region == signed_for:
            return False
        if self.region == signed_for:
            self.region = refusal.region
            self._stores.clear()
        return True


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _store(
    location: BucketLocation, region: str, patience: float, deletes_together: bool, *, marker: str = ""
) -> "S3Store":
    try:
        from obstore.store import S3Store  # slow to load
    except ImportError:
        raise StorageError(
            "Object stores need the package obstore, which is not installed here: install skyward-jupyter[storage]."
        ) from None
    options: ClientConfig = {
        "allow_http": location.endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=_CONNECT_WITHIN),
        "read_timeout": timedelta(seconds=min(_SILENCE, patience)),
        "timeout": timedelta(days=1),  # of a whole object; silence ends it sooner
    }
    if options["allow_http"]:
        options["allow_invalid_certificates"] = True  # none is used; a machine without certificates would be refused
    bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
    if bundle and not location.endpoint.startswith("http://") and Path(bundle).is_file():
        options["root_certificate"] = Path(bundle).read_bytes()
    given: dict[str, Any] = {}
    if location.access_key:
        # A provider, since obstore would add a session token of the environment to keys that are given as such.
        credentials = {
            "access_key_id": location.access_key,
            "secret_access_key": location.secret_key,
            "token": location.session_token or None,
            "expires_at": None,
        }
        given["credential_provider"] = lambda: credentials
    if location.endpoint:
        given["endpoint"] = location.endpoint_for_bucket
    if marker:
        given["endpoint"] = f"{location.address_for_requests(region)}/{quote(marker)}"
    return S3Store(
        location.bucket,
        region=region,
        virtual_hosted_style_request=bool(marker) or not location.uses_path,
        disable_bulk_delete=not deletes_together,
        client_options=options,
        retry_config={
            "max_retries": 100,
            "retry_timeout": timedelta(seconds=patience),
            "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=8), "base": 2},
        },
        **given,
    )


def _default_region(location: BucketLocation) -> str:
    """Return the region to begin with; the store tells another one, if it has to be."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return _DEFAULT_REGION if location.endpoint or not named else named


def _after_fork() -> None:
    global _forked
    _forked = _used


os.register_at_fork(after_in_child=_after_fork)
