"""Launching several machines by one request each."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from skyward.errors import SkywardError
from skyward.providers import Instance

__all__ = ["launch_each"]

_logger = logging.getLogger(__name__)

_SETTLE_WITHIN = 60.0
"""Seconds that an aborted launch waits for the answers of its requests, to undo them."""


async def launch_each(
    count: int,
    create: Callable[[int], Awaitable[Instance]],
    terminate: Callable[[Sequence[str]], Awaitable[None]],
    *,
    at_once: int = 8,
) -> list[Instance]:
    """Call `create` with 0 to `count` - 1, some at a time; return the machines that were launched.

    If the launch is cancelled, its machines are terminated.

    Raises:
        SkywardError: no machine was launched; the error of the first request.
        Exception: the outcome of a request is unknown, so all machines of the pool have to be listed.
    """
    slots = asyncio.Semaphore(at_once)
    stopped = False

    async def one(number: int) -> Instance | None:
        async with slots:
            return None if stopped else await create(number)

    requests = asyncio.gather(*(one(number) for number in range(count)), return_exceptions=True)
    try:
        results = await asyncio.shield(requests)
    except asyncio.CancelledError:
        stopped = True
        try:
            async with asyncio.timeout(_SETTLE_WITHIN):
                results = await requests
                await terminate([each.id for each in results if isinstance(each, Instance)])
        except Exception as error:  # whoever aborts looks for machines by their tags afterwards
            _logger.warning("machines of an aborted launch may be left: %s", error)
        raise
    launched = [each for each in results if isinstance(each, Instance)]
    errors = [each for each in results if isinstance(each, BaseException)]
    if unknown := [each for each in errors if not isinstance(each, SkywardError)]:
        raise unknown[0]
    if errors and not launched:
        raise errors[0]
    return launched
