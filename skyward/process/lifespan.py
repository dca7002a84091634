"""Opening and closing of a pool: each happens once, however many callers ask for it and whether or not they overlap."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

from skyward.errors import PoolClosedError
from skyward.process.switch_interval import short_switch_interval

__all__ = ["Lifespan", "Say"]

type Say = Callable[[str], None]
"""Shows the user a one-line notice."""


class Lifespan:
    """The opening and closing of a pool, as asyncio tasks. Lives on the library's loop.

    The thread switch interval is short in between.

    Args:
        name: of the pool.
        give_back: releases all that the pool holds; runs once, at the end.
        say: shows the user a notice.
    """

    def __init__(self, name: str, give_back: Callable[[], Coroutine[Any, Any, None]], say: Say) -> None:
        self._name = name
        self._give_back = give_back
        self._say = say
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._switch_interval = ExitStack()

    async def open(self, opening: Coroutine[Any, Any, None]) -> None:
        """Open the pool. If that fails, or the caller is cancelled, the pool is closed before this returns.

        Raises:
            PoolClosedError: the pool was closed while it was opening, and the caller was not cancelled.
        """
        self._switch_interval.enter_context(short_switch_interval())
        caller = asyncio.current_task()
        self._opening = asyncio.get_running_loop().create_task(opening)
        try:
            await self._opening
        except BaseException as error:
            closed = self._closing is not None
            try:
                await self.close()
            except Exception as close_error:  # the caller needs the error of the opening
                self._say(str(close_error))
            if caller is not None and caller.cancelling():  # nobody waits for another error
                raise asyncio.CancelledError from None
            if closed and isinstance(error, asyncio.CancelledError):
                raise PoolClosedError(f"Pool {self._name!r} was closed while it was opening.") from None
            raise

    async def close(self) -> None:
        """Close the pool. Closing continues if the caller is cancelled; later callers wait for the same closing."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with self._switch_interval:
            if self._opening is not None and not self._opening.done():
                self._opening.cancel()
                await asyncio.wait([self._opening])
            await self._give_back()
