"""Requests to an actor that may move between nodes: repeated until one is answered.

Repeating is safe because the actors of the collections are idempotent.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from casty import ActorFailed, Askable, MessageTooLarge, NotStarted, Ref, Unavailable

from skyward.errors import CollectionUnavailableError, TooLargeError

__all__ = ["PATIENCE", "REASK", "Address", "fresh_id", "persist"]

PATIENCE = 60.0
"""Seconds that an operation waits for the nodes that store a collection: longer than they take to detect a loss."""

REASK = 4.0
"""Seconds after which a waiting caller repeats its request: the node that stores the collection now may not know it."""

_FIRST_REASK = 0.1
"""Seconds before the first repetition: requests may be lost while a pool forms its cluster. Each later wait is twice as
long, up to `REASK`."""

_ATTEMPT = 8.0
_TAKE_BACK = 5.0
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
_AWAY = (Unavailable, NotStarted, ActorFailed, TimeoutError)


def fresh_id() -> bytes:
    """Return a unique identity."""
    import secrets

    return secrets.token_bytes(16)


class Address[M]:
    """Address of one actor.

    Args:
        what: the collection, as named in errors.
        find: makes the actor reference; called again after a failure, since the actor may have moved.
    """

    __slots__ = ("_find", "_ref", "_what")

    def __init__(self, what: str, find: Callable[[], Ref[M]]) -> None:
        self._what = what
        self._find = find
        self._ref: Ref[M] | None = None

    def tell(self, message: M) -> None:
        """Send without waiting for delivery."""
        self._reference().tell(message)

    async def withdraw(self, message: Askable[Any]) -> None:
        """Withdraw a waiting request. If the message is lost, the actor's timeout has the same effect."""
        with contextlib.suppress(TimeoutError, CollectionUnavailableError):
            async with asyncio.timeout(_TAKE_BACK):
                await self.ask(message)

    async def ask[R](self, message: Askable[R]) -> R:
        """Return the answer.

        Raises:
            CollectionUnavailableError: too few of the nodes that store the collection answered within `PATIENCE`.
            TooLargeError: the message exceeds the engine's limit.
        """

        async def attempt() -> R:
            try:
                return await self.once(message, _ATTEMPT)
            except _AWAY:
                self._ref = None
                raise

        return await persist(self._what, attempt)

    async def wait[R](self, message: Askable[R], again: float = REASK) -> R:
        """Return the answer to a message that may be answered after any length of time.

        Args:
            message: a request that may be repeated.
            again: maximum number of seconds between repetitions.

        Raises:
            CollectionUnavailableError: no actor could be reached for too long.
        """
        loop = asyncio.get_running_loop()
        away: float | None = None
        within = _FIRST_REASK
        while True:
            try:
                return await self.once(message, within)
            except TimeoutError:
                away = None  # pending or lost; a repeated request settles which
                within = min(2 * within, again)
            except _AWAY as error:
                self._ref = None
                away = away or loop.time()
                if loop.time() - away >= PATIENCE:
                    raise _unavailable(self._what, error) from None
                await asyncio.sleep(_PAUSES[-1])

    async def once[R](self, message: Askable[R], within: float) -> R:
        """Return the answer to one attempt."""
        reference: Any = self._reference()
        try:
            async with asyncio.timeout(within):
                answer: R = await reference.ask(message)
                return answer
        except MessageTooLarge:
            raise TooLargeError(f"A value for {self._what} exceeds the limit of 256 MiB: store it in a file.") from None

    def _reference(self) -> Ref[M]:
        if self._ref is None:
            self._ref = self._find()
        return self._ref


async def persist[R](what: str, attempt: Callable[[], Awaitable[R]]) -> R:
    """Return the result of `attempt`, repeated while the nodes that store `what` are unreachable.

    Raises:
        CollectionUnavailableError: they were unreachable for too long.
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
        f"happened: too few of the nodes that store it are reachable ({type(error).__name__})."
    )
