"""Progress in a real kernel: a separate display, which does not affect other output of the cell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from tests.local.kernel import LIMIT, PREPARE, Cell, Kernel, started
from tests.local.test_console import on_a_terminal

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

AT_ONCE = "%config SkyMagics.progress_after = 0.0"

TERMINAL = """from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("%load_ext skyward\\n%config SkyMagics.progress_after = 0.0\\n%config SkyMagics.footer = False")
shell.run_cell("print('begun, ', end='', flush=True)\\n_ = get_ipython().run_line_magic('sky', 'up --nodes 2')")
shell.run_cell("xs = [1, 2, 3, 4]\\nprint('mapped, ', end='', flush=True)")
shell.run_cell("%%sky --map xs\\nimport time\\nprint('from a node', flush=True)\\ntime.sleep(0.4)\\n_ = xs")
shell.run_cell("%sky down")
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel(AT_ONCE)
        yield kernel


def run_notebook(*sources: str) -> Any:
    """A notebook run from its first cell to its last, as by nbconvert and papermill."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in (PREPARE, *sources)])
    NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", allow_errors=True).execute()
    return notebook


def test_output_of_a_cell_stays_when_a_pool_opens_in_it() -> None:
    notebook = run_notebook(
        f"{AT_ONCE}\nimport warnings\nbig = bytes(17 << 20)\nshell = get_ipython()",
        "print('printed')\nwarnings.warn('warned', stacklevel=1)\ndisplay({'displayed': 1})\n"
        "shell.run_cell_magic('sky', '--nodes 2', 'print(\"on the node\", len(big))')\nprint('after')",
    )
    outputs = notebook.cells[-1].outputs
    texts = [each.get("text") or each["data"]["text/plain"] for each in outputs]
    assert texts[0] == "printed\n"
    assert "UserWarning: warned" in texts[1]
    assert texts[2] == "{'displayed': 1}"
    assert "17.0 MiB in all, 17.0 MiB to send" in texts[3]
    assert texts[4].startswith("Pool 'default': 2 nodes ready in ")
    assert texts[5] == f"on the node {17 << 20}\nafter\n"
    exporter: Any = HTMLExporter  # no types
    html, _ = exporter().from_notebook_node(notebook)
    assert html.count("nodes ready") == 1
    assert "Opening pool" not in html


def test_interrupted_opening_leaves_one_line_and_the_output(kernel: Kernel, tmp_path: Path) -> None:
    began = tmp_path / "began"
    (tmp_path / "sitecustomize.py").write_text(f"import time\nopen({str(began)!r}, 'w').close()\ntime.sleep(600)\n")
    cell = kernel(
        f"print('printed')\n%sky up slow --env PYTHONPATH={tmp_path}",
        interrupt_when=lambda cell: began.exists() and "update_display_data" in cell.types,
    )
    assert cell.text() == "printed\n"
    assert cell.error == (
        "KeyboardInterrupt",
        ["Interrupted: pool 'slow' was not opened, and its machines were released."],
    )
    assert "clear_output" not in cell.types
    (first,) = cell.data
    assert first.startswith("Opening pool 'slow': 0 of 1 node ready, ")
    last = [out["data"]["text/plain"] for out in cell.outputs if out["type"] == "update_display_data"][-1]
    assert last.startswith("Pool 'slow' was not opened; gave up after ")


def test_bar_of_a_map_is_updated_beside_the_output_of_nodes(kernel: Kernel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    kernel("xs = [1, 2, 3, 4]\nprint('ready')\npool = %sky up --nodes 2")

    def finish_once_printed(cell: Cell) -> bool:
        if "from a node" in cell.text() and cell.data and not go.exists():
            go.touch()
        return False

    cell = kernel(
        "%%sky --map xs\nimport os, time\nprint('from a node')\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nxs * 2",
        interrupt_when=finish_once_printed,
    )
    assert "clear_output" not in cell.types
    assert cell.text() == "from a node\n" * 4
    first, result = cell.data
    assert "/4" in first
    assert result == "[2, 4, 6, 8]"
    updates = [out for out in cell.outputs if out["type"] == "update_display_data"]
    assert len({out["transient"]["display_id"] for out in updates}) == 1
    assert "4/4" in updates[-1]["data"]["text/plain"]


def test_interrupted_map_keeps_its_bar_and_the_output(kernel: Kernel, tmp_path: Path) -> None:
    kernel("xs = [1, 2]\npool = %sky up --nodes 2")
    cell = kernel(
        "%%sky --map xs\nimport time\nprint('from a node', xs)\nwhile True: time.sleep(0.01)",
        interrupt_when=lambda cell: cell.data and "from a node" in cell.text(),
    )
    assert cell.error[0] == "KeyboardInterrupt"
    assert "clear_output" not in cell.types
    assert "from a node 1\n" in cell.text()
    shown = [out["data"]["text/plain"] for out in cell.outputs if "data" in out]
    assert any("0/2" in text for text in shown), shown


def test_terminal_bar_is_drawn_and_erased_below_the_output(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TERMINAL)
    terminal = on_a_terminal(script)
    assert any("/4 [" in line for line in terminal.seen), terminal.seen
    lines = [line for line in terminal.lines if line.strip()]
    assert lines[0] == "begun, skyward: pool 'default': starting 2 nodes (local)"
    assert lines[1].startswith("skyward: pool 'default': ready with 2 nodes after")
    assert lines[2:6] == ["mapped, from a node", *["from a node"] * 3]
    assert lines[6].startswith("skyward: pool 'default': closed after")
    assert lines[7:] == ["Pool 'default' is closed."]


def test_saved_line_of_a_background_cell_shows_its_outcome(tmp_path: Path) -> None:
    def held(name: str) -> str:
        return f"import os, time\nwhile not os.path.exists({str(tmp_path / name)!r}): time.sleep(0.01)\n"

    def end(name: str) -> str:
        return f"handle = _\nopen({str(tmp_path / name)!r}, 'w').close()\n"

    notebook = run_notebook(
        f"%%sky --noblock\n{held('one')}1 / 0",
        f"{end('one')}handle.result()",
        f"%%sky --noblock\nyield 1\n{held('other')}yield 2",
        f"{end('other')}total = sum(handle)",
    )
    shown = [out["data"]["text/plain"] for cell in notebook.cells for out in cell.outputs if "data" in out]
    lines = [text for text in shown if "in the background" in text]
    assert lines == [
        "Cell 1 in the background on pool 'default': failed.",
        "Cell 2 in the background on pool 'default': done, 2 elements.",
    ]


def test_notices_of_an_update_are_shown_in_the_cell_of_the_update() -> None:
    notebook = run_notebook(
        "import skyward as sky\npool = sky.Compute(nodes=1).open()",
        "pool.update(image=sky.Image())",
        "pool.update(provider=sky.Local(fail_rate=1.0, seed=1))\n"
        "import time\n"
        "while not pool.decisions()[-1].reason.count('stays for now'):\n"
        "    time.sleep(0.01)\n"
        "pool.close()",
    )
    equal, failed = ("".join(each.get("text", "") for each in cell.outputs) for cell in notebook.cells[-2:])
    assert "has this spec already" in equal
    assert "node 0 failed in phase 'requested': simulated failure" in failed
