"""Stopping a cell: the grace period, the returned variables, and the messages."""

import contextlib
import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from skyward.control.act.tasks.run import TaskOutcome
from skyward.errors import (
    BudgetExhaustedError,
    NodeLostError,
    PoolClosedError,
    TaskCancelledError,
    error_of_nodes,
)
from skyward_jupyter.running import cell_run as sent
from skyward_jupyter.running.stopping import StopOutcome, returned_clause, stop_runs, stopping_text, was_cancelled
from tests.unit.jupyter.conftest import FakeCompute, FakeRun, Notebook

pytestmark = pytest.mark.unit

type Pools = type[FakeCompute]


def interrupt_after_sending(compute: FakeCompute, *, cancelled: Any = None) -> None:
    """Interrupt the next cell right after it was sent; its variables are available, and it keeps running.

    Args:
        compute: the pool.
        cancelled: called with each run instead of its `cancel`.
    """
    start = compute.start

    def interrupted(*args: Any, **kwargs: Any) -> None:
        run = start(*args, **kwargs)
        run.left = run._value()
        if cancelled is not None:
            run.cancel = lambda: cancelled(run)  # type: ignore[method-assign]
        raise KeyboardInterrupt

    compute.start = interrupted  # type: ignore[method-assign, assignment]


def test_interrupted_cell_binds_its_variables(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("model = {'w': 0}\nsame = model")
    notebook("%sky up")
    interrupt_after_sending(compute.made[0])
    ran = notebook("%%sky\nimport math\ndef f(): pass\nmodel['w'] += 1\nloss = 0.5\nstep = 3")
    assert ran.shown_error == (
        "Interrupted: the work on node 0 was stopped; loss, step and model were returned as they were then."
    )
    assert (notebook["model"], notebook["same"] is notebook["model"], notebook["loss"]) == ({"w": 1}, True, 0.5)


def test_interrupted_runs_return_lists_with_none_for_missing_values(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("%sky up --nodes 2")

    def lose_one(run: FakeRun) -> bool:
        run.left[1] = None
        return FakeRun.cancel(run)

    interrupt_after_sending(compute.made[0], cancelled=lose_one)
    assert notebook("%%sky --on all\nloss = 0.5").shown_error == (
        "Interrupted: the work on nodes 0 and 1 was stopped; "
        "loss was returned as a list, with None for each run without a value."
    )
    assert notebook["loss"] == [0.5, None]


def test_interrupt_after_the_cell_ended_keeps_its_variables(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up")
    interrupt_after_sending(compute.made[0])
    assert notebook("%%sky\nloss = 0.5").shown_error == (
        "Interrupted: the work had already finished; loss was returned as it was at its end."
    )
    assert notebook["loss"] == 0.5


def test_interrupt_after_the_cell_failed_reports_its_exception(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up")
    interrupt_after_sending(compute.made[0])
    ran = notebook("%%sky\nloss = 0.5\n1 / 0")
    assert ran.shown_error.startswith("Interrupted: the work had already finished; loss was returned")
    assert ran.err == "The cell had raised ZeroDivisionError: division by zero\n"


def test_interrupt_after_a_stream_ended_keeps_its_variables(notebook: Notebook, compute: Pools) -> None:
    def interrupted(element: object) -> None:
        raise KeyboardInterrupt

    notebook("%sky up")
    notebook.magics._runner._display.show = interrupted  # type: ignore[method-assign]
    ran = notebook("%%sky\nfor loss in (3, 2, 1):\n    yield loss")
    assert ran.shown_error == "Interrupted: the work had already finished; loss was returned as it was at its end."
    assert notebook["loss"] == 1


def test_interrupted_cell_that_ends_normally_returns_its_value(notebook: Notebook, compute: Pools) -> None:
    def end(run: FakeRun) -> bool:
        run.finish()
        return True

    compute.hold = True
    notebook("xs = [1, 2]")
    notebook("%sky up")
    interrupt_after_sending(compute.made[0], cancelled=end)
    ran = notebook("%%sky\nloss = 0.5\nloss * 2")
    assert (ran.error, notebook["loss"], notebook["_"]) == (None, 0.5, 1.0)
    assert isinstance(notebook("%%sky\n1 / 0").error, ZeroDivisionError)


def test_cancelled_background_map_returns_lists(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("xs = [1, 2]")
    notebook("%sky up")
    handle = notebook("%%sky --noblock --map xs\nloss = xs * 10").result
    first, second = compute.made[0].runs
    first.left, second.left = first._value(), None
    assert handle.cancel() == "the work on node 0 was stopped."
    assert "loss" not in notebook.shell.user_ns
    with pytest.raises(TaskCancelledError) as raised:
        handle.result()
    assert raised.value.__notes__ == ["loss was returned as a list, with None for each run without a value."]
    assert notebook["loss"] == [10, None]


def fail_on_nodes(compute: FakeCompute, errors: dict[int, Exception]) -> None:
    """End each cell as a broadcast that fails with these errors, by rank."""
    start = compute.start

    def failed(*args: Any, **kwargs: Any) -> None:
        run = start(*args, **kwargs)
        run.left = [None if node in errors else value for node, value in enumerate(run._value())]
        run.errors = errors
        run.future.set_exception(error_of_nodes("run_cell", list(errors.items()), len(run.nodes)))

    compute.start = failed  # type: ignore[method-assign, assignment]


def test_lost_nodes_have_their_errors_in_the_returned_lists(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("%sky up --nodes 2")
    error = NodeLostError("did not finish: node 1 died.", subject="run_cell()")
    fail_on_nodes(compute.made[0], {1: error})
    ran = notebook("%%sky --on all\nloss = 0.5")
    assert ran.shown_error.splitlines() == [
        "NodeLostError: The cell did not finish: node 1 died.",
        "It failed on node 1, of 2 nodes.",
        "loss was returned as a list, with the error of each run that failed.",
    ]
    assert notebook["loss"] == [0.5, error]


@pytest.mark.parametrize(
    ("errors", "shown"),
    [
        (
            [PoolClosedError("Pool 'p' was closed."), PoolClosedError("Pool 'p' was closed.")],
            ["PoolClosedError: Pool 'p' was closed."],
        ),
        (
            [
                BudgetExhaustedError("was stopped on node 0: too much.", subject="run_cell()"),
                NodeLostError("did not finish: node 1 died.", subject="run_cell()"),
            ],
            ["BudgetExhaustedError: The cell was stopped on node 0: too much."],
        ),
    ],
)
@pytest.mark.parametrize("noblock", ["", " --noblock"])
def test_errors_of_several_nodes_have_no_frames_of_the_library(
    notebook: Notebook, compute: Pools, noblock: str, errors: list[Exception], shown: list[str]
) -> None:
    compute.hold = True
    notebook("%sky up --nodes 3")
    fail_on_nodes(compute.made[0], dict(enumerate(errors)))
    ran = notebook(f"%%sky --on all{noblock}\nloss = 0.5")
    if noblock:
        ran = notebook("_.result()")
    others = ["Node 1: NodeLostError: The cell did not finish: node 1 died."] * (type(errors[0]) is not type(errors[1]))
    assert ran.shown_error.splitlines() == [
        *shown,
        "It failed on nodes 0 and 1, of 3 nodes.",
        *others,
        "loss was returned as a list, with the error of each run that failed.",
    ]
    assert notebook["loss"] == [*errors, 0.5]


def test_runs_of_a_map_that_had_ended_keep_their_values_when_the_pool_closes(
    notebook: Notebook, compute: Pools
) -> None:
    compute.hold = True
    notebook("xs = [1, 2]")
    notebook("%%sky --map xs --noblock\ny = xs * 10")
    done, stopped = compute.made[0].runs
    done.finish()
    stopped.future.set_exception(PoolClosedError("Pool 'default' was closed."))
    assert notebook("_.result()").shown_error.splitlines()[-2:] == [
        "PoolClosedError: Pool 'default' was closed.",
        "1 of 2 runs failed; the values of the other run are in the lists.",
    ]
    value, error = notebook["y"]
    assert (value, type(error)) == (10, PoolClosedError)


def test_interrupt_while_binding_a_result_allows_a_retry(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook("model = {'w': 0}\nsame = model")
    handle = notebook("%%sky --noblock\nmodel['w'] += 1\n7").result

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sent, "apply_result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            handle.result()
    assert (handle.result(), notebook["model"], notebook["same"] is notebook["model"]) == (7, {"w": 1}, True)


class Run:
    """A run that keeps running; the test controls `is_leaving`."""

    is_stream = False

    def __init__(self, *, leaving: bool = False, bytes_in_transfer: int = 0) -> None:
        self.future: Future[Any] = Future()
        self.is_leaving = leaving
        self.bytes_in_transfer = bytes_in_transfer
        self.asked = threading.Event()

    def cancel(self) -> bool:
        self.asked.set()
        return True

    def remains(self) -> list[TaskOutcome]:
        return [TaskOutcome(3, self.future.done(), is_lost=self.future.done())]


def stop(run: Run, grace: float = 0.0) -> StopOutcome:
    return stop_runs([run], grace, contextlib.nullcontext())  # type: ignore[list-item]  # a fake run


def test_nodes_that_do_not_confirm_in_time_are_named(notebook: Notebook) -> None:
    outcome = stop(Run())
    assert outcome.text() == (
        "node 3 was asked to stop the work, and has not confirmed it yet: the cell's variables there were discarded."
    )
    assert outcome.text(is_final=False) == "node 3 was asked to stop the work, and has not confirmed it yet."
    assert StopOutcome(False, False, waiting=(0, 1), within="within 5 s").text() == (
        "nodes 0 and 1 were asked to stop the work, and have not confirmed it within 5 s: "
        "the cell's variables there were discarded."
    )


def test_variables_in_transfer_are_waited_for_beyond_the_grace() -> None:
    run = Run(leaving=True)

    def settle() -> None:
        run.asked.wait(10)
        run.future.set_exception(TaskCancelledError("it was"))

    thread = threading.Thread(target=settle)
    thread.start()
    outcome = stop(run)
    thread.join()
    assert (outcome.stopped, outcome.waiting, outcome.lost, outcome.ended) == ((3,), (), (3,), False)
    assert outcome.text() == ("the work on node 3 was stopped; the cell's variables on node 3 were not returned.")


def test_second_interrupt_abandons_variables_in_transfer() -> None:
    run = Run(leaving=True)

    def interrupt() -> None:
        run.asked.wait(10)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome = stop(run)
    thread.join()
    assert outcome.text() == "the work on node 3 was stopped; the cell's variables there were not fetched."
    assert outcome.text(is_final=False) == (
        "the work on node 3 was stopped; the cell's variables there are still being fetched."
    )


def test_message_distinguishes_unstarted_and_finished_work() -> None:
    assert StopOutcome(False, False).text() == "the work had not started on any node."
    assert stop_runs([], 0.0, contextlib.nullcontext()).text() == "the work had already finished."


def test_status_shows_the_grace_and_then_the_transfer() -> None:
    run: Any = Run()
    text = stopping_text([run], 5.0)
    assert text() == "Stopping the work; the variables of the cell are returned if it ends within 5 s"
    run.is_leaving = True
    assert text() == "Fetching the variables of the cell; interrupt again to skip this"
    run.bytes_in_transfer = 3 << 30
    assert text() == "Fetching the variables of the cell (3.0 GiB); interrupt again to skip this"


@pytest.mark.parametrize(
    ("names", "as_lists", "text"),
    [
        ([], False, ""),
        (["loss"], False, "loss was returned as it was then"),
        (["loss", "model"], False, "loss and model were returned as they were then"),
        (list("abcdefgh"), False, "a, b, c, d, e and 3 more were returned as they were then"),
        (["loss"], True, "loss was returned as a list, with None for each run without a value"),
        (["a", "b"], True, "a and b were returned as lists, with None for each run without a value"),
    ],
)
def test_returned_variables_are_named(names: list[str], as_lists: bool, text: str) -> None:
    assert returned_clause(names, as_lists=as_lists) == text


def test_only_cancelled_runs_count_as_cancelled() -> None:
    run: Any = Run()
    assert not was_cancelled(run)
    run.future.set_exception(ValueError())
    assert not was_cancelled(run)
    other: Any = Run()
    other.future.cancel()
    assert was_cancelled(other)
