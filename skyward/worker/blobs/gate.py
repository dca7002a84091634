"""Server that serves only authenticated connections.

Unauthenticated connections cost little: one thread for all of them, `most` connections at a time, and a few
bytes each until `PROVE_WITHIN` seconds are over. With `most` connections, the oldest that has sent nothing is dropped
for a new one, but none in its first `KEEP` seconds, in which a distant peer can authenticate itself. Until then, new
connections wait in the listen queue. Where many of them fail, new ones wait there too, so that tasks keep the CPU.

Tasks run in this process, and may replace attributes of modules, and use up its threads and descriptors. A connection
that cannot be served because of that is dropped, and the next one is accepted.
"""

import contextlib
import logging
import resource
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock
from skyward.wire.transport.proof import PROVE_WITHIN, Steps

__all__ = ["KEEP", "MOST", "Gate", "max_unproven"]

MOST = 1024
"""Largest number of unauthenticated connections."""

_PART = 16
"""Divisor of the descriptor limit: unauthenticated connections may take this part of the descriptors."""

KEEP = 1.0
"""Seconds in which a connection is not dropped for a newer one."""

_PAUSE = 0.001
"""Seconds until the next connection is accepted after one has failed."""

_FULL = 0.2
"""Seconds until the next attempt to accept a connection where no descriptor is free."""

_logger = logging.getLogger(__name__)


def max_unproven() -> int:
    """Return the largest number of unauthenticated connections: at most `MOST`, fewer where descriptors are few."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(16, min(MOST, soft // _PART))


@dataclass(slots=True, eq=False)
class _Unproven[C: socket.socket]:
    connection: C
    steps: Steps[None]
    since: float


class Gate[C: socket.socket]:
    """Server of a listening socket, on a thread of its own.

    Args:
        listener: the listening socket.
        prove: does our part of the authentication on a non-blocking connection.
        serve: serves an authenticated connection, on a thread of its own, and closes it.
        name: name of the threads.
        wrap: turns an accepted connection into the argument of `prove` and `serve`.
        most: largest number of unauthenticated connections; by default `max_unproven()`.
        within: seconds that each of them has to authenticate.
        keep: seconds in which none of them is dropped for a newer one.
    """

    def __init__(
        self,
        listener: socket.socket,
        prove: Callable[[C], Steps[None]],
        serve: Callable[[C], None],
        name: str,
        wrap: Callable[[socket.socket], C],
        most: int | None = None,
        within: float = PROVE_WITHIN,
        keep: float = KEEP,
    ) -> None:
        self._listener = listener
        self._prove = prove
        self._serve = serve
        self._name = name
        self._wrap = wrap
        self._most = max_unproven() if most is None else most
        self._within = within
        self._keep = keep
        self._unproven: dict[_Unproven[C], None] = {}  # the oldest first, here and below
        self._silent: dict[_Unproven[C], None] = {}  # connections that have sent nothing
        self._selector = selectors.DefaultSelector()
        self._listening = False
        self._accept_from = 0.0
        listener.setblocking(False)
        self._waking, self._wake = socket.socketpair()
        self._selector.register(self._waking, selectors.EVENT_READ)
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting connections. Connections being served continue."""
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        with self._selector, self._waking:
            while self._step():
                pass
            for peer in tuple(self._unproven):
                self._drop(peer)

    def _step(self) -> bool:
        now = clock.monotonic()
        while (first := next(iter(self._unproven), None)) is not None and first.since + self._within <= now:
            self._drop(first)
        accept_from = max(self._accept_from, self._room_from())
        self._listen(accept_from <= now)
        events = [] if self._listening else [accept_from]
        if first is not None:
            events.append(first.since + self._within)
        for key, _ in self._selector.select(max(0.0, min(events) - now) if events else None):
            if key.fileobj is self._waking:
                return False
            if key.data is None:
                self._accept()
            elif key.data in self._unproven:
                self._silent.pop(key.data, None)
                self._advance(key.data)
        return True

    def _listen(self, wanted: bool) -> None:
        """Start or stop to watch the listener: without it, new connections wait in the listen queue."""
        if self._listening and not wanted:
            self._selector.unregister(self._listener)
            self._listening = False
        elif wanted and not self._listening:
            try:
                self._selector.register(self._listener, selectors.EVENT_READ)
            except OSError:  # the system has no memory for it
                self._pause(_FULL)
            else:
                self._listening = True

    def _pause(self, seconds: float) -> None:
        """Accept no connection for some seconds. Authentications in progress continue."""
        self._accept_from = max(self._accept_from, clock.monotonic() + seconds)

    def _to_evict(self) -> _Unproven[C]:
        """Return the connection to drop for a new one."""
        return next(iter(self._silent or self._unproven))

    def _room_from(self) -> float:
        """Return the time from which there is room for one more connection."""
        return self._to_evict().since + self._keep if len(self._unproven) >= self._most else 0.0

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor is free; one may be, a little later
            self._pause(_FULL)
            return
        if len(self._unproven) >= self._most:
            self._drop(self._to_evict())
        try:
            accepted.setblocking(False)
            connection = self._wrap(accepted)
        except Exception as error:  # the peer is gone, or there is no memory for the connection
            _logger.debug("%s: an accepted connection is unusable: %s", self._name, error)
            accepted.close()
            self._pause(_PAUSE)
            return
        peer = _Unproven(connection, self._prove(connection), clock.monotonic())
        self._unproven[peer] = None
        self._silent[peer] = None
        self._advance(peer)

    def _advance(self, peer: _Unproven[C]) -> None:
        try:
            event = next(peer.steps, None)
            if event is None:
                self._admit(peer)
            else:
                self._expect(peer, event)
        except Exception as error:  # any failure ends this connection alone
            _logger.debug("%s: a connection failed before it was authenticated: %s", self._name, error)
            self._drop(peer)

    def _expect(self, peer: _Unproven[C], event: int) -> None:
        key = self._selector.get_map().get(peer.connection)
        if key is None:
            self._selector.register(peer.connection, event, peer)
        elif key.events != event:
            self._selector.modify(peer.connection, event, peer)

    def _admit(self, peer: _Unproven[C]) -> None:
        self._forget(peer)
        peer.connection.setblocking(True)
        Thread(target=self._serve, args=(peer.connection,), name=self._name, daemon=True).start()

    def _forget(self, peer: _Unproven[C]) -> None:
        self._unproven.pop(peer, None)
        self._silent.pop(peer, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.connection)

    def _drop(self, peer: _Unproven[C]) -> None:
        self._pause(_PAUSE)
        self._forget(peer)
        peer.steps.close()
        peer.connection.close()
