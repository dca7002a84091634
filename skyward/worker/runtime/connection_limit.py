"""Limit on unauthenticated connections at the engine's ports, so that they cannot take all descriptors of the worker.

The engine ends a connection that is not authenticated after 5 s, but accepts any number of them, and stops listening
permanently at the first one for which no descriptor is free (casty 0.30). So the descriptor limit is raised as far as
possible, and where too many connections are so young that they may be unauthenticated, the oldest of those are shut
down.
"""

import contextlib
import os
import resource
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from threading import Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock

__all__ = ["MOST", "ConnectionLimit", "raise_descriptor_limit"]

MOST = 128
"""Largest number of connections at the engine's ports that may be unauthenticated."""

_PROVED_AFTER = 6.0
"""Seconds after which a connection that is still open has authenticated itself."""

_PROVED_BYTES = 4096
"""Bytes sent to a peer after which its connection counts as authenticated: before that, a TLS handshake with our
certificates takes about 1,000."""

_EVERY = 0.1
_GROWTH = 64
"""Growth of the number of descriptors at which the connections are checked."""

_DESCRIPTORS = 65536
_LISTED = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def raise_descriptor_limit() -> None:
    """Raise the soft descriptor limit to the hard limit, 65,536 at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # the system has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class ConnectionLimit:
    """Watch over the accepted connections at some ports of this process.

    Args:
        addresses: returns the addresses that are listened on, each as `host:port`; "" for none.
        most: largest number of young connections.
    """

    def __init__(self, addresses: Callable[[], tuple[str, ...]], most: int = MOST) -> None:
        self._addresses = addresses
        self._most = most
        self._since: dict[object, float] = {}
        self._least = 0

    def start(self) -> None:
        """Start to watch the connections, on a thread."""
        self._least = len(os.listdir(_LISTED))
        Thread(target=self._watch, name="skyward-connections", daemon=True).start()

    def _watch(self) -> None:
        while True:
            clock.sleep(_EVERY)
            with contextlib.suppress(OSError):  # no free descriptor for the check; the next one may get it
                self._check()

    def _check(self) -> None:
        count = len(os.listdir(_LISTED))
        self._least = min(self._least, count)
        if count > self._least + _GROWTH or self._since:
            self.thin(clock.monotonic())
            self._least = len(os.listdir(_LISTED))

    def thin(self, now: float) -> int:
        """Shut down the oldest of the young connections where there are too many; return the number shut down."""
        ports = {int(each.rpartition(":")[2]) for each in self._addresses() if each}
        seen: dict[object, float] = {}
        young: list[tuple[float, socket.socket]] = []
        try:
            for connection in _connections(ports):
                kept = False
                try:
                    peer = (connection.getsockname(), connection.getpeername())
                    if peer in seen:  # behind two descriptors, one of which may be is_ours
                        continue
                    seen[peer] = since = self._since.get(peer, now)
                    if now - since < _PROVED_AFTER and _bytes_acked(connection) < _PROVED_BYTES:
                        young.append((since, connection))
                        kept = True
                except OSError:  # the peer has reset the connection
                    continue
                finally:
                    if not kept:
                        connection.close()
            self._since = seen if young else {}
            young.sort(key=lambda each: each[0])
            excess = max(0, len(young) - self._most)
            for _, connection in young[:excess]:
                with contextlib.suppress(OSError):  # already closed
                    connection.shutdown(socket.SHUT_RDWR)
            return excess
        finally:
            for _, connection in young:
                connection.close()


def _bytes_acked(connection: socket.socket) -> int:
    """Return the number of bytes that the peer has acknowledged; 0 where the system cannot tell."""
    if sys.platform != "linux":
        return 0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    return int(struct.unpack_from("=Q", info, 120)[0]) if len(info) == 128 else 0  # tcpi_bytes_acked of linux/tcp.h


def _connections(ports: set[int]) -> Iterator[socket.socket]:
    """Yield the connected sockets of this process at these local ports, each behind a duplicated descriptor."""
    for name in os.listdir(_LISTED):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            duplicate = os.dup(int(name))  # a duplicate: the number may be reused for another file meanwhile
        except OSError:
            continue
        try:
            candidate = socket.socket(fileno=duplicate)
        except OSError:  # the number was reused for another file
            os.close(duplicate)
            continue
        try:
            inet = candidate.family in (socket.AF_INET, socket.AF_INET6)
            is_ours = inet and candidate.getsockname()[1] in ports and bool(candidate.getpeername())
        except OSError:  # it listens, or is no longer connected
            is_ours = False
        if is_ours:
            yield candidate
        else:
            candidate.close()
