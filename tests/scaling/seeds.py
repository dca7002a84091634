"""`python tests/scaling/seeds.py --seeds N [--first K] [--minutes M]`: random scenarios, each checked after every step.

Prints the shortest history found for the first seed that fails.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

if __name__ == "__main__":  # run as a script, its own folder is on the path instead of the repository
    sys.path.insert(0, str(Path(__file__).parents[2]))

from skyward.simulator.faults import Faults
from skyward.simulator.invariants import InvariantError
from skyward.simulator.runner import simulate
from skyward.simulator.scenario import Scenario
from skyward.simulator.workload import Task
from tests.scaling.scenarios import scenario_of

MINUTES = 10.0
CHUNK = 50


def failure_of(scenario: Scenario) -> Exception | None:
    """Return the violation of a run, or whatever else it raised; None if there is nothing."""
    try:
        simulate(scenario)
    except Exception as error:
        return error
    return None


def rule_of(error: Exception) -> str:
    """Return what was violated."""
    return error.rule if isinstance(error, InvariantError) else type(error).__name__


def run_seeds(first: int, last: int, minutes: float) -> tuple[int, list[int]]:
    """Run the seeds from `first` up to `last`; return the number of steps, and the seeds that fail."""
    steps, failed = 0, []
    for seed in range(first, last):
        try:
            steps += simulate(scenario_of(seed, minutes)).steps
        except Exception:  # of any kind: it is a finding, and the sweep goes on
            failed.append(seed)
    return steps, failed


def shrink(scenario: Scenario) -> tuple[Scenario, Exception]:
    """Return the smallest scenario found that violates the same rule, and its error."""
    error = failure_of(scenario)
    if error is None:
        raise ValueError(f"seed {scenario.seed} does not fail")
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(scenario):
            found = failure_of(candidate)
            if found is not None and rule_of(found) == rule_of(error):
                scenario, error, smaller = candidate, found, True
                break
    return scenario, error


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield smaller scenarios: fewer tasks, actions, faults and nodes."""
    work = scenario.work
    assert isinstance(work, tuple)
    yield from (replace(scenario, work=kept) for kept in _fewer(work))
    yield from (replace(scenario, actions=kept) for kept in _fewer(scenario.actions))
    usual = Faults(until=scenario.faults.until)
    for each in fields(Faults):
        if getattr(scenario.faults, each.name) != getattr(usual, each.name):
            calmer = replace(scenario.faults, **{each.name: getattr(usual, each.name)})
            yield replace(scenario, faults=calmer)
    if scenario.existing:
        yield replace(scenario, existing=scenario.existing - 1)
    if scenario.sources > 1:
        yield replace(scenario, sources=scenario.sources - 1)
    if scenario.max_nodes is not None:
        yield replace(scenario, max_nodes=None)
    if len(scenario.groups) > 1 and not any(isinstance(task, Task) and task.needs for task in work):
        yield replace(scenario, groups=scenario.groups[:1])
    for position, group in enumerate(scenario.groups):
        if group.max > max(1, group.min):
            fewer = replace(group, max=group.max - 1)
            yield replace(scenario, groups=(*scenario.groups[:position], fewer, *scenario.groups[position + 1 :]))


def _fewer[T](items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield `items` without a half, a quarter ... of them, and without single ones."""
    size = len(items)
    while size:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2


def sweep(first: int, seeds: int, minutes: float, done: Callable[[int], None] | None = None) -> tuple[int, list[int]]:
    """Run the seeds in a process per core; return the number of steps, and the seeds that fail."""
    starts = range(first, first + seeds, CHUNK)
    ends = [min(start + CHUNK, first + seeds) for start in starts]
    steps, failed = 0, []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for more, bad in pool.map(partial(run_seeds, minutes=minutes), starts, ends):
            steps += more
            failed += bad
            if done is not None:
                done(steps)
    return steps, failed


def main() -> int:
    """Run the sweep of the command line; return 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="seeds.py", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="number of seeds (2000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (0)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="minutes of faults in each run (10)")
    arguments = parser.parse_args()
    started = time.perf_counter()
    steps, failed = sweep(arguments.first, arguments.seeds, arguments.minutes)
    took = time.perf_counter() - started
    print(f"{arguments.seeds} seeds, {steps} steps, {took:.1f} s: {len(failed)} failed")
    if not failed:
        return 0
    print(f"failed: {' '.join(map(str, failed[:100]))}\nthe shortest history of seed {failed[0]}:\n")
    scenario, error = shrink(scenario_of(failed[0], arguments.minutes))
    print(f"{rule_of(error)}: {error}")
    print(f"\n{scenario}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
