"""Notices and errors of cells: advice follows from what an error carries, not from the text of its message."""

from typing import Any

import pytest

from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.settle import settle
from skyward.control.act.tasks.task import Work
from skyward.control.decide.tasks.messages import SettleOutcome
from skyward.errors import KeptLostError, RemoteError, TaskCancelledError, TaskError, TaskTimeoutError, UsageError
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing
from skyward.wire.protocol.messages import Payload
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.returned_state import Obstacle, ReturnedState, Unreturned
from skyward_jupyter.failures.presentation import for_cells
from skyward_jupyter.running.notices import changes_not_returned, not_returned

pytestmark = pytest.mark.unit

PARTS = "Return the parts that you need under another name."


@pytest.mark.parametrize(
    ("obstacle", "fix"),
    [
        ("size", "Return less of it, or raise the limit with --capture-limit."),
        ("unbound", "Assign it in the cell, or leave it out of -o."),
        ("nothing to keep", "Assign it in the cell, or leave it out of --keep."),
        ("other", PARTS),
    ],
)
def test_fix_follows_from_the_obstacle_and_not_from_the_reason(obstacle: Obstacle, fix: str) -> None:
    why = Unreturned("its text says that it did not bind, nothing to keep, over the limit of", obstacle)
    result = CellResult(ReturnedState(failed={"x": why}, stale={"y": why}), node=2)
    assert not_returned([result], {}) == [f"x was not returned from node 2: {why.reason}. {fix}"]
    assert changes_not_returned([result]) == [
        f"y was changed on node 2, but the change was not returned: {why.reason}. Here y is unchanged. {fix}"
    ]


def test_name_that_exists_here_is_reported_as_unchanged() -> None:
    result = CellResult(ReturnedState(failed={"x": Unreturned("it cannot be pickled")}), node=1)
    assert not_returned([result], {"x": 1}) == [
        f"x was not returned from node 1: it cannot be pickled. It is unchanged here. {PARTS}"
    ]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            TaskTimeoutError("ran past its timeout of 1 s.", subject="run_cell()", fix="Give it more with timeout=."),
            "The cell ran past its timeout of 1 s. Give it more with --timeout, or leave out --timeout.",
        ),
        (TaskCancelledError("was cancelled.", subject="stream_cell()"), "The cell was cancelled."),
        (RemoteError("raised GeneratorExit.", "GeneratorExit", subject="run_cell()"), "The cell raised GeneratorExit."),
        (
            KeptLostError("uses run_cell(), which was lost.", subject="run_cell()", fix="Rerun it."),
            "The cell uses run_cell(), which was lost. Rerun it.",
        ),
        (TaskTimeoutError("run_cell() is part of this text."), "run_cell() is part of this text."),
    ],
)
def test_task_error_names_the_cell_as_its_subject(error: TaskError, text: str) -> None:
    assert for_cells(error) is error
    assert str(error) == text
    assert str(for_cells(error)) == text, "idempotent"


@pytest.mark.parametrize(
    ("outcome", "reason", "text"),
    [
        ("infeasible", "3 GPU, which no node can have", "The cell asks for 3 GPU, which no node can have."),
        ("stuck", "streams hold the slots", "The cell can never start: streams hold the slots."),
    ],
)
def test_cell_that_can_never_run_is_the_subject_of_its_error(outcome: SettleOutcome, reason: str, text: str) -> None:
    nothing = Outgoing(Payload(b""))
    sink: Any = None
    work = Work(PreparedCode(b"", nothing, "run_cell"), nothing, TaskFuture(), sink)
    settle(work, outcome, reason)
    error = work.future.exception(0)
    assert isinstance(error, TaskError)
    assert isinstance(error, UsageError)
    assert str(error).startswith("run_cell() ")
    assert str(for_cells(error)) == text
