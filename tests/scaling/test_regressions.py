"""Scenarios that once violated an invariant: seeds, and the smallest histories of seeds found."""

import pytest

from skyward.control.decide.machines.requests import Limits
from skyward.scaling.snapshot import Group
from skyward.simulator.faults import Faults
from skyward.simulator.runner import simulate
from skyward.simulator.scenario import Scenario
from skyward.simulator.workload import Distribution, Task
from skyward.values.needs import Needs
from tests.scaling.scenarios import scenario_of

pytestmark = pytest.mark.unit


def test_head_is_replaced_in_an_attached_pool_that_was_resized_below_its_machines() -> None:
    assert simulate(scenario_of(81000164, 10.0)).steps


def test_head_that_does_not_boot_is_replaced_when_adaptive_then_wants_fewer_nodes() -> None:
    gpu = Needs({"GPU": 1})
    scenario = Scenario(
        work=tuple(Task(59.150332673370464, seconds, gpu) for seconds in (103.7, 60.3, 25.9)),
        groups=(
            Group("nodes", 0, 1, 4, {"CPU": 4.0}, hourly_price=3.2),
            Group("gpu", 0, 2, 2, {"CPU": 8.0, "GPU": 1.0}, hourly_price=8.0),
        ),
        policy="adaptive",
        boot=Distribution(40, 20),
        seed=500170,
        budget=2.9482772171293607,
        faults=Faults(throttled=0.1, boot_failures=0.9, until=600.0),
        cooldown=30.0,
        idle_timeout=60.0,
        retries=0,
        grace=10800.0,
        markup=1.0,
        consolidate_within=600.0,
        checked=True,
        limits=Limits(request=60, boot=180, drain=300, terminate=60, concurrent_launches=1),
    )
    assert simulate(scenario).steps


def test_desired_nodes_settle_where_node_0_stands_in_the_way_of_a_gang() -> None:
    assert simulate(scenario_of(90001371, 10.0)).steps


@pytest.mark.parametrize("seed", [100000334, 100003263, 420000936])
def test_node_that_keeps_a_value_stays_beside_a_head_that_is_launched_again(seed: int) -> None:
    assert simulate(scenario_of(seed, 10.0)).steps


def test_pool_fails_to_open_if_one_of_its_groups_cannot_have_its_first_nodes() -> None:
    """The other group had more nodes than it needed, after a resize, so the pool waited for ever."""
    assert simulate(scenario_of(110002813, 10.0)).steps


def test_minimum_of_a_group_that_is_blocked_keeps_its_place_in_a_full_pool() -> None:
    """Another group grew into it, and a gang that needed the node waited for ever."""
    assert simulate(scenario_of(160005725, 10.0, most_groups=2)).steps


def test_head_that_joins_a_group_whose_node_keeps_a_value_is_desired_too() -> None:
    assert simulate(scenario_of(310005641, 10.0)).steps
