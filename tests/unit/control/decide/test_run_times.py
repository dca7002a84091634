"""Run times by function, and how the task manager measures them."""

import pytest

from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    CancelTasks,
    Ended,
    RankJoined,
    RankLost,
    StartedOnNode,
    Submitted,
)
from skyward.control.decide.tasks.run_times import KEPT, RunTimes
from skyward.scaling.snapshot import Demand, RunningTasks
from skyward.values.needs import Needs


def test_mean_is_unknown_until_a_run_ends() -> None:
    times = RunTimes()
    times.started("f", 0.0)
    assert times.mean("f") is None
    assert times.mean("g") is None


@pytest.mark.parametrize(
    ("seconds", "mean"),
    [
        ((8.0,), 8.0),
        ((8.0, 2.0), 2.0),
        ((2.0, 8.0), 5.0),
        ((2.0, 2.0, 5.0), 3.0),
    ],
)
def test_shorter_second_run_replaces_the_first_and_others_are_averaged(seconds: tuple[float, ...], mean: float) -> None:
    times = RunTimes()
    for each in seconds:
        times.ended("f", each)
    assert times.mean("f") == pytest.approx(mean)


def test_mean_follows_the_latest_runs() -> None:
    times = RunTimes()
    for _ in range(1000):
        times.ended("f", 100.0)
    for _ in range(60):
        times.ended("f", 1.0)
    assert times.mean("f") == pytest.approx(1.0, abs=0.5)


def test_functions_that_have_not_run_for_longest_are_forgotten_first() -> None:
    """Regression: the function that was first seen was forgotten, though it ran again and again."""
    times = RunTimes()
    times.ended("first", 1.0)
    times.ended("second", 2.0)
    for number in range(KEPT - 2):
        times.ended(f"other {number}", 3.0)
    times.ended("first", 1.0)
    times.ended("new", 4.0)
    assert times.mean("first") == 1.0
    assert times.mean("second") is None


def test_runs_in_progress_have_a_mean_age_and_a_spread() -> None:
    times = RunTimes()
    times.ended("f", 10.0)
    times.started("f", 100.0)
    times.started("f", 104.0)
    times.started("g", 105.0)
    assert times.running(106.0) == (RunningTasks(2, 10.0, 4.0, 2.0), RunningTasks(1, None, 1.0, 0.0))
    assert times.age("f", 106.0) == 6.0
    times.stopped("f", 100.0)
    times.stopped("g", 105.0)
    assert times.running(106.0) == (RunningTasks(1, 10.0, 2.0, 0.0),)


def test_functions_that_ended_long_ago_are_forgotten() -> None:
    times = RunTimes()
    times.started("running", 0.0)
    for number in range(2 * KEPT):
        times.ended(f"f{number}", 1.0)
    assert times.mean("f0") is None
    assert times.mean(f"f{2 * KEPT - 1}") == 1.0
    times.stopped("running", 0.0)
    assert times.running(1.0) == ()


def manager_with(slots: int) -> TaskManager:
    manager = TaskManager()
    manager.handle(RankJoined(0, slots), 0.0)
    return manager


def test_demand_has_the_run_time_and_the_age_of_its_function() -> None:
    manager = manager_with(1)
    manager.handle(Submitted((1, 2), functions=("f",) * 2), 0.0)
    manager.handle(Submitted((3,), functions=("g",)), 4.0)
    assert manager.demands(5.0) == (Demand(1, waited=5.0, ran=5.0), Demand(1, waited=5.0))
    manager.handle(Ended(1, 0, "value", 6.0), 6.0)
    assert manager.demands(7.0) == (Demand(1, waited=3.0),)
    manager.handle(Ended(2, 0, "value", 6.0), 8.0)
    manager.handle(Submitted((4,), functions=("f",)), 9.0)
    assert manager.demands(9.0) == (Demand(1, seconds=6.0),)
    assert manager.submitted == 4


def test_waiting_tasks_are_counted_by_shape_and_function() -> None:
    manager = TaskManager()
    gpu = Needs({"GPU": 1})
    manager.handle(Submitted((1, 2, 3), functions=("f",) * 3), 0.0)
    manager.handle(Submitted((4, 5), needs=gpu, functions=("f",) * 2), 0.0)
    manager.handle(Submitted((6,), needs=gpu, functions=("g",)), 0.0)
    manager.handle(CancelTasks((2, 4)), 0.0)
    assert manager.demands(0.0) == (Demand(2), Demand(1, gpu), Demand(1, gpu))
    manager.handle(RankJoined(0, 1, resources={"GPU": 1.0}), 1.0)
    assert manager.demands(1.0) == (
        Demand(1, waited=1.0, ran=0.0),
        Demand(1, gpu, waited=1.0),
        Demand(1, gpu, waited=1.0),
    )


@pytest.mark.parametrize("reason", ["lost", "cancelled"])
def test_run_that_did_not_end_by_itself_is_not_averaged(reason: str) -> None:
    manager = manager_with(1)
    manager.handle(Submitted((1,), functions=("f",)), 0.0)
    if reason == "lost":
        manager.handle(RankLost(0, "it is gone"), 1.0)
    else:
        manager.handle(CancelTasks((1,)), 0.5)
        manager.handle(Ended(1, 0, "cancelled", 1.0), 1.0)
    assert manager.run_times.mean("f") is None
    assert manager.run_times.running(1.0) == ()


def test_prefetched_task_counts_as_running_once_it_has_started() -> None:
    manager = manager_with(1)
    manager.handle(Submitted((1,), functions=("short",)), 0.0)
    manager.handle(Ended(1, 0, "value", 0.0005), 1.0)
    manager.handle(Submitted((2, 3), functions=("short",) * 2), 2.0)
    assert manager.running == 1
    assert manager.has_prefetched()
    assert [each.count for each in manager.run_times.running(2.0)] == [1]
    manager.handle(StartedOnNode(3), 2.5)
    assert [each.count for each in manager.run_times.running(2.5)] == [2]
    manager.handle(Ended(2, 0, "value", 0.0005), 2.5)
    assert [each.count for each in manager.run_times.running(2.5)] == [1]
    manager.handle(Ended(3, 0, "value", 0.0005), 2.6)
    assert manager.run_times.running(3.0) == ()


def test_prefetched_task_starts_when_the_task_before_it_ends() -> None:
    manager = manager_with(1)
    manager.handle(Submitted((1,), functions=("short",)), 0.0)
    manager.handle(Ended(1, 0, "value", 0.0005), 1.0)
    manager.handle(Submitted((2, 3), functions=("short",) * 2), 2.0)
    manager.handle(Ended(2, 0, "value", 0.0005), 2.5)
    assert manager.run_times.running(3.0) == (RunningTasks(1, 0.0005, 0.5, 0.0),)
