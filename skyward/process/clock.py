"""The clock of the library, which code of the user cannot replace.

Tasks in thread slots share the worker's interpreter. A task, or a library such as freezegun, may put another function
in the place of `time.monotonic`; deadlines, heartbeats and waits must not follow it. The functions are kept in a class
because freezegun also replaces them where they are globals of a module.
"""

import time

__all__ = ["clock"]


class _Clock:
    """The functions of `time` that the worker uses, as they were when it started."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.perf_counter)
    sleep = staticmethod(time.sleep)
    time_ns = staticmethod(time.time_ns)


clock = _Clock()
