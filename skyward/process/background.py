"""The library's event loop, on its own daemon thread, started at first use.

Of user code, only providers and policies run on it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import finalize

from skyward.errors import UsageError
from skyward.process.clock import clock
from skyward.process.forked import begin_use, is_forked, refuse_forked

__all__ = ["call", "call_soon", "call_when_gone", "loop", "new_event_loop", "on_loop", "run", "run_on", "stop"]

_STOP_WITHIN = 2.0
"""Seconds that the loop has to stop."""

_logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def loop() -> asyncio.AbstractEventLoop:
    """Return the running loop; start it at first use.

    Raises:
        UsageError: this process was forked from one in which the loop runs.
    """
    global _loop, _thread
    refuse_forked()
    if _loop is not None and _thread is not None and _thread.is_alive():
        return _loop
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():
            begin_use()
            _loop = new_event_loop()
            _loop.set_default_executor(ThreadPoolExecutor(2, thread_name_prefix="skyward-io"))
            _thread = threading.Thread(target=run_on, args=(_loop,), name="skyward-loop", daemon=True)
            _thread.start()
        return _loop


def run[T](coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the loop. Return its future, on which other threads can wait."""
    try:
        event_loop = loop()
    except UsageError:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, event_loop)


def run_on(event_loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped: a `SystemExit` of one callback ends neither the loop nor its other work."""
    while True:
        try:
            return event_loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:  # asyncio passes on these two only
            _logger.error("%s on the library's loop is ignored", type(error).__name__, exc_info=error)


def stop() -> None:
    """Stop the loop at the exit of the interpreter, after all use.

    uvloop waits for events without the interpreter's lock, and would crash the process by taking it for an event after
    the interpreter has ended.
    """
    if _loop is not None and _thread is not None and not is_forked():
        _loop.call_soon_threadsafe(_loop.stop)
        _thread.join(_STOP_WITHIN)


def call_soon(call: Callable[..., object], *args: object) -> None:
    """Schedule a call on the loop, from any thread."""
    loop().call_soon_threadsafe(call, *args)


def call_when_gone(owner: object, call: Callable[..., object], *args: object) -> None:
    """Schedule a call on the loop for when `owner` is garbage-collected.

    Nothing is called at exit of the interpreter, nor in a process forked from this one.
    """

    def call_on_loop() -> None:
        if not is_forked():
            call_soon(call, *args)

    finalize(owner, call_on_loop).atexit = False


def call[T](function: Callable[[], T]) -> T:
    """Call `function` on the loop, wait, and return its result. On the loop's own thread, call it directly."""
    if on_loop():
        return function()

    async def coroutine() -> T:
        return function()

    return run(coroutine()).result()


def on_loop() -> bool:
    """Return whether the caller is on the loop's thread, where it must not block."""
    return threading.current_thread() is _thread


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop, not running: uvloop's where it is installed (about 25 % faster), else asyncio's.

    Its clock is unaffected by tasks that replace `time.monotonic`.
    """
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
        loop.time = clock.monotonic  # type: ignore[method-assign]  # the method looks up `time.monotonic` at each call
        return loop
    return uvloop.new_event_loop()
