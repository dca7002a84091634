"""Coroutines that must not stop halfway."""

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["until_done"]


async def until_done[T](work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end, also if the caller is cancelled meanwhile, and then raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # marks an error as seen: the cancellation is raised in its place
        raise cancelled
    return task.result()
