"""Errors of `%%sky` in a real kernel, in IPython in a terminal and under nbconvert, like those of the notebook."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pexpect  # type: ignore[import-untyped]  # no types
import pytest

from tests.local.kernel import Cell, Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

DEFINED = (
    "class Model:\n    def __init__(self, w):\n        self.w = w\n\n"
    "    def step(self, xs):\n        total = sum(xs)\n        big = list(range(1000))\n"
    "        return total / (self.w - 3)"
)
SPACE = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel("pool = %sky up")
        kernel(DEFINED)
        yield kernel


def error(cell: Cell) -> dict[str, Any]:
    """Return the error message of a cell, without the parts that differ from cell to cell."""
    (found,) = (dict(out) for out in cell.outputs if out["type"] == "error")
    found["traceback"] = [re.sub(r"In\[\d+\]", "In[N]", piece) for piece in found["traceback"]]
    found["evalue"] = re.sub(r"\d+\.py", "FILE.py", found["evalue"])
    return found


@pytest.mark.parametrize("mode", ["Context", "Plain", "Verbose", "Minimal"])
@pytest.mark.parametrize(
    "source",
    [
        "1 + (a / 0)",
        "model = Model(3)\nmodel.step([1, 2])",
        "import json\njson.loads('{bad')",
        "raise ValueError('x')",
        "exec('1 +')",
        "1 +",
        "def f(:",
    ],
)
def test_error_message_is_that_of_the_notebook(kernel: Kernel, source: str, mode: str) -> None:
    kernel(f"%xmode {mode}")
    in_notebook, on_node = (kernel(f"{first}\n{SPACE}{source}") for first in ("# here", "%%sky"))
    found, expected = error(on_node), error(in_notebook)
    if mode == "Verbose":  # values that stay on their node are marked
        for each in (found, expected):
            each["traceback"] = [re.sub(r"=[^\n]*", "=", piece) for piece in each["traceback"]]
    assert found == expected
    kernel("%xmode Context")


def test_context_exception_has_the_line_that_raised(kernel: Kernel) -> None:
    cell = kernel(
        f"%%sky\n{SPACE}try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error"
    )
    shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error(cell)["traceback"])).split("\n")
    assert [line for line in shown if line.startswith(("Cell", "---->", "The above"))] == [
        "Cell In[N], line 8",  # IPython shows the last line of the frame here, which is another one
        "----> 8     1 / 0",
        "The above exception was the direct cause of the following exception:",
        "Cell In[N], line 10",
    ]
    assert "---> 10     raise KeyError('k') from error" in shown


def test_undefined_name_is_a_name_error(kernel: Kernel) -> None:
    found = error(kernel("%%sky\n\nprint(Modl)"))
    assert found["ename"] == "NameError"
    assert (
        found["evalue"] == "line 3: the cell reads Modl, but Modl is not defined in the notebook. Did you mean Model?"
    )
    assert found["traceback"] == [f"NameError: {found['evalue']}"]


def test_unparsable_option_line_gives_a_sentence(kernel: Kernel) -> None:
    found = error(kernel("%%sky --pool 'a\n1"))
    assert found["ename"] == "UsageError"
    assert "\n".join(found["traceback"]).splitlines() == [
        "UsageError: Unclosed quote: add ' at its end, or remove the one that opens it.",
        "    %%sky --pool 'a",
        "                 ^^",
    ]


def test_exception_group_is_shown_as_in_the_notebook(kernel: Kernel) -> None:
    source = f"{SPACE}raise ExceptionGroup('g', [ValueError(1), KeyError('k')])"
    in_notebook, on_node = (kernel(f"{first}\n{source}").text("stderr") for first in ("# here", "%%sky"))
    assert "| ExceptionGroup: g (2 sub-exceptions)" in on_node
    cells = re.compile(r"ipykernel_\d+/\d+\.py")
    assert cells.sub("CELL", on_node) == cells.sub("CELL", in_notebook)


def test_debugger_stops_in_the_users_code(kernel: Kernel) -> None:
    kernel("%%sky\nmodel = Model(3)\nn = 5\nimport threading\nlock = threading.Lock()\nmodel.step([1, 2, 3])")
    written = kernel.answering(
        "%debug", "p total, xs", "p self.w", "p self.step", "p big", "u", "p n, model", "p lock", "q"
    )
    plain = re.sub(r"\x1b\[[\d;]*m", "", written)
    assert "----> 8         return total / (self.w - 3)" in plain
    assert "(6, [1, 2, 3])" in plain
    assert "\n3\n" in plain
    assert "*** AttributeError: This Model stayed on node" in plain
    assert re.search(r"<list on node \d: \[0, 1, 2, ", plain)
    assert "----> 6 model.step([1, 2, 3])" in plain
    assert "(5, <__main__.Model object at" in plain
    assert re.search(r"<_thread.lock on node \d: <unlocked _thread.lock object", plain)
    assert "/skyward" not in plain


def test_failures_are_counted_in_every_view(kernel: Kernel) -> None:
    kernel("other = %sky up counted")
    kernel("%%sky --pool counted\n1 / 0")
    kernel("%%sky --pool counted\nfor i in range(100):\n    yield i")
    status = kernel("%sky status counted").text().splitlines()
    assert status[0].split()[-2:] == ["done", "failed"]
    assert status[1].split()[-2:] == ["1", "1"]
    header, *rows = [line.split() for line in kernel("%sky tasks counted").text().splitlines()]
    assert header[-1] == "reason"
    assert rows[1][-4:] == ["ZeroDivisionError:", "division", "by", "zero"]
    assert [row[1] for row in rows] == ["done", "failed"]  # the latest first
    assert kernel("[task.yielded for task in other.report().tasks]").data == ["[0, 100]"]
    kernel("%sky down counted")


def test_errors_in_terminal_ipython_show_lines_of_the_cell(tmp_path: Path) -> None:
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "TERM": "dumb"}
    options = ["--simple-prompt", "--no-banner", "--colors=nocolor", "--HistoryManager.enabled=False"]
    arguments = ["-m", "IPython", *options]
    shell = pexpect.spawn(sys.executable, arguments, env=environment, encoding="utf-8", timeout=60, echo=False)

    def run(source: str, prompt: str = r"In \[\d+\]: ") -> str:
        shell.sendline(source)
        shell.expect(prompt)
        return str(shell.before).replace("\r\n", "\n")

    try:
        shell.expect(r"In \[1\]: ")
        run("%load_ext skyward")
        run("def divide(n): return [n / d for d in (1, 0)]")
        shown = run("_ = get_ipython().run_cell('%%sky\\nk = 3\\ndivide(k)')")
        assert "Cell In[3], line 3\n" in shown
        assert "Cell In[2], line 1, in divide(n)\n----> 1 def divide(n): return [n / d for d in (1, 0)]\n" in shown
        assert shown.rstrip().endswith("ZeroDivisionError: division by zero")
        assert "skyward_jupyter" not in shown
        shown = run("_ = get_ipython().run_cell('%%sky\\n\\n1 +')")
        assert "Cell In[4], line 3\n    1 +\n       ^\nSyntaxError: invalid syntax" in shown
        run("_ = get_ipython().run_cell('%%sky\\nk = 3\\ndivide(k)')")
        assert "def divide(n): return" in run("%debug", "ipdb> ")
        assert "\n3\n" in f"\n{run('p n', 'ipdb> ')}"
        run("q")
        run("%xmode Minimal")
        shown = run("_ = get_ipython().run_cell('%%sky --node 2\\n1')")
        assert "UsageError: %%sky has no option --node; did you mean --nodes?\n    %%sky --node 2\n" in shown
        shell.sendline("exit")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("%%sky\nx = 1\n1 / 0", ["ZeroDivisionError: division by zero", "Cell In[2], line 3"]),
        ("%%sky\nx = 1\n1 +", ["SyntaxError: invalid syntax", "Cell In[2], line 3"]),
        ("%%sky\nnowhere", ["NameError: line 2: the cell reads nowhere"]),
    ],
)
def test_nbconvert_stops_at_the_cell_and_shows_its_error(tmp_path: Path, source: str, told: list[str]) -> None:
    cells = [nbformat.v4.new_code_cell(each) for each in ("%load_ext skyward", source, "print('not reached')")]
    path = tmp_path / "fails.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--stdout", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1
    shown = re.sub(r"\x1b\[[\d;]*m", "", done.stderr)
    for each in told:
        assert each in shown
    assert "not reached" not in shown.partition("CellExecutionError")[2]
