"""Threads that take turns often, so that a message does not wait for a computation in the same process.

A thread that comes back from waiting gets the interpreter when the one that computes gives it away: after 5 ms, as
Python is set. A call over SSH has three such waits at the client alone: 17 ms beside a busy main thread, where it takes
0.8 ms at rest. With 0.1 ms it is 1.3 ms, and threads that compute side by side are no slower (`benchmarks/README.md`).
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
_before = _ours = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let no thread hold the interpreter for long meanwhile. An interval that is set to less stays as it is."""
    global _count, _before, _ours
    with _lock:
        if not _count:
            _before = sys.getswitchinterval()
            if _before > INTERVAL:
                sys.setswitchinterval(INTERVAL)
            _ours = sys.getswitchinterval()
        _count += 1
    try:
        yield
    finally:
        with _lock:
            _count -= 1
            if not _count and sys.getswitchinterval() == _ours:  # nobody else has changed it meanwhile
                sys.setswitchinterval(_before + 5e-7)  # which cuts what it is given down to a microsecond
