"""Pools, nodes and background cells as plain tables, which look the same in every front end."""

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
    """Rows under a header, in columns: numbers to the right, all else to the left."""
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
    """One line for each pool."""
    header = ("pool", "state", "provider", "nodes", "queued", "running", "done", "failed")
    return table(
        header,
        (
            (pool.name, pool.state, pool.provider, _nodes(pool), pool.queued, pool.running, pool.done, pool.failed)
            for pool in pools
        ),
    )


def node_table(pool: "PoolSnapshot") -> str:
    """One line for each node of a pool."""
    told = any(node.metrics is not None for node in pool.nodes)
    keeps = any(node.kept for node in pool.nodes)
    header = ("node", "state", "tasks", *(("cpu", "memory") if told else ()), *(("keeps",) if keeps else ()), "address")
    rows = []
    for node in pool.nodes:
        busy = f"{node.busy} of {node.slots}"
        used, kept = _used(node) if told else (), (_kept(node),) if keeps else ()
        rows.append((node.rank, node.state, busy, *used, *kept, node.address))
    return table(header, rows)


def _kept(node: "NodeView") -> str:
    """What a node keeps for later tasks: names and sizes."""
    return ", ".join(f"{view.name} {size_text(view.nbytes)}" for view in node.kept)


def kept_table(views: "Iterable[tuple[str, KeptView]]", variables: "Mapping[str, Sequence[str]]") -> str:
    """One line for each value that a node keeps, with the name of its pool.

    Args:
        views: the values.
        variables: by key, the names of the notebook that stand for them.
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
    return table(("name", "type", "size", "pool", "node", "kept until", "here"), rows)


def _until(view: "KeptView") -> str:
    """Until when scaling down leaves the node of a value alone."""
    if view.in_use:
        return "in use"
    return time.strftime("%H:%M", time.localtime(view.until)) if view.until > time.time() else "node may go"


def _used(node: "NodeView") -> tuple[str, str]:
    """The part of its cores that a node keeps busy, and its memory."""
    metrics = node.metrics
    if metrics is None:
        return "", ""
    memory = "" if metrics.memory is None else f"{metrics.memory / 1e9:.1f} GB"
    of = "" if metrics.memory is None or metrics.memory_total is None else f" of {metrics.memory_total / 1e9:.0f}"
    return f"{metrics.cpu / metrics.cpus:.0%}", memory.replace(" GB", f"{of} GB")


def decision_table(events: Iterable["DecisionEvent"]) -> str:
    """One line for each decision about the number of nodes, the newest first."""
    rows = []
    for event in events:
        before, after = sum(event.before.values()), sum(event.after.values())
        why = f"{event.reason} (held back: {event.held_back})" if event.held_back else event.reason
        rows.append((time.strftime("%H:%M:%S", time.localtime(event.at)), event.by, f"{before} -> {after}", why))
    return table(("time", "by", "nodes", "why"), reversed(rows))


def recovered_table(tasks: Iterable["RecoveredTask"]) -> str:
    """One line for each task that was recovered with a pool; nothing for none."""
    tasks = list(tasks)
    rows = [
        (index, _cell(task.origin), _what(task.name, task.origin), task.node, task.state, task.printed)
        for index, task in enumerate(tasks)
    ]
    if not rows:
        return ""
    return (
        table(("task", "cell", "what", "node", "state", "characters printed"), rows)
        + _former(task.origin for task in tasks)
        + "\n`pool.recovered[TASK]` has its `.result()` and `.output`; `%sky attach` gives the pool."
    )


def task_table(tasks: Iterable["TaskView"]) -> str:
    """One line for each task; what it has cost, where any of them cost something."""
    tasks = list(tasks)
    priced = any(task.cost for task in tasks)
    rows = (
        (
            task.number,
            task.state,
            "" if task.node is None else task.node,
            _cell(task.origin),
            *((money_text(task.cost) if task.cost else "",) if priced else ()),
            _what(task.name, task.origin),
        )
        for task in tasks
    )
    listed = table(("task", "state", "node", "cell", *(("cost",) if priced else ()), "what"), rows)
    return listed + _former(task.origin for task in tasks)


def _former(origins: "Iterable[Origin | None]") -> str:
    """What the mark beside the number of a cell means, where there is one."""
    return "\n* in the kernel before this one" if any(origin and origin.former for origin in origins) else ""


def _cell(origin: "Origin | None") -> str:
    """The number of a cell, with a mark where that ran in another kernel."""
    return "" if origin is None else f"{origin.number}{'*' * origin.former}"


def _what(name: str, origin: "Origin | None") -> str:
    """What a task does: its function, or how its cell begins."""
    return name if origin is None or name not in ("run_cell", "stream_cell") else origin.code


def _nodes(pool: "PoolSnapshot") -> str:
    active = sum(node.state == "active" for node in pool.nodes)
    elastic = f" ({pool.min} to {pool.max})" if pool.max > pool.min else ""
    return f"{active} of {pool.desired}{elastic}"
