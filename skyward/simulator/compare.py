"""Comparison of policies: runs scenarios in parallel processes."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from skyward.simulator.measures import Result
from skyward.simulator.runner import simulate
from skyward.simulator.scenario import Scenario

__all__ = ["compare"]


def compare(
    scenarios: Sequence[Scenario], done: Callable[[Result, int], None] | None = None, processes: int | None = None
) -> list[Result]:
    """Return the results of the scenarios, in their order.

    Args:
        done: callback for each result as it arrives, with the number of scenarios left.
        processes: maximum; None for the number of cores. One scenario, or one process, runs in this process.
    """
    processes = min(len(scenarios), processes or os.cpu_count() or 1)
    results: list[Result | None] = [None] * len(scenarios)
    left = len(scenarios)
    if processes <= 1:
        for place, scenario in enumerate(scenarios):
            results[place] = result = simulate(scenario)
            left -= 1
            if done is not None:
                done(result, left)
        return [result for result in results if result is not None]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        places = {pool.submit(simulate, scenario): place for place, scenario in enumerate(scenarios)}
        for future in as_completed(places):
            results[places[future]] = result = future.result()
            left -= 1
            if done is not None:
                done(result, left)
    return [result for result in results if result is not None]
