"""The warning before a pool launches its first node."""

import pytest

from skyward.control.act.driver import warning_above
from skyward.scaling.snapshot import Group

pytestmark = pytest.mark.unit

A100 = Group("default", 2, 16, hourly_price=3.0)
CPU = Group("cpu", 0, 10, hourly_price=0.1)


def test_pool_that_may_cost_more_than_the_limit_warns_with_both_prices() -> None:
    warning = warning_above(10.0, [A100], None)
    assert "starts at $6.00 per hour and may cost $48.00 per hour" in warning
    assert "the limit of $10.00" in warning


def test_pool_of_fixed_size_warns_with_one_price() -> None:
    assert "This pool may cost $12.00 per hour" in warning_above(10.0, [Group("d", 4, 4, hourly_price=3.0)], None)


@pytest.mark.parametrize(("limit", "most"), [(None, None), (48.0, None), (10.0, 3)])
def test_pool_within_the_limit_warns_of_nothing(limit: float | None, most: int | None) -> None:
    assert warning_above(limit, [A100], most) == ""


def test_warning_about_a_pool_with_a_budget_does_not_ask_for_one() -> None:
    assert "a budget limits the total cost" in warning_above(10.0, [A100], None)
    warning = warning_above(10.0, [A100], None, 20.0)
    assert "its budget limits the total cost to $20.00" in warning


def test_most_expensive_nodes_count_first() -> None:
    assert "may cost $48.10 per hour" in warning_above(10.0, [CPU, A100], 17)


def test_free_nodes_never_warn() -> None:
    assert warning_above(0.01, [Group("default", 0, 1000)], None) == ""
