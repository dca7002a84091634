"""The simulator: virtual time, workloads, traces, costs, measurements, and the lower bound."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.cli.simulation_report import duration, report
from skyward.errors import SpecError
from skyward.scaling.snapshot import Group
from skyward.simulator import (
    WORKLOADS,
    Distribution,
    Faults,
    Scenario,
    Task,
    Workload,
    lower_bound,
    one_group,
    read_trace,
    simulate,
    write_trace,
)
from skyward.simulator.clock import Clock
from skyward.simulator.measures import percentile
from skyward.simulator.runner import Simulation
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

HOUR = 3600.0


def run_of(*tasks: Task, nodes: tuple[int, int] = (0, 4), slots: int = 1, price: float = 3.6) -> Scenario:
    """Return a scenario with these tasks, and boots of 60 s."""
    return Scenario(tasks, one_group(*nodes, slots, price), boot=Distribution(60))


def test_events_run_in_order_and_simultaneous_ones_as_scheduled() -> None:
    clock, happened = Clock(), list[str]()
    clock.at(2.0, happened.append, "b")
    clock.at(1.0, happened.append, "a")
    clock.at(2.0, happened.append, "c")
    clock.at(-5.0, happened.append, "now")
    while len(clock):
        clock.step()
    assert happened == ["now", "a", "b", "c"]
    assert clock.now == 2.0


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload_is_determined_by_its_seed(name: str) -> None:
    workload = Workload(name, peak=50, hours=6, task_seconds=120)
    tasks = workload.tasks(3)
    assert tasks == workload.tasks(3) != workload.tasks(4)
    assert len(tasks) > 50
    assert tasks == sorted(tasks, key=lambda task: task.at)
    assert tasks[0].at >= 0
    assert tasks[-1].at <= 6 * HOUR + 30
    assert sum(task.seconds for task in tasks) / len(tasks) == pytest.approx(120, rel=0.15)


def test_unknown_workload_is_refused_with_the_closest_name() -> None:
    with pytest.raises(SpecError, match="no workload 'brust'; did you mean 'burst'?"):
        Workload("brust", 10)


def test_single_task_waits_for_one_boot_and_the_pool_scales_down_after_it() -> None:
    result = simulate(run_of(Task(100.0, 50.0)))
    assert (result.tasks, result.finished, result.launches) == (1, 1, 1)
    assert 60 <= result.wait_p50 <= 66  # the boot, and the calls to the cloud
    assert result.makespan == pytest.approx(result.wait_p50 + 50)
    assert result.cost == pytest.approx(result.node_hours * 3.6)


def test_fixed_pool_keeps_its_nodes() -> None:
    result = simulate(run_of(Task(HOUR, 600.0), nodes=(2, 2)))
    assert result.node_hours == pytest.approx(2 * (HOUR + 600) / HOUR, rel=0.01)
    assert result.wait_p99 == 0
    assert result.over_provision == pytest.approx(1 - 600 / (2 * (HOUR + 600)), rel=0.02)
    assert (result.turns, result.thrash, result.decisions) == (0, 0, 0)


def test_slots_share_a_node() -> None:
    tasks = [Task(0.0, 300.0)] * 4
    assert simulate(run_of(*tasks, slots=4)).launches == 1
    assert simulate(run_of(*tasks, slots=1)).launches == 4


def watched(scenario: Scenario) -> Simulation:
    """Return the run of a scenario that has ended."""
    run = Simulation(scenario)
    run.run()
    return run


@pytest.mark.parametrize("policy", ["vanilla", "capability", "fixed_elastic"])
def test_ratio_policies_add_one_node_every_two_seconds(policy: str) -> None:
    """Regression: with a queue they added a node at every message."""
    tasks = [Task(100.0 + 0.1 * number, 500.0) for number in range(200)]
    decisions = watched(replace(run_of(*tasks, nodes=(1, 50)), policy=policy)).plane.decisions
    grown = [event.at for event in decisions if event.by == "policy" and event.change > 0]
    assert len(grown) > 5
    assert all(later - earlier >= 1.99 for earlier, later in pairwise(grown))


def test_fewer_nodes_are_decided_when_the_cooldown_ends() -> None:
    """Regression: they were decided at the next look, here 25 s later."""
    tasks = [*[Task(100.0, 10.0)] * 2, Task(1000.0, 10.0)]
    quick = replace(run_of(*tasks, nodes=(1, 2)), cooldown=100.0, idle_timeout=5.0, policy="pressure")
    grew, held, shrank = watched(quick).plane.decisions
    assert (grew.change, held.change, shrank.change) == (1, 0, -1)
    assert shrank.at == pytest.approx(grew.at + 100.0, abs=0.01)


def test_same_seed_gives_the_same_run_and_another_does_not() -> None:
    def row(seed: int) -> dict[str, object]:
        faults = Faults(spot_loss=0.5, api_errors=0.1, silent=0.5, duplicates=0.2, reordered=0.2)
        result = simulate(Scenario(Workload("phases", 20, 3), one_group(0, 20, price=1.0), seed=seed, faults=faults))
        return {name: value for name, value in result.row().items() if name != "wall_seconds"}

    assert row(1) == row(1)
    assert row(1) != row(2)


def test_lost_nodes_are_replaced_and_no_task_is_lost() -> None:
    scenario = Scenario(
        Workload("diurnal", 30, 6),
        one_group(0, 30, price=1.0),
        faults=Faults(spot_loss=1.0, silent=0.3),
        retries=1000,
        checked=True,
    )
    result = simulate(scenario)
    assert result.died > 20
    assert result.finished == result.tasks
    assert (result.failed, result.unfinished) == (0, 0)


def test_phantom_machines_are_terminated() -> None:
    faults = Faults(lost_replies=0.5, phantoms=1.0, api_errors=0.3, lost_terminates=0.3)
    result = simulate(Scenario(Workload("burst", 10, 2), one_group(0, 10, price=1.0), faults=faults, checked=True))
    assert result.finished == result.tasks


def test_machines_never_exceed_the_quota() -> None:
    scenario = Scenario(Workload("sweep", 20, 1), one_group(0, 20, price=1.0), faults=Faults(quota=7), checked=True)
    result = simulate(scenario)
    assert result.peak == 7
    assert result.finished == result.tasks


def test_budget_ends_the_work() -> None:
    result = simulate(replace(run_of(*[Task(0.0, 30.0)] * 2000), budget=2.0, checked=True))
    assert 0 < result.finished < 2000
    assert result.failed == 2000 - result.finished
    assert result.cost <= 2.0


def test_pool_that_cannot_open_is_given_up() -> None:
    result = simulate(replace(run_of(Task(600.0, 1.0), nodes=(2, 2)), faults=Faults(partial=1.0), checked=True))
    assert result.unfinished == 1
    assert result.makespan is None
    assert result.launches == 0


def test_groups_run_the_tasks_that_fit() -> None:
    groups = (
        Group("cpu", 0, 4, 1, {"CPU": 4.0}, hourly_price=1.0),
        Group("gpu", 0, 2, 1, {"CPU": 4.0, "GPU": 1.0}, hourly_price=10.0),
    )
    tasks = (Task(0.0, 60.0, Needs({"GPU": 1})), Task(0.0, 60.0, Needs({"GPU": 9})), *[Task(1.0, 60.0)] * 3)
    result = simulate(Scenario(tasks, groups, policy="binpack", checked=True))
    assert (result.finished, result.failed) == (4, 1)


# The lower bound.


def test_bound_of_one_task_is_its_duration_and_a_boot() -> None:
    bound = lower_bound(run_of(Task(100.0, 300.0)))
    assert bound.no_wait == pytest.approx(360 * 3.6 / HOUR)
    assert bound.any_wait == pytest.approx(360 * 3.6 / HOUR)


def test_bound_keeps_a_node_over_a_short_gap_and_reboots_after_a_long_one() -> None:
    def cost(gap: float) -> float | None:
        return lower_bound(run_of(Task(0.0, 100.0), Task(100.0 + gap, 100.0), price=HOUR)).no_wait

    assert cost(20.0) == pytest.approx(60 + 200 + 20)
    assert cost(1000.0) == pytest.approx(60 + 200 + 60)


def test_bound_pays_for_the_minimum_and_waits_for_the_maximum() -> None:
    fixed = lower_bound(run_of(Task(0.0, 100.0), Task(1000.0, 100.0), nodes=(2, 2), price=HOUR))
    assert fixed.no_wait == pytest.approx(2 * 1100, abs=4)
    full = lower_bound(run_of(*[Task(0.0, 100.0)] * 3, nodes=(0, 1), price=HOUR))
    assert full.no_wait == pytest.approx(60 + 300)
    assert full.wait_p99 == 200
    assert full.makespan == 300


@settings(max_examples=40)
@given(
    tasks=st.lists(st.tuples(st.floats(0, 3000), st.floats(1, 900)), min_size=1, max_size=25),
    policy=st.sampled_from(["pressure", "vanilla", "capability", "binpack"]),
    slots=st.integers(1, 3),
)
def test_no_policy_costs_less_than_the_bound_for_any_wait(
    tasks: list[tuple[float, float]], policy: str, slots: int
) -> None:
    ordered = sorted(Task(*task) for task in tasks)
    scenario = replace(run_of(*ordered, nodes=(0, 8), slots=slots), policy=policy)
    result, bound = simulate(scenario), lower_bound(scenario)
    assert bound.no_wait is not None
    assert bound.any_wait <= bound.no_wait + 1e-9
    if not result.unfinished:
        assert result.cost >= bound.any_wait - 1e-9


@settings(max_examples=40)
@given(tasks=st.lists(st.tuples(st.floats(0, 3000), st.floats(1, 900)), min_size=1, max_size=20))
def test_pool_without_waiting_costs_at_least_the_bound(tasks: list[tuple[float, float]]) -> None:
    ordered = sorted(Task(100 + at, seconds) for at, seconds in tasks)
    scenario = run_of(*ordered, nodes=(len(tasks), len(tasks)))
    result = simulate(scenario)
    assert result.wait_p99 == 0
    assert result.cost >= (lower_bound(scenario).no_wait or 0.0) - 1e-9


# Traces.


def test_trace_round_trips(tmp_path: Path) -> None:
    tasks = [
        Task(0.0, 30.0),
        Task(1.5, 2.25, Needs({"GPU": 1, "CPU": 2})),
        Task(7.0, 1.0, Needs({}, {"fast", "big"})),
    ]
    for name in ("trace.csv", "trace.jsonl"):
        write_trace(tmp_path / name, tasks)
        assert read_trace(tmp_path / name) == tasks


def test_trace_supports_counts_and_is_sorted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("at,seconds,count,GPU\n60,5,,\n\n0,10,3,1\n")
    assert read_trace(path) == [*[Task(0.0, 10.0, Needs({"GPU": 1}))] * 3, Task(60.0, 5.0)]
    path.write_text('{"at": 3, "seconds": 1, "count": 2, "capabilities": ["fast"]}\n')
    assert read_trace(path) == [Task(3.0, 1.0, Needs({}, {"fast"}))] * 2
    path.write_text('{"at": 3, "seconds": 1, "capabilities": {"fast": 1}}\n')
    assert read_trace(path) == [Task(3.0, 1.0, Needs({}, {"fast"}))]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("at,seconds\n0,30\nsoon,30\n", "Line 3 of t.csv: `at` is 'soon'; give a number of at least 0, such as 30."),
        ("at,seconds\n0,-1\n", "Line 2 of t.csv: `seconds` is '-1'; give a number of at least 0, such as 30."),
        ("at,seconds\n0,0\n", "Line 2 of t.csv: `seconds` is 0; give the time that the task runs."),
        ("at,seconds\n0,nan\n", "Line 2 of t.csv: `seconds` is 'nan'; give a number of at least 0, such as 30."),
        ("at,seconds\n0\n", "Line 2 of t.csv: it has 1 value; give it 2, one for each of at,seconds."),
        ("at,seconds\n0,\n", "Line 2 of t.csv: it has no `seconds`; add a number of seconds."),
        ("at,seconds,count\n0,1,1.5\n", "`count` is '1.5'; give a whole number of tasks from 1 to 1,000,000."),
        ("when,seconds\n0,1\n", "Line 1 of t.csv: a trace starts with its columns, such as `at,seconds` or"),
        ("at,seconds,at\n0,1,2\n", "Line 1 of t.csv: every column needs a unique name."),
        ("at,seconds\n", "The trace t.csv has no tasks; add a line for each"),
        ('{"at": 0, "seconds": 1}\n{"at": 0,\n', "Line 2 of t.csv: it must be a JSON object"),
        ('{"at": 0, "seconds": true}\n', "Line 1 of t.csv: `seconds` is True; give a number"),
        ('{"at": 0, "seconds": 1, "gpu": 1}\n', "'gpu' is unknown; put it under `resources` if it is one."),
        ('{"at": 0, "seconds": 1, "resources": [1]}\n', "`resources` must be an object such as"),
        ('{"at": 0, "seconds": 1, "capabilities": {"fast": 2}}\n', "use resources, as in `resources={'fast': 2}`."),
    ],
)
def test_bad_line_is_reported_with_its_fix(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_trace(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_trace_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read .No such file or directory.; give the path of a text file"):
        read_trace(tmp_path / "none.csv")


# Output.


def test_percentiles_are_measured_values() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([3.0], 0.99) == 3
    assert percentile(range(1, 101), 0.5) == 50
    assert percentile(range(1, 101), 0.99) == 99


def test_durations_are_readable() -> None:
    assert [duration(each) for each in (None, 7.61, 725.0, 88469.0)] == ["-", "7.6 s", "12 min 5 s", "24 h 34 min"]


def test_report_shows_policies_bounds_and_unfinished_tasks() -> None:
    scenario = replace(run_of(*[Task(0.0, 100.0)] * 3, nodes=(0, 2)), grace=200.0, policy="pressure")
    text = report([(simulate(scenario), None)], lower_bound(scenario))
    lines = text.splitlines()
    assert lines[0].split()[:4] == ["policy", "makespan", "node-hours", "cost"]
    assert lines[1].startswith("pressure")
    assert [line.split("  ")[0] for line in lines[2:4]] == ["bound, no wait", "bound, any wait"]
    assert lines[4] == "pressure: of 3 tasks, 1 unfinished at the end."


def test_figures_can_be_written_as_json() -> None:
    row = simulate(run_of(Task(0.0, 1.0))).row()
    assert json.loads(json.dumps(row)) == row
