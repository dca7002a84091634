"""Consolidation in simulated pools: what it saves, that no task is stopped for it, and that it does not go back."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skyward.events.decisions import DecisionEvent
from skyward.scaling.snapshot import Group
from skyward.simulator import Distribution, Faults, Scenario, Task, simulate
from skyward.simulator.invariants import Invariants
from skyward.simulator.replay import replay
from skyward.simulator.runner import Simulation
from skyward.simulator.scenario import Action
from skyward.values.needs import Needs
from tests.scaling.scenarios import stream_of

pytestmark = pytest.mark.unit

SOLD_OUT = Action(0.0, "sold out", 0, 600)
"""The cheap group, which is the first one, has no machines for ten minutes."""

BOOT = Distribution(60.0)


def two_groups(
    cheap: tuple[int, int] = (0, 100), dear: tuple[int, int] = (0, 100), prices: tuple[float, float] = (0.3, 1.1)
) -> tuple[Group, ...]:
    return Group("cheap", *cheap, hourly_price=prices[0]), Group("dear", *dear, hourly_price=prices[1])


def pool_of(
    *tasks: Task, groups: tuple[Group, ...] = two_groups(), actions: tuple[Action, ...] = (SOLD_OUT,)
) -> Scenario:
    """Return a checked pool with these tasks, and groups of which the cloud says whether they are sold out."""
    ordered = tuple(sorted(tasks, key=lambda task: task.at))
    return Scenario(ordered, groups, boot=BOOT, faults=Faults(explained=1.0), actions=actions, checked=True)


def stream(count: int, gap: float, seconds: float, start: float = 10.0) -> tuple[Task, ...]:
    return tuple(Task(start + gap * place, seconds) for place in range(count))


def watched(scenario: Scenario) -> Simulation:
    """Return the run of a scenario that has ended; its tasks ran once each, and all gave their results."""
    run = Simulation(scenario)
    result = run.run()
    assert result.finished == result.tasks
    assert {each.starts for each in run.runs.values()} == {1}, "a task was stopped, or ran twice"
    return run


def replacements(run: Simulation) -> list[DecisionEvent]:
    return [event for event in run.plane.decisions if "can be replaced" in event.reason and not event.held_back]


def costs(scenario: Scenario) -> tuple[float, float]:
    """Return the cost without consolidation, and with it."""
    return simulate(replace(scenario, consolidate_within=0.0)).cost, simulate(scenario).cost


def test_stream_that_overflowed_to_a_dear_group_goes_back_to_the_cheap_one() -> None:
    scenario = pool_of(*stream(480, gap=30.0, seconds=300.0))
    before, after = costs(scenario)
    assert after < 0.45 * before, "12 of the 13 dear nodes are replaced, all but the head"
    (event,) = replacements(watched(scenario))
    assert 600 < event.at < 800, "the cheap group can be launched again after ten minutes"
    assert re.search(
        r"12 nodes of 'dear' at \$1.10 per hour can be replaced by 12 of 'cheap' at \$0.30: their tasks have kept "
        r"coming for \d+ min, and the change pays back in \d+ (s|min), for the first \d+ min of which both run",
        event.reason,
    )


def test_tasks_that_wait_long_are_done_on_cheap_nodes() -> None:
    """500 tasks of 300 s, of which few had started when the cheap group could be launched again."""
    scenario = replace(pool_of(*[Task(1.0, 300.0)] * 500), target_wait=7200.0)
    before, after = costs(scenario)
    assert after < 0.65 * before
    run = watched(scenario)
    assert "of work remain, and the change pays back in" in replacements(run)[0].reason


def test_large_node_for_few_tasks_is_replaced_by_small_ones() -> None:
    groups = (Group("small", 1, 20, hourly_price=1.0), Group("big", 0, 5, 16, hourly_price=4.0))
    scenario = pool_of(*[Task(100.0, 300.0)] * 40, *stream(480, 30.0, 60.0, 130.0), groups=groups, actions=())
    before, after = costs(scenario)
    assert after < 0.75 * before
    (event,) = replacements(watched(scenario))
    assert "1 node of 'big' at $4.00 per hour can be replaced by 2 of 'small' at $1.00" in event.reason
    assert event.at > 700, "the burst is forgotten after ten minutes"


def test_small_nodes_are_replaced_by_a_large_one_that_costs_less() -> None:
    groups = (Group("big", 0, 5, 16, hourly_price=4.0), Group("small", 1, 20, hourly_price=1.0))
    scenario = pool_of(*stream(800, gap=15.0, seconds=180.0), groups=groups)
    before, after = costs(scenario)
    assert after < 0.7 * before
    assert watched(scenario).plane.desired["small"] == 1


def test_nodes_of_a_dear_source_are_replaced_once_the_cheap_one_has_machines() -> None:
    """A group whose second source, as on-demand machines beside spot ones, costs three times as much."""
    scenario = pool_of(*stream(480, gap=30.0, seconds=300.0), groups=(Group("nodes", 1, 100, hourly_price=0.4),))
    scenario = replace(scenario, sources=2, markup=3.0, actions=(Action(70.0, "sold out at the first source", 0, 600),))
    before, after = costs(scenario)
    assert after < 0.6 * before
    (event, *_) = replacements(watched(scenario))
    assert "of 'nodes' at $1.20 per hour can be replaced by" in event.reason


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"consolidate_within": 0.0}, id="turned off"),
        pytest.param({"groups": two_groups(prices=(1.0, 1.1))}, id="it would not pay in time"),
        pytest.param({"groups": two_groups(dear=(13, 100))}, id="the minimum"),
        pytest.param({"groups": two_groups(prices=(0.0, 1.1))}, id="a price is unknown"),
        pytest.param({"max_nodes": 9}, id="no room for one more node"),
        pytest.param({"actions": (SOLD_OUT, Action(500.0, "floor", 0, 1))}, id="capacity is reserved"),
    ],
)
def test_nodes_stay_where_they_are(changed: dict[str, object]) -> None:
    scenario = replace(pool_of(*stream(100, gap=30.0, seconds=300.0)), **changed)  # type: ignore[arg-type]
    assert not [each for each in replacements(watched(scenario)) if each.at < 3000], "while the tasks keep coming"


def test_tasks_that_no_cheaper_node_can_run_keep_their_node() -> None:
    gpu = Needs({"GPU": 1})
    groups = (
        Group("cpus", 0, 100, resources={"CPU": 4.0}, hourly_price=0.3),
        Group("gpus", 1, 100, resources={"CPU": 4.0, "GPU": 1.0}, hourly_price=1.1),
    )
    tasks = [Task(10 + 30.0 * place, 200.0, gpu) for place in range(100)]
    assert not replacements(watched(pool_of(*tasks, groups=groups)))
    plain = [Task(task.at + 1, 200.0) for task in tasks]
    assert not replacements(watched(pool_of(*tasks, *plain, groups=groups))), "some of its tasks need a GPU"


def test_nodes_that_cost_more_than_was_said_replace_nothing_and_the_group_rests() -> None:
    """The source seems ready, but every request falls to the dear source."""
    scenario = pool_of(*stream(240, gap=30.0, seconds=300.0), groups=(Group("nodes", 1, 100, hourly_price=0.4),))
    never = Action(70.0, "sold out at the first source", 0, 100_000)
    scenario = replace(scenario, sources=2, markup=3.0, actions=(never,))
    before, after = costs(scenario)
    assert after < 1.02 * before
    assert len(replacements(watched(scenario))) <= 5


@settings(max_examples=25)
@given(
    gap=st.floats(5, 60),
    seconds=st.floats(10, 300),
    boot=st.sampled_from([5.0, 40.0, 120.0]),
    slots=st.sampled_from([(1, 1), (1, 8), (8, 1), (4, 4)]),
    prices=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)),
    most=st.sampled_from([(100, 100), (3, 100), (100, 2)]),
    max_nodes=st.sampled_from([None, None, 10]),
    within=st.sampled_from([60.0, 600.0]),
)
def test_steady_stream_is_moved_one_way_and_costs_no_more(
    gap: float,
    seconds: float,
    boot: float,
    slots: tuple[int, int],
    prices: tuple[float, float],
    most: tuple[int, int],
    max_nodes: int | None,
    within: float,
) -> None:
    cheap, dear = prices
    assume(seconds / gap < 15)
    groups = (
        Group("one", 0, most[0], slots[0], hourly_price=cheap),
        Group("two", 0, most[1], slots[1], hourly_price=dear),
    )
    scenario = pool_of(*stream(300, gap, seconds), groups=groups)
    scenario = replace(scenario, boot=Distribution(boot), max_nodes=max_nodes, consolidate_within=within)
    run = watched(scenario)
    moved = [re.findall(r"of '(\w+)' at", event.reason) for event in replacements(run)]
    if slots[0] == slots[1]:  # the rest that does not fill a large node may be cheaper on small ones, for a while
        assert len({(source, target) for source, target in moved}) <= 1, "it went to a group and back"
    plain, consolidated = costs(scenario)
    assert consolidated <= 1.05 * plain + 0.02


def test_replay_of_a_pool_that_consolidates_gives_the_same_decisions(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    run = watched(replace(pool_of(*stream(100, gap=30.0, seconds=300.0)), decision_log=log))
    assert replacements(run)
    result = replay(log)
    assert result.evaluations > 100
    assert result.differences == ()


def test_no_invariant_is_violated_while_nodes_are_replaced_under_faults() -> None:
    runs = [Simulation(scenario, Invariants(scenario)) for scenario in map(stream_of, range(2000, 2030))]
    for run in runs:
        run.run()
    assert any(replacements(run) for run in runs)
