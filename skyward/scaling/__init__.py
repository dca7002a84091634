"""How many nodes there should be: the policies, and what they see and answer. Values and arithmetic only."""

from skyward.scaling.no import No
from skyward.scaling.pressure import Pressure, desired_nodes
from skyward.scaling.registry import POLICIES, find_policy
from skyward.scaling.snapshot import Counts, Decision, Demand, Group, NodeLoad, Policy, Snapshot

__all__ = [
    "POLICIES",
    "Counts",
    "Decision",
    "Demand",
    "Group",
    "No",
    "NodeLoad",
    "Policy",
    "Pressure",
    "Snapshot",
    "desired_nodes",
    "find_policy",
]
