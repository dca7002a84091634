"""First steps of a new user: the demo, and the examples of the README."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.docs.blocks import ROOT, blocks


def run(*command: str | Path) -> str:
    """Return the standard output of `command`, which must succeed."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def examples(language: str) -> list[str]:
    """Return the examples of the README in `language` that run without other machines."""
    return [block.code for block in blocks(language) if block.page == "README.md" and not block.mark]


def test_demo_runs_the_quickstart() -> None:
    shown = run("scripts/demo.py", "notebooks/quickstart.ipynb")
    assert "%%sky" in shown
    assert "make lab" in shown


def test_demo_names_the_cell_that_failed(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    path = tmp_path / "wrong.ipynb"
    nbformat.write(notebook, path)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/demo.py", path], capture_output=True, text=True, check=False, timeout=55
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
    assert f"cell 0 of {path} failed" in done.stderr


def test_script_of_the_readme_runs(tmp_path: Path) -> None:
    script, elastic = examples("python")
    path = tmp_path / "script.py"
    path.write_text(f"{script}\n{elastic}")
    shown = run(path)
    assert shown.split("\n")[:3] == ["9", "[9, 9]", "(9, 16)"]
    assert "tasks of unknown length: " in shown


def test_cells_of_the_readme_run() -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in examples("ipython")]
    done = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=50, kernel_name="python3").execute()
    *_, ran, last = done.cells
    assert [shown.text for shown in ran.outputs if shown.output_type == "stream"] == ["on node 0\n"]
    assert ran.outputs[-2].data["text/plain"] == "499999500000"
    assert re.fullmatch(r"node 0, local, \d+\.\d s", ran.outputs[-1].data["text/plain"])
    assert last.outputs[0].data["text/plain"] == "499999500001"


def test_notebooks_are_saved_with_their_outputs() -> None:
    """nbval compares with the saved outputs: a cell that was never run has none."""
    notebooks = sorted((ROOT / "notebooks").rglob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        counts = [cell.execution_count for cell in cells]
        assert counts == list(range(1, len(cells) + 1)), f"{path.name}: restart its kernel, run all cells, and save"
