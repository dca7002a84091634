"""Command `simulate`: its options, whose texts the simulator reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skyward.commands import reading
from skyward.commands.command import Command, InTerminal
from skyward.commands.option import Option
from skyward.commands.table.pool_commands import JSON

__all__ = ["SIMULATE"]


def _given(flag: str, metavar: str, help: str, section: str) -> Option:
    """Return an option whose text is read by the command, which knows what goes with it."""
    target = flag.removeprefix("--").replace("-", "_")
    return Option((flag,), target, help, metavar, takes=_TAKES.get(metavar, "a value"), section=section)


def _every(texts: Sequence[str]) -> list[str]:
    return list(texts)


_TAKES: Final = {
    "NAME": "a name",
    "N": "a number",
    "USD": "an amount in USD",
    "SECONDS": "a duration, such as 90 or 5m",
    "MIN:MAX": "bounds, such as 0:100",
    "RATE": "a rate, such as 0.02/h",
    "TARGET": "cheap, balanced, fast, or a duration",
    "TASKS": "a number of tasks",
}
"""Descriptions of values by placeholder, for the error about a missing one."""

_FILE: Final = "the path of a file"

_OPTIONS: Final = (
    Option(("--workload",), "workload", "burst, diurnal, sweep or phases (burst)", "NAME", takes="a name"),
    Option(("--trace",), "trace", "tasks from a CSV or JSON lines file", "FILE", Path, _FILE),
    Option(
        ("--replay",),
        "replay",
        "give the inputs in a decision log to its policy again, and compare the decisions; with --policy, show what "
        "another policy would have decided",
        "FILE",
        Path,
        _FILE,
    ),
    Option(("--policy",), "policy", "the policy ({policy})", "NAME", takes="the name of a policy"),
    Option(("--compare",), "compare", "run all policies, the chosen one first"),
    Option(
        ("--group",),
        "group",
        "a group of nodes instead of --nodes, --slots and --price, as in gpu=0:8,slots=2,price=12,GPU=4,can=fast; "
        "repeatable",
        "NAME=MIN:MAX,...",
        takes="a group, such as gpu=0:8",
        merge=_every,
    ),
    Option(
        ("--seed",), "seed", "the same seed gives the same run (0)", "N", reading.whole, "a whole number, such as 1"
    ),
    Option(("--check",), "check", "check every invariant after every step; slow"),
    Option(("--decision-log",), "decision_log", "append the decisions to a file", "FILE", Path, _FILE),
    Option(("--plot",), "plot", "write a PNG of demand, desired and current", "FILE", Path, _FILE),
    JSON,
    *(
        _given(flag, metavar, help, "work")
        for flag, metavar, help in (
            ("--hours", "N", "hours during which tasks arrive (24)"),
            ("--task-seconds", "N", "mean duration of a task (300)"),
            ("--peak", "TASKS", "maximum number of concurrent tasks (all slots)"),
        )
    ),
    *(
        _given(flag, metavar, help, "cloud")
        for flag, metavar, help in (
            ("--nodes", "MIN:MAX", "bounds of the pool (0:100)"),
            ("--slots", "N", "tasks that a node runs at once (1)"),
            ("--price", "USD", "price of a node per hour (1)"),
            ("--boot", "SECONDS", "boot time of a node, such as 60 or 60±20, also 60+-20 (60±20)"),
            ("--spot-loss", "RATE", "rate of spot interruptions, as in 0.02/h (0)"),
            ("--faults", "NAME", "calm, rough or hostile (calm)"),
            ("--quota", "N", "maximum number of machines in the cloud (no limit)"),
        )
    ),
    *(
        _given(flag, metavar, help, "settings of the pool")
        for flag, metavar, help in (
            ("--budget", "USD", "maximum total cost (no limit)"),
            ("--max-nodes", "N", "maximum number of nodes over all groups (no limit)"),
            ("--cooldown", "SECONDS", "cooldown of the autoscaler ({cooldown})"),
            ("--idle-timeout", "SECONDS", "idle timeout of a node (the policy's own)"),
            (
                "--target",
                "TARGET",
                "how long tasks may wait beyond a boot: cheap, balanced, fast, or a duration, such as 5m ({target})",
            ),
            ("--waiting-cost", "USD", "cost of an hour for which a task waits (none)"),
            (
                "--consolidate-within",
                "SECONDS",
                "time within which cheaper nodes in place of dearer ones must pay, 0 for never ({consolidate_within})",
            ),
            ("--look-gap", "SECONDS", "minimum time between evaluations that new tasks trigger ({look_gap})"),
            ("--tick", "SECONDS", "time between checks of the number of nodes ({tick})"),
            ("--retries", "N", "times that a task is requeued after its node was lost ({retries})"),
            ("--boot-limit", "SECONDS", "time after which a machine that is no node yet is replaced ({boot_limit})"),
            ("--launch-attempts", "N", "machines that may fail in a row to become one node ({launch_attempts})"),
            ("--launches", "N", "machines that may be requested at a time ({launches})"),
            ("--upscaling-speed", "N", "machines launched at a time, per running node (no limit)"),
        )
    ),
)

SIMULATE: Final = Command(
    "simulate",
    "run scaling policies against a simulated cloud, or replay a decision log",
    in_notebooks=False,
    options=_OPTIONS,
    example="--workload burst --nodes 0:100 --boot 60±20 --price 3.2 --spot-loss 0.02/h",
    terminal=InTerminal(
        description="Run the control plane of a pool under virtual time, against a simulated cloud, and compare the "
        "cost with its lower bounds. Settings that are not given are those of a pool that sets none."
    ),
)
