"""Cells that yield, in a real kernel: drawn with `--plot`, and followed in the background."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.local.kernel import Cell, Kernel, started
from tests.local.test_stopping import stands_still

pytestmark = [pytest.mark.local, pytest.mark.notebooks]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("pool = %sky up")
        yield kernel


def saved(*cells: str) -> list[list[dict[str, Any]]]:
    """Return the outputs of cells as nbclient saves them."""
    prepare = "%load_ext skyward\n%config SkyMagics.footer = False\n%config SkyMagics.show_progress = False\n%sky up"
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in (prepare, *cells, "%sky down")]
    )
    NotebookClient(notebook, timeout=50, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells[1:-1]]


STEPS = "import time\nfor i in range(40):\n    yield {'loss': 1 / (i + 1), 'accuracy': i / 40}\n    time.sleep(0.01)"


def test_saved_notebook_has_the_last_picture() -> None:
    blocking, background, result = saved(
        f"%%sky --plot\nprint('before')\n{STEPS}\nprint('after')",
        f"%%sky --plot --noblock\n{STEPS}",
        "handle = _\nlen(handle.result()), handle.result()[-1]['loss']",
    )
    text = "loss 0.025, accuracy 0.975 (40 elements)"
    assert "".join(output["text"] for output in blocking if output["output_type"] == "stream") == "before\nafter\n"
    for outputs in (blocking, background):
        (picture,) = (output for output in outputs if output["output_type"] == "display_data")
        assert picture["data"]["text/plain"] == text
        assert picture["data"]["text/html"].startswith("<div><svg ")
        assert text in picture["data"]["text/html"]
    assert result[0]["data"]["text/plain"] == "(40, 0.025)"


def test_picture_is_updated_while_the_cell_runs(kernel: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    seen = []

    def first_is_drawn(cell: Cell) -> bool:
        if cell.data and not go.exists():
            seen.extend(cell.data)
            go.touch()
        return False

    cell = kernel(
        f"%%sky --plot\nimport os, time\nyield 1\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nyield 2.5",
        interrupt_when=first_is_drawn,
    )
    assert seen == ["value 1 (1 element)"]
    assert set(cell.types) == {"display_data", "update_display_data"}, "an output was cleared"
    assert len(cell.data) == 1
    assert cell.outputs[-1]["data"]["text/plain"] == "value 2.5 (2 elements)"


def test_background_stream_continues_without_a_reader(kernel: Kernel) -> None:
    """It yields ten times the elements of a stream's window."""
    kernel("%%sky --noblock\nfor i in range(20_000):\n    yield i\nlast = i")
    cell = kernel("handle = _\ntotal = sum(handle)\nprint(total, last, len(handle.result()))")
    assert cell.text() == f"{sum(range(20_000))} 19999 20000\n"
    (line,) = kernel("display(handle)").data
    assert line == "Cell 1 in the background on pool 'default': done, 20,000 elements."


def test_interrupted_loop_does_not_stop_the_cell_and_cancel_does(kernel: Kernel, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    source = f"import time\nwhile True:\n    open({str(beat)!r}, 'a').write('.')\n    yield 1\n    time.sleep(0.01)"
    kernel(f"%%sky --noblock\n{source}")
    loop = "handle = _\nfor element in handle: print(element)"
    cell = kernel(loop, interrupt_when=lambda cell: len(cell.text()) > 10)
    assert cell.error[0] == "KeyboardInterrupt"
    before = beat.stat().st_size
    assert kernel("loop = iter(handle)\nfor each in range(len(handle._elements.kept()) + 5): next(loop)").types == []
    assert beat.stat().st_size > before
    kernel("handle.cancel()")
    assert stands_still(beat)
    cell = kernel("for element in handle: pass")
    assert cell.error[0] == "TaskCancelledError"
    assert kernel("print(handle.status)").text() == "cancelled\n"


def test_closing_the_pool_ends_the_followers_of_a_stream(kernel: Kernel) -> None:
    """The last test with this kernel's pool."""
    kernel("%%sky --noblock --plot\nimport time\nwhile True:\n    yield 1\n    time.sleep(0.01)")
    kernel("handle = _\nfirst = next(iter(handle))\n%sky down")
    assert kernel("for element in handle: pass").error[0] == "PoolClosedError"
    cell = kernel(
        "import threading, time\n"
        "ours = {'skyward-read-ahead', 'skyward-redrawing'}\n"
        "while ours & {each.name for each in threading.enumerate()}: time.sleep(0.01)\nprint('none')"
    )
    assert cell.text() == "none\n"
