"""`sky offers`: the machines that providers offer, and their prices."""

import argparse
import dataclasses
import json
import sys
from typing import Any

__all__ = ["add_offers", "run_offers"]


def add_offers(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to a parser."""
    offers = commands.add_parser(
        "offers",
        help="show the machines that providers offer, and their prices",
        description="Show the machines that providers offer, in the order in which a pool would try them. Nothing is "
        "bought. Providers without credentials are shown with the prices of the bundled catalogue.",
        epilog="Example: sky offers --gpu A100:8 --provider aws,runpod --spot",
    )
    offers.add_argument("--gpu", "--accelerator", dest="accelerator", metavar="NAME[:COUNT]", help="the accelerators")
    offers.add_argument("--vcpus", metavar="N", type=float, help="minimum number of virtual CPUs")
    offers.add_argument("--memory", dest="memory_gb", metavar="GIB", type=float, help="minimum memory")
    offers.add_argument("--region", metavar="NAME", help="region, as the provider names it")
    offers.add_argument("--max-cost", dest="max_hourly_cost", metavar="USD", type=float, help="maximum price per hour")
    offers.add_argument("--provider", metavar="NAME,...", help="only these providers, joined by commas")
    offers.add_argument("--spot", action="store_true", help="only spot machines")
    offers.add_argument("--limit", metavar="N", type=int, default=20, help="most offers to show (20)")
    offers.add_argument("--json", action="store_true", help="print JSON instead of a table")


_FIELDS = ("accelerator", "vcpus", "memory_gb", "region", "max_hourly_cost", "provider")


def run_offers(given: argparse.Namespace) -> int:
    """Print the offers; return the exit status: 1 if none fits."""
    from skyward.pool.account.offers import notes_on, survey_offers
    from skyward.views.offers import offer_table

    fields: dict[str, Any] = {name: getattr(given, name) for name in _FIELDS}
    if given.spot:
        fields["allocation"] = "spot"
    found = survey_offers((), fields, limit=given.limit)
    if given.json:
        rows = [{**dataclasses.asdict(each), "listed": each.listed.isoformat()} for each in found.offers]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    elif found.offers:
        sys.stdout.write(f"{offer_table(found.offers)}\n")
    for note in notes_on(found):
        sys.stderr.write(f"sky offers: {note}\n")
    if not found.offers:
        sys.stderr.write("sky offers: no offer fits; ask for less, or name another provider.\n")
    return 0 if found.offers else 1
