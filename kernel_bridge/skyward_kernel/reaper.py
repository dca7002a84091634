"""Periodic reaping of orphaned pools whose lease has expired, and sweeping of accounts."""

import logging
import threading
from collections.abc import Callable

from skyward.errors import JournalError

__all__ = ["start_reaping"]

EVERY = 300.0
"""Seconds between two rounds of reaping."""

SWEEP_EVERY = 3600.0
"""Seconds between two sweeps, which make requests to all providers with credentials."""

_logger = logging.getLogger(__name__)


def start_reaping(every: float = EVERY, sweep_every: float = SWEEP_EVERY) -> Callable[[], object]:
    """Reap pools past their lease in the background, now and periodically; return a function that stops it.

    Accounts are swept for the first time after `every` seconds: at its start a kernel makes no requests for that.
    Both have a thread of their own, so that a provider that does not answer to one of them holds up nothing else.
    """
    stopped = threading.Event()
    for name, work, first, pause in (
        ("skyward-reaper", _reap_due, 0.0, every),
        ("skyward-sweeper", _sweep, every, sweep_every),
    ):
        threading.Thread(target=_repeat, args=(work, first, pause, stopped), name=name, daemon=True).start()
    return stopped.set


def _repeat(work: Callable[[], None], first: float, pause: float, stopped: threading.Event) -> None:
    """Call `work` after `first` seconds and then with pauses, until `stopped`. Its errors are logged."""
    left = first
    while not stopped.wait(left):
        left = pause
        try:
            work()
        except JournalError as error:  # its message says what to do
            _logger.warning("Could not look for orphaned pools. %s", error)
        except Exception:  # the next round may succeed
            _logger.exception("could not reap orphaned pools")


def _reap_due() -> None:
    from skyward.frontends.calls import has_pools

    if not has_pools():
        return  # without loading the control plane beside the first cells of a notebook
    from skyward.frontends.pools import describe_orphan, reap

    for done in reap(due=True):
        _logger.log(logging.WARNING if done.error else logging.INFO, "orphaned: %s", describe_orphan(done))


def _sweep() -> None:
    from skyward.frontends.pools import describe_swept, sweep

    for sentence in describe_swept(sweep()):
        _logger.warning("%s", sentence)
