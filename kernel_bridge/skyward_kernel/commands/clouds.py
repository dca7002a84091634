"""Commands on clouds: their credentials, and costs."""

from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import cost_table
from skyward_kernel.commands.context import Context

__all__ = ["costs", "doctor"]

_WEEK = 7.0


@handler_of(DECLARED["doctor"])
def doctor(context: Context, *, providers: tuple[str, ...] = (), policy: bool = False) -> Outcome:
    """Check the credentials of all clouds, or of some, and what these may do. Nothing is created."""
    from skyward.frontends.pools import describe_health
    from skyward.frontends.pools import doctor as examine

    clouds = examine(providers)
    lines = describe_health(clouds, policy=policy)
    failed = any(each.found and not each.is_usable for each in clouds)
    return Outcome("\n".join(lines) or "No installed provider needs credentials.", failed=failed)


@handler_of(DECLARED["costs"])
def costs(context: Context, *, days: float = _WEEK) -> Outcome:
    """Show the costs of the last days, by pool and kind of machine, from the journal."""
    from skyward.frontends.pools import costs as costs_of

    rows = costs_of(days)
    return Outcome(table=cost_table(rows)) if rows else Outcome(f"No machine has cost anything in {days:g} days.")
