"""`skyward offers`: the machines that providers offer, and their prices."""

import dataclasses
from typing import TYPE_CHECKING, Any

from skyward.cli.terminal.answers import say, write_json, write_table

if TYPE_CHECKING:
    from skyward.accelerators import Accelerator

__all__ = ["print_offers"]

_SHOWN = 20


def print_offers(
    *,
    accelerator: "Accelerator | None" = None,
    vcpus: float | None = None,
    memory_gb: float | None = None,
    region: str | None = None,
    max_hourly_cost: float | None = None,
    provider: str | None = None,
    spot: bool = False,
    limit: int = _SHOWN,
    json: bool = False,
) -> int:
    """Print the offers; return the exit status: 1 if none fits."""
    from skyward.pool.account.offers import notes_on, survey_offers
    from skyward.views.offers import offer_grid

    fields: dict[str, Any] = {
        "accelerator": accelerator,
        "vcpus": vcpus,
        "memory_gb": memory_gb,
        "region": region,
        "max_hourly_cost": max_hourly_cost,
        "provider": provider,
        **({"allocation": "spot"} if spot else {}),
    }
    found = survey_offers((), fields, limit=limit)
    if json:
        write_json([{**dataclasses.asdict(each), "listed": each.listed.isoformat()} for each in found.offers])
    elif found.offers:
        write_table(offer_grid(found.offers))
    for note in notes_on(found):
        say(note)
    if not found.offers:
        say("no offer fits; ask for less, or name another provider.")
    return 0 if found.offers else 1
