"""Interrupting a `%%sky` cell keeps its variables, in a real kernel with a real SIGINT."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.kernel import Cell, Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

HERE = "import numpy as np\nmodel = {'w': np.zeros(2)}\nsame = model\nloss = done = None\nxs = [1, 2, 3, 4]"
"""Variables of the notebook before each test."""

TRAIN = """
import time
for step in range(10**9):
    model['w'] += 1
    loss = 1 / model['w'][0]
    if step == 3:
        print('training', flush=True)
    if step >= 3:
        time.sleep(0.01)
"""
"""A cell that trains without end, and reports its start."""

either = pytest.mark.parametrize("pool", ["threads", "processes"])


@pytest.fixture(scope="module")
def pools() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("threads = %sky up threads --nodes 2")
        kernel("processes = %sky up processes --executor process")
        yield kernel


@pytest.fixture
def kernel(pools: Kernel) -> Kernel:
    pools(HERE)
    return pools


def training(cell: Cell) -> bool:
    return "training" in cell.text()


def holds(kernel: Kernel, expression: str) -> bool:
    return kernel(f"bool({expression})").data == ["True"]


def failed(cell: Cell) -> tuple[str, list[str]]:
    """Return the name of the error of a cell, and the shown lines."""
    name, shown = cell.error
    return name, "\n".join(shown).splitlines()


def stopped(cell: Cell) -> str:
    """Return the message of an interrupted cell."""
    name, shown = failed(cell)
    assert name == "KeyboardInterrupt", shown
    (line,) = shown
    return line


@either
def test_interrupt_keeps_the_variables_of_the_cell(kernel: Kernel, pool: str) -> None:
    message = stopped(kernel(f"%%sky --pool {pool} --on head{TRAIN}", interrupt_when=training))
    assert message == (
        "Interrupted: the work on node 0 was stopped; step, loss and model were returned as they were then."
    )
    assert holds(kernel, "model is same and model['w'][0] >= 4")
    assert holds(kernel, "loss in (1 / model['w'][0], 1 / (model['w'][0] - 1))"), "neither before nor after the line"
    assert kernel(f"%%sky --pool {pool}\n1 + 1").data == ["2"]


def test_interrupt_keeps_the_variables_of_each_node(kernel: Kernel, tmp_path: Path) -> None:
    begun = f"open({str(tmp_path)!r} + f'/{{sky.instance_info().node}}', 'w').close()"
    cell = f"%%sky --pool threads --on all\nimport skyward as sky, time\nloss = 5\n{begun}\ntime.sleep(60)"
    message = stopped(kernel(cell, interrupt_when=lambda _: len(list(tmp_path.iterdir())) == 2))
    assert message == (
        "Interrupted: the work on nodes 0 and 1 was stopped; "
        "loss was returned as a list, with None for each run without a value."
    )
    assert kernel("loss").data == ["[5, 5]"]


def test_interrupt_of_all_nodes_keeps_the_values_of_a_finished_one(kernel: Kernel, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    cell = (
        "%%sky --pool threads --on all\nimport skyward as sky, time\nrank = sky.instance_info().node\n"
        f"if rank == 1:\n    loss = 3\n    open({str(beat)!r}, 'w').close()\n    time.sleep(60)"
    )
    ended = "threads.snapshot().done"
    before = int(kernel(ended).data[0])
    kernel(
        f"import threading, os, signal\n"
        f"def interrupt():\n"
        f"    while not (os.path.exists({str(beat)!r}) and {ended} > {before}): time.sleep(0.01)\n"
        f"    os.kill(os.getpid(), signal.SIGINT)\n"
        f"import time\nthreading.Thread(target=interrupt, daemon=True).start()"
    )
    assert stopped(kernel(cell)).startswith("Interrupted: the work on nodes 0 and 1 was stopped; ")
    assert kernel("rank, loss").data == ["([0, 1], [None, 3])"]


def test_interrupt_of_a_map_keeps_the_variables_of_each_run(kernel: Kernel) -> None:
    cell = f"%%sky --pool processes --map xs\nloss = xs * 10\n{TRAIN.replace('loss =', 'late =')}\nxs"
    message = stopped(kernel(cell, interrupt_when=training))
    assert message.startswith("Interrupted: the work on node 0 was stopped; ")
    assert kernel("loss, xs").data == ["([10, None, None, None], [1, 2, 3, 4])"]


@either
@pytest.mark.parametrize("pause", ["while True:\n    yield loss", "yield loss\nimport time\ntime.sleep(60)"])
def test_interrupt_of_a_stream_keeps_the_variables_of_the_cell(kernel: Kernel, pool: str, pause: str) -> None:
    cell = f"%%sky --pool {pool} --on head\nloss = 0.25\nmodel['w'] += 7\n{pause}"
    message = stopped(kernel(cell, interrupt_when=lambda cell: "0.25\n" in cell.text()))
    assert message == "Interrupted: the work on node 0 was stopped; loss and model were returned as they were then."
    assert holds(kernel, "loss == 0.25 and model is same and model['w'][0] == 7")


def test_interrupt_of_an_async_cell_keeps_its_variables(kernel: Kernel) -> None:
    cell = "%%sky --pool threads\nimport asyncio\nloss = 1\nprint('training', flush=True)\nawait asyncio.sleep(60)"
    assert "loss was returned as it was then" in stopped(kernel(cell, interrupt_when=training))
    assert kernel("loss").data == ["1"]


@either
def test_cell_that_catches_the_interrupt_ends_as_in_the_notebook(kernel: Kernel, pool: str) -> None:
    body = TRAIN.strip().replace("\n", "\n    ")
    cell = kernel(
        f"%%sky --pool {pool}\ntry:\n    {body}\nexcept KeyboardInterrupt:\n    print('saving')\n"
        "    end = time.monotonic() + 1.5\n    while time.monotonic() < end: time.sleep(0.01)\n"
        "    done = True\n'saved'",
        interrupt_when=training,
    )
    assert (cell.text(), cell.data[-1]) == ("training\nsaving\n", "'saved'")
    assert "error" not in cell.types
    assert holds(kernel, "done and model['w'][0] >= 4")


def test_cell_that_raises_because_of_the_interrupt_fails_with_that_error(kernel: Kernel) -> None:
    body = TRAIN.strip().replace("\n", "\n    ")
    cell = kernel(
        f"%%sky --pool threads\ntry:\n    {body}\nexcept KeyboardInterrupt:\n    raise ValueError('stopped early')",
        interrupt_when=training,
    )
    assert cell.error[0] == "ValueError"
    assert holds(kernel, "model['w'][0] >= 4")


def test_cell_that_raises_keyboard_interrupt_keeps_its_variables(kernel: Kernel) -> None:
    cell = kernel("%%sky --pool threads\nloss = 9\nraise KeyboardInterrupt")
    assert cell.error[0] == "RemoteError"
    assert kernel("loss").data == ["9"]


def test_interrupt_while_variables_are_packed_keeps_them(kernel: Kernel) -> None:
    cell = kernel(
        "%%sky --pool threads --on head\nimport time\nclass Slow:\n    tries = 0\n    def __reduce__(self):\n"
        "        Slow.tries += 1\n        if Slow.tries == 1:\n            print('training', flush=True)\n"
        "            time.sleep(60)\n        return int, (7,)\nloss, done = 2, Slow()",
        interrupt_when=training,
    )
    assert (
        stopped(cell) == "Interrupted: the work on node 0 was stopped; loss and done were returned as they were then."
    )
    assert kernel("loss, done").data == ["(2, 7)"]


def test_finally_blocks_run_before_the_variables_are_returned(kernel: Kernel) -> None:
    body = TRAIN.strip().replace("\n", "\n    ")
    cell = kernel(
        f"%%sky --pool threads\ntry:\n    {body}\nfinally:\n    done = 'cleaned up'\n    print(done)",
        interrupt_when=training,
    )
    assert cell.text() == "training\ncleaned up\n"
    assert kernel("done").data == ["'cleaned up'"]


@either
def test_cancelled_background_cell_returns_its_variables(kernel: Kernel, pool: str) -> None:
    kernel(f"%%sky --pool {pool} --noblock --on head{TRAIN}")
    kernel(
        "handle = _\nimport time\n"
        "while not any('training' in str(text) for _, text in handle.recorder.pieces()): time.sleep(0.01)"
    )
    number = kernel("handle.number").data[0]
    assert kernel(f"%sky cancel {number}").text() == f"Cell {number}: the work on node 0 was stopped.\n"
    assert kernel("loss is None and handle.status").data == ["'cancelled'"], "a variable was bound before result()"
    for _ in range(2):
        name, shown = failed(kernel("handle.result()"))
        assert name == "TaskCancelledError"
        assert shown == [
            "TaskCancelledError: The cell was cancelled on node 0.",
            "step, loss and model were returned as they were when the cell was stopped.",
        ]
    assert holds(kernel, "model is same and loss is not None")


def test_cell_cancelled_by_the_panel_returns_its_variables(kernel: Kernel, tmp_path: Path) -> None:
    """The panel cancels by task numbers, while the cell blocks."""
    begun = tmp_path / "begun"
    kernel(
        "import threading, os, time\ndef cancel():\n"
        f"    while not os.path.exists({str(begun)!r}): time.sleep(0.01)\n"
        "    threads.cancel([task.number for task in threads.report().tasks if task.state == 'running'])\n"
        "threading.Thread(target=cancel, daemon=True).start()"
    )
    cell = kernel(
        f"%%sky --pool threads --on 1\nimport time\nloss = 6\nopen({str(begun)!r}, 'w').close()\ntime.sleep(60)"
    )
    assert failed(cell)[1] == [
        "TaskCancelledError: The cell was cancelled on node 1.",
        "loss was returned as it was when the cell was stopped.",
    ]
    assert kernel("loss").data == ["6"]


@either
def test_cell_past_its_timeout_returns_its_variables(kernel: Kernel, pool: str) -> None:
    cell = kernel(f"%%sky --pool {pool} --on head --timeout 0.5{TRAIN}")
    name, shown = failed(cell)
    assert name == "TaskTimeoutError"
    assert shown[0].startswith("TaskTimeoutError: The cell ran past its timeout of 0.5 s on node 0")
    assert shown[1:] == ["step, loss and model were returned as they were when the cell was stopped."]
    assert holds(kernel, "model is same and loss is not None")


def test_stream_past_its_timeout_returns_its_variables(kernel: Kernel) -> None:
    cell = kernel(
        "%%sky --pool threads --timeout 0.5\nimport time\nloss = 4\nwhile True:\n    yield loss\n    time.sleep(0.01)"
    )
    name, shown = failed(cell)
    assert name == "TaskTimeoutError"
    assert shown[1:] == ["loss was returned as it was when the cell was stopped."]
    assert set(cell.text().split()) == {"4"}
    assert kernel("loss").data == ["4"]


def test_concurrent_cells_in_one_process_each_return_their_variables(kernel: Kernel) -> None:
    """One of them runs on a separate thread, where an interrupt arrives between two bytecode instructions."""
    kernel("shared = %sky up shared --concurrency 2")
    for name in ("first", "second"):
        kernel(
            f"%%sky --pool shared --noblock\n{name} = 0\nprint('training', flush=True)\nwhile True:\n    {name} += 1"
        )
        kernel(
            f"{name}_handle = _\nimport time\n"
            f"while not any('training' in str(text) for _, text in {name}_handle.recorder.pieces()): time.sleep(0.01)"
        )
    for name in ("first", "second"):
        assert kernel(f"{name}_handle.cancel()").data == ["'the work on node 0 was stopped.'"]
        assert failed(kernel(f"{name}_handle.result()"))[1][1:] == [
            f"{name} was returned as it was when the cell was stopped."
        ]
        assert holds(kernel, f"{name} > 0")
    kernel("%sky down shared")


def test_nodes_past_their_timeout_give_lists(kernel: Kernel) -> None:
    cell = kernel(
        "%%sky --pool threads --on all --timeout 0.5\nimport skyward as sky, time\nloss = sky.instance_info().node\n"
        "if loss: time.sleep(60)"
    )
    assert failed(cell)[1][-1] == "loss was returned as a list, with None for each run without a value."
    assert kernel("loss").data == ["[0, 1]"]


def test_variables_over_the_limit_are_not_returned_and_are_named(kernel: Kernel) -> None:
    cell = kernel(
        "%%sky --pool threads --on head --capture-limit 10MB\nimport time\nlarge = bytes(11 << 20)\nloss = 2\n"
        "print('training', flush=True)\ntime.sleep(60)",
        interrupt_when=training,
    )
    assert stopped(cell) == "Interrupted: the work on node 0 was stopped; loss was returned as it was then."
    assert "large was not returned from node 0" in cell.text("stderr")
    assert "--capture-limit" in cell.text("stderr")
    assert kernel("loss, 'large' in globals()").data == ["(2, False)"]


def test_cell_that_ignores_interrupts_is_ended_and_reports_lost_variables(kernel: Kernel) -> None:
    kernel("%config SkyMagics.interrupt_grace = 1")
    try:
        cell = kernel(
            "%%sky --pool processes\nimport signal, time\nloss = 1\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "print('training', flush=True)\ntime.sleep(60)",
            interrupt_when=training,
        )
    finally:
        kernel("%config SkyMagics.interrupt_grace = 20")
    assert stopped(cell) in (
        "Interrupted: the work on node 0 was stopped; the cell's variables on node 0 were not returned.",
        "Interrupted: node 0 was asked to stop the work, and has not confirmed it within 1 s: "
        "the cell's variables there were discarded.",
    )
    assert kernel("loss is None").data == ["True"]
    assert kernel("%%sky --pool processes\n1 + 1").data == ["2"]


def test_second_interrupt_stops_waiting(kernel: Kernel) -> None:
    cell = kernel(
        "%%sky --pool processes\nimport signal, time\nloss = 1\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print('training', flush=True)\ntime.sleep(60)",
        interrupt_when=[training, lambda cell: any("Stopping the work" in text for text in cell.data)],
    )
    assert stopped(cell) == (
        "Interrupted: node 0 was asked to stop the work, and has not confirmed it yet: "
        "the cell's variables there were discarded."
    )
    (line,) = (out["data"]["text/plain"] for out in cell.outputs[-2:] if out["type"] == "update_display_data")
    assert line.startswith("Waited ")
    assert line.endswith(" for the variables of the cell")
    kernel("%sky down processes")
    kernel("processes = %sky up processes --executor process")


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_cell_that_is_stopped_for_the_budget_returns_its_variables(
    kernel: Kernel, executor: str, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    kernel(
        "import pathlib, skyward as sky, threading, time\n"
        f"priced = sky.Compute(name='priced', provider=sky.Local(hourly_price=3600.0), budget=1000.0, "
        f"worker=sky.Worker(executor='{executor}')).open()\n"
        "def limit():\n"
        "    global budget\n"
        f"    while not pathlib.Path({str(begun)!r}).exists():\n"
        "        time.sleep(0.01)\n"
        "    budget = round(priced.snapshot().spent + 23, 2)\n"
        "    priced.set_budget(budget)\n"
        "threading.Thread(target=limit, daemon=True).start()"
    )
    train = TRAIN.replace("print('training', flush=True)", f"open({str(begun)!r}, 'w').close()")
    try:
        name, shown = failed(kernel(f"%%sky --pool priced{train}"))
        assert name == "BudgetExhaustedError"
        assert shown[0].startswith(
            "BudgetExhaustedError: The cell was stopped on node 0: Pool 'priced' has reached its budget of $"
        )
        assert shown[1:] == ["step, loss and model were returned as they were when the cell was stopped."]
        assert holds(kernel, "model is same and loss is not None")
        spent = float(shown[0].partition(": $")[2].partition(" is spent")[0])
        assert holds(kernel, f"budget - 21 < {spent} < budget - 10")
        assert holds(kernel, "priced.snapshot().spent <= budget")
    finally:
        kernel("priced.close()")
