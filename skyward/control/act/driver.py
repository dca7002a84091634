"""Construction of the control plane, and its timer."""

import asyncio
import time
from collections.abc import Callable, Mapping

from skyward.control.act.nodes.launching import Launcher
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.settings import PlaneSettings, resumed
from skyward.journal import SizeEntry
from skyward.scaling.registry import find_policy
from skyward.specs import Options

__all__ = ["Timer", "plane_of"]

DEADLINE_SLACK = 30.0
"""Seconds that the control plane waits beyond the launchers' own timeouts."""

REQUEST_TIMEOUT = 300.0
ATTEMPTS = 3
"""Default timeout of one request for machines in seconds, and of consecutive requests that may fail."""


def plane_of(launchers: Mapping[str, Launcher], options: Options, size: SizeEntry | None = None) -> ControlPlane:
    """Return the control plane of a pool whose launchers are prepared. `size`: recorded size of an attached pool."""
    limits = Limits(
        refusals=options.max_provision_attempts or ATTEMPTS,
        request=options.provision_timeout or REQUEST_TIMEOUT,
        boot=max(launcher.start_within for launcher in launchers.values()) + DEADLINE_SLACK,
        upscaling_speed=options.upscaling_speed,
        concurrent_launches=options.max_concurrent_launches,
        first_backoff=1.0 if options.provision_retry_delay is None else options.provision_retry_delay,
    )
    settings = PlaneSettings(
        groups=tuple(launcher.group() for launcher in launchers.values()),
        sources={name: launcher.sources for name, launcher in launchers.items()},
        thresholds={name: launcher.nodes.threshold for name, launcher in launchers.items()},
        existing={name: launcher.existing for name, launcher in launchers.items()},
        retries=options.retry_on_interruption,
        cooldown=options.autoscale_cooldown,
        idle_timeout=options.autoscale_idle_timeout,
        tick=options.reconcile_tick_interval,
        max_nodes=options.max_nodes,
        budget=options.budget,
        limits=limits,
    )
    if size is not None:
        settings = resumed(settings, size.bounds, size.desired)
    return ControlPlane(settings, find_policy(options.policy))


class Timer:
    """Timer that calls `ring` at a time of `time.monotonic`. Runs on a loop."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Fire at that time, unless an earlier time is set."""
        if self._timer is not None:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - time.monotonic()), self._fire)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._ring()
