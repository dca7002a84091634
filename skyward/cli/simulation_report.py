"""Table of a simulation: the policies, each with the lower bound at its own p99 wait, and the other bounds."""

from collections.abc import Sequence

from skyward.formatting import count_text, duration_text, money_text
from skyward.simulator.bound import CostBound
from skyward.simulator.measures import Result
from skyward.simulator.scenario import Scenario
from skyward.views.drawing import table

__all__ = ["boot_note", "duration", "report"]

_HEAD = (
    "policy",
    "makespan",
    "node-hours",
    "cost",
    "bound",
    "/bound",
    "wait p50",
    "wait p99",
    "idle",
    "short",
    "thrash",
    "turns",
    "launched",
    "died",
    "not done",
)


def duration(seconds: float | None) -> str:
    """Return a duration as text: "7.6 s", "12 min 5 s"; "-" for None."""
    return "-" if seconds is None else duration_text(seconds)


def report(rows: Sequence[tuple[Result, float | None]], bound: CostBound) -> str:
    """Return the table as text.

    Args:
        rows: the results in their order, each with the bound at its p99 wait; None for one without all results.
        bound: the bounds without waiting, and for any wait.
    """
    cells = [_row(result, least) for result, least in rows]
    if bound.no_wait is not None:
        waits = duration(bound.wait_p50), duration(bound.wait_p99)
        cells.append(_bound_row("bound, no wait", bound.no_wait, bound.makespan, waits))
    cells.append(_bound_row("bound, any wait", bound.any_wait, None, ("-", "-")))
    notes = [_note(result) for result, _ in rows if result.failed or result.unfinished]
    return "\n".join([table(_HEAD, cells, right=_HEAD[1:]), *notes])


def boot_note(scenario: Scenario) -> str:
    """Return a sentence on boots that take longer than the boot limit; empty if none does."""
    limit = scenario.boot_limit
    if scenario.boot.most <= limit:
        return ""
    over = "is" if scenario.boot.least > limit else "can be"
    what = "no machine ever becomes a node" if scenario.boot.least > limit else "slower machines never become nodes"
    return (
        f"The boot time of {scenario.boot} s {over} over the boot limit of {limit:g} s: a machine that is no node by "
        f"then is terminated and replaced, so {what}. A pool raises the limit with `bootstrap_timeout=`, and this "
        f"command with `--boot-limit {scenario.boot.most:g}`."
    )


def _row(result: Result, least: float | None) -> tuple[str, ...]:
    return (
        result.policy,
        duration(result.makespan),
        f"{result.node_hours:,.1f}",
        money_text(result.cost),
        "-" if least is None else money_text(least),
        f"{result.cost / least:.2f}x" if least else "-",
        duration(result.wait_p50),
        duration(result.wait_p99),
        f"{result.over_provision:.0%}",
        str(result.short_lived),
        str(result.thrash),
        str(result.turns),
        str(result.launches),
        str(result.died),
        str(result.failed + result.unfinished),
    )


def _bound_row(name: str, cost: float, makespan: float | None, waits: tuple[str, str]) -> tuple[str, ...]:
    return (name, duration(makespan), "-", money_text(cost), "-", "-", *waits, *["-"] * 7)


def _note(result: Result) -> str:
    parts = [f"{result.unfinished:,} unfinished at the end"] if result.unfinished else []
    parts += [f"{result.failed:,} ended without a result"] if result.failed else []
    return f"{result.policy}: of {count_text(f'{result.tasks:,}', 'task')}, {' and '.join(parts)}."
