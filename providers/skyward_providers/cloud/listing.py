"""One listing of machines for many callers, so that a pool of a hundred nodes asks its cloud once at a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

__all__ = ["SharedListing"]


class SharedListing[T]:
    """The latest result of `fetch`, shared by concurrent callers. It belongs to one event loop.

    Args:
        fetch: makes the request.
        max_age: seconds for which a result is used again.
    """

    def __init__(self, fetch: Callable[[], Awaitable[T]], max_age: float = 2.0) -> None:
        self._fetch = fetch
        self._max_age = max_age
        self._request: asyncio.Future[T] | None = None
        self._asked_at = 0.0

    async def get(self) -> T:
        """Return a result that was requested at most `max_age` seconds ago.

        Raises:
            Exception: any exception of `fetch`; the next call makes another request.
        """
        now = time.monotonic()
        request = self._request
        failed = request is not None and request.done() and (request.cancelled() or request.exception() is not None)
        if request is None or failed or now - self._asked_at > self._max_age:
            self._asked_at = now
            request = self._request = asyncio.ensure_future(self._fetch())
        return await asyncio.shield(request)

    def forget(self) -> None:
        """Make the next call ask again: something was changed."""
        self._asked_at = float("-inf")
