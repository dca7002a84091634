"""The event loop of both ends: uvloop's where it is installed, which is faster by a quarter, else asyncio's."""

import asyncio

from skyward.process.clock import clock

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop, not running. Its time is not that of a task which replaces `time.monotonic`."""
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
        loop.time = clock.monotonic  # type: ignore[method-assign]  # the method looks `time.monotonic` up anew
        return loop
    return uvloop.new_event_loop()
