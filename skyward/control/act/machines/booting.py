"""Waiting for launched machines to run."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from skyward.control.act.machines.guarded import ProviderCallError
from skyward.errors import CredentialsError, NodeStartError, SkywardError, SpecError
from skyward.formatting import duration_text
from skyward.providers import Instance

__all__ = ["BOOT_TIMEOUT", "until_running"]

BOOT_TIMEOUT = 300.0
"""Default timeout of the boot of a machine in seconds; `provision_timeout` overrides it, and `boot_timeout` of the
settings of a provider. Source: spec/."""

_FIRST_POLL = 0.2
_LONGEST_POLL = 5.0
"""Seconds between questions about a machine: the first, and the longest; each is 1.4 times the one before."""

_VISIBLE_WITHIN = 60.0
"""Seconds after its launch in which a machine may not be visible yet: clouds are eventually consistent."""

_logger = logging.getLogger(__name__)


async def until_running(
    instance: Instance,
    get: Callable[[str], Awaitable[Instance | None]],
    within: float,
    on_detail: Callable[[str], None] = lambda _: None,
) -> Instance:
    """Return a machine once it is "running" with its access.

    Args:
        get: asks the provider for the state of a machine.
        within: timeout in seconds.
        on_detail: called with each answer's reason why it does not run yet, "" for none.

    Raises:
        NodeStartError: it ended, or was not running in time.
        CredentialsError, SpecError: the provider refuses to answer.
    """
    began, pause, why = time.monotonic(), _FIRST_POLL, ""
    found: Instance | None = instance
    while True:
        waited = time.monotonic() - began
        if found is None and waited > _VISIBLE_WITHIN:
            raise NodeStartError(f"machine {instance.id} is gone: its provider does not list it any more")
        if found is not None:
            if found.detail not in ("", why):
                _logger.info("machine %s: %s", instance.id, found.detail)
            why = found.detail
            if found.status == "exited":
                raise NodeStartError(f"machine {instance.id} ended while it booted{f': {why}' if why else ''}")
            if found.status == "running" and found.access is not None:
                return replace(found, hourly_price=found.hourly_price or instance.hourly_price)
            on_detail(why)
        if waited > within:
            said = f": {why}" if why else ""
            raise NodeStartError(f"machine {instance.id} was not running within {duration_text(within)}{said}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.4, _LONGEST_POLL)
        try:
            found = await get(instance.id)
        except (CredentialsError, SpecError):
            raise
        except (SkywardError, ProviderCallError) as error:  # it may answer the next time
            why = str(error)
            _logger.info("machine %s: %s; asking again", instance.id, error)
