"""Command on the offers of providers."""

from typing import TYPE_CHECKING

from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import offer_table
from skyward_kernel.commands.context import Context

if TYPE_CHECKING:
    from skyward import Accelerator

__all__ = ["offers"]

_SHOWN = 20


@handler_of(DECLARED["offers"])
def offers(
    context: Context,
    *,
    accelerator: "Accelerator | None" = None,
    vcpus: float | None = None,
    memory_gb: float | None = None,
    region: str | None = None,
    max_hourly_cost: float | None = None,
    provider: str | None = None,
    spot: bool = False,
    limit: int = _SHOWN,
) -> Outcome:
    """Show the machines that providers offer, best first. Nothing is bought."""
    from skyward.frontends.pools import notes_on, survey_offers

    fields = {
        "accelerator": accelerator,
        "vcpus": vcpus,
        "memory_gb": memory_gb,
        "region": region,
        "max_hourly_cost": max_hourly_cost,
        "provider": provider,
        **({"allocation": "spot"} if spot else {}),
    }
    found = survey_offers((), fields, limit=limit)
    notes = notes_on(found)
    if not found.offers:
        return Outcome("\n".join((*notes, "No offer fits: ask for less, or name another provider.")))
    return Outcome(table="\n\n".join(filter(None, (offer_table(found.offers), "\n".join(notes)))))
