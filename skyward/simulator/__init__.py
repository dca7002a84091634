"""Simulator: the control plane of real pools under virtual time, against a simulated cloud."""

from skyward.simulator.bound import CostBound, lower_bound
from skyward.simulator.faults import NO_FAULTS, PRESETS, Faults, find_faults
from skyward.simulator.invariants import InvariantError
from skyward.simulator.measures import LoadSample, Result
from skyward.simulator.runner import simulate
from skyward.simulator.scenario import Action, Scenario, one_group
from skyward.simulator.trace import read_trace, write_trace
from skyward.simulator.workload import WORKLOADS, Distribution, Task, Workload

__all__ = [
    "NO_FAULTS",
    "PRESETS",
    "WORKLOADS",
    "Action",
    "CostBound",
    "Distribution",
    "Faults",
    "InvariantError",
    "LoadSample",
    "Result",
    "Scenario",
    "Task",
    "Workload",
    "find_faults",
    "lower_bound",
    "one_group",
    "read_trace",
    "simulate",
    "write_trace",
]
