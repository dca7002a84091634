"""Ports for servers that tests start."""

import contextlib
import os
import random
import re
import socket
from collections.abc import Iterator

_FIRST, _LAST = 15_000, 30_000
"""Below the ports that the system gives to whoever asks for any."""

_PROCESSES = 8
"""Test processes that share those ports."""


def _ports() -> Iterator[int]:
    """Every port of this test process, in an order of this run's own, again and again."""
    number = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or "0"
    own = list(range(_FIRST + int(number) % _PROCESSES, _LAST, _PROCESSES))
    random.SystemRandom().shuffle(own)
    while True:
        yield from own


_own_ports = _ports()


def free_port(ip: str = "127.0.0.1") -> int:
    """A port that nobody else takes before it is listened at.

    A kernel has five, and listens at none before it has them all: none is given twice, nor to two test processes.
    """
    for port in _own_ports:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((ip, port))
            return port
    raise AssertionError("unreachable: the ports are given again and again")
