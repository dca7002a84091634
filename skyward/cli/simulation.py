"""`skyward simulate`: scaling policies against a simulated cloud, and replays of decision logs."""

import json
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from skyward.cli.terminal.answers import say
from skyward.errors import SpecError
from skyward.formatting import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from skyward.simulator import Result, Scenario

__all__ = ["all_options", "scenario_of", "simulate", "with_defaults"]

_INSIDE_GROUPS = {
    "nodes": "`--group cpu=0:100`",
    "slots": "`--group cpu=0:100,slots=4`",
    "price": "`--group cpu=0:100,price=3.2`",
}

_REPLAYED = frozenset({"command", "replay", "policy", "json"})
"""Options that a replay takes."""


def simulate(**given: Any) -> int:
    """Run the command with the options that were given, and return its exit status."""
    return _simulate(all_options(given))


def all_options(given: "Mapping[str, Any]") -> SimpleNamespace:
    """Return all options by their targets: None, or False for a flag, if one was not given.

    Raises:
        SpecError: several sources of work are given.
    """
    from skyward.commands.table.simulate_command import SIMULATE

    every = {option.target: None if option.metavar else False for option in SIMULATE.options}
    if len(works := [name for name in ("workload", "trace", "replay") if given.get(name) is not None]) > 1:
        raise SpecError(f"--{works[0]} cannot be combined with --{works[1]}: give one of them.")
    return SimpleNamespace(**{**every, **given})


def with_defaults(text: str) -> str:
    """Return the help of an option with the defaults of pools, which only the help needs."""
    return text.format(**_defaults())


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


def _simulate(given: SimpleNamespace) -> int:
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
        if note:
            say(note)
    else:
        sys.stdout.write(report(rows, bounds.cost) + (f"\n{note}\n" if note else "\n"))
    return 0


def _bound_of(result: "Result", bounds: Any) -> float | None:
    """Return the bound at the same p99 wait; None for a run that did not do all of the work."""
    bound: float | None = None if result.failed or result.unfinished else bounds.at(result.wait_p99)
    return bound


def _replay(given: SimpleNamespace) -> int:
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


def scenario_of(given: SimpleNamespace) -> "Scenario":
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


def _settings(given: SimpleNamespace) -> dict[str, Any]:
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
