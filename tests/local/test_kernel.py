"""`%%sky` in a real kernel: live output in the right cell, interrupts that stop the work, no remains."""

import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.local.kernel import Cell, Kernel, started
from tests.local.test_stopping import stands_still
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.notebooks]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("pool = %sky up --nodes 2")
        yield kernel


def beats(path: Path) -> str:
    """Code that touches a file in an endless loop."""
    return f"import time\nwhile True:\n    open({str(path)!r}, 'a').write('.')\n    time.sleep(0.01)"


def test_output_is_streamed_while_the_cell_runs(kernel: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    seen = []

    def first_line_is_here(cell: Cell) -> bool:
        if "started\n" in cell.text() and not go.exists():
            seen.append(cell.text())
            go.touch()
        return False

    cell = kernel(
        "%%sky\nimport os, sys, time\nprint('started')\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "print('10%', end='\\r')\nprint('20%', end='\\r')\nprint('careful', file=sys.stderr)\n42",
        interrupt_when=first_line_is_here,
    )
    assert seen == ["started\n"]
    assert cell.text() == "started\n10%\r20%\r"
    assert cell.text("stderr") == "careful\n"
    assert cell.data == ["42"]


@pytest.mark.parametrize("line", ["", "--on all"])
def test_interrupt_stops_the_work_and_reports_it(kernel: Kernel, tmp_path: Path, line: str) -> None:
    beat = tmp_path / "beat"
    cell = kernel(f"%%sky {line}\n{beats(beat)}", interrupt_when=lambda _: beat.exists())
    assert stands_still(beat)
    name, shown = cell.error
    assert name == "KeyboardInterrupt"
    assert len(shown) == 1
    assert shown[0].startswith("Interrupted: the work on node")
    assert shown[0].endswith("was stopped.")
    assert kernel("%%sky\n1 + 1").data == ["2"]


def test_interrupt_ends_a_stream(kernel: Kernel, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    cell = kernel(f"%%sky\n{beats(beat)}\n    yield 1", interrupt_when=lambda cell: len(cell.text()) > 10)
    assert stands_still(beat)
    assert cell.error[0] == "KeyboardInterrupt"
    assert set(cell.text().split()) == {"1"}


def test_interrupt_stops_every_run_of_a_map(kernel: Kernel, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    kernel("xs = [1, 2, 3, 4]")
    cell = kernel(f"%%sky --map xs\nxs\n{beats(beat)}", interrupt_when=lambda _: beat.exists())
    assert stands_still(beat)
    assert cell.error[0] == "KeyboardInterrupt"


def test_background_cell_writes_into_its_own_cell(kernel: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    cell = kernel(
        f"%%sky --noblock\nimport os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "print('from the background')\nresult = 42"
    )
    who = "Cell 1 in the background on pool 'default': "
    assert cell.data == [f"{who}.result() waits for it, .cancel() stops it."]
    other = kernel(f"handle = _\nopen({str(go)!r}, 'w').close()\nprint('from here')\nhandle.result()")
    assert other.text() == "from here\n"
    assert cell.text() == "from the background\n"
    assert kernel("result").data == ["42"]
    again = kernel("%sky show 1")
    assert again.text() == "from the background\n"
    assert again.data == [f"{who}done."]
    wait_for(
        lambda: kernel("1") and kernel.displays[cell.outputs[0]["transient"]["display_id"]] == f"{who}done.",
        "the line of the first cell to show the final state",
    )


def test_gather_in_a_plain_cell_has_a_progress_bar_that_stays(kernel: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    kernel(
        "import skyward as sky, os, time\n@sky.function\ndef held(path):\n"
        "    while not os.path.exists(path): time.sleep(0.01)\n    return 1"
    )

    def finish_once_drawn(cell: Cell) -> bool:
        if cell.data and not go.exists():
            go.touch()
        return False

    cell = kernel(
        f"print('before')\nn = sum(sky.gather(*[held({str(go)!r}) for _ in range(10)]) >> sky)\nn",
        interrupt_when=finish_once_drawn,
    )
    assert cell.text() == "before\n"
    assert "clear_output" not in cell.types
    assert "0/10" in cell.data[0]
    bar = [out["data"]["text/plain"] for out in cell.outputs if out["type"] == "update_display_data"][-1]
    assert "10/10" in bar
    assert cell.data[-1] == "10"


def test_error_names_its_line_and_hides_internal_frames(kernel: Kernel) -> None:
    name, shown = kernel("%%sky\ndef f(x):\n    return 1 / x\n\nf(0)").error
    assert name == "ZeroDivisionError"
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(shown))
    assert re.search(r"^Cell In\[\d+\], line 5$", text, re.MULTILINE)
    assert re.search(r"^Cell In\[\d+\], line 3, in f\(x\)$", text, re.MULTILINE)
    assert "----> 3     return 1 / x\n" in text
    assert "skyward" not in text


def test_kernel_that_ends_ends_its_workers() -> None:
    with started() as kernel:
        kernel("pool = %sky up --nodes 2")
        pid = int(kernel("import os; os.getpid()").data[0])
        workers = psutil.Process(pid).children(recursive=True)
        assert len(workers) >= 2
    wait_for(lambda: not [worker for worker in workers if worker.is_running()], "the workers to end")


def test_bill_is_shown_in_the_cell_that_closes_the_pool(kernel: Kernel) -> None:
    kernel("import skyward as sky\npaid = sky.Compute(name='paid', provider=sky.Local(hourly_price=3600.0)).open()")
    assert "Pool 'paid' cost $" in kernel("paid.close()").text("stderr")
