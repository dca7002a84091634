"""Launches, which are sent until they are answered: AWS carries out a token once."""

import asyncio
import hashlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from skyward.errors import NoCapacityError, QuotaError, RateLimitError, SkywardError, SpecError
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError, explained, is_transient, is_unknown, too_fast

__all__ = ["RecentLaunches", "UnknownOutcomeError", "pauses", "send_launch", "short_token", "wait"]

_logger = logging.getLogger(__name__)

_SETTLE_WITHIN = 130.0
"""Seconds that an aborted launch waits for the answer, to terminate its machines."""

_PAUSES: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt at a launch; each is shortened by up to half at random."""

_VISIBLE_WITHIN = 60.0
"""Seconds in which AWS may answer that there is no such machine, although it was launched."""

_LISTED_WITHIN = 10.0
"""Seconds after a launch without an answer after which its machines are listed."""

_LONGEST_TOKEN = 64
_OTHER_ARGUMENTS = ("IdempotentParameterMismatch", "ConflictException")
"""Codes of a token that was carried out with other arguments: EC2's and ECS's."""


_GIVE_UP_AFTER = 240.0
"""Seconds after which a launch is not sent again."""


_ANSWERS = (NoCapacityError, QuotaError, SpecError)
"""Errors that say that a token was not carried out before: AWS repeats its answer otherwise."""


class UnknownOutcomeError(Exception):
    """AWS answered a launch with an error of its own, or not at all, so machines may have been launched."""


def pauses() -> tuple[float | None, ...]:
    """Return the pauses after each attempt; None after the last."""
    return (*_PAUSES, None)


async def wait(pause: float) -> None:
    """Wait for about `pause` seconds."""
    await asyncio.sleep(pause * (1 - random.random() / 2))


async def send_launch(
    account: Account,
    service: str,
    operation: str,
    region: str,
    *,
    refine: Callable[[CallError], CallError] = lambda error: error,
    **values: Any,
) -> Mapping[str, Any]:
    """Send a request with its token until it is answered.

    Args:
        refine: returns a more precise error.

    Raises:
        SkywardError: nothing was launched. After any other error, machines may have been.
    """
    until, lost = time.monotonic() + _GIVE_UP_AFTER, False
    for pause in pauses():
        again = True
        try:
            answer: Mapping[str, Any] = await account.call(service, operation, region, once=True, **values)
            return answer
        except SkywardError as error:  # it was not sent
            failure: Exception = error
            again = lost
        except CallError as refused:
            told = refine(refused)
            failure, lost = _failure(told, region), lost or is_unknown(told)
            again = (is_transient(told.code) or is_unknown(told)) and told.code not in _OTHER_ARGUMENTS
        except Exception as error:  # the answer was lost
            failure, lost = error, True
        if not again or pause is None or time.monotonic() > until:
            if lost and isinstance(failure, SkywardError) and not isinstance(failure, _ANSWERS):
                raise UnknownOutcomeError(str(failure)) from failure
            raise failure from None
        await wait(pause)
    raise AssertionError("the last attempt returns or raises")


def _failure(error: CallError, region: str) -> Exception:
    """Return an error that says whether something may have been launched: it is one of Skyward's if not."""
    if too_fast(error.code):
        return RateLimitError(f"AWS takes no more launches in {region} for a while ({error.code}); try again later.")
    return UnknownOutcomeError(str(error)) if is_unknown(error) else explained(error)


class RecentLaunches[T]:
    """Machines that a provider launched in the last minute: the next calls may not see them yet.

    Args:
        id_of: returns the id of what a launch returns.
    """

    def __init__(self, id_of: Callable[[T], str]) -> None:
        self._id_of = id_of
        self._launched_at: dict[str, float] = {}
        self._unanswered_at: dict[str, float] = {}

    async def run(
        self,
        launching: Coroutine[Any, Any, list[T]],
        terminate: Callable[[list[str]], Awaitable[None]],
        pool: str,
    ) -> list[T]:
        """Return what a launch launched; if this is cancelled, terminate that once the launch is answered."""
        request = asyncio.ensure_future(launching)
        request.add_done_callback(lambda done: self._remember(done, pool))
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(_SETTLE_WITHIN):
                    await terminate([self._id_of(each) for each in await request])
            except SkywardError:  # usually nothing was launched
                _logger.debug("an aborted launch of %s", pool, exc_info=True)
            except Exception:
                _logger.warning("machines of an aborted launch of %s may exist", pool, exc_info=True)
            raise

    def _remember(self, request: asyncio.Future[list[T]], pool: str) -> None:
        now = time.monotonic()
        if request.cancelled() or (failure := request.exception()) is not None:
            if request.cancelled() or not isinstance(failure, SkywardError):
                self._unanswered_at[pool] = now
            return
        self._launched_at = {key: at for key, at in self._launched_at.items() if now - at < _VISIBLE_WITHIN}
        self._launched_at |= dict.fromkeys(map(self._id_of, request.result()), now)

    def may_be_hidden(self, id: str) -> bool:
        """Return whether something was launched so recently that AWS may answer that there is no such thing."""
        return time.monotonic() - self._launched_at.get(id, -math.inf) < _VISIBLE_WITHIN

    async def listed[R](self, pool: str, ask: Callable[[], Awaitable[R]]) -> R:
        """Return the answer to `ask`, which lists a pool's machines: late enough to have those of a lost answer."""
        found = await ask()
        left = self._unanswered_at.get(pool, -math.inf) + _LISTED_WITHIN - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
            found = await ask()
        return found


def short_token(text: str) -> str:
    """Return an idempotency token: ASCII, at most 64 characters."""
    return text if len(text) <= _LONGEST_TOKEN else hashlib.blake2b(text.encode(), digest_size=24).hexdigest()
