"""Ports for servers that tests start."""

import contextlib
import os
import random
import re
import socket
from collections.abc import Iterator

_FIRST, _LAST = 15_000, 30_000
"""Below the range of ports that the system assigns."""

_PROCESSES = 8
"""Test processes that share those ports."""


def _ports() -> Iterator[int]:
    """Yield every port of this test process, in a random order per run, repeatedly."""
    number = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or "0"
    own = list(range(_FIRST + int(number) % _PROCESSES, _LAST, _PROCESSES))
    random.SystemRandom().shuffle(own)
    while True:
        yield from own


_own_ports = _ports()


def free_port(ip: str = "127.0.0.1") -> int:
    """Return a port that no other process takes before it is bound.

    A kernel needs five, and binds none before it has all of them: no port is returned twice, or to two test processes.
    """
    for port in _own_ports:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((ip, port))
            return port
    raise AssertionError("unreachable: the ports are given again and again")
