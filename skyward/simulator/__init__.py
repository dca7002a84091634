"""Simulator: the control plane of real pools under virtual time, against a simulated cloud."""

from skyward.simulator.bound import Bound, lower_bound
from skyward.simulator.faults import NO_FAULTS, PRESETS, Faults, find_faults
from skyward.simulator.invariants import InvariantError
from skyward.simulator.measures import Result, Sample
from skyward.simulator.runner import simulate
from skyward.simulator.scenario import Act, Scenario, one_group
from skyward.simulator.trace import read_trace, write_trace
from skyward.simulator.workload import WORKLOADS, Distribution, Task, Workload

__all__ = [
    "NO_FAULTS",
    "PRESETS",
    "WORKLOADS",
    "Act",
    "Bound",
    "Distribution",
    "Faults",
    "InvariantError",
    "Result",
    "Sample",
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
