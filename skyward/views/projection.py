"""Projection of pools to the rows that views show: which status, which title, which numbers. No I/O, no clock."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from skyward.control.observe.costs import CellCost
from skyward.control.observe.origin import CELL_FUNCTIONS, Origin
from skyward.control.observe.snapshot import (
    KeptView,
    NodeView,
    OutputView,
    PoolReport,
    PoolSnapshot,
    StartupFailureView,
    TaskView,
)
from skyward.control.observe.startup import REQUESTED, WARM
from skyward.events.decisions import DecisionEvent
from skyward.events.volumes import VolumeState, VolumeStatus
from skyward.formatting import size_text
from skyward.providers.protocol import Access, ExecAccess, LocalAccess, SSHAccess
from skyward.views.rows import (
    KEPT,
    CellRow,
    DecisionRow,
    GaugeRow,
    NodeRow,
    OutputRow,
    PointRow,
    PoolRow,
    Row,
    StartupFailureRow,
    TaskRow,
    VolumeRow,
)
from skyward.views.status import NodeStatus, PoolStatus

__all__ = [
    "PoolTables",
    "Table",
    "decision_row",
    "gauge_row",
    "node_row",
    "pool_row",
    "project",
    "task_row",
    "task_title",
    "volume_rows",
]

POINT_EVERY: Final = 2
"""Interval between two points of the chart, seconds."""

MOST_KEPT: Final = 20
"""Maximum number of kept values of a node that are shown by name."""

SAME_MONEY: Final = 1e-4
"""Tolerance within which two amounts spent count as equal, USD."""

type Table = dict[str, Row]


@dataclass(frozen=True, slots=True)
class PoolTables:
    """The rows of one pool: a table for each kind of row, by key."""

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


def project(report: PoolReport, before: PoolTables | None = None, recovered: int = 0) -> PoolTables:
    """Project a pool to its rows; the decisions and output of the state `before` are kept.

    Args:
        report: the pool now, with the decisions and output since `before`.
        before: the last state; None if there is none.
        recovered: number of tasks of the pool's previous client.
    """
    before = before or PoolTables()
    snapshot = report.snapshot
    name = snapshot.name
    pool = _steady(pool_row(snapshot, recovered), before["pools"].get(name))
    nodes = ((f"{name}/{view.machine}", node_row(name, view)) for view in snapshot.nodes)
    startup_failures = ((f"{name}/{each.rank}", _startup_failure(name, each)) for each in snapshot.startup_failures)
    gauges = ((f"{name}/{view.machine}", gauge_row(name, view)) for view in snapshot.nodes if view.metrics is not None)
    volumes = ((f"{name}/{row.machine}{row.mount}", row) for row in volume_rows(snapshot))
    tasks = ((f"{name}/{view.number}", task_row(name, view)) for view in report.tasks)
    cells = ((f"{name}/{_cell_key(each.origin)}", _cell(name, each)) for each in report.cells)
    decisions = ((f"{name}/{event.number}", decision_row(name, event)) for event in report.decisions)
    output = ((f"{name}/{piece.number}", _output(name, piece)) for piece in report.output)
    return PoolTables(
        {
            "pools": {name: pool},
            "nodes": dict(nodes),
            "startup_failures": dict(startup_failures),
            "gauges": dict(gauges),
            "volumes": dict(volumes),
            "tasks": dict(tasks),
            "cells": dict(cells),
            "decisions": _grown(before["decisions"], decisions, KEPT["decisions"]),
            "points": _grown(before["points"], _point(snapshot, pool, before["points"]), KEPT["points"]),
            "output": _grown(before["output"], output, KEPT["output"]),
        }
    )


def pool_row(snapshot: PoolSnapshot, recovered: int = 0) -> PoolRow:
    """Project a pool, without its nodes. `recovered`: number of tasks of its previous client."""
    return PoolRow(
        name=snapshot.name,
        state=snapshot.state,
        status=_pool_status(snapshot),
        provider=snapshot.provider,
        policy=snapshot.policy,
        min=snapshot.min,
        max=snapshot.max,
        desired=snapshot.desired,
        active=snapshot.active,
        queued=snapshot.queued,
        running=snapshot.running,
        done=snapshot.done,
        failed=snapshot.failed,
        cancelled=snapshot.cancelled,
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


def _pool_status(pool: PoolSnapshot) -> PoolStatus:
    match pool.state:
        case "ready" if pool.budget_exhausted:
            return "budget_reached"
        case "ready" if pool.failure:
            return "failing"
        case "requesting" | "provisioning":
            return "starting"
        case state:
            return state


def _steady(pool: PoolRow, before: Row | None) -> PoolRow:
    """Keep the amount spent of the row before if it still predicts the current one: time alone is not a change."""
    if not isinstance(before, PoolRow) or before.per_hour != pool.per_hour:
        return pool
    predicted = before.spent + before.per_hour * (pool.spent_at - before.spent_at) / 3600
    if abs(predicted - pool.spent) > SAME_MONEY:
        return pool
    return replace(pool, spent=before.spent, spent_at=before.spent_at)


def node_row(pool: str, view: NodeView) -> NodeRow:
    """Project a node of the pool with this name."""
    return NodeRow(
        pool=pool,
        machine=view.machine,
        rank=view.rank,
        state=view.state,
        status=_node_status(view),
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
        kept=_kept(view.kept) if view.kept else (),
        outdated=view.outdated,
    )


def _node_status(node: NodeView) -> NodeStatus:
    match node.state:
        case "active":
            return "busy" if node.busy else "keeping" if node.kept else "idle"
        case "stopping" if node.phase == WARM:
            return "warm"
        case "draining" | "stopping":
            return node.state
        case "vacant" | "waiting":
            return "queued" if node.phase == "queued" else "requested" if node.phase == REQUESTED else "starting"


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


def gauge_row(pool: str, view: NodeView) -> GaugeRow:
    """Project the utilization of a node; all of it is None if the node has not reported any."""
    metrics = view.metrics
    if metrics is None:
        return GaugeRow(pool, view.machine)
    gpus = metrics.gpus
    return GaugeRow(
        pool=pool,
        machine=view.machine,
        cpu=_share(metrics.cpu, metrics.cpus),
        memory=_share(metrics.memory, metrics.memory_total),
        memory_bytes=None if metrics.memory is None else _rounded(metrics.memory),
        memory_total=metrics.memory_total,
        gpu=_share(sum(gpu.busy for gpu in gpus), len(gpus)),
        gpu_memory=_share(sum(gpu.memory for gpu in gpus), sum(gpu.memory_total for gpu in gpus)),
        gpu_bytes=_rounded(sum(gpu.memory for gpu in gpus)) if gpus else None,
    )


def _share(part: float | None, whole: float | None) -> float | None:
    """Return a part of a whole, rounded to hundredths, so that invisible changes are not sent."""
    return None if part is None or not whole else round(min(1.0, part / whole), 2)


def _rounded(nbytes: float) -> int:
    """Return a number of bytes, to a tenth of a GiB or, below one, to a MiB: so that small changes are not sent."""
    return int(round(nbytes / 2**30, 1) * 2**30) if nbytes >= 2**30 else round(nbytes / 2**20) * 2**20


def volume_rows(pool: PoolSnapshot) -> Iterator[VolumeRow]:
    """Yield the projections of the volumes of a pool, node by node."""
    for view in pool.nodes:
        for volume in view.volumes:
            yield VolumeRow(
                pool=pool.name,
                machine=view.machine,
                rank=view.rank,
                mount=volume.mount,
                source=volume.source,
                mode=volume.mode,
                tool=volume.tool,
                read_only=volume.read_only,
                status=_volume_status(volume),
                detail=volume.detail,
                nbytes=volume.nbytes,
                from_peers=volume.from_peers,
                total=volume.total,
                unflushed=volume.unflushed,
                unflushed_bytes=volume.unflushed_bytes,
            )


def _volume_status(volume: VolumeState) -> VolumeStatus:
    """Return the status: a program that mounts a volume uploads files while the volume is ready."""
    return "flushing" if volume.status == "ready" and volume.unflushed else volume.status


def task_title(name: str, origin: Origin | None) -> str:
    """Return the name of a task's function, or the first line of its cell."""
    return (origin.code or name) if origin is not None and name in CELL_FUNCTIONS else name


def task_row(pool: str, view: TaskView) -> TaskRow:
    """Project a task of the pool with this name."""
    origin = view.origin
    return TaskRow(
        pool=pool,
        number=view.number,
        title=task_title(view.name, origin),
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


def decision_row(pool: str, event: DecisionEvent) -> DecisionRow:
    """Project a decision of the pool with this name."""
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
