"""The lower bound of the cost at a given wait."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.scaling.snapshot import Group
from skyward.simulator import Distribution, Scenario, Task, one_group, simulate
from skyward.simulator.bound import LowerBounds
from skyward.simulator.slot_prices import PricedTask, SlotPrices, least_payment, slot_prices
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

HOUR = 3600.0
TASKS = st.lists(st.tuples(st.floats(0, 3000), st.floats(1, 900)), min_size=1, max_size=25)
WAITS = st.sampled_from([0.0, 1.0, 20.0, 59.0, 60.0, 61.0, 120.0, 700.0, 5000.0])


def bounds_of(*tasks: Task, slots: int = 1, boot: float = 60.0, most: int = 100) -> LowerBounds:
    """Return the bounds for a pool whose nodes cost one dollar per second."""
    return LowerBounds(Scenario(tuple(tasks), one_group(0, most, slots, HOUR), boot=Distribution(boot)))


def test_one_task_costs_its_duration_and_a_boot_at_any_wait() -> None:
    bounds = bounds_of(Task(10.0, 300.0))
    assert [bounds.at(wait) for wait in (0, 50, 300, 1e6)] == pytest.approx([360] * 4)


def test_tasks_one_after_the_other_need_a_wait_to_share_a_node() -> None:
    bounds = bounds_of(Task(0.0, 100.0), Task(50.0, 100.0))
    assert bounds.at(0) == pytest.approx(100 + 100 + 2 * 60)
    assert bounds.at(49) == pytest.approx(100 + 100 + 2 * 60)
    assert bounds.at(50) < 100 + 100 + 2 * 60
    assert bounds.at(1e6) == pytest.approx(100 + 100 + 60, rel=0.01)


def test_burst_needs_fewer_nodes_for_longer_waits() -> None:
    """A hundred tasks of 300 s: all at once, or within 600 s on a good half of the nodes."""
    bounds = bounds_of(*[Task(0.0, 300.0)] * 100)
    assert bounds.at(0) == bounds.at(299) == pytest.approx(100 * (300 + 60))
    assert 100 * 300 + 50 * 60 <= bounds.at(300) <= 100 * 300 + 60 * 60
    assert bounds.at(300) > bounds.at(600) > bounds.at(3000)


def test_gap_is_bridged_or_booted_for() -> None:
    bounds = bounds_of(Task(0.0, 100.0), Task(120.0, 100.0), Task(2000.0, 100.0))
    assert bounds.at(0) == pytest.approx(300 + 20 + 2 * 60)
    assert bounds.at(20) == pytest.approx(300 + 2 * 60, abs=1)


def test_slots_of_a_node_are_paid_for_together() -> None:
    assert bounds_of(Task(0.0, 300.0), slots=8).at(0) == pytest.approx(360)
    assert bounds_of(*[Task(0.0, 300.0)] * 9, slots=8).at(10) == pytest.approx(2 * (290 + 60))


def test_bound_of_several_groups_takes_the_cheapest_that_fits() -> None:
    groups = (Group("cpu", 0, 9, 2, hourly_price=2 * HOUR), Group("gpu", 0, 9, 1, {"GPU": 1.0}, hourly_price=5 * HOUR))
    tasks = (Task(0.0, 100.0), Task(0.0, 100.0, Needs({"GPU": 1})))
    bounds = LowerBounds(Scenario(tasks, groups, boot=Distribution(60)))
    assert bounds.cost.no_wait is None
    assert bounds.at(0) == pytest.approx(1 * 160 + 5 * 160)


def test_workload_without_tasks_costs_nothing() -> None:
    assert bounds_of().at(0) == bounds_of().at(60) == 0


@settings(max_examples=80, deadline=None)
@given(tasks=TASKS, slots=st.integers(1, 4), boot=st.sampled_from([0.0, 10.0, 60.0, 400.0]))
def test_without_waiting_it_is_the_bound_without_waiting(
    tasks: list[tuple[float, float]], slots: int, boot: float
) -> None:
    bounds = bounds_of(*sorted(Task(*task) for task in tasks), slots=slots, boot=boot)
    assert bounds.at(0.0) == pytest.approx(bounds.cost.no_wait)


@settings(max_examples=40, deadline=None)
@given(tasks=TASKS, slots=st.integers(1, 4), waits=st.tuples(WAITS, WAITS))
def test_it_falls_with_the_wait(tasks: list[tuple[float, float]], slots: int, waits: tuple[float, float]) -> None:
    """Up to 2 %, as the prices are not always the best."""
    bounds = bounds_of(*sorted(Task(*task) for task in tasks), slots=slots)
    short, long = sorted(waits)
    assert bounds.at(long) <= bounds.at(short) * 1.02
    assert bounds.at(long) >= bounds.cost.any_wait


@settings(max_examples=80, deadline=None)
@given(
    tasks=TASKS,
    policy=st.sampled_from(["pressure", "vanilla", "capability", "binpack", "no"]),
    slots=st.integers(1, 3),
    boot=st.sampled_from([5.0, 60.0, 200.0]),
    nodes=st.sampled_from([(0, 40), (0, 3), (2, 8)]),
)
def test_no_run_costs_less_than_the_bound_at_its_wait(
    tasks: list[tuple[float, float]], policy: str, slots: int, boot: float, nodes: tuple[int, int]
) -> None:
    """With fewer than a hundred tasks, the p99 wait is the longest one."""
    ordered = tuple(sorted(Task(*task) for task in tasks))
    scenario = Scenario(ordered, one_group(*nodes, slots, HOUR), policy, Distribution(boot))
    result = simulate(scenario)
    if not result.unfinished:
        assert result.cost >= LowerBounds(scenario).at(result.wait_p99) - 1e-6


@settings(max_examples=60, deadline=None)
@given(tasks=TASKS, wait=WAITS, boot=st.sampled_from([10.0, 60.0, 400.0]))
def test_prices_never_pay_a_node_more_than_it_costs(tasks: list[tuple[float, float]], wait: float, boot: float) -> None:
    for f in slot_prices([PricedTask(at, seconds, 1.0) for at, seconds in sorted(tasks)], wait, boot):
        assert all(-1e-9 <= value <= boot + 1e-9 for value in f.values)
        steps = zip(f.times[1:], f.times, f.values[1:], f.values, strict=False)
        assert all(value - before >= -(time - earlier) - 1e-6 for time, earlier, value, before in steps)


def test_payment_is_the_least_over_all_starts() -> None:
    f = SlotPrices([0.0, 100.0, 130.0], [0.0, 60.0, 30.0])
    tasks = [PricedTask(0.0, 100.0, 2.0)]
    for wait, least, start in ((0.0, 2 * (100 + 60), 0.0), (10.0, 2 * (100 + 50 - 6), 10.0)):
        payment, starts = least_payment(tasks, wait, f)
        assert payment == pytest.approx(least)
        assert starts == [start]
    coarse = f.sampled(10.0)
    assert [coarse.at(time) for time in (-5.0, 50.0, 115.0, 500.0)] == pytest.approx([0, 30, 45, 30])
