"""The rows of the panel's tables: what it shows of pools, nodes, tasks and all else, as the kernel tells it.

Times are Unix time, and what grows with time alone (an age, money) is left to the panel.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "KEPT",
    "LOGS",
    "ROWS",
    "CellRow",
    "DecisionRow",
    "GaugeRow",
    "NodeRow",
    "OrphanRow",
    "OutputRow",
    "PointRow",
    "PoolRow",
    "Row",
    "StartupFailureRow",
    "TaskRow",
]

KEPT: Mapping[str, int] = {"decisions": 200, "points": 450, "output": 200}
"""Rows that both sides keep of what only ever grows, for each pool."""

LOGS = tuple(KEPT)

# Rows. The key of a row is that of its pool, a slash, and its own number; a pool takes its rows along when it goes.


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool. `spent` is what it had cost at `spent_at`; since then `per_hour`.

    `recovered`: how many tasks of a former kernel it was found with. `lease`: seconds that its nodes run on without the
    kernel, 0 where they do not. `budget_exhausted`: its budget is reached, and its nodes go once their tasks are over.
    """

    name: str
    state: Literal["idle", "requesting", "provisioning", "ready", "stopping", "closed"]
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
    """A node, by the number of its machine. `price` is USD an hour. `way_in`: how a terminal gets there, if one can.

    While it boots, `phase_at` is when its phase began, and `usual` how many seconds that takes, if it is known.
    `kept`: what it keeps for later tasks, each with its size.
    """

    pool: str
    machine: int
    rank: int
    state: Literal["idle", "waiting", "active", "draining", "stopping"]
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
    way_in: Literal["", "here", "ssh", "exec"]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartupFailureRow:
    """A node that did not come up, by its rank: the phase, why, and the last lines that it printed.

    It is tried again at `retry_at`, or is tried now if that is None, for the time number `attempt` of `attempts` (0: of
    any number); unless it was given up.
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
    """How much of a node is in use, from 0 to 1; None, or no row at all, where it is not known.

    `gpu_gb`: memory of its GPUs that is in use, in GB.
    """

    pool: str
    machine: int
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None
    gpu_gb: float | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task. `cell` and `cell_id` say which cell of the notebook sent it, `code` how that begins, `former` whether
    that ran in a kernel before this one.

    `cost`: USD, once it is over; while it runs, it grows with time alone.
    """

    pool: str
    number: int
    name: str
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
    """A decision about the number of nodes, with what it was made from."""

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
    """The pool at one time, for the chart."""

    pool: str
    number: int
    at: float
    queued: int
    running: int
    desired: int
    current: int


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A piece of what a node printed; `task` is 0 for the node itself."""

    pool: str
    number: int
    node: int
    task: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class CellRow:
    """What the tasks of a cell have cost so far in a pool, USD. `tasks`: how many it has, but for those that wait.

    `former`: whether the cell ran in a kernel before this one.
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
    """A pool that a process has left behind, by its id. Its nodes end by themselves at `ends_at`, or after their work.

    `attachable`: it has nodes that can be taken over.
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


type Row = (
    PoolRow
    | NodeRow
    | StartupFailureRow
    | GaugeRow
    | TaskRow
    | DecisionRow
    | PointRow
    | OutputRow
    | CellRow
    | OrphanRow
)

ROWS: Mapping[str, type] = {
    "pools": PoolRow,
    "nodes": NodeRow,
    "troubles": StartupFailureRow,
    "gauges": GaugeRow,
    "tasks": TaskRow,
    "decisions": DecisionRow,
    "points": PointRow,
    "output": OutputRow,
    "cells": CellRow,
    "orphans": OrphanRow,
}
"""The tables of the panel's state."""
