"""Opening and closing, once each, whoever asks for them, however often, and while the other is under way."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

from skyward.errors import PoolClosedError
from skyward.process.switch_interval import short_switch_interval

__all__ = ["Lifespan", "Say"]

type Say = Callable[[str], None]
"""Tells the user something, in one line."""


class Lifespan:
    """The life of a pool, as tasks, all of it brisk. Lives on the library's loop.

    Args:
        name: of the pool.
        give_back: gives back all that there is, at the end.
    """

    def __init__(self, name: str, give_back: Callable[[], Coroutine[Any, Any, None]], say: Say) -> None:
        self._name = name
        self._give_back = give_back
        self._say = say
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._brisk = ExitStack()

    async def open(self, opening: Coroutine[Any, Any, None]) -> None:
        """Open. If that fails, or the caller is cancelled, all is given back before this returns.

        Raises:
            PoolClosedError: it was closed meanwhile.
        """
        self._brisk.enter_context(short_switch_interval())
        self._opening = asyncio.get_running_loop().create_task(opening)
        try:
            await self._opening
        except BaseException as error:
            closed = self._closing is not None
            try:
                await self.close()
            except Exception as left:  # the caller is to hear why it could not be opened
                self._say(str(left))
            if closed and isinstance(error, asyncio.CancelledError):
                raise PoolClosedError(f"Pool {self._name!r} was closed while it was opening.") from None
            raise

    async def close(self) -> None:
        """Close. It goes on where the caller is cancelled; later callers wait for the same end."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        with self._brisk:
            if self._opening is not None and not self._opening.done():
                self._opening.cancel()
                await asyncio.wait([self._opening])
            await self._give_back()
