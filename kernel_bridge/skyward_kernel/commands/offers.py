"""Command on the offers of providers."""

from typing import Any

from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import offer_table
from skyward_kernel.commands.context import Context

__all__ = ["offers"]

_SHOWN = 20


@handler_of(DECLARED["offers"])
def offers(context: Context, *, spot: bool = False, limit: int = _SHOWN, **fields: Any) -> Outcome:
    """Show the machines that providers offer for the fields of a spec, best first. Nothing is bought."""
    from skyward.frontends.pools import notes_on, survey_offers

    found = survey_offers((), {**fields, "allocation": "spot"} if spot else fields, limit=limit)
    notes = notes_on(found)
    if not found.offers:
        return Outcome("\n".join((*notes, "No offer fits: ask for less, or name another provider.")))
    return Outcome(table="\n\n".join(filter(None, (offer_table(found.offers), "\n".join(notes)))))
