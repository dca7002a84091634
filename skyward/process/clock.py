"""The clock of the library, which user code cannot replace.

Tasks in thread slots share the worker's interpreter. A task, or a library such as freezegun, may replace
`time.monotonic`; deadlines, heartbeats and waits must not follow it. The functions are kept in a class because
freezegun also replaces them where they are globals of a module.
"""

import time

__all__ = ["clock"]


class _Clock:
    """The functions of `time` that the worker uses, captured at import."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.perf_counter)
    sleep = staticmethod(time.sleep)
    time_ns = staticmethod(time.time_ns)


clock = _Clock()
