"""Scaling policies, with their inputs (snapshots) and outputs (decisions). Values and arithmetic only."""

from skyward.scaling.adaptive import Adaptive
from skyward.scaling.binpack import Binpack
from skyward.scaling.capability import Capability
from skyward.scaling.fixed_elastic import FixedElastic
from skyward.scaling.no import No
from skyward.scaling.pressure import Pressure
from skyward.scaling.snapshot import (
    Counts,
    Decision,
    Demand,
    GangDemand,
    Group,
    NodeLoad,
    NodeWork,
    Policy,
    RetainedNodes,
    RunningTasks,
    Snapshot,
)
from skyward.scaling.vanilla import Vanilla
from skyward.values.needs import Needs

__all__ = [
    "Adaptive",
    "Binpack",
    "Capability",
    "Counts",
    "Decision",
    "Demand",
    "FixedElastic",
    "GangDemand",
    "Group",
    "Needs",
    "No",
    "NodeLoad",
    "NodeWork",
    "Policy",
    "Pressure",
    "RetainedNodes",
    "RunningTasks",
    "Snapshot",
    "Vanilla",
]
