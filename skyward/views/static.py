"""Static view of a pool as text and as HTML without scripts, as in a saved notebook."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from skyward.formatting import clock_text, count_text, money_text, share_text, size_text
from skyward.views.drawing import plain, printable, style_of
from skyward.views.order import nodes_in_order
from skyward.views.projection import decision_row, gauge_row, node_row, pool_row
from skyward.views.status import POOL_STATUSES, node_label
from skyward.views.tables import decision_grid, node_grid, reason_text
from skyward.views.volumes import VOLUMES, volume_grid, volume_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skyward.control.observe.snapshot import PoolReport, PoolSnapshot
    from skyward.views.rows import DecisionRow, PoolRow

__all__ = ["NODES", "describe", "drawing", "mime_bundle", "page"]

NODES: Final = 20
DECISIONS: Final = 5
"""Maximum numbers of nodes and of latest decisions to show."""

# No colours and no classes: every front end has its own theme, and some strip style sheets.
_CARD = "max-width:760px;padding:8px 12px;border:1px solid rgba(128,128,128,.35);border-radius:6px"
_QUIET = "opacity:.7"
_TABLE = "margin:8px 0 0;border-collapse:collapse"


def mime_bundle(report: "PoolReport") -> dict[str, str]:
    """Return the pool as HTML and text, by media type."""
    return {"text/html": page(report), "text/plain": describe(report)}


def describe(report: "PoolReport") -> str:
    """Return the pool as lines of text."""
    return plain(drawing(report))


def drawing(report: "PoolReport") -> "RenderableType":
    """Return the pool as lines and tables to draw in a terminal."""
    from rich.console import Group
    from rich.text import Text

    pool = pool_row(report.snapshot)
    nodes = report.snapshot.nodes
    label = POOL_STATUSES[pool.status]
    rest = "".join(f", {part}" for part in _headline(pool))
    headline = Text.assemble(printable(f"{pool.name}: "), (label.word, style_of(label)), printable(rest))
    parts: list[RenderableType] = [headline, *(Text(printable(fact)) for fact in _facts(pool))]
    if nodes:
        parts += ["", node_grid(report.snapshot, NODES)]
        if len(nodes) > NODES:
            parts.append(f"and {len(nodes) - NODES} more")
    if volumes := volume_lines(report.snapshot):
        parts += ["", volume_grid(volumes)]
    if decisions := report.decisions[-DECISIONS:]:
        parts += ["", decision_grid(decisions)]
    return Group(*parts)


def page(report: "PoolReport") -> str:
    """Return the pool as an HTML fragment."""
    pool = pool_row(report.snapshot)
    views = report.snapshot.nodes
    headline = " · ".join((POOL_STATUSES[pool.status].word, *_headline(pool)))
    lines = [
        f"<div><b>{escape(pool.name)}</b> · {escape(headline)}</div>",
        *(f'<div style="{_QUIET}">{escape(fact)}</div>' for fact in _facts(pool)),
    ]
    if views:
        lines.append(_table(("node", "state", "tasks", "CPU", "GPU", "memory", "machine"), _nodes(report.snapshot)))
    if len(views) > NODES:
        lines.append(f'<div style="{_QUIET}">and {len(views) - NODES} more</div>')
    if volumes := volume_lines(report.snapshot):
        lines.append(_table(VOLUMES, ((*line[:3], line[3].word, *line[4:]) for line in volumes)))
    if decisions := report.decisions[-DECISIONS:]:
        rows = (decision_row(pool.name, event) for event in reversed(decisions))
        lines.append(_table(("time", "nodes", "reason"), map(_decision, rows)))
    if pool.spent_at:
        lines.append(f'<div style="margin-top:6px;{_QUIET};font-size:smaller">as of {clock_text(pool.spent_at)}</div>')
    # The classes keep MathJax from reading amounts in dollars as formulas.
    return f'<div class="skyward-static tex2jax_ignore mathjax_ignore" style="{_CARD}">{"".join(lines)}</div>'


def _headline(pool: "PoolRow") -> Iterable[str]:
    bounds = f"{pool.min} to {pool.max}" if pool.max > pool.min else str(pool.desired)
    if pool.status not in ("new", "closed"):
        yield f"{pool.active} of {count_text(bounds)}"
    if pool.provider:
        yield pool.provider


def _facts(pool: "PoolRow") -> Iterable[str]:
    counts = [("queued", pool.queued), ("running", pool.running), ("done", pool.done), ("failed", pool.failed)]
    if pool.cancelled:
        counts.append(("cancelled", pool.cancelled))
    yield f"tasks: {', '.join(f'{count} {what}' for what, count in counts)}"
    if pool.per_hour or pool.spent or pool.budget is not None:
        left = "" if pool.budget is None else f", {money_text(max(0.0, pool.budget - pool.spent))} left"
        rate = "" if pool.status == "closed" else f"{money_text(pool.per_hour)}/h, "
        yield f"cost: {rate}{money_text(pool.spent)} spent{left}"
    if pool.failure:
        yield f"error: {pool.failure}"


def _nodes(pool: "PoolSnapshot") -> Iterable[Sequence[str]]:
    gauges = {view.machine: gauge_row(pool.name, view) for view in pool.nodes}
    for node in nodes_in_order(node_row(pool.name, view) for view in pool.nodes)[:NODES]:
        gauge = gauges[node.machine]
        yield (
            f"{node.rank}",
            node_label(node.status, node.phase, outdated=node.outdated).word,
            f"{node.busy} of {node.slots}",
            share_text(gauge.cpu),
            share_text(gauge.gpu),
            "" if gauge.memory_bytes is None else size_text(gauge.memory_bytes),
            node.kind,
        )


def _decision(row: "DecisionRow") -> Sequence[str]:
    change = f"{row.before} → {row.after}" if row.before != row.after else f"{row.after}"
    return clock_text(row.at), change, reason_text(row)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table without empty columns."""
    body = list(rows)
    shown = [column for column in range(len(header)) if any(row[column] for row in body)]
    cell = '<{0} style="padding:1px 12px 1px 0;text-align:left">{1}</{0}>'
    head = "".join(cell.format("th", escape(header[column])) for column in shown)
    lines = ("".join(cell.format("td", escape(row[column])) for column in shown) for row in body)
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )
