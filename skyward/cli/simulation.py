"""`sky simulate`: scaling policies against a simulated cloud, and replays of decision logs."""

import argparse
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.errors import SpecError
from skyward.formatting import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skyward.simulator import Result, Scenario

__all__ = ["add_simulate", "run_simulate", "scenario_of"]

_EXAMPLE = "sky simulate --workload burst --nodes 0:100 --boot 60±20 --price 3.2 --spot-loss 0.02/h"

_INSIDE_GROUPS = {
    "nodes": "`--group cpu=0:100`",
    "slots": "`--group cpu=0:100,slots=4`",
    "price": "`--group cpu=0:100,price=3.2`",
}

_REPLAYED = frozenset({"command", "replay", "policy", "json"})
"""Options that a replay takes."""


def add_simulate(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `sky simulate` to a parser. An option that is not given is None: its default is that of a pool."""
    simulate = commands.add_parser(
        "simulate",
        help="run scaling policies against a simulated cloud, or replay a decision log",
        description="Run the control plane of a pool under virtual time, against a simulated cloud, and compare the "
        "cost with its lower bounds. Settings that are not given are those of a pool that sets none.",
        epilog=f"Example: {_EXAMPLE}",
        formatter_class=_HelpWithDefaults,
    )
    work = simulate.add_mutually_exclusive_group()
    work.add_argument("--workload", metavar="NAME", help="burst, diurnal, sweep or phases (burst)")
    work.add_argument("--trace", metavar="FILE", type=Path, help="tasks from a CSV or JSON lines file")
    work.add_argument(
        "--replay",
        metavar="FILE",
        type=Path,
        help="give the inputs in a decision log to its policy again, and compare the decisions; with --policy, show "
        "what another policy would have decided",
    )
    simulate.add_argument("--policy", metavar="NAME", help="the policy ({policy})")
    simulate.add_argument("--compare", action="store_true", help="run all policies, the chosen one first")
    for group, options in _OPTIONS.items():
        section = simulate.add_argument_group(group)
        for flag, metavar, help in options:
            section.add_argument(flag, metavar=metavar, help=help)
    simulate.add_argument(
        "--group",
        action="append",
        metavar="NAME=MIN:MAX,...",
        help="a group of nodes instead of --nodes, --slots and --price, as in gpu=0:8,slots=2,price=12,GPU=4,can=fast; "
        "repeatable",
    )
    simulate.add_argument("--seed", type=int, help="the same seed gives the same run (0)")
    simulate.add_argument("--check", action="store_true", help="check every invariant after every step; slow")
    simulate.add_argument("--decision-log", metavar="FILE", type=Path, help="append the decisions to a file")
    simulate.add_argument("--plot", metavar="FILE", type=Path, help="write a PNG of demand, desired and current")
    simulate.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")


_OPTIONS: "Mapping[str, tuple[tuple[str, str, str], ...]]" = {
    "work": (
        ("--hours", "N", "hours during which tasks arrive (24)"),
        ("--task-seconds", "N", "mean duration of a task (300)"),
        ("--peak", "TASKS", "maximum number of concurrent tasks (all slots)"),
    ),
    "cloud": (
        ("--nodes", "MIN:MAX", "bounds of the pool (0:100)"),
        ("--slots", "N", "tasks that a node runs at once (1)"),
        ("--price", "USD", "price of a node per hour (1)"),
        ("--boot", "SECONDS", "boot time of a node, such as 60 or 60±20, also 60+-20 (60±20)"),
        ("--spot-loss", "RATE", "rate of spot interruptions, as in 0.02/h (0)"),
        ("--faults", "NAME", "calm, rough or hostile (calm)"),
        ("--quota", "N", "maximum number of machines in the cloud (no limit)"),
    ),
    "settings of the pool": (
        ("--budget", "USD", "maximum total cost (no limit)"),
        ("--max-nodes", "N", "maximum number of nodes over all groups (no limit)"),
        ("--cooldown", "SECONDS", "cooldown of the autoscaler ({cooldown})"),
        ("--idle-timeout", "SECONDS", "idle timeout of a node (the policy's own)"),
        (
            "--target",
            "TARGET",
            "how long tasks may wait beyond a boot: cheap, balanced, fast, or a duration such as 90 or 5m ({target})",
        ),
        ("--waiting-cost", "USD", "cost of an hour for which a task waits (none)"),
        (
            "--consolidate-within",
            "SECONDS",
            "time within which cheaper nodes in place of dearer ones must pay, 0 for never ({consolidate_within})",
        ),
        (
            "--look-gap",
            "SECONDS",
            "minimum time between evaluations that new tasks trigger ({look_gap})",
        ),
        ("--tick", "SECONDS", "time between checks of the number of nodes ({tick})"),
        ("--retries", "N", "times that a task is requeued after its node was lost ({retries})"),
        ("--boot-limit", "SECONDS", "time after which a machine that is no node yet is replaced ({boot_limit})"),
        ("--launch-attempts", "N", "machines that may fail in a row to become one node ({launch_attempts})"),
        ("--launches", "N", "machines that may be requested at a time ({launches})"),
        ("--upscaling-speed", "N", "machines launched at a time, per running node (no limit)"),
    ),
}


class _HelpWithDefaults(argparse.HelpFormatter):
    """Formatter that fills in the defaults of pools, which only the help needs: other commands do not load them."""

    def _get_help_string(self, action: argparse.Action) -> str:
        return (action.help or "").format(**_defaults())


@cache
def _defaults() -> dict[str, str]:
    """Return the settings of a pool that sets none as text, by the names of the options."""
    from skyward.control.decide.settings import PlaneSettings
    from skyward.specs.options import Options

    options, settings = Options(), PlaneSettings((), {})
    defaults = {
        "policy": options.policy,
        "cooldown": options.autoscale_cooldown,
        "target": options.target_wait,
        "consolidate_within": options.consolidate_within,
        "look_gap": settings.evaluation_gap,
        "tick": options.reconcile_tick_interval,
        "retries": options.retry_on_interruption,
        "boot_limit": settings.limits.boot,
        "launch_attempts": settings.limits.launches,
        "launches": settings.limits.concurrent_launches,
    }
    return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in defaults.items()}


def run_simulate(given: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if given.replay is not None:
        return _replay(given)
    from skyward.cli.simulation_progress import progress_of
    from skyward.cli.simulation_report import boot_note, report
    from skyward.scaling.registry import POLICIES
    from skyward.simulator.bound import LowerBounds
    from skyward.simulator.compare import compare

    scenario = scenario_of(given)
    scenarios = [scenario]
    if given.compare:
        scenarios += [scenario.under(name) for name in POLICIES if name != scenario.policy_name]
    with progress_of(scenarios) as progress:
        results = compare(scenarios, progress)
        bounds = LowerBounds(scenario)
        rows = [(result, _bound_of(result, bounds)) for result in results]
    if given.plot is not None:
        from skyward.simulator.plot import plot

        plot(results, given.plot)
    note = boot_note(scenario)
    if given.json:
        figures = [{**result.row(), "bound_at_p99": bound} for result, bound in rows]
        lower = {"no_wait": bounds.cost.no_wait, "any_wait": bounds.cost.any_wait, "wait_p99": bounds.cost.wait_p99}
        sys.stdout.write(json.dumps({"policies": figures, "lower_bound": lower}, indent=1) + "\n")
        sys.stderr.write(f"sky simulate: {note}\n" if note else "")
    else:
        sys.stdout.write(report(rows, bounds.cost) + (f"\n{note}\n" if note else "\n"))
    return 0


def _bound_of(result: "Result", bounds: Any) -> float | None:
    """Return the bound at the same p99 wait; None for a run that did not do all of the work."""
    bound: float | None = None if result.failed or result.unfinished else bounds.at(result.wait_p99)
    return bound


def _replay(given: argparse.Namespace) -> int:
    from skyward.cli.replay_report import replay_report
    from skyward.simulator.replay import replay

    others = [name for name, value in vars(given).items() if value not in (None, False) and name not in _REPLAYED]
    if others:
        raise SpecError(
            f"--{others[0].replace('_', '-')} cannot be combined with --replay, which takes everything but --policy "
            "from the file."
        )
    result = replay(given.replay, given.policy)
    sys.stdout.write(replay_report(result, given.replay, given.policy, as_json=given.json) + "\n")
    return int(not result.evaluations or (bool(result.differences) and given.policy is None))


def scenario_of(given: argparse.Namespace) -> "Scenario":
    from skyward.cli.simulate import boot_time, group_of, node_bounds, positive, rate, whole_number
    from skyward.cli.trace_needs import check_needs
    from skyward.scaling.registry import find_policy
    from skyward.simulator import Scenario, Workload, find_faults, one_group, read_trace

    if given.policy is not None:
        find_policy(given.policy)
    if given.group:
        if single := [name for name in _INSIDE_GROUPS if getattr(given, name) is not None]:
            example = _INSIDE_GROUPS[single[0]]
            raise SpecError(f"--{single[0]} cannot be combined with --group; give it inside the group, as {example}.")
        groups = tuple(map(group_of, given.group))
        if len({group.name for group in groups}) < len(groups):
            raise SpecError("Two groups have the same name; give each --group another.")
    else:
        least, most = node_bounds(given.nodes or "0:100")
        price = positive(given.price or "1", "--price", zero=True)
        groups = one_group(least, most, whole_number(given.slots or "1", "--slots"), price)
    faults = find_faults(given.faults or "calm")
    if given.spot_loss is not None:
        faults = replace(faults, spot_loss=rate(given.spot_loss))
    if given.quota is not None:
        faults = replace(faults, quota=whole_number(given.quota, "--quota"))
    if given.trace is not None:
        work: Any = tuple(read_trace(given.trace))
        check_needs(given.trace.name, work, groups)
    else:
        slots = sum(group.max * group.slots for group in groups)
        peak = slots if given.peak is None else whole_number(given.peak, "--peak")
        hours = positive(given.hours or "24", "--hours")
        work = Workload(given.workload or "burst", peak, hours, positive(given.task_seconds or "300", "--task-seconds"))
    scenario = Scenario(work, groups, faults=faults, seed=given.seed or 0, checked=given.check)
    if given.boot is not None:
        scenario = replace(scenario, boot=boot_time(given.boot))
    scenario = replace(scenario, decision_log=given.decision_log, **_settings(given))
    _check_max_nodes(scenario)
    return scenario


def _check_max_nodes(scenario: "Scenario") -> None:
    """Check that a maximum over all groups is not below their minimums, as a pool does."""
    least = sum(group.min for group in scenario.groups)
    if scenario.max_nodes is not None and scenario.max_nodes < least:
        raise SpecError(
            f"--max-nodes {scenario.max_nodes} is below the {count_text(least)} that the pool keeps at least: write "
            f"`--max-nodes {least}` or more, or a lower minimum in --nodes or --group."
        )


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the pool that were given, as fields of a scenario."""
    from skyward.cli.simulate import duration, positive, target_wait, whole_number
    from skyward.control.decide.machines.requests import Limits

    def seconds(name: str) -> float:
        zero = name in ("cooldown", "idle_timeout", "look_gap", "consolidate_within")
        return duration(getattr(given, name), _flag(name), zero=zero)

    def amount(name: str) -> float:
        return positive(getattr(given, name), _flag(name), zero=name == "waiting_cost")

    def count(name: str) -> int:
        return whole_number(getattr(given, name), _flag(name), zero=name == "retries")

    def read(fields: "Mapping[str, tuple[str, Callable[[str], Any]]]") -> dict[str, Any]:
        return {to: of(name) for name, (to, of) in fields.items() if getattr(given, name) is not None}

    settings = read(
        {
            "policy": ("policy", lambda name: getattr(given, name)),
            "budget": ("budget", amount),
            "max_nodes": ("max_nodes", count),
            "cooldown": ("cooldown", seconds),
            "idle_timeout": ("idle_timeout", seconds),
            "target": ("target_wait", lambda name: target_wait(given.target)),
            "waiting_cost": ("waiting_cost", amount),
            "consolidate_within": ("consolidate_within", seconds),
            "look_gap": ("evaluation_gap", seconds),
            "tick": ("tick", seconds),
            "retries": ("retries", count),
        }
    )
    limits = read(
        {
            "boot_limit": ("boot", seconds),
            "launch_attempts": ("launches", count),
            "launches": ("concurrent_launches", count),
            "upscaling_speed": ("upscaling_speed", amount),
        }
    )
    return {**settings, "limits": replace(Limits(), **limits)} if limits else settings


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
