"""Stopping a cell: how long its nodes are waited for, what is bound of it, and what is said."""

import contextlib
import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from skyward.control.act.tasks.run import Remains
from skyward.errors import NodeLostError, TaskCancelledError
from skyward_jupyter.running import cell_run as sent
from skyward_jupyter.running.stopping import Stop, came_back, meanwhile, stop_runs, was_cancelled
from tests.unit.jupyter.conftest import FakeCompute, FakeRun, Notebook

pytestmark = pytest.mark.unit

type Pools = type[FakeCompute]


def interrupt_after_sending(compute: FakeCompute, *, cancelled: Any = None) -> None:
    """Have the user interrupt the next cell right after it was sent; what it assigns is there, and it goes on.

    Args:
        cancelled: called with each run in the place of its `cancel`.
    """
    start = compute.start

    def interrupted(*args: Any, **kwargs: Any) -> None:
        run = start(*args, **kwargs)
        run.left = run._value()
        if cancelled is not None:
            run.cancel = lambda: cancelled(run)  # type: ignore[method-assign]
        raise KeyboardInterrupt

    compute.start = interrupted  # type: ignore[method-assign, assignment]


def test_interrupted_cell_binds_what_it_has_assigned(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("model = {'w': 0}\nsame = model")
    notebook("%sky up")
    interrupt_after_sending(compute.made[0])
    ran = notebook("%%sky\nimport math\ndef f(): pass\nmodel['w'] += 1\nloss = 0.5\nstep = 3")
    assert ran.shown_error == (
        "Interrupted: the work on node 0 was stopped; loss, step and model came back as they were then."
    )
    assert (notebook["model"], notebook["same"] is notebook["model"], notebook["loss"]) == ({"w": 1}, True, 0.5)


def test_interrupted_runs_become_lists_with_none_for_those_that_have_nothing(
    notebook: Notebook, compute: Pools
) -> None:
    compute.hold = True
    notebook("%sky up --nodes 2")

    def lose_one(run: FakeRun) -> bool:
        run.left[1] = None
        return FakeRun.cancel(run)

    interrupt_after_sending(compute.made[0], cancelled=lose_one)
    assert notebook("%%sky --on all\nloss = 0.5").shown_error == (
        "Interrupted: the work on nodes 0 and 1 was stopped; "
        "loss came back as a list, with None where a run had nothing."
    )
    assert notebook["loss"] == [0.5, None]


def test_interrupt_of_a_cell_that_was_over_keeps_its_variables(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up")
    interrupt_after_sending(compute.made[0])
    assert notebook("%%sky\nloss = 0.5").shown_error == (
        "Interrupted: the work was over already; loss came back as it was at its end."
    )
    assert notebook["loss"] == 0.5


def test_interrupt_of_a_cell_that_had_failed_says_what_it_had_raised(notebook: Notebook, compute: Pools) -> None:
    notebook("%sky up")
    interrupt_after_sending(compute.made[0])
    ran = notebook("%%sky\nloss = 0.5\n1 / 0")
    assert ran.shown_error.startswith("Interrupted: the work was over already; loss came back")
    assert ran.err == "The cell had raised ZeroDivisionError: division by zero\n"


def test_interrupt_of_a_stream_that_was_over_keeps_its_variables(notebook: Notebook, compute: Pools) -> None:
    def interrupted(element: object) -> None:
        raise KeyboardInterrupt

    notebook("%sky up")
    notebook.magics._runner._show = interrupted  # type: ignore[method-assign]
    ran = notebook("%%sky\nfor loss in (3, 2, 1):\n    yield loss")
    assert ran.shown_error == "Interrupted: the work was over already; loss came back as it was at its end."
    assert notebook["loss"] == 1


def test_cell_that_ends_by_itself_though_it_was_interrupted_gives_its_value(notebook: Notebook, compute: Pools) -> None:
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


def test_cancelled_map_in_the_background_leaves_lists(notebook: Notebook, compute: Pools) -> None:
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
    assert raised.value.__notes__ == ["loss came back as a list, with None where a run had nothing."]
    assert notebook["loss"] == [10, None]


def test_nodes_that_are_lost_have_none_beside_the_values_of_the_others(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("%sky up --nodes 2")
    start = compute.made[0].start

    def second_is_lost(*args: Any, **kwargs: Any) -> None:
        run = start(*args, **kwargs)
        run.left = [run._value()[0], None]
        run.future.set_exception(NodeLostError("run_cell() did not finish: node 1 died."))

    compute.made[0].start = second_is_lost  # type: ignore[method-assign, assignment]
    ran = notebook("%%sky --on all\nloss = 0.5")
    assert ran.shown_error.splitlines() == [
        "NodeLostError: The cell did not finish: node 1 died.",
        "loss came back as a list, with None where a run had nothing.",
    ]
    assert notebook["loss"] == [0.5, None]


def test_interrupt_while_a_result_is_bound_leaves_it_to_the_next_try(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    """A run that goes on; `is_leaving` as long as the test says so."""

    is_stream = False

    def __init__(self, *, leaving: bool = False, coming: int = 0) -> None:
        self.future: Future[Any] = Future()
        self.is_leaving = leaving
        self.coming = coming
        self.asked = threading.Event()

    def cancel(self) -> bool:
        self.asked.set()
        return True

    def remains(self) -> list[Remains]:
        return [Remains(3, self.future.done(), is_lost=self.future.done())]


def stop(run: Run, grace: float = 0.0) -> Stop:
    return stop_runs([run], grace, contextlib.nullcontext())  # type: ignore[list-item]  # it is like one


def test_nodes_that_do_not_confirm_in_time_are_named(notebook: Notebook) -> None:
    told = stop(Run())
    assert told.text() == (
        "node 3 was asked to stop the work, and has not confirmed it yet: what the cell had assigned there was "
        "discarded."
    )
    assert told.text(is_final=False) == "node 3 was asked to stop the work, and has not confirmed it yet."
    assert Stop(False, False, waiting=(0, 1), within="within 5 s").text() == (
        "nodes 0 and 1 were asked to stop the work, and have not confirmed it within 5 s: "
        "what the cell had assigned there was discarded."
    )


def test_what_is_on_its_way_is_waited_for_beyond_the_grace() -> None:
    run = Run(leaving=True)

    def arrive() -> None:
        run.asked.wait(10)
        run.future.set_exception(TaskCancelledError("it was"))

    thread = threading.Thread(target=arrive)
    thread.start()
    told = stop(run)
    thread.join()
    assert (told.stopped, told.waiting, told.lost, told.ended) == ((3,), (), (3,), False)
    assert told.text() == ("the work on node 3 was stopped; what the cell had assigned on node 3 did not come back.")


def test_second_interrupt_leaves_behind_what_is_on_its_way() -> None:
    run = Run(leaving=True)

    def interrupt() -> None:
        run.asked.wait(10)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    thread = threading.Thread(target=interrupt)
    thread.start()
    told = stop(run)
    thread.join()
    assert told.text() == "the work on node 3 was stopped; what the cell had assigned there was left behind."
    assert told.text(is_final=False) == (
        "the work on node 3 was stopped; what the cell had assigned there is on its way."
    )


def test_work_that_had_not_started_anywhere() -> None:
    assert Stop(False, False).text() == "the work had not started on any node."
    assert stop_runs([], 0.0, contextlib.nullcontext()).text() == "the work was over already."


def test_what_is_shown_meanwhile() -> None:
    run: Any = Run()
    text = meanwhile([run], 5.0)
    assert text() == "Stopping the work; what the cell has assigned comes back if it ends within 5 s"
    run.is_leaving = True
    assert text() == "Bringing home what the cell had assigned; interrupt again to leave it behind"
    run.coming = 3 << 30
    assert text() == "Bringing home what the cell had assigned (3.0 GiB); interrupt again to leave it behind"


@pytest.mark.parametrize(
    ("names", "as_lists", "said"),
    [
        ([], False, ""),
        (["loss"], False, "loss came back as it was then"),
        (["loss", "model"], False, "loss and model came back as they were then"),
        (list("abcdefgh"), False, "a, b, c, d, e and 3 more came back as they were then"),
        (["loss"], True, "loss came back as a list, with None where a run had nothing"),
        (["a", "b"], True, "a and b came back as lists, with None where a run had nothing"),
    ],
)
def test_what_came_back_is_named(names: list[str], as_lists: bool, said: str) -> None:
    assert came_back(names, as_lists=as_lists) == said


def test_only_work_that_was_stopped_was_cancelled() -> None:
    run: Any = Run()
    assert not was_cancelled(run)
    run.future.set_exception(ValueError())
    assert not was_cancelled(run)
    other: Any = Run()
    other.future.cancel()
    assert was_cancelled(other)
