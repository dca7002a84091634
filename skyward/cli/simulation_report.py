"""Table of a simulation: the selected policy, the others, and the lower bounds of the cost."""

from collections.abc import Sequence

from skyward.formatting import duration_text, money_text
from skyward.simulator.bound import CostBound
from skyward.simulator.measures import Result
from skyward.views.drawing import table

__all__ = ["duration", "report"]

_HEAD = (
    "policy",
    "makespan",
    "node-hours",
    "cost",
    "/bound",
    "wait p50",
    "wait p99",
    "idle",
    "thrash",
    "turns",
    "launched",
    "died",
    "not done",
)


def duration(seconds: float | None) -> str:
    """Return a duration as text: "7.6 s", "12 min 5 s"; "-" for None."""
    return "-" if seconds is None else duration_text(seconds)


def report(results: Sequence[Result], bound: CostBound) -> str:
    """Return the table as text: the policies in the order given, and the bounds."""
    rows = [_row(result, bound) for result in results]
    if bound.no_wait is not None:
        rows.append(_bound_row("bound, no wait", bound.no_wait, bound, bound.wait_p99, bound.makespan))
    rows.append(_bound_row("bound, any wait", bound.any_wait, bound, None, None))
    notes = [_note(result) for result in results if result.failed or result.unfinished]
    return "\n".join([table(_HEAD, rows, right=_HEAD[1:]), *notes])


def _row(result: Result, bound: CostBound) -> tuple[str, ...]:
    least = bound.no_wait if bound.no_wait is not None else bound.any_wait
    return (
        result.policy,
        duration(result.makespan),
        f"{result.node_hours:,.1f}",
        money_text(result.cost),
        f"{result.cost / least:.2f}x" if least else "-",
        duration(result.wait_p50),
        duration(result.wait_p99),
        f"{result.over_provision:.0%}",
        str(result.thrash),
        str(result.turns),
        str(result.launches),
        str(result.died),
        str(result.failed + result.unfinished),
    )


def _bound_row(name: str, cost: float, bound: CostBound, wait: float | None, makespan: float | None) -> tuple[str, ...]:
    least = bound.no_wait if bound.no_wait is not None else bound.any_wait
    ratio = f"{cost / least:.2f}x" if least else "-"
    waits = ("-" if wait is None else duration(0.0), duration(wait))
    return (name, duration(makespan), "-", money_text(cost), ratio, *waits, *["-"] * 6)


def _note(result: Result) -> str:
    parts = [f"{result.unfinished:,} unfinished at the end"] if result.unfinished else []
    parts += [f"{result.failed:,} ended without a result"] if result.failed else []
    return f"{result.policy}: of {result.tasks:,} tasks, {' and '.join(parts)}."
