"""Launches, which are sent until they are answered: AWS carries out a token once."""

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from skyward.errors import RateLimitError, SkywardError
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError, explained, is_transient, is_unknown, too_fast

__all__ = ["UnknownOutcomeError", "launched_or_ended", "pauses", "send_launch", "short_token", "wait"]

_logger = logging.getLogger(__name__)

_SETTLE_WITHIN = 130.0
"""Seconds that an aborted launch waits for the answer, to terminate its machines."""

_PAUSES: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further attempt at a launch; each is shortened by up to half at random."""

_LONGEST_TOKEN = 64
_OTHER_ARGUMENTS = ("IdempotentParameterMismatch", "ConflictException")
"""Codes of a token that was carried out with other arguments: EC2's and ECS's."""


class UnknownOutcomeError(Exception):
    """AWS answered a launch with an error of its own, so machines may have been launched."""


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
    for pause in pauses():
        try:
            answer: Mapping[str, Any] = await account.call(service, operation, region, once=True, **values)
            return answer
        except SkywardError:
            raise
        except CallError as refused:
            error = refine(refused)
            again = is_transient(error.code) or is_unknown(error)
            if not again or error.code in _OTHER_ARGUMENTS:
                raise _final(error) from None
            if pause is None:
                if too_fast(error.code):
                    raise RateLimitError(
                        f"AWS takes no more launches in {region} for a while ({error.code}); try again later."
                    ) from error
                raise _final(error) from None
        except Exception:  # the answer was lost
            if pause is None:
                raise
        await wait(pause)
    raise AssertionError("the last attempt returns or raises")


def _final(error: CallError) -> Exception:
    """Return an error that says whether something may have been launched: it is one of Skyward's if not."""
    return UnknownOutcomeError(str(error)) if is_unknown(error) else explained(error)


async def launched_or_ended[T](
    launching: asyncio.Future[list[T]], terminate: Callable[[list[T]], Awaitable[None]], pool: str
) -> list[T]:
    """Return what a launch launched; if this is cancelled, terminate that once the launch is answered."""
    try:
        return await asyncio.shield(launching)
    except asyncio.CancelledError:
        try:
            async with asyncio.timeout(_SETTLE_WITHIN):
                await terminate(await launching)
        except SkywardError:  # usually nothing was launched
            _logger.debug("an aborted launch of %s", pool, exc_info=True)
        except Exception:
            _logger.warning("machines of an aborted launch of %s may exist", pool, exc_info=True)
        raise


def short_token(text: str) -> str:
    """Return an idempotency token: ASCII, at most 64 characters."""
    return text if len(text) <= _LONGEST_TOKEN else hashlib.blake2b(text.encode(), digest_size=24).hexdigest()
