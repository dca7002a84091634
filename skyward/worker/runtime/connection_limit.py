"""Keeping connections of strangers at the engine's ports from taking all descriptors of the worker.

The engine ends a connection that has not proved itself after 5 s, but accepts any number of them, and at the first one
for which no descriptor is free it stops listening for good (casty 0.30). So the limit of descriptors is raised as far
as it goes, and where many connections are so young that they may be unproved, the oldest of those are shut down.
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
"""Connections at the engine's ports that may be unproved, at most."""

_PROVED_AFTER = 6.0
"""Seconds after which a connection that is still open has proved itself."""

_PROVED_BYTES = 4096
"""Bytes after which a connection has proved itself that has taken so many of us: before the proof, a handshake of TLS
with our certificates takes about 1,000."""

_EVERY = 0.1
_GROWTH = 64
"""Look at the descriptors once there are so many more of them than before."""

_DESCRIPTORS = 65536
_LISTED = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def raise_descriptor_limit() -> None:
    """Raise the soft descriptor limit to the hard limit, 65,536 at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # a system with a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class ConnectionLimit:
    """The connections at some ports of this process, which others than we have accepted.

    Args:
        addresses: gives the addresses that are listened on, each as `host:port`; "" for none.
    """

    def __init__(self, addresses: Callable[[], tuple[str, ...]], most: int = MOST) -> None:
        self._addresses = addresses
        self._most = most
        self._since: dict[object, float] = {}
        self._least = 0

    def start(self) -> None:
        """Watch them from now on, on a thread."""
        self._least = len(os.listdir(_LISTED))
        Thread(target=self._watch, name="skyward-connections", daemon=True).start()

    def _watch(self) -> None:
        while True:
            clock.sleep(_EVERY)
            with contextlib.suppress(OSError):  # no descriptor is free to look with; the next look may have one
                self._look()

    def _look(self) -> None:
        count = len(os.listdir(_LISTED))
        self._least = min(self._least, count)
        if count > self._least + _GROWTH or self._since:
            self.thin(clock.monotonic())
            self._least = len(os.listdir(_LISTED))

    def thin(self, now: float) -> int:
        """Shut down the oldest of the young connections where there are too many; return how many were shut down."""
        ports = {int(each.rpartition(":")[2]) for each in self._addresses() if each}
        seen: dict[object, float] = {}
        young: list[tuple[float, socket.socket]] = []
        try:
            for connection in _connections(ports):
                kept = False
                try:
                    peer = (connection.getsockname(), connection.getpeername())
                    if peer in seen:  # behind two descriptors, one of which may be ours
                        continue
                    seen[peer] = since = self._since.get(peer, now)
                    if now - since < _PROVED_AFTER and _taken(connection) < _PROVED_BYTES:
                        young.append((since, connection))
                        kept = True
                except OSError:  # the other end has reset it meanwhile
                    continue
                finally:
                    if not kept:
                        connection.close()
            self._since = seen if young else {}
            young.sort(key=lambda each: each[0])
            excess = max(0, len(young) - self._most)
            for _, connection in young[:excess]:
                with contextlib.suppress(OSError):  # it is gone by itself
                    connection.shutdown(socket.SHUT_RDWR)
            return excess
        finally:
            for _, connection in young:
                connection.close()


def _taken(connection: socket.socket) -> int:
    """The bytes that the other end has acknowledged; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    return int(struct.unpack_from("=Q", info, 120)[0]) if len(info) == 128 else 0  # tcpi_bytes_acked of linux/tcp.h


def _connections(ports: set[int]) -> Iterator[socket.socket]:
    """The connected sockets of this process at these ports of its own, each behind a descriptor of ours."""
    for name in os.listdir(_LISTED):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            ours_too = os.dup(int(name))  # of our own, so that a number which another file gets meanwhile does no harm
        except OSError:
            continue
        try:
            candidate = socket.socket(fileno=ours_too)
        except OSError:  # another file has the number already
            os.close(ours_too)
            continue
        try:
            inet = candidate.family in (socket.AF_INET, socket.AF_INET6)
            ours = inet and candidate.getsockname()[1] in ports and bool(candidate.getpeername())
        except OSError:  # it listens, or is not connected any more
            ours = False
        if ours:
            yield candidate
        else:
            candidate.close()
