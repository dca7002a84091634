"""Quotes: the machines that a pool would launch if it were opened now, and their prices. Nothing is launched."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward.accelerators import catalogue_name
from skyward.control.act.driver import warning_above
from skyward.control.act.machines.offers import SourceOffer, find_offers
from skyward.control.decide.machines.budget import DRAIN_RESERVE, unaffordable
from skyward.control.observe.startup import usual_start
from skyward.errors import UsageError
from skyward.formatting import count_text, duration_text, money_text
from skyward.process import background
from skyward.scaling.snapshot import Group
from skyward.specs import Nodes

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["GroupQuote", "QuotedOffer", "describe_quote", "price_notes", "quote"]

PATIENCE = 60.0
"""Timeout for listing the offers of providers, seconds."""


@dataclass(frozen=True, slots=True)
class QuotedOffer:
    """An offer that a pool would launch machines from.

    Attributes:
        place: provider, type, region and market.
        hardware: what a node has, as far as it is known: "A100:8, 96 vCPUs, 1152 GiB".
        per_hour: USD per hour of one machine; None if unknown.
        start: usual seconds from a request to an active node; None if unknown.
    """

    place: str
    hardware: str
    per_hour: float | None
    start: float | None


@dataclass(frozen=True, slots=True)
class GroupQuote:
    """A group of a pool: its name, its nodes, its offers in the order in which they are tried, and notices."""

    group: str
    nodes: Nodes
    offers: tuple[QuotedOffer, ...]
    notes: tuple[str, ...] = ()


def quote(pool: "Compute") -> tuple[GroupQuote, ...]:
    """Return the quotes for the groups of a pool that is not open.

    Raises:
        NoOffersError: no offer fits. If the only provider failed with a `SkywardError`, that error instead.
        UsageError: the providers did not list their offers in time.
    """
    found = []
    for group, specs in pool.groups.items():
        asking = find_offers(specs, pool.options.selection, priced=pool.options.budget is not None)
        try:
            offers = background.run(asyncio.wait_for(asking, PATIENCE)).result()
        except TimeoutError:
            raise UsageError(f"The providers did not list their offers within {PATIENCE:.0f} s; try again.") from None
        starts = {name: usual_start(name) for name in {each.source.provider for each in offers.offered}}
        quoted = tuple(_quoted(each, starts[each.source.provider]) for each in offers.offered)
        found.append(GroupQuote(group, specs[0].nodes, quoted, offers.notes))
    return tuple(found)


def _quoted(offered: SourceOffer, start: float | None) -> QuotedOffer:
    price = offered.source.hourly_price if offered.priced else None
    hardware = _part(offered) if offered.is_part else ", ".join(filter(None, _whole(offered)))
    return QuotedOffer(str(offered.source), hardware, price, start)


def _whole(offered: SourceOffer) -> tuple[str, ...]:
    kind = offered.offer.instance_type
    sold = catalogue_name(kind.accelerator or "")
    sold = f"{sold}:{kind.accelerator_count:g}" if sold and kind.accelerator_count > 1 else sold
    return (
        sold or offered.accelerators,
        count_text(f"{kind.vcpus:g}", "vCPU") if kind.vcpus else "",
        f"{kind.memory_gb:g} GiB" if kind.memory_gb else "",
    )


def _part(offered: SourceOffer) -> str:
    """Return what a node gets of a machine that it shares with others: what the spec leaves open is the provider's."""
    spec = offered.spec
    parts = (
        offered.accelerators,
        count_text(f"{spec.vcpus:g}", "vCPU") if spec.vcpus is not None else "",
        f"{spec.memory_gb:g} GiB" if spec.memory_gb is not None else "",
    )
    left_open = [name for name, value in (("vCPUs", spec.vcpus), ("memory", spec.memory_gb)) if value is None]
    default = f"the provider's default of {' and '.join(left_open)}" if left_open else ""
    return f"a part of it: {', '.join(filter(None, (*parts, default)))}"


def price_notes(pool: "Compute", quoted: Sequence[GroupQuote]) -> tuple[str, ...]:
    """Return sentences on a budget that does not cover the first nodes, and on a high price per hour."""
    groups = [
        Group(each.group, each.nodes.min, each.nodes.ceiling, hourly_price=each.offers[0].per_hour or 0.0)
        for each in quoted
    ]
    options, notes = pool.options, []
    first = sum(
        max(each.nodes.min, each.nodes.threshold) * group.hourly_price
        for each, group in zip(quoted, groups, strict=True)
    )
    if options.budget is not None and first * DRAIN_RESERVE / 3600 > options.budget:
        notes.append(f"But it could not be opened: it {unaffordable(options.budget, first)}.")
    if warning := warning_above(options.warn_above, groups, options.max_nodes, options.budget):
        notes.append(warning)
    return tuple(notes)


def describe_quote(quoted: GroupQuote) -> str:
    """Return a sentence on the machines of a group that would be launched first, and their price."""
    first, *others = quoted.offers
    nodes = quoted.nodes
    span = nodes.min if nodes.min == nodes.ceiling else f"{nodes.min} to {nodes.ceiling}"
    hardware = f" ({first.hardware})" if first.hardware else ""
    text = f"It would launch {count_text(span)} from {first.place}{hardware}"
    if first.per_hour is None:
        text = f"{text} at an unknown price"
    elif first.per_hour:
        least, most = first.per_hour * nodes.min, first.per_hour * nodes.ceiling
        total = money_text(most) if least == most else f"{money_text(least)} to {money_text(most)}"
        text = f"{text} at {money_text(first.per_hour)} per hour each, {total} per hour in all"
    if first.start is not None:
        text = f"{text}; a node usually starts in {duration_text(first.start)}"
    if others:
        text = f"{text}; {count_text(len(others), 'other offer')} {'fits' if len(others) == 1 else 'fit'}"
    return f"{text}."
