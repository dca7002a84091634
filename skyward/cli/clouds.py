"""`sky doctor` and `sky costs`: the credentials of clouds, and what machines have cost."""

import argparse
import sys
from typing import Any

__all__ = ["add_costs", "add_doctor", "run_costs", "run_doctor"]


def add_doctor(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `sky doctor` to a parser."""
    doctor = commands.add_parser(
        "doctor",
        help="check the credentials of clouds, and what they may do",
        description="Check the credentials of all clouds, or of some, and what these may do. Nothing is created.",
    )
    doctor.add_argument("providers", metavar="PROVIDER", nargs="*", help="only these providers")
    doctor.add_argument("--policy", action="store_true", help="show the least permissions that are needed, to paste")


def add_costs(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `sky costs` to a parser."""
    costs = commands.add_parser(
        "costs",
        help="show what the machines of all pools have cost",
        description="Show the costs of the last days, by pool and kind of machine, from the journal.",
    )
    costs.add_argument("--days", metavar="N", type=float, default=7.0, help="days to look back (7)")


def run_doctor(given: argparse.Namespace) -> int:
    """Print the health of clouds; return the exit status: 1 if credentials have a problem."""
    from skyward.pool.account.doctor import describe_health, doctor

    clouds = doctor(given.providers)
    sys.stdout.write("".join(f"{line}\n" for line in describe_health(clouds, policy=given.policy)))
    return int(any(each.found and not each.is_usable for each in clouds))


def run_costs(given: argparse.Namespace) -> int:
    """Print the costs; return the exit status 0."""
    from skyward.pool.account.costs import costs
    from skyward.views.costs import cost_table

    rows = costs(given.days)
    sys.stdout.write(f"{cost_table(rows)}\n" if rows else f"No machine has cost anything in {given.days:g} days.\n")
    return 0
