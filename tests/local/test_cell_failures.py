"""A cell that raised counts as failed everywhere, and its frames can be inspected."""

import traceback
from collections.abc import Iterator
from typing import Any

import pytest

import skyward as sky
from skyward import events as ev
from skyward_kernel.pools import PoolManager
from tests.notebook import Notebook, managed_pools, new_notebook
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@pytest.fixture(scope="module", params=["thread", "process"])
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pools(executor: str) -> Iterator[PoolManager]:
    with managed_pools() as pools:
        yield pools
        assert pools.close_all()


@pytest.fixture
def notebook(pools: PoolManager, executor: str) -> Iterator[Notebook]:
    with new_notebook(pools) as notebook:
        notebook.magics.footer = True
        assert notebook(f"%sky up --nodes 2 --executor {executor}").error is None
        yield notebook


class Counted:
    """Counts of a pool while a cell runs."""

    def __init__(self, pool: sky.Compute) -> None:
        self._pool = pool
        self._events = pool.events(ev.TaskEnded)
        before = pool.snapshot()
        self._before = before.done, before.failed
        self._known = {task.number for task in pool.report().tasks}

    def now(self) -> dict[str, Any]:
        """Return events, counts and records of the tasks since, which have ended."""
        after = self._pool.snapshot()
        tasks = [task for task in self._pool.report().tasks if task.number not in self._known]
        with self._events:
            events = [next(self._events) for _ in tasks]
        return {
            "events": sorted((type(event).__name__, getattr(event, "error", "")) for event in events),
            "counts": (after.done - self._before[0], after.failed - self._before[1]),
            "states": sorted(task.state for task in tasks),
            "reasons": sorted({task.reason for task in tasks}),
            "yields": sorted(task.yielded for task in tasks),
        }


@pytest.fixture
def counted(notebook: Notebook, pools: PoolManager) -> Counted:
    return Counted(pools.get("default"))


FAILED, DONE = ("TaskFailed", "ZeroDivisionError"), ("TaskCompleted", "")


def test_cell_that_raised_has_failed_and_returns_its_variables(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky\nkept = [1]\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert notebook["kept"] == [1]
    assert ran.displays[-1].endswith(" s, failed")
    assert counted.now() == {
        "events": [FAILED],
        "counts": (0, 1),
        "states": ["failed"],
        "reasons": ["ZeroDivisionError: division by zero"],
        "yields": [0],
    }


def test_cell_that_did_not_raise_is_done(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    caught = True")
    assert ran.displays[-1].endswith(" s")
    found = counted.now()
    assert (found["events"], found["counts"], found["states"]) == ([DONE], (1, 0), ["done"])


def test_each_node_of_on_all_counts_separately(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky --on all\nimport skyward as sky\n1 / sky.instance_info().node")
    assert isinstance(ran.error, ZeroDivisionError)
    assert ran.displays[-1].endswith(" s, 1 of 2 failed")
    assert ran.shown_error.splitlines()[-2:] == [
        "1 of 2 runs failed; the values of the other run are in the lists.",
        "Raised on node 0.",
    ]
    found = counted.now()
    assert (found["events"], found["counts"], found["states"]) == ([DONE, FAILED], (1, 1), ["done", "failed"])


def test_nodes_that_end_without_a_result_have_their_errors_in_the_lists(notebook: Notebook) -> None:
    ran = notebook("%%sky --on all\nimport os, skyward as sky\nz = 1\nif sky.instance_info().node: os._exit(1)")
    assert isinstance(ran.error, sky.TaskError)
    assert ran.shown_error.splitlines()[-1] == "z was returned as a list, with the error of each run that failed."
    value, error = notebook["z"]
    assert (value, type(error)) == (1, type(ran.error))


def test_cell_that_closing_its_pool_ends_on_all_nodes_shows_one_sentence(notebook: Notebook) -> None:
    notebook("%%sky --pool closing --nodes 2 --on all --noblock\nimport time\ntime.sleep(60)")
    notebook("handle = _\nimport time\nwhile handle.status != 'running': time.sleep(0.01)\n%sky down closing")
    ran = notebook("handle.result()")
    assert ran.shown_error == (
        "PoolClosedError: Pool 'closing' was closed before this task ended. Open it and send it again.\n"
        "It failed on nodes 0 and 1, of 2 nodes."
    )


def test_each_element_of_a_map_counts_separately(notebook: Notebook, counted: Counted) -> None:
    notebook("xs = [1, 0, 2, 0, 0]")
    ran = notebook("%%sky --map xs\ny = 1 / xs")
    assert ran.displays[-1].endswith(" s, 3 of 5 failed")
    found = counted.now()
    assert found["counts"] == (2, 3)
    assert found["events"] == [DONE, DONE, FAILED, FAILED, FAILED]
    assert [type(y) for y in notebook["y"]] == [float, *[ZeroDivisionError], float, *[ZeroDivisionError] * 2]


def test_return_value_of_a_stream_is_no_element(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky\nfor i in range(100):\n    yield i")
    assert ran.error is None
    assert ran.out.split() == [str(i) for i in range(100)]
    assert notebook["i"] == 99
    found = counted.now()
    assert (found["yields"], found["states"], found["counts"]) == ([100], ["done"], (1, 0))


def test_stream_that_raised_has_failed_after_its_elements(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky\nkept = 1\nyield 1\nyield 2\n1 / 0\nyield 3")
    assert isinstance(ran.error, ZeroDivisionError)
    assert (ran.out.split(), notebook["kept"]) == (["1", "2"], 1)
    assert ran.displays[-1].endswith(" s, failed")
    found = counted.now()
    assert (found["events"], found["yields"], found["states"]) == ([FAILED], [2], ["failed"])


def test_large_result_is_returned_with_the_failure(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky\nlarge = bytes(10_000_000)\nyield 1\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert len(notebook["large"]) == 10_000_000
    found = counted.now()
    assert (found["events"], found["yields"]) == ([FAILED], [1])


def test_background_cell_has_failed_before_its_result_is_requested(notebook: Notebook, counted: Counted) -> None:
    handle = notebook("%%sky --noblock\n1 / 0").result
    wait_for(handle.done, "the cell to end")
    assert handle.status == "failed"
    assert "failed" in notebook("%sky status").out
    assert counted.now()["counts"] == (0, 1)


def test_timeout_is_a_timeout_whatever_the_cell_raised(notebook: Notebook, counted: Counted) -> None:
    ran = notebook("%%sky --timeout 1s\nimport time\ntime.sleep(60)")
    assert ran.error is not None
    assert counted.now()["events"] == [("TaskTimedOut", "")]


def test_frames_of_a_node_have_variables_and_lines(notebook: Notebook) -> None:
    notebook("def divide(numerator, values):\n    half = len(values) // 2\n    return numerator / values[half]")
    ran = notebook("%%sky\nvalues = [1, 0, 2]\nimport threading\nlock = threading.Lock()\ndivide(5, values)")
    assert ran.error is not None
    assert [line for line in ran.shown_error.splitlines() if line.startswith("Cell")] == [
        "Cell In[3], line 5",
        "Cell In[2], line 3, in divide(numerator, values)",
    ]
    *_, cell, function = [frame for frame, _ in traceback.walk_tb(ran.error.__traceback__)]
    assert dict(function.f_locals) == {"numerator": 5, "values": [1, 0, 2], "half": 1}
    assert repr(eval("lock", cell.f_globals, cell.f_locals)).startswith("<_thread.lock on node ")


def test_only_the_first_failures_of_a_cell_are_sent_with_their_variables(notebook: Notebook) -> None:
    notebook("xs = [0] * 60 + [1]\ndef divide(x):\n    kept = 3\n    return 1 / x")
    notebook("%%sky --map xs\ny = divide(xs)")
    *errors, last = notebook["y"]
    assert last == 1.0
    kept = [_last(error).f_locals.get("kept") for error in errors]
    assert kept[0] == 3
    assert kept.count(3) <= 8 * 2
    assert {_last(error).f_lineno for error in errors} == {4}


def _last(error: BaseException) -> Any:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]


def test_task_that_ends_without_the_result_of_its_cell_names_the_cell(notebook: Notebook) -> None:
    ran = notebook("%%sky\nraise GeneratorExit")
    lines = ran.shown_error.splitlines()
    assert lines[1] == "  Cell In[2], line 2, in <module>"
    assert "The cell raised GeneratorExit on node" in str(ran.error)
    assert not [line for line in lines if "skyward_jupyter" in line]
