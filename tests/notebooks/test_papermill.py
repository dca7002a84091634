"""Notebooks with `%%sky` cells under papermill: parameters reach the nodes, and errors have types that it knows."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

pm: Any = pytest.importorskip("papermill")

pytestmark = [pytest.mark.notebooks, pytest.mark.local]


def written(tmp_path: Path, *sources: str) -> Path:
    """A notebook with a cell of parameters, and these."""
    parameters = nbformat.v4.new_code_cell("n = 1", metadata={"tags": ["parameters"]})
    cells = [nbformat.v4.new_code_cell("%load_ext skyward"), parameters, *map(nbformat.v4.new_code_cell, sources)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = tmp_path / "in.ipynb"
    nbformat.write(notebook, path)
    return path


def execute(path: Path, **parameters: object) -> Any:
    """Return the notebook as papermill leaves it."""
    return pm.execute_notebook(path, path.with_name("out.ipynb"), parameters=parameters, progress_bar=False)


def test_parameters_reach_the_node_and_results_are_returned(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "class Model:\n    w = 0\nmodel = Model()\ndef fit(m):\n    m.w += n\n    return m.w",
        "%%sky\nloss = fit(model)\nprint('on a node:', loss)\nloss * 2",
        "print(model.w, loss, _)",
    )
    *_, ran, last = execute(path, n=7).cells
    assert ran.outputs[-2].data["text/plain"] == "14"
    assert "on a node: 7\n" in [out.get("text") for out in ran.outputs]
    assert last.outputs[0].text == "7 7 14\n"


@pytest.mark.parametrize(
    ("cell", "name", "value"),
    [
        ("%%sky\n1 / 0", "ZeroDivisionError", "division by zero"),
        ("%%sky\nx = = 1", "SyntaxError", "invalid syntax"),
        ("%%sky\nprint(nothing_here)", "NameError", "nothing_here"),
    ],
)
def test_errors_are_those_of_the_notebook(tmp_path: Path, cell: str, name: str, value: str) -> None:
    with pytest.raises(pm.PapermillExecutionError) as caught:
        execute(written(tmp_path, cell))
    assert caught.value.ename == name
    assert value in caught.value.evalue
