"""Construction of the control plane, and its timer."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from skyward.control.act.nodes.launching import Launcher
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import NO_CAPACITY_PAUSE
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.settings import PlaneSettings, resumed
from skyward.formatting import money_text
from skyward.journal import SizeEntry, UpdateEntry
from skyward.scaling.registry import find_policy
from skyward.scaling.snapshot import Group
from skyward.specs import Options

__all__ = ["Timer", "boot_limit", "plane_of", "price_warning", "warning_above"]

DEADLINE_SLACK = 30.0
"""Seconds that the control plane waits beyond the launchers' own timeouts."""

REQUEST_TIMEOUT = 300.0
ATTEMPTS = 3
"""Default timeout of one request for machines in seconds, and of consecutive requests that may fail."""


def plane_of(
    launchers: Mapping[str, Launcher],
    options: Options,
    size: SizeEntry | None = None,
    updates: Iterable[UpdateEntry] = (),
) -> ControlPlane:
    """Return the control plane of a pool whose launchers are prepared.

    Args:
        size, updates: recorded size and updates of an attached pool.
    """
    resumed_updates = {each.group: each for each in updates if launchers[each.group].former_sources}
    limits = Limits(
        refusals=options.max_provision_attempts or ATTEMPTS,
        request=options.provision_timeout or REQUEST_TIMEOUT,
        boot=max(map(boot_limit, launchers.values())),
        upscaling_speed=options.upscaling_speed,
        concurrent_launches=options.max_concurrent_launches,
        first_backoff=1.0 if options.provision_retry_delay is None else options.provision_retry_delay,
        no_capacity=NO_CAPACITY_PAUSE if options.provision_retry_delay is None else options.provision_retry_delay,
        rounds=options.max_provision_attempts or 1,
    )
    settings = PlaneSettings(
        groups=tuple(launcher.group() for launcher in launchers.values()),
        sources={name: launcher.sources for name, launcher in launchers.items()},
        thresholds={name: launcher.nodes.threshold for name, launcher in launchers.items()},
        positions={name: launcher.positions for name, launcher in launchers.items()},
        earlier={key: group for launcher in launchers.values() for key, group in launcher.earlier.items()},
        before={name: launchers[name].former_sources for name in resumed_updates},
        fell_back=frozenset(name for name, each in resumed_updates.items() if each.fell_back),
        existing={name: launcher.existing for name, launcher in launchers.items()},
        ranks={name: launcher.ranks for name, launcher in launchers.items()},
        retries=options.retry_on_interruption,
        cooldown=options.autoscale_cooldown,
        idle_timeout=options.autoscale_idle_timeout,
        target_wait=options.target_wait,
        waiting_cost=options.waiting_cost,
        consolidate_within=options.consolidate_within,
        tick=options.reconcile_tick_interval,
        max_nodes=options.max_nodes,
        budget=options.budget,
        limits=limits,
        recorded=options.decision_log is not None,
    )
    if size is not None:
        settings = resumed(settings, size.bounds, size.desired)
    return ControlPlane(settings, find_policy(options.policy), time.monotonic)


def boot_limit(launcher: Launcher) -> float:
    """Return the seconds after which the control plane gives up a machine of a launcher that is no node yet."""
    return launcher.start_within + DEADLINE_SLACK


def price_warning(launchers: Mapping[str, Launcher], options: Options) -> str:
    """Return a warning if all nodes of a pool may cost more than its limit per hour; "" if they do not.

    Each node may come from the dearest source that the user was told of.
    """
    groups = [replace(each.group(), hourly_price=each.dearest) for each in launchers.values()]
    return warning_above(options.warn_above, groups, options.max_nodes, options.budget)


def warning_above(
    limit: float | None, groups: Sequence[Group], max_nodes: int | None, budget: float | None = None
) -> str:
    """Return a warning if the nodes of these groups, at most `max_nodes`, may cost more than `limit` USD per hour."""
    if limit is None:
        return ""
    ceiling, left = 0.0, max_nodes if max_nodes is not None else sum(group.max for group in groups)
    for group in sorted(groups, key=lambda each: -each.hourly_price):
        ceiling += min(group.max, left) * group.hourly_price
        left -= min(group.max, left)
    if ceiling <= limit:
        return ""
    first = sum(group.min * group.hourly_price for group in groups)
    starts = f"starts at {money_text(first)} per hour and " if 0 < first < ceiling else ""
    if budget is None:
        less = "a budget limits the total cost, fewer nodes cost less"
    else:
        less = f"its budget limits the total cost to {money_text(budget)}, fewer nodes cost less"
    return (
        f"This pool {starts}may cost {money_text(ceiling)} per hour, which is above the limit of {money_text(limit)}: "
        f"{less}, and `warn_above` is the price from which on this is said."
    )


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
