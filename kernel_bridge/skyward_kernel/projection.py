"""From pools to what the panel shows of them, and from one such state to the next. No I/O, and no clock."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from skyward.control.observe.costs import CellCost
from skyward.control.observe.origin import Origin
from skyward.control.observe.snapshot import (
    KeptView,
    NodeView,
    OutputView,
    PoolReport,
    PoolSnapshot,
    StartupFailureView,
    TaskView,
)
from skyward.events.decisions import DecisionEvent
from skyward.formatting import size_text
from skyward.providers.protocol import Access, ExecAccess, LocalAccess, SSHAccess
from skyward_kernel.protocol import MESSAGES, PARTS, REPLIES, Delta, FormField, Reply, Snapshot
from skyward_kernel.rows import (
    KEPT,
    LOGS,
    ROWS,
    CellRow,
    DecisionRow,
    GaugeRow,
    NodeRow,
    OrphanRow,
    OutputRow,
    PointRow,
    PoolRow,
    Row,
    StartupFailureRow,
    TaskRow,
)

if TYPE_CHECKING:
    from skyward.pool.reap import Orphan

__all__ = ["PanelState", "Table", "changes", "encode", "project", "project_orphans"]

POINT_EVERY: Final = 2
"""Seconds that one point of the chart stands for."""

MOST_KEPT: Final = 20
"""Values of one node that are shown by name."""

SAME_MONEY: Final = 1e-4
"""USD by which two accounts of what was spent may differ and still say the same."""

type Table = dict[str, Row]


@dataclass(frozen=True, slots=True)
class PanelState:
    """What the panel shows of one pool: a table for each kind of row, by key."""

    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, table: str) -> Table:
        return self.tables.get(table, {})

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(map(len, self.tables.values()))

    @property
    def last_decision(self) -> int:
        """Number of the latest decision."""
        return max((row.number for row in self["decisions"].values() if isinstance(row, DecisionRow)), default=0)

    @property
    def last_output(self) -> int:
        """Number of the latest piece of output."""
        return max((row.number for row in self["output"].values() if isinstance(row, OutputRow)), default=0)


def project(report: PoolReport, before: PanelState | None = None, recovered: int = 0) -> PanelState:
    """What the panel shows of a pool, where it showed `before`, whose decisions and output stay.

    Args:
        recovered: how many tasks it has of its former client.
    """
    before = before or PanelState()
    snapshot = report.snapshot
    name = snapshot.name
    pool = _steady(_pool(snapshot, recovered), before["pools"].get(name))
    nodes = ((f"{name}/{view.machine}", _node(name, view)) for view in snapshot.nodes)
    troubles = ((f"{name}/{each.rank}", _trouble(name, each)) for each in snapshot.troubles)
    gauges = ((f"{name}/{view.machine}", _gauge(name, view)) for view in snapshot.nodes if view.metrics is not None)
    tasks = ((f"{name}/{view.number}", _task(name, view)) for view in report.tasks)
    cells = ((f"{name}/{_cell_key(each.origin)}", _cell(name, each)) for each in report.cells)
    decisions = ((f"{name}/{event.number}", _decision(name, event)) for event in report.decisions)
    output = ((f"{name}/{piece.number}", _output(name, piece)) for piece in report.output)
    return PanelState(
        {
            "pools": {name: pool},
            "nodes": dict(nodes),
            "troubles": dict(troubles),
            "gauges": dict(gauges),
            "tasks": dict(tasks),
            "cells": dict(cells),
            "decisions": _grown(before["decisions"], decisions, KEPT["decisions"]),
            "points": _grown(before["points"], _point(snapshot, pool, before["points"]), KEPT["points"]),
            "output": _grown(before["output"], output, KEPT["output"]),
        }
    )


def project_orphans(orphans: "Iterable[Orphan]") -> PanelState:
    """What the panel shows of pools that others have left behind, those left out that nobody can attach to any more."""
    rows: Table = {
        orphan.id: OrphanRow(
            id=orphan.id,
            name=orphan.name,
            host=orphan.host,
            pid=orphan.pid,
            machines=orphan.machines,
            per_hour=orphan.per_hour,
            seen_at=orphan.seen,
            ends_at=orphan.seen + orphan.lease,
            attachable=orphan.attachable,
        )
        for orphan in orphans
        if orphan.machines and not orphan.due
    }
    return PanelState({"orphans": rows})


def changes(
    before: Mapping[str, PanelState], after: Mapping[str, PanelState]
) -> tuple[dict[str, dict[str, Row]], dict[str, tuple[str, ...]]]:
    """The rows of `after` that are new or other, and the keys of those of `before` that are gone, by table.

    A pool that is gone takes its rows along, and what falls off the old end of a log is dropped on both sides.
    """
    rows: dict[str, dict[str, Row]] = {}
    gone: dict[str, list[str]] = {}
    for name, state in after.items():
        known = before.get(name)
        if known is state:
            continue
        for table, there in state.tables.items():
            had = {} if known is None else known[table]
            fresh = {key: row for key, row in there.items() if had.get(key) != row}
            if fresh:
                rows.setdefault(table, {}).update(fresh)
            if table not in LOGS and (left := [key for key in had if key not in there]):
                gone.setdefault(table, []).extend(left)
    if closed := [name for name in before if name not in after]:
        gone.setdefault("pools", []).extend(closed)
    return rows, {table: tuple(keys) for table, keys in gone.items()}


_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (*ROWS.values(), *MESSAGES, *PARTS)}


def encode(value: Row | FormField | Snapshot | Delta | Reply) -> dict[str, Any]:
    """A row, or a message whose tables are encoded, as JSON has it."""
    if isinstance(value, REPLIES):
        return asdict(value)
    return {name: getattr(value, name) for name in _NAMES[type(value)]}


def _same_names(kind: type, but: Mapping[str, str], left: int = 0) -> Callable[[object], Iterable[Any]]:
    """What reads the fields of a row behind its pool, but for the `left` last ones, off what calls them the same."""
    names = _NAMES[kind][1:]
    return attrgetter(*(but.get(name, name) for name in names[: len(names) - left]))


_of_node = _same_names(NodeRow, {"price": "hourly_price"}, left=2)
_of_trouble = _same_names(StartupFailureRow, {})
_of_task = _same_names(TaskRow, {}, left=5)


def _pool(snapshot: PoolSnapshot, recovered: int) -> PoolRow:
    return PoolRow(
        name=snapshot.name,
        state=snapshot.state,
        provider=snapshot.provider,
        policy=snapshot.policy,
        min=snapshot.min,
        max=snapshot.max,
        desired=snapshot.desired,
        active=sum(node.state == "active" for node in snapshot.nodes),
        queued=snapshot.queued,
        running=snapshot.running,
        done=snapshot.done,
        failed=snapshot.failed,
        spent=snapshot.spent,
        spent_at=snapshot.at,
        per_hour=snapshot.per_hour,
        budget=snapshot.budget,
        failure=snapshot.failure,
        recovered=recovered,
        accelerators=snapshot.accelerators,
        lease=snapshot.lease,
        budget_exhausted=snapshot.budget_exhausted,
    )


def _steady(pool: PoolRow, before: Row | None) -> PoolRow:
    """The pool with the account it had, where that one still says the same: time alone makes no difference."""
    if not isinstance(before, PoolRow) or before.per_hour != pool.per_hour:
        return pool
    told = before.spent + before.per_hour * (pool.spent_at - before.spent_at) / 3600
    if abs(told - pool.spent) > SAME_MONEY:
        return pool
    return replace(pool, spent=before.spent, spent_at=before.spent_at)


def _node(pool: str, view: NodeView) -> NodeRow:
    values = (*_of_node(view), _way_in(view.access), _kept(view.kept))
    return NodeRow(pool, *values)


def _kept(views: tuple[KeptView, ...]) -> tuple[str, ...]:
    shown = tuple(f"{view.name} {size_text(view.nbytes)}" for view in views[:MOST_KEPT])
    return (*shown, f"{len(views) - MOST_KEPT} more") if len(views) > MOST_KEPT else shown


def _way_in(access: Access | None) -> Literal["", "here", "ssh", "exec"]:
    match access:
        case LocalAccess():
            return "here"
        case SSHAccess():
            return "ssh"
        case ExecAccess() if getattr(access, "terminal", ()):  # one in a journal may be of a version without it
            return "exec"
        case _:
            return ""


def _trouble(pool: str, view: StartupFailureView) -> StartupFailureRow:
    values = _of_trouble(view)
    return StartupFailureRow(pool, *values)


def _gauge(pool: str, view: NodeView) -> GaugeRow:
    metrics = view.metrics
    if metrics is None:
        return GaugeRow(pool, view.machine)
    gpus = metrics.gpus
    return GaugeRow(
        pool=pool,
        machine=view.machine,
        cpu=_share(metrics.cpu, metrics.cpus),
        memory=_share(metrics.memory, metrics.memory_total),
        gpu=_share(sum(gpu.busy for gpu in gpus), len(gpus)),
        gpu_memory=_share(sum(gpu.memory for gpu in gpus), sum(gpu.memory_total for gpu in gpus)),
        gpu_gb=round(sum(gpu.memory for gpu in gpus) / 1e9) if gpus else None,
    )


def _share(part: float | None, whole: float | None) -> float | None:
    """A part of a whole, to the hundredth: what is finer is not seen, and would be sent each time."""
    return None if part is None or not whole else round(min(1.0, part / whole), 2)


def _task(pool: str, view: TaskView) -> TaskRow:
    origin = view.origin
    cell = (None, "", "", False) if origin is None else (origin.number, origin.cell, origin.code, origin.former)
    values = (*_of_task(view), 0.0 if view.ended_at is None else _cents(view.cost), *cell)
    return TaskRow(pool, *values)


def _cell(pool: str, account: CellCost) -> CellRow:
    origin = account.origin
    cost = _cents(account.cost)
    return CellRow(pool, origin.number, origin.cell, origin.code, origin.former, account.tasks, cost)


def _cell_key(origin: Origin) -> str:
    """What tells a cell from every other; one that ran in another kernel may have the number of one of this one."""
    return f"{origin.number}.{origin.cell}{'*' * origin.former}"


def _cents(usd: float) -> float:
    """An amount as finely as it is shown, so that it is not sent again for what nobody sees."""
    return round(usd, 4 if usd < 0.1 else 2)


def _decision(pool: str, event: DecisionEvent) -> DecisionRow:
    inputs = event.inputs
    return DecisionRow(
        pool=pool,
        number=event.number,
        at=event.at,
        by=event.by,
        policy=event.policy,
        before=sum(event.before.values()),
        after=sum(event.after.values()),
        reason=event.reason,
        held_back=event.held_back,
        times=event.times,
        queued=inputs.queued,
        inflight=inputs.inflight,
        capacity=inputs.capacity,
        active=inputs.active,
        booting=inputs.booting,
        leaving=inputs.leaving,
        idle_for=round(inputs.idle_for, 1),
        spent=inputs.spent,
        per_hour=inputs.per_hour,
    )


def _output(pool: str, piece: OutputView) -> OutputRow:
    return OutputRow(pool, piece.number, piece.node, piece.task, piece.stream, piece.text)


def _point(snapshot: PoolSnapshot, pool: PoolRow, before: Table) -> Iterable[tuple[str, Row]]:
    """The point of the chart that this moment makes, unless the last one says the same."""
    number = int(snapshot.at) // POINT_EVERY
    last = next(reversed(before.values()), None)
    if not snapshot.at:
        return  # it is not there yet
    heights = pool.queued, pool.running, pool.desired, pool.active
    if isinstance(last, PointRow) and (last.queued, last.running, last.desired, last.current) == heights:
        return
    key = f"{pool.name}/{number}"
    there = before.get(key)
    at = there.at if isinstance(there, PointRow) else snapshot.at
    yield key, PointRow(pool.name, number, at, *heights)


def _grown(before: Table, added: Iterable[tuple[str, Row]], most: int) -> Table:
    """A log with more at its end, and as much less at its start as it takes to keep no more than `most`."""
    new = dict(added)
    if not new:
        return before
    grown = {**before, **new}
    for key in list(grown)[: max(0, len(grown) - most)]:
        del grown[key]
    return grown
