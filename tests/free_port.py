"""Ports for servers that tests start."""

import itertools
import os
import random
import re
import socket

_FIRST, _LAST = 15_000, 30_000
"""Below the range of ports that the system assigns."""

_PROCESSES = 8
"""Test processes that share those ports."""

_process = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or "0") % _PROCESSES
_ports = list(range(_FIRST + _process, _LAST, _PROCESSES))
random.SystemRandom().shuffle(_ports)
_next_ports = itertools.cycle(_ports)


def free_port(ip: str = "127.0.0.1") -> int:
    """Return a port that no other process takes before it is bound.

    A kernel needs five, and binds none before it has all of them: no port is returned again before all the others were,
    and no two test processes share any.
    """
    return next(port for port in _next_ports if _is_free(ip, port))


def _is_free(ip: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((ip, port))
        except OSError:
            return False
    return True
