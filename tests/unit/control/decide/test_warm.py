"""Decisions about warm machines."""

from dataclasses import replace

import pytest

import skyward as sky
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.machines.warm import (
    WarmCandidate,
    WarmPlan,
    is_worth_taking,
    needs_same_machines,
    plan_warm,
)
from skyward.specs import Spec

pytestmark = pytest.mark.unit

TWO = [WarmCandidate(1, 6.0, 600.0), WarmCandidate(2, 6.0, 600.0)]
WANTED = MachineSource("aws", "p4d", "us-1a", "on-demand", hourly_price=6.0)


def test_machines_are_kept_for_as_long_as_was_asked_without_a_budget() -> None:
    assert plan_warm(TWO, None) == plan_warm(TWO, 2.0) == WarmPlan({1: 600.0, 2: 600.0})
    assert plan_warm([], 0.0) == plan_warm([], -1.0) == WarmPlan()


def test_time_is_shortened_to_what_the_budget_covers_with_a_notice() -> None:
    plan = plan_warm(TWO, 1.0)
    assert plan.seconds == {1: 300.0, 2: 300.0}
    left = "what the budget leaves once its nodes have ended, $1.00"
    assert plan.notice == f"Machines are kept warm for 5 min 0 s only: {left}, covers no more."


@pytest.mark.parametrize("left", [0.1, 0.0, -1.0])
def test_nothing_is_kept_for_less_than_a_minute(left: float) -> None:
    plan = plan_warm(TWO, left)
    assert plan.seconds == {}
    assert plan.notice.startswith("No machine is kept warm: what the budget leaves")


def test_machine_of_the_wanted_source_is_taken_at_any_allowed_price() -> None:
    same = replace(WANTED, hourly_price=7.0, lender=3)
    assert is_worth_taking(Spec(), WANTED, same, 7.0)
    assert not is_worth_taking(Spec(max_hourly_cost=6.5), WANTED, same, 7.0)


def test_machine_of_another_source_must_not_cost_more() -> None:
    other = replace(WANTED, type="p5", lender=3)
    assert is_worth_taking(Spec(), WANTED, other, 6.0)
    assert not is_worth_taking(Spec(), WANTED, other, 6.1)
    assert not is_worth_taking(Spec(allocation="spot"), WANTED, other, 1.0)
    assert is_worth_taking(Spec(allocation="on-demand"), WANTED, other, 1.0)


def test_machine_that_a_plugin_has_changed_is_for_pools_with_an_equal_one() -> None:
    """A pool without MIG would get a divided GPU."""
    mig, same, other = (sky.plugins.mig(profile=profile) for profile in ("1g.10gb", "1g.10gb", "2g.20gb"))
    plain, torch = Spec(accelerator="A100"), Spec(accelerator="A100", plugins=[sky.plugins.torch()])
    divided = replace(plain, plugins=(mig,))
    assert needs_same_machines(plain, torch)
    assert needs_same_machines(divided, replace(torch, plugins=(sky.plugins.torch(), same)))
    for spec in (plain, torch, replace(plain, plugins=(other,))):
        assert not needs_same_machines(divided, spec)
        assert not needs_same_machines(spec, divided)
