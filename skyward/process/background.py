"""The library's event loop, on a daemon thread of its own, started at first use. Nothing of the user's runs on it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from weakref import finalize

from skyward.errors import UsageError
from skyward.process.forked import begin_use, is_forked, refuse_forked
from skyward.process.loop import new_event_loop

__all__ = ["call", "call_soon", "call_when_gone", "loop", "on_loop", "run"]

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def loop() -> asyncio.AbstractEventLoop:
    """The loop, running.

    Raises:
        UsageError: this process was forked from one that had it.
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
            _thread = threading.Thread(target=_loop.run_forever, name="skyward-loop", daemon=True)
            _thread.start()
        return _loop


def run[T](coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the loop; its future, for other threads to wait on."""
    try:
        running = loop()
    except UsageError:
        coroutine.close()
        raise
    return asyncio.run_coroutine_threadsafe(coroutine, running)


def call_soon(call: Callable[..., object], *args: object) -> None:
    """Call on the loop, soon, from any thread."""
    loop().call_soon_threadsafe(call, *args)


def call_when_gone(owner: object, call: Callable[..., object], *args: object) -> None:
    """Call on the loop, soon after `owner` is gone; not at the end of the program, nor in a process forked from it."""

    def forget() -> None:
        if not is_forked():
            call_soon(call, *args)

    finalize(owner, forget).atexit = False


def call[T](function: Callable[[], T]) -> T:
    """What `function` gives on the loop; waits for it. On the loop, as in a callback of a task's future, calls it."""
    if on_loop():
        return function()

    async def called() -> T:
        return function()

    return run(called()).result()


def on_loop() -> bool:
    """Whether the caller is on the loop's thread, where it must not wait."""
    return threading.current_thread() is _thread
