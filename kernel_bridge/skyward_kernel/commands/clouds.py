"""Commands on clouds: their credentials, and costs."""

from skyward.frontends.commands import CLOUD, Argument, Form, Option, Outcome, command, reading
from skyward.frontends.views import cost_table
from skyward_kernel.commands.context import Context

__all__ = ["costs", "doctor"]

_POLICY = Option(("--policy",), "policy", "show the least permissions that are needed, to paste")
_DAYS = Option(("--days",), "days", "days to look back; 7 if not given", "N", reading.number, "a positive number")

_WEEK = 7.0


@command(
    "doctor",
    "check the credentials of clouds, and what they may do",
    arguments=(Argument("providers", CLOUD, several=True),),
    options=(_POLICY,),
    forms=(Form((), "insert-doctor", "Insert %sky doctor", is_line=True),),
    slow=True,
)
def doctor(context: Context, *, providers: tuple[str, ...] = (), policy: bool = False) -> Outcome:
    """Check the credentials of all clouds, or of some, and what these may do. Nothing is created."""
    from skyward.frontends.pools import describe_health
    from skyward.frontends.pools import doctor as examine

    clouds = examine(providers)
    lines = describe_health(clouds, policy=policy)
    failed = any(each.found and not each.is_usable for each in clouds)
    return Outcome("\n".join(lines) or "No installed provider needs credentials.", failed=failed)


@command(
    "costs",
    "show what the machines of all pools have cost",
    options=(_DAYS,),
    forms=(Form((), "insert-costs", "Insert %sky costs", is_line=True),),
    slow=True,
)
def costs(context: Context, *, days: float = _WEEK) -> Outcome:
    """Show the costs of the last days, by pool and kind of machine, from the journal."""
    from skyward.frontends.pools import costs as costs_of

    rows = costs_of(days)
    return Outcome(table=cost_table(rows)) if rows else Outcome(f"No machine has cost anything in {days:g} days.")
