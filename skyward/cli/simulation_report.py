"""Table of a simulation: the selected policy, the others, and the lower bounds of the cost."""

from collections.abc import Sequence

from skyward.simulator.bound import CostBound
from skyward.simulator.measures import Result

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
    """Return a duration as text: "7.6 s", "12m05s", "24h34m"; "-" for None."""
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, of_hour = divmod(minutes, 60)
    return f"{hours}h{of_hour:02}m" if hours else f"{minutes}m{rest:02}s"


def report(results: Sequence[Result], bound: CostBound) -> str:
    """Return the table as text: the policies in the order given, and the bounds."""
    rows = [_HEAD, *(_row(result, bound) for result in results)]
    if bound.no_wait is not None:
        rows.append(_bound_row("bound, no wait", bound.no_wait, bound, bound.wait_p99, bound.makespan))
    rows.append(_bound_row("bound, any wait", bound.any_wait, bound, None, None))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    lines.insert(1, "-" * len(lines[0]))
    notes = [_note(result) for result in results if result.failed or result.unfinished]
    return "\n".join([*(line.rstrip() for line in lines), *notes])


def _row(result: Result, bound: CostBound) -> tuple[str, ...]:
    least = bound.no_wait if bound.no_wait is not None else bound.any_wait
    return (
        result.policy,
        duration(result.makespan),
        f"{result.node_hours:,.1f}",
        f"${result.cost:,.2f}",
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
    return (name, duration(makespan), "-", f"${cost:,.2f}", ratio, *waits, *["-"] * 6)


def _note(result: Result) -> str:
    parts = [f"{result.unfinished:,} unfinished at the end"] if result.unfinished else []
    parts += [f"{result.failed:,} ended without a result"] if result.failed else []
    return f"{result.policy}: of {result.tasks:,} tasks, {' and '.join(parts)}."
