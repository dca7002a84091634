"""Asking an actor that may be moving: again until there is an answer, which is safe since no actor of ours does twice
what it is asked twice."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from casty import ActorFailed, Askable, MessageTooLarge, NotStarted, Ref, Unavailable

from skyward.errors import CollectionUnavailableError, TooLargeError

__all__ = ["PATIENCE", "REASK", "Address", "fresh_id", "persist"]

PATIENCE = 60.0
"""Seconds that an operation waits for the nodes that keep a collection: longer than they take to notice a loss."""

REASK = 4.0
"""Seconds after which one who waits says so again: whoever keeps the collection now may not know of it."""

_ATTEMPT = 8.0
_TAKE_BACK = 5.0
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
_AWAY = (Unavailable, NotStarted, ActorFailed, TimeoutError)


def fresh_id() -> bytes:
    """An identity that nothing else has."""
    import secrets

    return secrets.token_bytes(16)


class Address[M]:
    """Where one actor is asked.

    Args:
        what: the collection, as an error names it.
        find: makes the reference; again after a failure, since the actor may be on another node by then.
    """

    __slots__ = ("_find", "_ref", "_what")

    def __init__(self, what: str, find: Callable[[], Ref[M]]) -> None:
        self._what = what
        self._find = find
        self._ref: Ref[M] | None = None

    def tell(self, message: M) -> None:
        """Send without waiting, and without knowing whether it arrives."""
        self._reference().tell(message)

    async def take_back(self, message: Askable[Any]) -> None:
        """Say that one waits no longer. What is lost on the way is noticed by and by, as the loss of a process is."""
        with contextlib.suppress(TimeoutError, CollectionUnavailableError):
            async with asyncio.timeout(_TAKE_BACK):
                await self.ask(message)

    async def ask[R](self, message: Askable[R]) -> R:
        """The answer.

        Raises:
            CollectionUnavailableError: too few nodes keep the collection, for too long.
            TooLargeError: the message is over the engine's limit.
        """

        async def attempt() -> R:
            try:
                return await self.once(message, _ATTEMPT)
            except _AWAY:
                self._ref = None
                raise

        return await persist(self._what, attempt)

    async def wait[R](self, message: Askable[R], again: float = REASK) -> R:
        """The answer to a message that is answered when its time has come, however long that takes.

        Raises:
            CollectionUnavailableError: nobody can be asked, for too long.
        """
        loop = asyncio.get_running_loop()
        away: float | None = None
        while True:
            try:
                return await self.once(message, again)
            except TimeoutError:
                away = None  # it is parked, or lost: said again, it is both no more
            except _AWAY as error:
                self._ref = None
                away = away or loop.time()
                if loop.time() - away >= PATIENCE:
                    raise _unavailable(self._what, error) from None
                await asyncio.sleep(_PAUSES[-1])

    async def once[R](self, message: Askable[R], within: float) -> R:
        """The answer to one attempt."""
        reference: Any = self._reference()
        try:
            async with asyncio.timeout(within):
                answer: R = await reference.ask(message)
                return answer
        except MessageTooLarge:
            raise TooLargeError(f"A value for {self._what} is over the limit of 256 MiB; keep it in a file.") from None

    def _reference(self) -> Ref[M]:
        if self._ref is None:
            self._ref = self._find()
        return self._ref


async def persist[R](what: str, attempt: Callable[[], Awaitable[R]]) -> R:
    """What `attempt` gives, made again for as long as the nodes that keep `what` are away.

    Raises:
        CollectionUnavailableError: they were away for too long.
    """
    loop = asyncio.get_running_loop()
    deadline, tries = loop.time() + PATIENCE, 0
    while True:
        try:
            return await attempt()
        except _AWAY as error:
            if loop.time() >= deadline:
                raise _unavailable(what, error) from None
        await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
        tries += 1


def _unavailable(what: str, error: BaseException) -> CollectionUnavailableError:
    return CollectionUnavailableError(
        f"{what[0].upper()}{what[1:]} could not be reached for {PATIENCE:.0f} s, so the operation may or may not have "
        f"happened: too few of the nodes that keep it are there ({type(error).__name__})."
    )
