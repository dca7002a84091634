"""Idle nodes in simulated notebooks, whose cells come after equal gaps."""

import pytest

from skyward.scaling.snapshot import Group
from skyward.simulator import Distribution, Result, Scenario, Task, simulate

pytestmark = pytest.mark.unit

CELLS, NODES, SECONDS, BOOT = 12, 8, 100.0, 60.0


def notebook(gap: float, waiting_cost: float | None = None, idle_timeout: float | None = None) -> Result:
    """Return the run of a notebook whose cells each have as many tasks as the pool may have nodes."""
    period = SECONDS + gap
    tasks = tuple(Task(period * cell, SECONDS) for cell in range(CELLS) for _ in range(NODES))
    groups = (Group("nodes", 0, NODES, hourly_price=1.0),)
    result = simulate(
        Scenario(
            tasks,
            groups,
            boot=Distribution(BOOT),
            waiting_cost=waiting_cost,
            idle_timeout=idle_timeout,
            target_wait="fast",
            checked=True,
        )
    )
    assert result.finished == CELLS * NODES
    return result


def idle_seconds(result: Result) -> float:
    """Return the seconds for which each node idled, on average over the cells."""
    return (result.node_hours * 3600 - result.launches * BOOT) / CELLS / NODES - SECONDS


def test_nodes_stay_for_the_next_cell_if_it_comes_within_a_boot() -> None:
    assert notebook(gap=40.0).launches <= NODES + 2


def test_nodes_go_at_once_if_the_next_cell_comes_much_later() -> None:
    learned, kept = notebook(gap=900.0), notebook(gap=900.0, idle_timeout=BOOT)
    assert idle_seconds(learned) < 0.6 * idle_seconds(kept)
    assert learned.cost < kept.cost


def test_an_hour_of_waiting_that_costs_more_keeps_them_for_longer() -> None:
    """The gap is longer than a boot, which costs a minute of a node and a minute of waiting."""
    gap = BOOT + 70.0
    assert notebook(gap, waiting_cost=2.0).launches <= NODES + 2
    assert notebook(gap).launches > 6 * NODES
