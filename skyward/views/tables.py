"""Tables of pools, nodes, tasks and decisions: as plain text, equal in every front end, or as grids to draw."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from skyward.formatting import clock_text, money_text, share_text, size_text
from skyward.specs.resolve import DEFAULT_GROUP
from skyward.views.drawing import grid, plain, table
from skyward.views.order import nodes_in_order, tasks_in_order
from skyward.views.projection import decision_row, gauge_row, node_row, pool_row, task_row, task_title
from skyward.views.status import POOL_STATUSES, TASK_STATUSES, node_label

if TYPE_CHECKING:
    from rich.table import Table

    from skyward.control.act.recovered_tasks import RecoveredTask
    from skyward.control.observe.origin import Origin
    from skyward.control.observe.snapshot import KeptView, PoolSnapshot, TaskView
    from skyward.events.decisions import DecisionEvent
    from skyward.views.rows import DecisionRow, GaugeRow, PoolRow

__all__ = [
    *("decision_grid", "decision_table", "kept_table", "node_grid", "node_table", "pool_table", "reason_text"),
    *("recovered_table", "task_table"),
]


def pool_table(pools: Iterable["PoolSnapshot"]) -> str:
    """Return a table with one line per pool."""
    rows = [pool_row(pool) for pool in pools]
    any_cancelled = any(row.cancelled for row in rows)
    header = ("pool", "state", "provider", "nodes", "queued", "running", "done", "failed")
    return table(
        (*header, "cancelled") if any_cancelled else header,
        (
            (
                row.name,
                POOL_STATUSES[row.status],
                row.provider,
                _nodes(row),
                row.queued,
                row.running,
                row.done,
                row.failed,
                *((row.cancelled,) if any_cancelled else ()),
            )
            for row in rows
        ),
    )


def node_table(pool: "PoolSnapshot") -> str:
    """Return a table with one line per node of a pool."""
    return plain(node_grid(pool))


def node_grid(pool: "PoolSnapshot", most: int | None = None) -> "Table":
    """Return a grid with one line per node of a pool, of the first `most` nodes."""
    nodes = nodes_in_order(node_row(pool.name, view) for view in pool.nodes)[:most]
    gauges = {view.machine: gauge_row(pool.name, view) for view in pool.nodes if view.metrics is not None}
    keeps = any(node.kept for node in nodes)
    are_grouped = any(view.group not in ("", DEFAULT_GROUP) for view in pool.nodes)
    header = (
        "node",
        *(("group",) if are_grouped else ()),
        "state",
        "tasks",
        *(("cpu", "memory") if gauges else ()),
        *(("keeps",) if keeps else ()),
        "address",
    )
    return grid(
        header,
        (
            (
                node.rank,
                *((node.group,) if are_grouped else ()),
                node_label(node.status, node.phase, outdated=node.outdated),
                f"{node.busy} of {node.slots}",
                *(_used(gauges.get(node.machine)) if gauges else ()),
                *((", ".join(node.kept),) if keeps else ()),
                node.address,
            )
            for node in nodes
        ),
        cut=("memory", "keeps", "address"),
    )


def kept_table(views: "Iterable[tuple[str, KeptView]]", variables: "Mapping[str, Sequence[str]]") -> str:
    """Return a table with one line per value that a node keeps.

    Args:
        views: the values, each with the name of its pool.
        variables: by key, the notebook's variables that refer to the value.
    """
    rows = [
        (
            view.name,
            view.kind,
            size_text(view.nbytes),
            pool,
            view.node,
            _until(view),
            ", ".join(variables.get(view.key, "")),
        )
        for pool, view in views
    ]
    return table(("name", "type", "size", "pool", "node", "kept until", "variables"), rows)


def _until(view: "KeptView") -> str:
    """Return the time until which scaling down spares the node of a value."""
    if view.in_use:
        return "in use"
    return time.strftime("%H:%M", time.localtime(view.until)) if view.until > time.time() else "expired"


def _used(gauge: "GaugeRow | None") -> tuple[str, str]:
    """Return the CPU utilization of a node, and its used memory."""
    if gauge is None:
        return "", ""
    memory = "" if gauge.memory_bytes is None else size_text(gauge.memory_bytes)
    total = "" if not memory or gauge.memory_total is None else f" of {size_text(gauge.memory_total)}"
    return share_text(gauge.cpu), f"{memory}{total}"


def decision_table(events: Iterable["DecisionEvent"]) -> str:
    """Return a table with one line per scaling decision, newest first."""
    return plain(decision_grid(events))


def decision_grid(events: Iterable["DecisionEvent"]) -> "Table":
    """Return a grid with one line per scaling decision, newest first."""
    rows = reversed([decision_row("", event) for event in events])
    return grid(
        ("time", "by", "nodes", "reason"),
        ((clock_text(row.at), row.by, f"{row.before} -> {row.after}", reason_text(row)) for row in rows),
        cut=("reason",),
    )


def reason_text(row: "DecisionRow") -> str:
    """Return why a decision was made, and why it was not applied, if so."""
    return f"{row.reason} (held back: {row.held_back})" if row.held_back else row.reason


def recovered_table(tasks: Iterable["RecoveredTask"]) -> str:
    """Return a table with one line per task that was recovered with a pool; empty without tasks."""
    tasks = list(tasks)
    rows = [
        (
            index,
            task.number,
            _cell(task.origin),
            task_title(task.name, task.origin),
            task.node,
            task.state,
            task.printed,
        )
        for index, task in enumerate(tasks)
    ]
    if not rows:
        return ""
    return (
        table(("index", "task", "cell", "code", "node", "state", "characters printed"), rows)
        + _former(task.origin for task in tasks)
        + "\n`pool.recovered[INDEX]` has `.result()` and `.output` of a task; `%sky attach` returns the pool."
    )


def task_table(tasks: Iterable["TaskView"]) -> str:
    """Return a table with one line per task; with columns of costs so far and of reasons, if any task has one."""
    tasks = list(tasks)
    costs = {task.number: task.cost for task in tasks}
    is_priced = any(costs.values())
    is_explained = any(task.reason for task in tasks)
    ordered = list(tasks_in_order(task_row("", task) for task in tasks))
    before = ["", *(row.reason for row in ordered)]
    rows = (
        (
            row.number,
            TASK_STATUSES[row.state],
            "" if row.node is None else row.node,
            "" if row.cell is None else f"{row.cell}{'*' * row.former}",
            *((money_text(costs[row.number]) if costs[row.number] else "",) if is_priced else ()),
            row.title,
            *(("as above" if row.reason and row.reason == above else row.reason,) if is_explained else ()),
        )
        for above, row in zip(before, ordered, strict=False)
    )
    priced, explained = ("cost",) if is_priced else (), ("reason",) if is_explained else ()
    return table(("task", "state", "node", "cell", *priced, "code", *explained), rows) + _former(
        task.origin for task in tasks
    )


def _former(origins: "Iterable[Origin | None]") -> str:
    """Return the footnote for cells of a previous kernel, if there are any."""
    return "\n* in the previous kernel" if any(origin and origin.former for origin in origins) else ""


def _cell(origin: "Origin | None") -> str:
    """Return the number of a cell, with a mark if it ran in another kernel."""
    return "" if origin is None else f"{origin.number}{'*' * origin.former}"


def _nodes(pool: "PoolRow") -> str:
    elastic = f" ({pool.min} to {pool.max})" if pool.max > pool.min else ""
    return f"{pool.active} of {pool.desired}{elastic}"
