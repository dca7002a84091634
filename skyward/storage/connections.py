"""Connections to one store, kept open between requests and shared by threads. They can all be cut at once."""

import contextlib
import os
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

__all__ = ["CONNECT_WITHIN", "SILENCE", "Connections"]

CONNECT_WITHIN = 5.0
"""Seconds within which a connection must be open."""

SILENCE = 30.0
"""Seconds without a byte after which a connection counts as dead."""


class Connections:
    """Pool of connections to a host; each is used by one thread at a time.

    Args:
        scheme, host: of the addresses of requests.
    """

    def __init__(self, scheme: str, host: str) -> None:
        self.host = host
        self.prefix = ""  # before the path: a proxy for plain HTTP needs the whole address
        self._scheme = scheme
        self._lock = Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()
        self._is_cut = False
        self._proxy = _proxy(scheme, host)
        self._context: ssl.SSLContext | None = _trusted() if scheme == "https" else None
        if self._proxy and scheme == "http":
            self.prefix = f"http://{host}"

    @contextlib.contextmanager
    def lend(self, *, fresh: bool = False) -> Iterator[tuple[HTTPConnection, bool]]:
        """Lend a connection, and tell whether it was used before. It is closed if the block raises.

        Args:
            fresh: whether it must be a new one.

        Raises:
            ConnectionAbortedError: the connections have been cut.
        """
        with self._lock:
            if self._is_cut:
                raise ConnectionAbortedError("cut")
            used = None if fresh or not self._idle else self._idle.pop()
            connection = used or self._new()
            self._busy.add(connection)
        try:
            yield connection, used is not None
        except BaseException:
            connection.close()
            raise
        finally:
            with self._lock:
                self._busy.discard(connection)
                if connection.sock is not None and not self._is_cut:
                    self._idle.append(connection)
                else:
                    connection.close()

    def cut(self) -> None:
        """Cut all connections, also those in use, so that no thread waits for the store any longer."""
        with self._lock:
            self._is_cut = True
            for connection in self._busy:
                sock = connection.sock
                if sock is not None:
                    with contextlib.suppress(OSError):
                        # Of the plain socket: an SSL socket would take its thread's lock.
                        socket.socket.shutdown(sock, socket.SHUT_RDWR)
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def retire(self) -> None:
        """Close the connections that are idle now, and those in use when they are given back."""
        with self._lock:
            self._is_cut = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _new(self) -> HTTPConnection:
        host, port = self._proxy or (self.host, None)
        if self._context is None:
            connection = HTTPConnection(host, port, timeout=CONNECT_WITHIN)
        else:
            connection = HTTPSConnection(host, port, timeout=CONNECT_WITHIN, context=self._context)
            if self._proxy:
                connection.set_tunnel(self.host)
        return connection


def _trusted() -> "ssl.SSLContext":
    import ssl  # slow to load

    context = ssl.create_default_context()
    bundle = os.environ.get("AWS_CA_BUNDLE")
    if bundle and os.path.exists(bundle):
        context.load_verify_locations(bundle)
    return context


def _proxy(scheme: str, host: str) -> tuple[str, int] | None:
    """Return host and port of the proxy that the environment names for this host; None if there is none."""
    if not any(os.environ.get(name) for each in (f"{scheme}_proxy", "all_proxy") for name in (each, each.upper())):
        return None
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    found = getproxies()
    address = found.get(scheme) or found.get("all")
    if not address or proxy_bypass(host):
        return None
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return (parts.hostname or "", parts.port or 80)
