"""`skyward costs` and `skyward doctor`: what machines have cost, and the health of this computer and of clouds."""

import dataclasses

from skyward.cli.terminal.answers import write_json, write_lines, write_table
from skyward.errors import ProviderMissingError, SpecError

__all__ = ["print_costs", "print_findings"]

_WEEK = 7.0


def print_costs(*, days: float = _WEEK, json: bool = False) -> int:
    """Print the costs; return the exit status 0."""
    from skyward.pool.reaping.costs import costs as costs_of
    from skyward.views.costs import cost_grid

    rows = costs_of(days)
    if json:
        write_json([dataclasses.asdict(each) for each in rows])
    elif rows:
        write_table(cost_grid(rows))
    else:
        write_lines([f"No machine has cost anything in {days:g} days."])
    return 0


def print_findings(*, providers: tuple[str, ...] = (), policy: bool = False, json: bool = False) -> int:
    """Print the findings; return the exit status: 1 if there is a problem.

    Raises:
        SpecError: there is no such cloud, or it needs no credentials.
    """
    from skyward.pool.account.doctor import describe_health
    from skyward.pool.account.doctor import doctor as examine
    from skyward.pool.health.computer import describe_findings, examine_computer

    findings = [] if providers else examine_computer()
    try:
        clouds = examine(providers)
    except ProviderMissingError as error:
        raise SpecError(str(error)) from None
    if json:
        rows = [{"kind": "computer", **dataclasses.asdict(each)} for each in findings]
        write_json(rows + [{"kind": "cloud", **dataclasses.asdict(each)} for each in clouds])
    else:
        write_lines(describe_findings(findings) if findings else ())
        write_lines(describe_health(clouds, policy=policy))
    failed = any(each.level == "problem" for each in findings)
    return int(failed or any(each.found and not each.is_usable for each in clouds))
