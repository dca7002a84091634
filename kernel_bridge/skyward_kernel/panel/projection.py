"""Projection of pools to the rows that the panel shows, and the differences between two states. No I/O, no clock."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
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
from skyward_kernel.panel.protocol import MESSAGES, PARTS, REPLIES, Delta, FormField, Reply, Snapshot
from skyward_kernel.panel.rows import (
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
"""Interval between two points of the chart, seconds."""

MOST_KEPT: Final = 20
"""Maximum number of kept values of a node that are shown by name."""

SAME_MONEY: Final = 1e-4
"""Tolerance within which two amounts spent count as equal, USD."""

type Table = dict[str, Row]


@dataclass(frozen=True, slots=True)
class PanelState:
    """The rows of one pool in the panel: a table for each kind of row, by key."""

    tables: Mapping[str, Table] = field(default_factory=dict)

    def __getitem__(self, table: str) -> Table:
        return self.tables.get(table, {})

    @property
    def size(self) -> int:
        """Number of rows."""
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
    """Project a pool to its rows in the panel; the decisions and output of the state `before` are kept.

    Args:
        report: the pool now, with the decisions and output since `before`.
        before: the last state; None if there is none.
        recovered: number of tasks of the pool's previous client.
    """
    before = before or PanelState()
    snapshot = report.snapshot
    name = snapshot.name
    pool = _steady(_pool(snapshot, recovered), before["pools"].get(name))
    nodes = ((f"{name}/{view.machine}", _node(name, view)) for view in snapshot.nodes)
    startup_failures = ((f"{name}/{each.rank}", _startup_failure(name, each)) for each in snapshot.startup_failures)
    gauges = ((f"{name}/{view.machine}", _gauge(name, view)) for view in snapshot.nodes if view.metrics is not None)
    tasks = ((f"{name}/{view.number}", _task(name, view)) for view in report.tasks)
    cells = ((f"{name}/{_cell_key(each.origin)}", _cell(name, each)) for each in report.cells)
    decisions = ((f"{name}/{event.number}", _decision(name, event)) for event in report.decisions)
    output = ((f"{name}/{piece.number}", _output(name, piece)) for piece in report.output)
    return PanelState(
        {
            "pools": {name: pool},
            "nodes": dict(nodes),
            "startup_failures": dict(startup_failures),
            "gauges": dict(gauges),
            "tasks": dict(tasks),
            "cells": dict(cells),
            "decisions": _grown(before["decisions"], decisions, KEPT["decisions"]),
            "points": _grown(before["points"], _point(snapshot, pool, before["points"]), KEPT["points"]),
            "output": _grown(before["output"], output, KEPT["output"]),
        }
    )


def project_orphans(orphans: "Iterable[Orphan]") -> PanelState:
    """Project orphaned pools to their rows, leaving out those that are due to be reaped."""
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
    """Return the new and changed rows of `after`, and the keys of the rows of `before` that are gone, by table.

    The rows of a removed pool, and those that fall off the old end of a log, are not listed: the panel drops them too.
    """
    rows: dict[str, dict[str, Row]] = {}
    gone: dict[str, list[str]] = {}
    for name, state in after.items():
        known = before.get(name)
        if known is state:
            continue
        for table, new in state.tables.items():
            old = {} if known is None else known[table]
            changed = {key: row for key, row in new.items() if old.get(key) != row}
            if changed:
                rows.setdefault(table, {}).update(changed)
            if table not in LOGS and (removed := [key for key in old if key not in new]):
                gone.setdefault(table, []).extend(removed)
    if closed := [name for name in before if name not in after]:
        gone.setdefault("pools", []).extend(closed)
    return rows, {table: tuple(keys) for table, keys in gone.items()}


_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (*ROWS.values(), *MESSAGES, *PARTS)}


def encode(value: Row | FormField | Snapshot | Delta | Reply) -> dict[str, Any]:
    """Convert a row, or a message whose tables are encoded, to JSON values."""
    if isinstance(value, REPLIES):
        return asdict(value)
    return {name: getattr(value, name) for name in _NAMES[type(value)]}


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
    """Keep the amount spent of the row before if it still predicts the current one: time alone is not a change."""
    if not isinstance(before, PoolRow) or before.per_hour != pool.per_hour:
        return pool
    predicted = before.spent + before.per_hour * (pool.spent_at - before.spent_at) / 3600
    if abs(predicted - pool.spent) > SAME_MONEY:
        return pool
    return replace(pool, spent=before.spent, spent_at=before.spent_at)


def _node(pool: str, view: NodeView) -> NodeRow:
    return NodeRow(
        pool=pool,
        machine=view.machine,
        rank=view.rank,
        state=view.state,
        phase=view.phase,
        group=view.group,
        kind=view.kind,
        address=view.address,
        price=view.hourly_price,
        slots=view.slots,
        busy=view.busy,
        asked_at=view.asked_at,
        phase_at=view.phase_at,
        usual=view.usual,
        terminal_access=_way_in(view.access),
        kept=_kept(view.kept),
    )


def _kept(views: tuple[KeptView, ...]) -> tuple[str, ...]:
    shown = tuple(f"{view.name} {size_text(view.nbytes)}" for view in views[:MOST_KEPT])
    return (*shown, f"{len(views) - MOST_KEPT} more") if len(views) > MOST_KEPT else shown


def _way_in(access: Access | None) -> Literal["", "here", "ssh", "exec"]:
    match access:
        case LocalAccess():
            return "here"
        case SSHAccess():
            return "ssh"
        case ExecAccess() if getattr(access, "terminal", ()):  # an entry of an older journal may lack the attribute
            return "exec"
        case _:
            return ""


def _startup_failure(pool: str, view: StartupFailureView) -> StartupFailureRow:
    return StartupFailureRow(
        pool=pool,
        rank=view.rank,
        group=view.group,
        phase=view.phase,
        reason=view.reason,
        lines=view.lines,
        at=view.at,
        attempt=view.attempt,
        attempts=view.attempts,
        retry_at=view.retry_at,
        gave_up=view.gave_up,
    )


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
        gpu_bytes=int(round(sum(gpu.memory for gpu in gpus) / 2**30, 1) * 2**30) if gpus else None,
    )


def _share(part: float | None, whole: float | None) -> float | None:
    """Return a part of a whole, rounded to hundredths, so that invisible changes are not sent."""
    return None if part is None or not whole else round(min(1.0, part / whole), 2)


def _task(pool: str, view: TaskView) -> TaskRow:
    origin = view.origin
    return TaskRow(
        pool=pool,
        number=view.number,
        name=view.name,
        state=view.state,
        node=view.node,
        queued_at=view.queued_at,
        started_at=view.started_at,
        ended_at=view.ended_at,
        seconds=view.seconds,
        yielded=view.yielded,
        reason=view.reason,
        cost=0.0 if view.ended_at is None else _cents(view.cost),
        cell=None if origin is None else origin.number,
        cell_id="" if origin is None else origin.cell,
        code="" if origin is None else origin.code,
        former=origin is not None and origin.former,
    )


def _cell(pool: str, account: CellCost) -> CellRow:
    origin = account.origin
    cost = _cents(account.cost)
    return CellRow(pool, origin.number, origin.cell, origin.code, origin.former, account.tasks, cost)


def _cell_key(origin: Origin) -> str:
    """Return a unique key of a cell; cells of this kernel and a previous one may have the same number."""
    return f"{origin.number}.{origin.cell}{'*' * origin.former}"


def _cents(usd: float) -> float:
    """Round an amount as it is shown, so that invisible changes are not sent."""
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
    """Yield the chart's point for the current state, unless it equals the last one."""
    number = int(snapshot.at) // POINT_EVERY
    last = next(reversed(before.values()), None)
    if not snapshot.at:
        return  # the pool has no time yet
    heights = pool.queued, pool.running, pool.desired, pool.active
    if isinstance(last, PointRow) and (last.queued, last.running, last.desired, last.current) == heights:
        return
    key = f"{pool.name}/{number}"
    known = before.get(key)
    at = known.at if isinstance(known, PointRow) else snapshot.at
    yield key, PointRow(pool.name, number, at, *heights)


def _grown(before: Table, added: Iterable[tuple[str, Row]], most: int) -> Table:
    """Append rows to a log and drop its oldest ones beyond `most`."""
    new = dict(added)
    if not new:
        return before
    grown = {**before, **new}
    for key in list(grown)[: max(0, len(grown) - most)]:
        del grown[key]
    return grown
