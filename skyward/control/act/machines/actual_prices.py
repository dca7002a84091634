"""Prices that providers state for machines which they have launched, beside those of the offers."""

from skyward.control.act.machines.offers import SourceOffer
from skyward.formatting import money_text
from skyward.providers.protocol import Instance

__all__ = ["price_rise", "too_dear"]

_ROUNDING = 1.001
"""Price of a machine that does not exceed another one, relative to it."""

_SIMILAR = 1.05
"""Price of a machine that the user need not be told of, relative to the one that was told."""


def too_dear(offered: SourceOffer, instance: Instance) -> str:
    """Return why a machine is not used, as the end of a sentence about it: it costs more than the spec allows.

    Empty if it does not: the price of its offer may have been listed a while ago.
    """
    most, price = offered.spec.max_hourly_cost, instance.hourly_price
    if most is None or price <= most * _ROUNDING:
        return ""
    return f"it costs {money_text(price)} per hour instead of at most {money_text(most)} (max_hourly_cost)"


def price_rise(offered: SourceOffer, price: float, told: float) -> str:
    """Return a notice that machines cost more than the price that the user was `told`; empty if they do not."""
    if price <= told * _SIMILAR:
        return ""
    before = f"the listed {money_text(told)}" if told or offered.priced else "an unknown price"
    return f"nodes from {offered.source} cost {money_text(price)} per hour each instead of {before}."
