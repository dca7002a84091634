"""Costs of a closed pool."""

import pytest

from skyward.control.decide.machines.budget import Ledger

pytestmark = pytest.mark.unit


def test_closed_pool_costs_nothing_more() -> None:
    ledger = Ledger()
    for machine in (1, 2):
        ledger.reserve(machine, 3.6)
    ledger.bill(1, 0.0)
    ledger.close(1000.0)
    assert (ledger.per_hour, ledger.spent(1000.0), ledger.spent(9000.0)) == (0.0, 1.0, 1.0)
    assert ledger.committed(9000.0) == 1.0


def test_budget_below_what_is_spent_is_reached_without_a_machine() -> None:
    ledger = Ledger(10.0)
    ledger.reserve(1, 3.6)
    ledger.bill(1, 0.0)
    ledger.close_account(1, 1000.0)
    assert ledger.exhausted_at(60.0) > 1e9
    ledger.budget = 0.5
    assert ledger.exhausted_at(60.0) <= 1000.0
