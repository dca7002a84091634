"""Commands on clouds: their credentials, and costs."""

from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import cost_table
from skyward_kernel.commands.context import Context

__all__ = ["costs", "doctor"]

_WEEK = 7.0


@handler_of(DECLARED["doctor"])
def doctor(context: Context, *, providers: tuple[str, ...] = (), policy: bool = False) -> Outcome:
    """Check this computer and the credentials of all clouds, or only those of some clouds. Nothing is created."""
    from skyward.frontends.pools import describe_findings, describe_health, examine_computer
    from skyward.frontends.pools import doctor as examine

    findings = [] if providers else examine_computer()
    clouds = examine(providers)
    lines = [*(describe_findings(findings) if findings else ()), *describe_health(clouds, policy=policy)]
    failed = any(each.level == "problem" for each in findings)
    failed = failed or any(each.found and not each.is_usable for each in clouds)
    return Outcome("\n".join(lines), failed=failed)


@handler_of(DECLARED["costs"])
def costs(context: Context, *, days: float = _WEEK) -> Outcome:
    """Show the costs of the last days, by pool and kind of machine, from the journal."""
    from skyward.frontends.pools import costs as costs_of

    rows = costs_of(days)
    return Outcome(table=cost_table(rows)) if rows else Outcome(f"No machine has cost anything in {days:g} days.")
