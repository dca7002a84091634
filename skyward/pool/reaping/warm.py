"""The end of warm machines: at their deadline by the process that kept them, for as long as it lives.

Another kernel's periodic reaping, or `skyward reap`, ends them otherwise; and each machine ends itself.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from skyward.pool.reaping.reap import clear_finished, end_due_warm
from skyward.process import background

if TYPE_CHECKING:
    from skyward.control.act.pool import Pool

__all__ = ["after_close"]

_LONGEST = 30.0
"""Maximum seconds of one wait, since the clock of the loop stands still while the computer sleeps."""

_logger = logging.getLogger(__name__)


def after_close(pool: "Pool") -> None:
    """Remove what the machines shared that a closed pool had borrowed, and end its own warm ones at their deadline."""
    if pool.borrowed:
        try:
            clear_finished()
        except Exception as error:  # the next reap tries again
            _logger.warning("could not look for pools that have nothing left: %s", error)
    if pool.warm_until:
        background.run(_end_at(pool.warm_until))


async def _end_at(until: float) -> None:
    while (left := until - time.time()) > 0:  # noqa: ASYNC110  # there is no event for the time of day
        await asyncio.sleep(min(left, _LONGEST))
    try:
        await asyncio.to_thread(end_due_warm)
    except Exception as error:  # periodic reaping tries again
        _logger.warning("could not terminate warm machines: %s", error)
