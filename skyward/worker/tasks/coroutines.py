"""Coroutines and asynchronous generators of tasks, each run on an event loop of its task's own.

A task that is told to stop has its coroutine cancelled, as asyncio cancels any. Where that does not end it, the task is
interrupted as other tasks are.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from skyward.worker.tasks.guard import Guard

__all__ = ["run_coroutine", "send_elements"]


def run_coroutine[T](coroutine: Coroutine[Any, Any, T], guard: Guard) -> T:
    """The result of `coroutine`, which `guard` cancels before it interrupts it."""

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # a coroutine runs in one

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)

        with guard.cancelling(cancel):
            return await coroutine

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:  # which is not the thread's loop afterwards
            return runner.run(main())
    except BaseException as error:
        inside = error.__traceback__
        while inside is not None and inside.tb_frame.f_code is not main.__code__:
            inside = inside.tb_next
        error.__traceback__ = inside or error.__traceback__  # without the frames of the loop
        raise
    finally:
        coroutine.close()  # which may not have begun


async def send_elements(elements: AsyncIterator[Any], send: Callable[[Any], Callable[[], None] | None]) -> None:
    """Give each element to `send`, which returns what to wait for before the next one, if anything; close them then."""
    try:
        async for element in elements:
            if (wait := send(element)) is not None:
                await asyncio.to_thread(wait)
    finally:
        if (close := getattr(elements, "aclose", None)) is not None:
            await close()
