"""`skyward offers`: the machines that providers offer, and their prices."""

import dataclasses
from typing import Any

from skyward.cli.terminal.answers import say, write_json, write_table

__all__ = ["print_offers"]

_SHOWN = 20


def print_offers(*, spot: bool = False, limit: int = _SHOWN, json: bool = False, **fields: Any) -> int:
    """Print the offers for the fields of a spec; return the exit status: 1 if none fits."""
    from skyward.pool.account.offers import notes_on, survey_offers
    from skyward.views.offers import offer_grid

    found = survey_offers((), {**fields, "allocation": "spot"} if spot else fields, limit=limit)
    if json:
        write_json([{**dataclasses.asdict(each), "listed": each.listed.isoformat()} for each in found.offers])
    elif found.offers:
        write_table(offer_grid(found.offers))
    for note in notes_on(found):
        say(note)
    if not found.offers:
        say("no offer fits; ask for less, or name another provider.")
    return 0 if found.offers else 1
