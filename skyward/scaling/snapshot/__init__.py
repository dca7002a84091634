"""Snapshots of a pool, decisions, and what policies share: what fits, gangs, estimates, and the words of reasons."""

from skyward.scaling.snapshot.values import (
    CONSOLIDATE_WITHIN,
    DEFAULT_IDLE_TIMEOUT,
    Counts,
    Decision,
    Demand,
    GangDemand,
    Group,
    NodeLoad,
    NodeStage,
    NodeWork,
    Policy,
    RetainedNodes,
    RunningTasks,
    Snapshot,
    TargetWait,
)

__all__ = [
    "CONSOLIDATE_WITHIN",
    "DEFAULT_IDLE_TIMEOUT",
    "Counts",
    "Decision",
    "Demand",
    "GangDemand",
    "Group",
    "NodeLoad",
    "NodeStage",
    "NodeWork",
    "Policy",
    "RetainedNodes",
    "RunningTasks",
    "Snapshot",
    "TargetWait",
]
