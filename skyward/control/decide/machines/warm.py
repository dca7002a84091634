"""Warm machines: which machines of a closing pool are kept for later pools, and which of them fit a pool. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from skyward.control.decide.machines.sources import MachineSource
from skyward.formatting import duration_text, money_text
from skyward.specs import Spec
from skyward.specs.plugin import Plugin

__all__ = ["LEAST_WARM", "WarmCandidate", "WarmPlan", "is_worth_taking", "needs_same_machines", "plan_warm"]

LEAST_WARM = 60.0
"""Seconds below which a budget keeps no machines warm: cleaning one and taking it over takes part of that."""

_ON_MACHINES = ("accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "volumes")
"""Fields of a spec that the machine has to fit. Its image only decides how long the setup takes."""


@dataclass(frozen=True, slots=True)
class WarmCandidate:
    """A machine that may be kept warm: its number, USD per hour, and the seconds that its spec asks for."""

    machine: int
    per_hour: float
    seconds: float


@dataclass(frozen=True, slots=True)
class WarmPlan:
    """The machines to keep warm.

    Attributes:
        seconds: how long, by number of the machine.
        notice: why the time is shorter than it was asked for; "" if it is not.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    notice: str = ""


def plan_warm(candidates: Sequence[WarmCandidate], left: float | None) -> WarmPlan:
    """Decide which machines are kept warm, and for how long.

    Args:
        candidates: machines that may be kept.
        left: USD that the budget leaves for it; None for no limit.
    """
    cost = sum(each.per_hour * each.seconds for each in candidates) / 3600
    if left is None or cost <= max(0.0, left):
        return WarmPlan({each.machine: each.seconds for each in candidates})
    part = max(0.0, left) / cost
    seconds = {each.machine: each.seconds * part for each in candidates if each.seconds * part >= LEAST_WARM}
    rest = f"what the budget leaves once its nodes have ended, {money_text(max(0.0, left))}"
    if not seconds:
        return WarmPlan({}, f"No machine is kept warm: {rest}, does not cover it.")
    longest = max(seconds.values())
    return WarmPlan(seconds, f"Machines are kept warm for {duration_text(longest)} only: {rest}, covers no more.")


def needs_same_machines(one: Spec, other: Spec) -> bool:
    """Return whether two specs have the same needs on their machines, and plugins that change them alike."""
    is_same = all(getattr(one, name) == getattr(other, name) for name in _ON_MACHINES)
    return is_same and _changing(one) == _changing(other)


def _changing(spec: Spec) -> dict[str, Plugin]:
    return {plugin.name: plugin for plugin in spec.plugins if plugin.changes_machine}


def is_worth_taking(spec: Spec, wanted: MachineSource, warm: MachineSource, per_hour: float) -> bool:
    """Return whether a warm machine is to be used instead of buying one.

    The spec has to allow its market and price; and it is of the source that would be asked, or costs no more.
    """
    if spec.max_hourly_cost is not None and per_hour > spec.max_hourly_cost:
        return False
    if spec.allocation in ("spot", "on-demand") and warm.market != spec.allocation:
        return False
    is_same = replace(warm, position=wanted.position, lender=wanted.lender) == wanted
    return is_same or per_hour <= wanted.hourly_price
