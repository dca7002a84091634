"""Background cells and interrupts, on a pool that runs cells in this process."""

import io
import signal
import threading
from contextlib import redirect_stdout

import pytest

from skyward.pool.compute import when_closed
from skyward_jupyter.display.recorder import OutputRecorder
from skyward_jupyter.running.handle import CellHandle
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit

type Pools = type[FakeCompute]


def test_noblock_returns_a_handle_that_binds_variables_on_result(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    handle = notebook("handle = None\nhandle = %sky up\n1").result
    ran = notebook("%%sky --noblock\ny = 42")
    handle = ran.result
    assert isinstance(handle, CellHandle)
    assert repr(handle) == "<CellHandle: %%sky in the background on pool 'default': running; .result() waits for it>"
    assert (handle.done(), handle.status) == (False, "running")
    with pytest.raises(
        TimeoutError, match=r"^The cell has not finished after 0.01 s: wait longer, or \.cancel\(\) it\.$"
    ):
        handle.result(0.01)
    compute.made[0].runs[-1].finish()
    assert (handle.done(), handle.status) == (True, "done")
    assert "y" not in notebook.shell.user_ns
    assert repr(handle).endswith("on pool 'default': done; .result() binds its variables>")
    assert handle.result() is None
    assert repr(handle).endswith("on pool 'default': done>")
    assert notebook["y"] == 42
    notebook("y = 1")
    handle.result()
    assert notebook["y"] == 1


def test_background_failure_is_raised_by_every_result(notebook: Notebook) -> None:
    handle = notebook("%%sky --noblock\n1 / 0").result
    assert handle.status == "failed"
    assert repr(handle).endswith(": failed; .result() binds its variables and raises its error>")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            handle.result()
    assert handle.status == "failed"


def test_background_map_returns_a_list(notebook: Notebook) -> None:
    notebook("xs = [1, 2]")
    assert notebook("%%sky --noblock --map xs\nxs * 2").result.result() == [2, 4]


def test_background_cells_are_listed_and_cancelled(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("%%sky --noblock\n\nwork = 1")
    notebook("%%sky --noblock\nother = 1")
    status = notebook("%sky status").out
    assert status.splitlines()[-3:] == [
        "cell  status   pool     code",
        "   1  running  default  work = 1",
        "   2  running  default  other = 1",
    ]
    assert notebook("%sky cancel").shown_error == (
        "UsageError: Several cells run in the background: name one of 1, 2, or --all."
    )
    assert notebook("%sky cancel 7").shown_error == "UsageError: There is no background cell '7': name one of 1, 2."
    assert notebook("%sky cancel 1").out == "Cell 1: the work on node 0 was stopped.\n"
    assert notebook("%sky cancel").out == "Cell 2: the work on node 0 was stopped.\n"
    assert notebook("%sky cancel --all").out == "No cell runs in the background.\n"


def test_closing_a_pool_names_the_background_cells_that_it_stops(notebook: Notebook, compute: Pools) -> None:
    notebook("%%sky --noblock\ndone = 1")
    compute.hold = True
    handle = notebook("%%sky --noblock\nwork = 1").result
    run = compute.made[0].runs[-1]
    when_closed(compute.made[0], run.cancel)  # type: ignore[arg-type]  # a fake Compute
    assert notebook("%sky down").out == (
        "Pool 'default' is closed.\n"
        "Cell 2 was still running and was stopped: .result() raises its error; no variables were returned.\n"
    )
    assert repr(handle).endswith("failed; .result() raises its error; no variables were returned>")


def test_interrupt_cancels_the_cell_and_shows_one_line(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("%sky up --nodes 2")
    start = compute.made[0].start

    def interrupted_later(*args: object, **kwargs: object) -> object:
        main = threading.main_thread().ident
        threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT]).start()
        return start(*args, **kwargs)  # type: ignore[arg-type]

    compute.made[0].start = interrupted_later  # type: ignore[method-assign, assignment]
    ran = notebook("%%sky --on all\nx = 1")
    assert isinstance(ran.error, KeyboardInterrupt)
    assert ran.shown_error == "Interrupted: the work on nodes 0 and 1 was stopped."
    assert compute.made[0].runs[0].future.done()


def test_interrupt_right_after_sending_cancels_the_cell(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("%sky up")
    start = compute.made[0].start

    def interrupted(*args: object, **kwargs: object) -> None:
        start(*args, **kwargs)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    compute.made[0].start = interrupted  # type: ignore[method-assign, assignment]
    ran = notebook("%%sky\nx = 1")
    assert ran.shown_error == "Interrupted: the work on node 0 was stopped."
    assert compute.made[0].runs[0].future.done()


def test_interrupt_while_the_pool_opens_terminates_its_machines(
    notebook: Notebook, compute: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compute, "open", interrupted)
    for cell in ("%%sky\n1", "%sky up"):
        assert notebook(cell).shown_error == (
            "Interrupted: pool 'default' was not opened, and its machines were released."
        )
    assert notebook("%sky pools").out == "There are no pools. A cell with %%sky opens one.\n"


def test_background_cell_can_be_awaited(notebook: Notebook, compute: Pools) -> None:
    compute.hold = True
    notebook("xs = [1, 2]")
    notebook("handle = None")
    notebook.shell.user_ns["handle"] = notebook("%%sky --noblock --map xs\nxs * 2").result
    runs = list(compute.made[0].runs)  # without the run of the next cell

    def finish() -> None:
        for run in runs:
            run.finish()

    threading.Timer(0.05, finish).start()
    assert notebook("import asyncio\nasync def two(): return await asyncio.gather(handle, handle)").error is None
    assert notebook("await two()").result == [[2, 4], [2, 4]]
    notebook.shell.user_ns["broken"] = notebook("%%sky --noblock\n1 / 0").result
    compute.made[0].runs[-1].finish()
    assert isinstance(notebook("await broken").error, ZeroDivisionError)


def test_background_cell_is_shown_again(notebook: Notebook, compute: Pools) -> None:
    assert notebook("%sky show").out == "There are no cells in the background. `%%sky --noblock` starts one.\n"
    first = notebook("%%sky --noblock\nprint('hello')\n1").result
    compute.hold = True
    second = notebook("%%sky --noblock\nprint('later')").result
    again = notebook("%sky show 1")
    assert (again.out.splitlines()[0], again.result) == ("hello", first)
    assert notebook("%sky show").result is second, "the latest cell is shown"
    compute.made[0].runs[-1].finish()
    assert "later\n" in notebook("%sky show 2").out
    assert notebook("%sky show 9").shown_error == "UsageError: There is no background cell '9': name one of 1, 2."


def test_finished_background_cells_are_kept_up_to_a_limit(notebook: Notebook) -> None:
    for _ in range(9):
        notebook("%%sky --noblock\nx = 1")
    assert [line.split()[0] for line in notebook("%sky status").out.splitlines()[-6:]] == ["4", "5", "6", "7", "8", "9"]


def test_recorded_output_is_bounded() -> None:
    recorder, shown = OutputRecorder(), io.StringIO()
    for number in range(3000):
        recorder.text("stdout", f"{number} {'x' * 1000}\n")
    with redirect_stdout(shown):
        recorder.replay(None)
    lines = shown.getvalue().splitlines()
    assert lines[0] == "[... earlier output was dropped]"
    assert lines[-1].startswith("2999 ")
    assert len(shown.getvalue()) < 2_100_000


class Shown:
    """Publisher that records displays."""

    def __init__(self) -> None:
        self.data: list[object] = []

    def publish(self, data: object, metadata: object) -> None:
        self.data.append(data)


def test_recorder_keeps_the_last_state_of_displays() -> None:
    recorder, shown = OutputRecorder(), Shown()
    recorder.display({"text/plain": "gone"}, {}, None, update=False)
    recorder.clear()
    recorder.display({"text/plain": "10 %"}, {}, "bar", update=False)
    recorder.display({"text/plain": "figure"}, {}, None, update=False)
    recorder.display({"text/plain": "100 %"}, {}, "bar", update=True)
    recorder.replay(shown)
    assert shown.data == [{"text/plain": "100 %"}, {"text/plain": "figure"}]
