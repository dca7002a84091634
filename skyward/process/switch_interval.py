"""A short thread switch interval, so that a message does not wait for a computation in the same process.

A thread that wakes from a wait gets the interpreter when the computing thread yields it: after 5 ms, by Python's
default. A call over SSH has three such waits at the client alone: 17 ms beside a busy main thread, against 0.8 ms when
idle. With 0.1 ms it is 1.3 ms, and threads that compute side by side are no slower (`benchmarks/README.md`).
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["INTERVAL", "short_switch_interval"]

INTERVAL = 0.0001
"""Seconds for which a thread may hold the interpreter while another waits for it."""

_lock = threading.Lock()
_count = 0
_before = _short = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Lower the thread switch interval inside the context. An interval that is already lower stays as it is."""
    global _count, _before, _short
    with _lock:
        if not _count:
            _before = sys.getswitchinterval()
            if _before > INTERVAL:
                sys.setswitchinterval(INTERVAL)
            _short = sys.getswitchinterval()
        _count += 1
    try:
        yield
    finally:
        with _lock:
            _count -= 1
            if not _count and sys.getswitchinterval() == _short:  # unchanged since it was set above
                sys.setswitchinterval(_before + 5e-7)  # rounds up: the value is truncated to a microsecond
