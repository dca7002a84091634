"""Static view of a pool as text and as HTML without scripts, as in a saved notebook."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Final

from skyward.formatting import money_text, size_text
from skyward.views.tables import decision_table, node_table

if TYPE_CHECKING:
    from skyward.control.observe.snapshot import NodeView, PoolReport, PoolSnapshot
    from skyward.events.decisions import DecisionEvent

__all__ = ["NODES", "describe", "mime_bundle", "page"]

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
    pool = report.snapshot
    parts = ["\n".join((f"{pool.name}: {', '.join(_headline(pool))}", *_facts(pool)))]
    if pool.nodes:
        left = len(pool.nodes) - NODES
        rest = f"\nand {left} more" if left > 0 else ""
        parts.append(node_table(replace(pool, nodes=pool.nodes[:NODES])) + rest)
    if decisions := report.decisions[-DECISIONS:]:
        parts.append(decision_table(decisions))
    return "\n\n".join(parts)


def page(report: "PoolReport") -> str:
    """Return the pool as an HTML fragment."""
    pool = report.snapshot
    lines = [
        f"<div><b>{escape(pool.name)}</b> · {escape(' · '.join(_headline(pool)))}</div>",
        *(f'<div style="{_QUIET}">{escape(fact)}</div>' for fact in _facts(pool)),
    ]
    if pool.nodes:
        lines.append(_table(("node", "state", "tasks", "CPU", "GPU", "memory", "machine"), _nodes(pool)))
    if len(pool.nodes) > NODES:
        lines.append(f'<div style="{_QUIET}">and {len(pool.nodes) - NODES} more</div>')
    if decisions := report.decisions[-DECISIONS:]:
        lines.append(_table(("time", "nodes", "reason"), map(_decision, reversed(decisions))))
    if pool.at:
        at = time.strftime("%H:%M:%S", time.localtime(pool.at))
        lines.append(f'<div style="margin-top:6px;{_QUIET};font-size:smaller">as of {at}</div>')
    return f'<div class="skyward-static" style="{_CARD}">{"".join(lines)}</div>'


def _headline(pool: "PoolSnapshot") -> Iterable[str]:
    active = sum(node.state == "active" for node in pool.nodes)
    bounds = f"{pool.min} to {pool.max}" if pool.max > pool.min else str(pool.desired)
    yield pool.state
    if pool.state not in ("idle", "closed"):
        yield f"{active} of {bounds} nodes"
    if pool.provider:
        yield pool.provider


def _facts(pool: "PoolSnapshot") -> Iterable[str]:
    counts = (("queued", pool.queued), ("running", pool.running), ("done", pool.done), ("failed", pool.failed))
    yield f"tasks: {', '.join(f'{count} {what}' for what, count in counts)}"
    if pool.per_hour or pool.spent or pool.budget is not None:
        left = "" if pool.budget is None else f", {money_text(max(0.0, pool.budget - pool.spent))} left"
        rate = "" if pool.state == "closed" else f"{money_text(pool.per_hour)}/h, "
        yield f"cost: {rate}{money_text(pool.spent)} spent{left}"
    if pool.failure:
        yield f"error: {pool.failure}"


def _nodes(pool: "PoolSnapshot") -> Iterable[Sequence[str]]:
    for node in pool.nodes[:NODES]:
        yield (f"{node.rank}", _state(node), f"{node.busy} of {node.slots}", *_gauges(node), node.kind)


def _state(node: "NodeView") -> str:
    if node.state == "active":
        return "busy" if node.busy else "ready"
    return node.phase if node.state == "waiting" else node.state


def _gauges(node: "NodeView") -> tuple[str, str, str]:
    metrics = node.metrics
    if metrics is None:
        return "", "", ""
    gpu = f"{sum(each.busy for each in metrics.gpus) / len(metrics.gpus):.0%}" if metrics.gpus else ""
    memory = "" if metrics.memory is None else size_text(metrics.memory)
    return f"{metrics.cpu / metrics.cpus:.0%}", gpu, memory


def _decision(event: "DecisionEvent") -> Sequence[str]:
    before, after = sum(event.before.values()), sum(event.after.values())
    change = f"{before} → {after}" if before != after else f"{after}"
    held = f" (held back: {event.held_back})" if event.held_back else ""
    return time.strftime("%H:%M:%S", time.localtime(event.at)), change, f"{event.reason}{held}"


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
