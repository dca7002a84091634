"""What a kernel does about pools that others have left behind: gives them back once nobody can attach to them."""

import asyncio
import logging
from collections.abc import Callable

from skyward.errors import JournalError

__all__ = ["start_reaping"]

EVERY = 300.0
"""Seconds between looks."""

_logger = logging.getLogger(__name__)


def start_reaping(every: float = EVERY) -> Callable[[], object]:
    """Reap what is past its lease, now and again and again, in the background; what ends that."""
    from skyward.process import background

    return background.run(_reap_again_and_again(every)).cancel


async def _reap_again_and_again(every: float) -> None:
    while True:
        try:
            await asyncio.to_thread(_reap_due)
        except JournalError as error:  # which says what to do
            _logger.warning("Pools that were left behind could not be looked for. %s", error)
        except Exception:  # the next look may find what this one could not
            _logger.exception("pools that were left behind could not be reaped")
        await asyncio.sleep(every)


def _reap_due() -> None:
    from skyward.pool.reap import reap, told

    for done in reap(due=True):
        _logger.log(logging.WARNING if done.error else logging.INFO, "left behind: %s", told(done))
