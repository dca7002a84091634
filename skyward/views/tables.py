"""Plain text tables of pools, nodes, tasks and decisions, equal in every front end."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from skyward.formatting import money_text, size_text

if TYPE_CHECKING:
    from skyward.control.act.recovered_tasks import RecoveredTask
    from skyward.control.observe.origin import Origin
    from skyward.control.observe.snapshot import KeptView, NodeView, PoolSnapshot, TaskView
    from skyward.events.decisions import DecisionEvent

__all__ = [
    *("decision_table", "kept_table", "node_table", "pool_table", "recovered_table", "table"),
    "task_table",
]


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under a header, in columns: numbers right-aligned, everything else left-aligned."""
    body = [[str(value) for value in row] for row in rows]
    grid = [list(header), *body]
    widths = [max(len(row[column]) for row in grid) for column in range(len(header))]
    numeric = [bool(body) and all(row[column].isdigit() for row in body) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in grid
    )


def pool_table(pools: Iterable["PoolSnapshot"]) -> str:
    """Return a table with one line per pool."""
    header = ("pool", "state", "provider", "nodes", "queued", "running", "done", "failed")
    return table(
        header,
        (
            (pool.name, pool.state, pool.provider, _nodes(pool), pool.queued, pool.running, pool.done, pool.failed)
            for pool in pools
        ),
    )


def node_table(pool: "PoolSnapshot") -> str:
    """Return a table with one line per node of a pool."""
    has_metrics = any(node.metrics is not None for node in pool.nodes)
    keeps = any(node.kept for node in pool.nodes)
    header = (
        "node",
        "state",
        "tasks",
        *(("cpu", "memory") if has_metrics else ()),
        *(("keeps",) if keeps else ()),
        "address",
    )
    rows = []
    for node in pool.nodes:
        busy = f"{node.busy} of {node.slots}"
        used, kept = _used(node) if has_metrics else (), (_kept(node),) if keeps else ()
        rows.append((node.rank, node.state, busy, *used, *kept, node.address))
    return table(header, rows)


def _kept(node: "NodeView") -> str:
    """Return names and sizes of the values that a node keeps."""
    return ", ".join(f"{view.name} {size_text(view.nbytes)}" for view in node.kept)


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


def _used(node: "NodeView") -> tuple[str, str]:
    """Return the CPU utilisation of a node, and its used memory."""
    metrics = node.metrics
    if metrics is None:
        return "", ""
    memory = "" if metrics.memory is None else size_text(metrics.memory)
    total = "" if metrics.memory is None or metrics.memory_total is None else f" of {size_text(metrics.memory_total)}"
    return f"{metrics.cpu / metrics.cpus:.0%}", f"{memory}{total}"


def decision_table(events: Iterable["DecisionEvent"]) -> str:
    """Return a table with one line per scaling decision, newest first."""
    rows = []
    for event in events:
        before, after = sum(event.before.values()), sum(event.after.values())
        reason = f"{event.reason} (held back: {event.held_back})" if event.held_back else event.reason
        rows.append((time.strftime("%H:%M:%S", time.localtime(event.at)), event.by, f"{before} -> {after}", reason))
    return table(("time", "by", "nodes", "reason"), reversed(rows))


def recovered_table(tasks: Iterable["RecoveredTask"]) -> str:
    """Return a table with one line per task that was recovered with a pool; empty without tasks."""
    tasks = list(tasks)
    rows = [
        (index, _cell(task.origin), _code(task.name, task.origin), task.node, task.state, task.printed)
        for index, task in enumerate(tasks)
    ]
    if not rows:
        return ""
    return (
        table(("task", "cell", "code", "node", "state", "characters printed"), rows)
        + _former(task.origin for task in tasks)
        + "\n`pool.recovered[TASK]` has `.result()` and `.output` of a task; `%sky attach` returns the pool."
    )


def task_table(tasks: Iterable["TaskView"]) -> str:
    """Return a table with one line per task, with a cost column if any task has a cost."""
    tasks = list(tasks)
    priced = any(task.cost for task in tasks)
    rows = (
        (
            task.number,
            task.state,
            "" if task.node is None else task.node,
            _cell(task.origin),
            *((money_text(task.cost) if task.cost else "",) if priced else ()),
            _code(task.name, task.origin),
        )
        for task in tasks
    )
    listed = table(("task", "state", "node", "cell", *(("cost",) if priced else ()), "code"), rows)
    return listed + _former(task.origin for task in tasks)


def _former(origins: "Iterable[Origin | None]") -> str:
    """Return the footnote for cells of a previous kernel, if there are any."""
    return "\n* in the previous kernel" if any(origin and origin.former for origin in origins) else ""


def _cell(origin: "Origin | None") -> str:
    """Return the number of a cell, with a mark if it ran in another kernel."""
    return "" if origin is None else f"{origin.number}{'*' * origin.former}"


def _code(name: str, origin: "Origin | None") -> str:
    """Return the function of a task, or the first line of its cell."""
    return name if origin is None or name not in ("run_cell", "stream_cell") else origin.code


def _nodes(pool: "PoolSnapshot") -> str:
    active = sum(node.state == "active" for node in pool.nodes)
    elastic = f" ({pool.min} to {pool.max})" if pool.max > pool.min else ""
    return f"{active} of {pool.desired}{elastic}"
