"""Execution of coroutines and asynchronous generators of tasks, each on an event loop of its own.

A stopped task has its coroutine cancelled, as asyncio does it. Where that does not end it, the task is interrupted like
any other.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from skyward.worker.tasks.guard import Guard, Interrupted

__all__ = ["run_coroutine", "send_elements"]


def run_coroutine[T](coroutine: Coroutine[Any, Any, T], guard: Guard) -> T:
    """Return the result of `coroutine`, which `guard` cancels before it interrupts it."""

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # a coroutine runs in one

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)

        with guard.cancelling(cancel):
            return await coroutine

    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # does not become the thread's loop
    try:
        return runner.run(main())
    except BaseException as error:
        inside = error.__traceback__
        while inside is not None and inside.tb_frame.f_code is not main.__code__:
            inside = inside.tb_next
        error.__traceback__ = inside or error.__traceback__  # without the frames of the loop
        raise
    finally:
        try:
            _close(runner)
        finally:
            coroutine.close()  # it may not have been started


def _close(runner: asyncio.Runner) -> None:
    """Cancel what still runs on the loop of `runner`, and close it, also when an interrupt lands meanwhile."""
    loop = runner.get_loop()
    try:
        runner.close()
    except Interrupted:
        while not loop.is_closed():
            with contextlib.suppress(Interrupted):
                loop.close()
        raise


async def send_elements(elements: AsyncIterator[Any], send: Callable[[Any], Callable[[], None] | None]) -> None:
    """Pass each element to `send`, and wait as it returns, before the next one; close the iterator at the end."""
    try:
        async for element in elements:
            if (wait := send(element)) is not None:
                await asyncio.to_thread(wait)
    finally:
        if (close := getattr(elements, "aclose", None)) is not None:
            await close()
