"""Scaling policies, with their inputs (snapshots) and outputs (decisions). Values and arithmetic only."""

from skyward.scaling.binpack import Binpack
from skyward.scaling.bundles import floor_nodes
from skyward.scaling.capability import Capability
from skyward.scaling.fixed_elastic import FixedElastic
from skyward.scaling.no import No
from skyward.scaling.pressure import Pressure, desired_nodes
from skyward.scaling.registry import POLICIES, find_policy
from skyward.scaling.snapshot import Counts, Decision, Demand, Group, NodeLoad, Policy, Snapshot
from skyward.scaling.vanilla import Vanilla

__all__ = [
    "POLICIES",
    "Binpack",
    "Capability",
    "Counts",
    "Decision",
    "Demand",
    "FixedElastic",
    "Group",
    "No",
    "NodeLoad",
    "Policy",
    "Pressure",
    "Snapshot",
    "Vanilla",
    "desired_nodes",
    "find_policy",
    "floor_nodes",
]
