"""The same scenario under several policies, in as many processes as there are cores."""

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
    """The result of every scenario, in their order.

    Args:
        done: told of each as it ends, and how many are left.
        processes: at most; None for the number of cores. One scenario, or one process, runs here.
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
