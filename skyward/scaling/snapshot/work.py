"""Estimates for waiting tasks: how many of them nodes start within a time, from the run times of tasks.

A slot that is free starts a task now, and another whenever one ends. A slot that is busy does so once its task ends,
which is estimated from the ages of the running tasks: tasks that all started a moment ago end together, others one by
one, and a task that has run for longer than the mean is expected to run on for as long again.
"""

from collections.abc import Iterable
from math import sqrt

from skyward.scaling.snapshot.values import RunningTasks

__all__ = ["ended_share", "rough_text", "starts_of_busy", "starts_of_free"]

SHORTEST = 1e-6
"""Seconds that a task takes at least."""


def starts_of_free(window: float, seconds: float) -> float:
    """Return how many tasks of a mean run time a free slot starts within `window` seconds.

    A slot whose tasks take about as long as the window is not counted on for a second one.
    """
    return 1.0 + max(0.0, window / max(seconds, SHORTEST) - 0.5)


def starts_of_busy(running: Iterable[RunningTasks], window: float, seconds: float) -> float:
    """Return how many tasks a busy slot starts within `window` seconds, on average over the running tasks.

    Running tasks whose run time is unknown are not counted on.

    Args:
        seconds: mean run time of the tasks to start.
    """
    total, starts = 0, 0.0
    for tasks in running:
        total += tasks.count
        if tasks.seconds is not None:
            left = min(window, max(0.0, tasks.seconds - tasks.age))
            starts += (
                tasks.count * _share_that_ends(tasks, tasks.seconds, window) * starts_of_free(window - left, seconds)
            )
    return starts / total if total else 0.0


def ended_share(running: Iterable[RunningTasks], window: float) -> float:
    """Return the share of the running tasks that are expected to end within `window` seconds.

    Running tasks whose run time is unknown are not counted on.
    """
    total, ended = 0, 0.0
    for tasks in running:
        total += tasks.count
        if tasks.seconds is not None:
            ended += tasks.count * _share_that_ends(tasks, tasks.seconds, window)
    return ended / total if total else 0.0


def _share_that_ends(tasks: RunningTasks, mean: float, window: float) -> float:
    """Return the share of running tasks that end within `window` seconds.

    Their ages are taken to be uniform around their mean; an age of `mean - window` or more lets a task end in time. Of
    tasks that started at different times, no more end than `window / mean`, since some take longer than the mean.
    """
    reach = sqrt(3) * tasks.spread
    youngest, oldest = tasks.age - reach, tasks.age + reach
    limit = mean - window
    if oldest < limit:
        return 0.0
    share = 1.0 if youngest >= limit else (oldest - limit) / (oldest - youngest)
    return min(share, window / max(mean, tasks.age, SHORTEST), 1.0)


def rough_text(seconds: float) -> str:
    """Return a duration for a reason, without more digits than an estimate has: `10 ms`, `90 s`, `8 min`, `2.5 h`."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if seconds < 179.5:
        return f"{seconds:.0f} s"
    if seconds < 119.5 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"
