"""Costs of a closed pool, and budgets that are changed while the nodes of a pool leave."""

import pytest

from skyward.control.decide.machines.budget import Ledger, unaffordable
from skyward.control.decide.messages import SetBudget
from skyward.control.decide.prospects.groups import RAISE_BUDGET
from skyward.control.decide.tasks import messages as tasks
from skyward.scaling.snapshot import GangDemand, Group
from skyward.values.needs import NOTHING
from tests.unit.control.decide.plane_world import World

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


def test_budget_covers_a_left_pool_for_the_rest_over_the_price_of_all_machines() -> None:
    ledger = Ledger(10.0)
    assert ledger.lasts(0.0) == float("inf"), "no machine costs anything"
    ledger.reserve(1, 3.6)
    ledger.bill(1, 0.0)
    ledger.reserve(2, 3.6)  # requested, and not known to be there
    assert ledger.lasts(1000.0) == pytest.approx(9.0 / 7.2 * 3600)
    assert ledger.lasts(1000.0, aside=4.5) == pytest.approx(4.5 / 7.2 * 3600)
    assert ledger.lasts(20_000.0) < 0
    ledger.budget = None
    assert ledger.lasts(1000.0) == float("inf")


def test_refusal_of_the_first_nodes_has_the_amount_that_they_need() -> None:
    assert unaffordable(0.1, 28.8) == (
        "cannot afford its first nodes with a budget of $0.10, which must cover 60 s of each: $0.48"
    )


def drained(budget: float, *, running: int = 0) -> World:
    """Return a pool of four nodes whose budget was lowered to $0.50, all spent, and then set while they leave."""
    world = World(Group("default", 0, 4, hourly_price=60.0), budget=20.0).open()
    numbers = world.submit(4)
    world.wait(1.0)
    world.deliver()
    assert world.active == 4
    world.wait(7.5)
    world.finish(numbers[running:])
    world.tell(SetBudget(0.4))
    assert world.plane.budget_exhausted
    world.tell(SetBudget(budget))
    return world


def test_pool_continues_once_the_nodes_that_leave_no_longer_need_a_raised_budget() -> None:
    """Regression: a budget that was raised while nodes left had no effect, and nothing said so."""
    world = drained(1.8)
    assert world.reasons_given[-1] == (
        "0 -> 0 nodes: the budget was changed to $1.80, but $0.50 is spent, and 60 s of the nodes that drain cost "
        "$4.00: the pool continues once enough of them have gone"
    )
    (task,) = world.submit()
    assert world.settled.get(task) is None, "a task waits for the nodes to go"
    world.bury()
    assert not world.plane.budget_exhausted
    gone = "enough nodes have gone for the budget of $1.80, so the pool launches nodes for tasks again"
    assert f"0 -> 0 nodes: {gone}" in world.reasons_given
    world.deliver()
    world.finish()
    assert world.settled[task] == "value"


def test_gang_waits_for_the_nodes_to_go_when_the_budget_is_raised() -> None:
    world = drained(2.9)
    gang, members = world.plane.tasks.number(), (world.plane.tasks.number(), world.plane.tasks.number())
    world.tell(tasks.SubmitGang(gang, members, GangDemand((NOTHING, NOTHING))))
    assert not set(members) & set(world.settled)
    world.bury()
    world.deliver()
    assert set(members) <= set(world.sent)


def test_tasks_end_if_the_nodes_that_leave_spend_a_raised_budget() -> None:
    world = drained(0.9, running=2)
    (task,) = world.submit()
    world.wait(60.0)
    assert world.settled[task] == "unfunded"
    assert "has reached its budget of $0.90" in world.reasons[task]
    world.bury()
    assert world.plane.budget_exhausted


def test_changed_budget_that_is_spent_already_is_explained() -> None:
    world = drained(0.45)
    assert world.reasons_given[-1] == (
        f"0 -> 0 nodes: the budget was changed to $0.45, but $0.50 is spent; {RAISE_BUDGET}"
    )
    (task,) = world.submit()
    assert world.settled[task] == "unfunded"


def test_budget_that_is_removed_while_nodes_leave_resumes_at_once() -> None:
    world = drained(1.8)
    world.tell(SetBudget(None))
    assert not world.plane.budget_exhausted
