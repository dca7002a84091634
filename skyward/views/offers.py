"""Table of the offers of providers, as plain text."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from skyward.accelerators import catalogue_name
from skyward.formatting import duration_text, money_text
from skyward.views.drawing import grid, plain

if TYPE_CHECKING:
    from rich.table import Table

    from skyward.market.survey import MachineOffer

__all__ = ["as_of", "offer_grid", "offer_table"]

_RECENT = 60.0
"""Seconds for which a price counts as one of now."""


def offer_table(offers: Iterable["MachineOffer"]) -> str:
    """Return a table with one line per offer. Columns that no offer has a value for are left out."""
    return plain(offer_grid(offers))


def offer_grid(offers: Iterable["MachineOffer"]) -> "Table":
    """Return a grid with one line per offer, to draw."""
    rows = [_cells(each) for each in offers]
    header = [name for name in rows[0] if any(row[name] not in ("", "?") for row in rows)] if rows else []
    return grid(header, ([row[name] for name in header] for row in rows))


def _cells(offer: "MachineOffer") -> dict[str, str]:
    """Return the cells of an offer by column."""
    return {
        "provider": offer.provider,
        "type": offer.type,
        "accelerator": _accelerators(offer),
        "vCPUs": f"{offer.vcpus:g}" if offer.vcpus else "?",
        "GiB": f"{offer.memory_gb:g}" if offer.memory_gb else "?",
        "region": offer.region,
        "market": offer.market,
        "$/hour": "?" if offer.hourly_price is None else money_text(offer.hourly_price),
        "price of": as_of(offer),
        "usual start": _start(offer),
    }


def _accelerators(offer: "MachineOffer") -> str:
    """Return the accelerators of a machine, as `--gpu` takes them: `A100-80GB:8`; empty for none."""
    name, count = catalogue_name(offer.accelerator), offer.accelerator_count
    return f"{name}:{count:g}" if name and count not in (0, 1) else name


def as_of(offer: "MachineOffer") -> str:
    """Return when the price of an offer was stated: `now`, `12 min 3 s ago`, or the date of a catalogue."""
    if offer.origin != "provider":
        return f"{offer.listed:%Y-%m-%d}, {offer.origin}"
    age = time.time() - offer.listed.timestamp()
    text = "now" if age < _RECENT else f"{duration_text(age)} ago"
    return text if offer.is_current else f"{text}, out of date"


def _start(offer: "MachineOffer") -> str:
    return "" if offer.boot_seconds is None else f"about {duration_text(offer.boot_seconds)}"
