"""Periodic reaping of orphaned pools whose lease has expired."""

import asyncio
import logging
from collections.abc import Callable

from skyward.errors import JournalError

__all__ = ["start_reaping"]

EVERY = 300.0
"""Seconds between two rounds."""

_logger = logging.getLogger(__name__)


def start_reaping(every: float = EVERY) -> Callable[[], object]:
    """Reap pools past their lease in the background, now and periodically; return a function that stops it."""
    from skyward.frontends.calls import background

    return background.run(_reap_periodically(every)).cancel


async def _reap_periodically(every: float) -> None:
    while True:
        try:
            await asyncio.to_thread(_reap_due)
        except JournalError as error:  # its message says what to do
            _logger.warning("Could not look for orphaned pools. %s", error)
        except Exception:  # the next round may succeed
            _logger.exception("could not reap orphaned pools")
        await asyncio.sleep(every)


def _reap_due() -> None:
    from skyward.frontends.pools import describe_orphan, reap

    for done in reap(due=True):
        _logger.log(logging.WARNING if done.error else logging.INFO, "orphaned: %s", describe_orphan(done))
