"""Rows of pools, nodes, tasks and so on: all that a view draws. The kernel publishes them to the panel.

Times are Unix times. A live view computes what grows with time alone, such as ages and costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from skyward.control.lifecycle import NodeState, PoolState
from skyward.events.volumes import VolumeStatus
from skyward.views.status import NodeStatus, PoolStatus

__all__ = [
    "KEPT",
    "LOGS",
    "ROWS",
    "CellRow",
    "DecisionRow",
    "FailedPoolRow",
    "GaugeRow",
    "NodeRow",
    "OrphanRow",
    "OutputRow",
    "PointRow",
    "PoolRow",
    "Row",
    "StartupFailureRow",
    "TaskRow",
    "VolumeRow",
]

KEPT: Mapping[str, int] = {"decisions": 200, "points": 450, "output": 200}
"""Maximum number of rows per pool that are kept of append-only tables."""

LOGS = tuple(KEPT)

# The key of a row is `POOL/NUMBER`; the rows of a pool are removed with the pool.


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool: its lifecycle `state`, and its `status` in views.

    `spent` is its cost at `spent_at`, USD; it has grown by `per_hour` since then. `recovered`: number of tasks of a
    previous kernel. `lease`: seconds that its nodes outlive the kernel, 0 if they do not. `budget_exhausted`: the
    budget is spent, and the nodes terminate once their tasks are done.
    """

    name: str
    state: PoolState
    status: PoolStatus
    provider: str
    policy: str
    min: int
    max: int
    desired: int
    active: int
    queued: int
    running: int
    done: int
    failed: int
    cancelled: int
    spent: float
    spent_at: float
    per_hour: float
    budget: float | None
    failure: str
    recovered: int
    accelerators: str
    lease: float
    budget_exhausted: bool


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, by the number of its machine: its lifecycle `state`, and its `status` in views.

    `price`: USD per hour. `terminal_access`: how a terminal reaches it, empty if it cannot. While it boots, `phase_at`
    is the start of its phase, and `usual` the usual duration of the phase in seconds, if known. `kept`: names and sizes
    of the values that it keeps for later tasks. `outdated`: it was launched from an earlier spec of its group.
    """

    pool: str
    machine: int
    rank: int
    state: NodeState | Literal["stopping"]
    status: NodeStatus
    phase: str
    group: str
    kind: str
    address: str
    price: float
    slots: int
    busy: int
    asked_at: float | None
    phase_at: float | None
    usual: float | None
    terminal_access: Literal["", "here", "ssh", "exec"]
    kept: tuple[str, ...]
    outdated: bool


@dataclass(frozen=True, slots=True)
class StartupFailureRow:
    """A node that failed to start, by its rank: the phase, the reason, and the last lines that it printed.

    Unless `gave_up`, the start is retried at `retry_at`, or is being retried now if that is None: attempt number
    `attempt` of `attempts` (0: unlimited).
    """

    pool: str
    rank: int
    group: str
    phase: str
    reason: str
    lines: tuple[str, ...]
    at: float
    attempt: int
    attempts: int
    retry_at: float | None
    gave_up: bool


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """Utilization of a node, from 0 to 1; None, or no row at all, if unknown.

    `memory_bytes`, `gpu_bytes`: used memory of the node and of its GPUs, rounded. `memory_total`: bytes.
    """

    pool: str
    machine: int
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None
    gpu_bytes: int | None = None
    memory_bytes: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """A volume on a node, by the number of its machine: its `status`, and in `detail` the reason of that.

    `tool`: the program that mounts it, empty for files on the node's disk. `nbytes`: bytes that were transferred to the
    node so far, of `total` bytes, 0 if unknown; `from_peers` of them came from other nodes. `unflushed`: number of the
    files that wait for their upload, and `unflushed_bytes` their size.
    """

    pool: str
    machine: int
    rank: int
    mount: str
    source: str
    mode: str
    tool: str
    read_only: bool
    status: VolumeStatus
    detail: str
    nbytes: int
    from_peers: int
    total: int
    unflushed: int
    unflushed_bytes: int


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task. `title`: its function, or the first line of its cell.

    `cell` and `cell_id` identify the notebook cell that sent it, `code` is its first line, and `former` is true if the
    cell ran in a previous kernel. `cost`: USD, 0 until the task has ended.
    """

    pool: str
    number: int
    title: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    node: int | None
    queued_at: float
    started_at: float | None
    ended_at: float | None
    seconds: float | None
    yielded: int
    reason: str
    cost: float
    cell: int | None
    cell_id: str
    code: str
    former: bool


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A scaling decision, with its inputs."""

    pool: str
    number: int
    at: float
    by: Literal["policy", "user", "reconciler", "budget"]
    policy: str
    before: int
    after: int
    reason: str
    held_back: str
    times: int
    queued: int
    inflight: int
    capacity: int
    active: int
    booting: int
    leaving: int
    idle_for: float
    spent: float
    per_hour: float


@dataclass(frozen=True, slots=True)
class PointRow:
    """A point of the chart: the pool at one time."""

    pool: str
    number: int
    at: float
    queued: int
    running: int
    desired: int
    current: int


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A piece of the output of a node; `task` is 0 for the node itself."""

    pool: str
    number: int
    node: int
    task: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class CellRow:
    """Cost of the tasks of a cell in a pool so far, USD. `tasks`: number of its tasks, without the queued ones.

    `former`: true if the cell ran in a previous kernel.
    """

    pool: str
    cell: int
    cell_id: str
    code: str
    former: bool
    tasks: int
    cost: float


@dataclass(frozen=True, slots=True)
class OrphanRow:
    """An orphaned pool, by its id. Its nodes terminate by themselves at `ends_at`, or once their tasks are done.

    `attachable`: it has nodes that can be attached to. `warm`: it was closed, and keeps machines until then for later
    pools.
    """

    id: str
    name: str
    host: str
    pid: int
    machines: int
    per_hour: float
    seen_at: float
    ends_at: float
    attachable: bool
    warm: bool


@dataclass(frozen=True, slots=True)
class FailedPoolRow:
    """A pool that failed to open, by its name: the reason, which may have lines of a log, and the time."""

    name: str
    reason: str
    at: float


type Row = (
    PoolRow
    | NodeRow
    | StartupFailureRow
    | GaugeRow
    | VolumeRow
    | TaskRow
    | DecisionRow
    | PointRow
    | OutputRow
    | CellRow
    | OrphanRow
    | FailedPoolRow
)

ROWS: Mapping[str, type] = {
    "pools": PoolRow,
    "nodes": NodeRow,
    "startup_failures": StartupFailureRow,
    "gauges": GaugeRow,
    "volumes": VolumeRow,
    "tasks": TaskRow,
    "decisions": DecisionRow,
    "points": PointRow,
    "output": OutputRow,
    "cells": CellRow,
    "orphans": OrphanRow,
    "failed_pools": FailedPoolRow,
}
"""Type of the rows of each table."""
