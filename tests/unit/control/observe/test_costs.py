"""Costs of tasks and cells, from their times and nodes."""

from typing import Any

import pytest

from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.history import TaskHistory
from skyward.control.act.tasks.run import Run
from skyward.control.act.tasks.task import Work
from skyward.control.observe.costs import CellAccounts, SlotPrice, cost_of
from skyward.control.observe.origin import Origin
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing
from skyward.wire.protocol.messages import Payload

DEAR = SlotPrice("A100", 3600.0, 4)
"""A slot of it costs 0.25 USD a second."""

FIRST, SECOND = Origin(1, "a", "train()"), Origin(2, "b", "test()")


def work(task: int = 1, **state: Any) -> Work:
    """Return a task on an expensive node, changed by `state`."""
    nothing = Outgoing(Payload(b""), {})
    work = Work(PreparedCode(b"", nothing, "train"), nothing, TaskFuture(), None, task=task)  # type: ignore[arg-type]  # it prints nothing
    work.slot_price, work.sent_at, work.nodes = DEAR, 100.0, [0]
    for name, value in state.items():
        setattr(work, name, value)
    return work


@pytest.mark.parametrize(
    ("state", "cost"),
    [
        ({"seconds": 8.0, "ended_at": 150.0}, 2.0),  # the node's report counts
        ({}, 5.0),  # running
        ({"ended_at": 104.0}, 1.0),  # without a report of its node
        ({"sent_at": None}, 0.0),  # pending
        ({"slot_price": SlotPrice("local", 0.0, 4)}, 0.0),
        ({"sent_at": 130.0}, 0.0),  # no negative costs when the clock goes back
    ],
)
def test_task_costs_its_share_of_its_machine(state: dict[str, Any], cost: float) -> None:
    assert cost_of(work(**state), 120.0) == pytest.approx(cost)


def test_cells_are_charged_for_ended_and_running_tasks() -> None:
    accounts = CellAccounts()
    accounts.charge(FIRST, 2.0)
    accounts.charge(SECOND, 0.5)
    accounts.charge(FIRST, 1.0)
    running = [work(seconds=4.0, origin=SECOND), work(seconds=4.0), work(sent_at=None, origin=FIRST)]
    assert [(cell.origin, cell.tasks, cell.cost) for cell in accounts.look(running)] == [
        (FIRST, 2, 3.0),
        (SECOND, 2, 1.5),
    ]
    assert accounts.look([])[1].cost == 0.5, "reading changes nothing"


def test_accounts_are_bounded() -> None:
    accounts = CellAccounts()
    for number in range(1000):
        accounts.charge(Origin(number), 1.0)
    cells = accounts.look([])
    assert len(cells) == 300
    assert cells[-1].origin.number == 999


def test_record_has_the_cost_of_each_task_and_of_its_cell() -> None:
    there = {2: work(2, seconds=8.0, origin=FIRST), 3: work(3, sent_at=None, nodes=[], origin=FIRST)}
    record = TaskHistory(there, {2: 0}.get)
    record.ended(work(1, seconds=4.0, origin=FIRST), "value", "")
    assert [(view.number, view.cost) for view in record.tasks(10)] == [(1, 1.0), (2, 2.0), (3, 0.0)]
    assert [(cell.tasks, cell.cost) for cell in record.cells()] == [(2, 3.0)]


def test_run_sums_up_its_tasks() -> None:
    members = [work(1, seconds=4.0), work(2, seconds=8.0, nodes=[1])]
    run: Run[Any] = Run(TaskFuture(), lambda: members, None)
    assert (run.cost, run.hardware, run.nodes) == (3.0, ["A100"], [0, 1])
