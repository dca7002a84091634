"""Errors of cells look like those of the notebook's own cells, and can be debugged like them."""

import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from skyward.errors import RemoteTraceback
from skyward.wire.failures.failure import Failure, Frame
from skyward.worker.cells.cell import CellResult
from skyward_jupyter.cells.capture import capture
from skyward_jupyter.cells.cell import analyse
from skyward_jupyter.cells.originals import Originals
from skyward_jupyter.failures.tracebacks import Tracebacks
from skyward_jupyter.running.results import _Binder
from tests.unit.jupyter.conftest import FakeCompute, Notebook, Ran

pytestmark = pytest.mark.unit

SPACE = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"
"""More lines than a traceback shows above the failing one."""

FAILING = {
    "expression": "1 + (a / 0) * 3\nlater = 1",
    "statement": "raise ValueError('wrong')",
    "no message": "raise ValueError",
    "function of another cell": "divide(a)",
    "method": "Model(3).step([1, 2], key='x')",
    "lambda": "sorted([3, 0], key=lambda x: 1 / x)",
    "comprehension": "[a / x for x in (1, 0)]",
    "generator": "def g():\n    yield 1\n    yield a / 0\nlist(g())",
    "class body": "class C:\n    x = 1\n    y = x / 0",
    "library": "import json\njson.loads('{bad')",
    "several lines": "divide(\n    a,\n)",
    "closure": "def outer(n):\n    def f(*a, k, **more):\n        return n / 0\n    return f\nouter(2)(1, k=3, z=4)",
    "decorated": "import functools\n@functools.cache\ndef f(x):\n    return 1 / x\nf(0)",
    "cause": "try:\n    divide(1)\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error",
    "context": "try:\n    divide(1)\nexcept ZeroDivisionError:\n    {}['k']",
    "no context": "try:\n    divide(1)\nexcept ZeroDivisionError:\n    raise KeyError('k') from None",
    "notes": "error = ValueError('x')\nerror.add_note('first')\nerror.add_note('second')\nraise error",
    "recursion": "def r(n):\n    return r(n + 1)\nr(0)",
    "assertion": "assert a == 2, 'not two'",
    "missing attribute": "a.nothing",
    "unpacking": "x, y = [1, 2, 3]",
    "with": "import contextlib\nwith contextlib.suppress(KeyError):\n    divide(2)",
    "finally": "try:\n    divide(2)\nfinally:\n    a = 2",
    "await": "import asyncio\nasync def f(q):\n    await asyncio.sleep(0)\n    return q / 0\nawait f(2)",
    "code in a string": "exec('x = 1\\nx / 0')",
    "syntax error in a string": "exec('1 +')",
    "indentation error in a string": "exec(' x = 1\\ny = 2')",
    "generic function": "def first[T](items: list[T]) -> T:\n    return items[0]\nfirst([])",
    "hidden": "import numpy as np\nnp.testing.assert_array_equal([1], [2])",
    "odd mapping": (
        "class Odd(dict):\n    def keys(self): raise RuntimeError\n"
        "class Meta(type):\n    @classmethod\n    def __prepare__(cls, *args): return Odd()\n"
        "class C(metaclass=Meta):\n    x = 1 / 0"
    ),
    "unicode": "név = 'ő'\nnév / 2",
}


@pytest.fixture
def notebook(notebook: Notebook) -> Iterator[Notebook]:
    notebook(
        "def divide(x):\n    # comment\n    y = x + 1\n\n    return y / 0\n\n"
        "class Model:\n    def __init__(self, w): self.w = w\n"
        "    def step(self, xs, *, key):\n        total = sum(xs)\n        return total / (self.w - 3)"
    )
    yield notebook
    notebook.magics.tracebacks.remove()


@pytest.fixture
def shallow() -> Iterator[None]:
    """Limit recursion to some 120 calls: IPython takes half a minute to show thousands."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 120)
    yield
    sys.setrecursionlimit(before)


def cells(shown: str) -> str:
    """Normalize a traceback: remove parts that differ from cell to cell."""
    shown = re.sub(r"In\[\d+\]", "In[N]", shown)
    shown = re.sub(r"0x[0-9a-f]+", "0x", shown)
    if "RecursionError" in shown:  # the depth of calls on a node may differ
        shown = "\n".join(dict.fromkeys(re.sub(r"\d+ times", "N times", shown).splitlines()))
    return shown


def shown(ran: Ran) -> str:
    assert ran.error is not None
    return cells("\n".join(ran.shown) or ran.err)


@pytest.mark.parametrize("mode", ["Context", "Plain", "Verbose", "Minimal"])
@pytest.mark.parametrize("name", FAILING)
def test_error_looks_as_in_the_notebook(notebook: Notebook, shallow: None, name: str, mode: str) -> None:
    notebook(f"%xmode {mode}")
    here = notebook(f"# here\n{SPACE}{FAILING[name]}")
    there = notebook(f"%%sky\n{SPACE}{FAILING[name]}")
    assert type(there.error) is type(here.error)
    assert str(there.error).replace("2-", "1-") == str(here.error).replace("2-", "1-")
    if mode == "Verbose":  # values that were not sent are shown as such
        assert re.sub(r"=.*", "=", shown(there)) == re.sub(r"=.*", "=", shown(here))
    else:
        assert shown(there) == shown(here)


def test_error_looks_as_in_the_notebook_in_colours(notebook: Notebook) -> None:
    notebook("%colors linux")
    here, there = (notebook(f"{first}\n{SPACE}import json\ndivide(json.loads('2'))") for first in ("#", "%%sky"))
    assert "\x1b[" in shown(there)
    assert shown(there) == shown(here)


def test_exception_group_looks_as_in_the_notebook(notebook: Notebook) -> None:
    source = f"{SPACE}try:\n    divide(1)\nexcept Exception as e:\n    raise ExceptionGroup('g', [e, KeyError('k')])"
    here, there = (notebook(f"{first}\n{source}") for first in ("#", "%%sky"))
    files = re.compile(r"<ipython-input-\d+-\w+>")
    assert isinstance(there.error, ExceptionGroup)
    assert files.sub("FILE", shown(there)) == files.sub("FILE", shown(here))


@pytest.mark.parametrize(
    "source",
    ["1 +", "def f(:", "x = 1\n y = 2", "if 1:\nx", "'open", "break", "f(x) = 1", "nonlocal x", "print 1"],
)
def test_syntax_error_looks_as_in_the_notebook(notebook: Notebook, compute: type[FakeCompute], source: str) -> None:
    here, there = notebook(f"#\n{source}"), notebook(f"%%sky\n{source}")
    assert type(there.error) is type(here.error)
    assert isinstance(there.error, SyntaxError)
    assert isinstance(here.error, SyntaxError)
    assert (there.error.msg, there.error.lineno) == (here.error.msg, here.error.lineno)
    assert shown(there) == shown(here)
    assert compute.made == []


def test_line_numbers_are_those_of_the_notebook(notebook: Notebook) -> None:
    ran = notebook("%%sky\n\n\nx = 1\n1 / 0")
    number = notebook.shell.execution_count - 1
    assert f"Cell In[{number}], line 5\n" in ran.shown_error
    ran = notebook("%%sky\n\n  \n1 +")
    assert f"Cell In[{number + 1}], line 4\n" in ran.shown_error
    assert notebook("%%sky\n\nnowhere").shown_error == (
        "NameError: line 3: the cell reads nowhere, but nowhere is not defined in the notebook. "
        "Run the cell that defines it first."
    )


def test_missing_name_is_a_name_error_and_nothing_is_sent(notebook: Notebook, compute: type[FakeCompute]) -> None:
    ran = notebook("%%sky\ndivid(1)")
    assert isinstance(ran.error, NameError)
    assert ran.error.name == "divid"
    assert ran.shown_error == (
        "NameError: line 2: the cell reads divid, but divid is not defined in the notebook. Did you mean divide?"
    )
    assert compute.made == []


@pytest.mark.parametrize("mode", ["Plain", "Minimal"])
def test_usage_error_keeps_its_lines_in_every_mode(notebook: Notebook, mode: str) -> None:
    notebook(f"%xmode {mode}")
    ran = notebook("%%sky --node 2\n1")
    assert ran.error is not None
    (piece,) = ran.error._render_traceback_()  # type: ignore[attr-defined]  # IPython joins the pieces by nothing
    assert piece.splitlines()[1] == "    %%sky --node 2"


def test_error_is_shown_again_by_tb(notebook: Notebook) -> None:
    first = notebook(f"%%sky\n{SPACE}divide(1)")
    assert notebook("%tb").shown == first.shown
    (plain,) = notebook("%tb Plain").shown
    assert plain.startswith("Traceback (most recent call last):")
    assert "in divide" in plain


def test_error_of_a_background_cell_shows_the_call_of_result(notebook: Notebook) -> None:
    notebook(f"%%sky --noblock\n{SPACE}divide(1)")
    notebook("handle = _")
    for _ in range(2):
        lines = notebook("x = 1\nhandle.result()").shown_error.splitlines()
        number = notebook.shell.execution_count - 1
        assert [line for line in lines if line.startswith("Cell")] == [
            f"Cell In[{number}], line 2",
            "Cell In[2], line 7",
            "Cell In[1], line 5, in divide(x)",
        ]
        assert not [line for line in lines if "skyward" in line]


def test_context_of_a_local_error_has_its_frames(notebook: Notebook) -> None:
    notebook("%%sky --noblock\n1 / 0")
    notebook("handle = _")
    lines = notebook("try:\n    handle.result()\nexcept ZeroDivisionError:\n    raise KeyError('k')").shown_error
    assert "File" not in lines
    assert lines.count("Cell In") == 3


def test_error_in_a_stream_and_under_map_shows_its_line(notebook: Notebook) -> None:
    ran = notebook(f"%%sky\n{SPACE}yield 1\ndivide(1)")
    assert [line for line in ran.shown_error.splitlines() if line.startswith("Cell")] == [
        "Cell In[2], line 8",
        "Cell In[1], line 5, in divide(x)",
    ]
    notebook("xs = [1, 0]")
    ran = notebook(f"%%sky --map xs\n{SPACE}1 / xs")
    assert "----> 7 1 / xs\n" in ran.shown_error


def test_node_of_an_error_is_named_once(notebook: Notebook) -> None:
    notebook("%sky up --nodes 2")
    assert notebook("%%sky\n1 / 0").shown_error.splitlines()[-1] == "Raised on node 0."
    ran = notebook("%%sky\nyield 1\n1 / 0")
    assert ran.shown_error.splitlines()[-1] == "Raised on node 0."
    assert "Raised" not in notebook("%%sky\nimport sys\nsys.exit(1)").shown_error
    notebook.magics.footer = True
    ran = notebook("%%sky\n1 / 0")
    assert ran.displays[-1].startswith("node 0, ")
    assert "Raised" not in ran.shown_error


def test_unloading_restores_the_shell(notebook: Notebook) -> None:
    assert "showtraceback" in vars(notebook.shell)
    notebook.magics.tracebacks.remove()
    assert "showtraceback" not in vars(notebook.shell)
    notebook.magics.tracebacks.remove()
    outer = Tracebacks(notebook.shell)
    inner = Tracebacks(notebook.shell)
    outer.remove()
    assert vars(notebook.shell)["showtraceback"] == inner.show
    inner.remove()


# Debugging.


def frames(ran: Ran) -> list[FrameType]:
    """Return the frames of the node, outermost first."""
    assert ran.error is not None
    walked = [frame for frame, _ in traceback.walk_tb(ran.error.__traceback__)]
    return [frame for frame in walked if "__skyward_node__" in frame.f_globals]


def test_frames_have_their_variables(notebook: Notebook) -> None:
    notebook("class Held:\n    def __init__(self): self.value = [1, {'k': 2}]\n    def __repr__(self): return 'held'")
    ran = notebook(
        "%%sky\nimport threading\nlock = threading.Lock()\nscale = 4\n"
        "def f(n, *rest, flag=True, **more):\n"
        "    held, big, text = Held(), list(range(1000)), 'x' * 5000\n    del flag\n    return scale / 0\n"
        "f(1, 2, k=3)"
    )
    cell, function = frames(ran)
    assert (cell.f_lineno, function.f_lineno) == (9, 8)
    found: dict[str, Any] = dict(function.f_locals)
    assert (found["n"], found["rest"], found["more"]) == (1, (2,), {"k": 3})
    assert repr(found["flag"]) == "<value on node 0: not sent>"
    assert repr(found["held"]) == "<Held on node 0: held>"
    assert found["held"].value == [1, {"k": 2}]
    assert repr(found["big"]).startswith("<list on node 0: [0, 1, 2,")
    assert len(repr(found["text"])) < 400
    assert function.f_globals["scale"] == 4
    assert eval("scale + 1", cell.f_globals, cell.f_locals) == 5
    assert repr(eval("lock", cell.f_globals, cell.f_locals)).startswith("<_thread.lock on node 0: <unlocked")
    assert eval("Held", cell.f_globals, cell.f_locals) is notebook["Held"]
    assert eval("divide", cell.f_globals, cell.f_locals) is notebook["divide"]


def test_value_that_was_not_sent_says_so(notebook: Notebook) -> None:
    notebook("class Held:\n    pass")
    (cell,) = frames(notebook("%%sky -o nothing\nheld = Held()\n1 / 0"))
    held = cell.f_locals["held"]
    with pytest.raises(AttributeError, match=r"^This Held stayed on node 0: its attribute 'size' was not sent\.$"):
        held.size()


def test_returned_values_in_frames_are_the_notebooks_objects(notebook: Notebook) -> None:
    ran = notebook("%%sky\nbig = list(range(1000))\n1 / 0")
    (cell,) = frames(ran)
    assert cell.f_locals["big"] is notebook["big"]


def test_other_variables_in_frames_are_the_current_ones(notebook: Notebook) -> None:
    ran = notebook("other = 1")
    (cell,) = frames(notebook("%%sky\n1 / 0"))
    notebook("other = 2")
    assert eval("other", cell.f_globals, cell.f_locals) == 2
    assert ran.error is None


def test_no_code_of_the_cell_runs_when_its_frames_are_made(notebook: Notebook) -> None:
    notebook("count = []")
    ran = notebook("%%sky\ncount.append(1)\ndef f():\n    count.append(2)\n    1 / 0\nf()")
    assert len(frames(ran)) == 2
    assert notebook["count"] == [1, 2]
    assert sys.gettrace() is None or "coverage" in repr(sys.gettrace())


BODIES = {
    "cell": "print('ran')\n1 / 0",
    "function": "def f(n, *rest, k=1):\n    print('ran')\n    1 / 0\nf(2)",
    "closure": "def outer():\n    held = 1\n    def f():\n        print(held)\n        1 / 0\n    f()\nouter()",
    "generator": "def g():\n    print('ran')\n    yield 1 / 0\nlist(g())",
    "class": "class C:\n    print('ran')\n    1 / 0",
    "coroutine": "async def f():\n    print('ran')\n    1 / 0\nawait f()",
}


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_without_tracing_no_code_of_the_cell_runs_and_the_traceback_is_text(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], body: str, is_recorded: bool
) -> None:
    result = _result_of(notebook, body)
    if not is_recorded:
        result = _without_states(result)
    assert capsys.readouterr().out
    made = list[BaseException]()

    def at_a_prompt(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is stopped.__code__:
            made.append(_error_of(notebook, result))

    def stopped() -> None:
        pass

    tracing = sys.gettrace()
    try:
        sys.settrace(at_a_prompt)
        stopped()
    finally:
        sys.settrace(tracing)
    (error,) = made
    assert capsys.readouterr().out == ""
    assert isinstance(error, ZeroDivisionError)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "1 / 0" in str(error.__cause__)
    assert list(traceback.walk_tb(_error_of(notebook, result).__traceback__))  # with tracing it is a real traceback


@pytest.mark.parametrize("now", ["# written anew\n\n\n\n\n# another line\n", None])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_library_that_differs_locally_shows_the_lines_of_the_node(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str | None, is_recorded: bool
) -> None:
    monkeypatch.delitem(sys.modules, "sky_other", raising=False)
    path = tmp_path / "site-packages" / "sky_other.py"
    path.parent.mkdir()
    path.write_text("import math\n\n\ndef work(x):\n    # as it is on the node\n    return math.sqrt(x)\n")
    monkeypatch.syspath_prepend(path.parent)
    result = _result_of(notebook, f"{SPACE}work(-1)", "from sky_other import work")
    if now is None:
        path.unlink()
    else:
        path.write_text(now)
    if not is_recorded:
        result = _without_states(result)
    error = _error_of(notebook, result)
    lines = "\n".join(notebook.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__, 0))
    assert f"File node-0:{path}:6, in work" in lines
    assert "----> 6 " in lines
    if is_recorded or sys.version_info >= (3, 13):  # `inspect` of 3.12 needs the line of the `def`
        assert "return math.sqrt(x)" in lines
    assert "    return math.sqrt(x)\n" in "".join(traceback.format_exception(error))
    assert ("# as it is on the node" in lines) is is_recorded
    assert "another line" not in lines


def test_frames_without_code_show_file_line_and_function(notebook: Notebook) -> None:
    result = _result_of(notebook, f"{SPACE}divide(1)")
    error = _error_of(notebook, _without_states(result))
    named = [(each.lineno, each.name, each.line) for each in traceback.extract_tb(error.__traceback__)]
    assert named == [(6, "<module>", "divide(1)"), (5, "divide", "return y / 0")]
    (cell, function) = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert (cell.f_lineno, function.f_lineno) == (6, 5)
    lines, first = inspect.getsourcelines(function)
    assert lines[function.f_lineno - first].strip() == "return y / 0"


def test_code_of_another_python_version_is_not_loaded(notebook: Notebook) -> None:
    result = _result_of(notebook, f"{SPACE}divide(1)")
    assert result.failure is not None
    (link,) = result.failure.chain
    foreign = []
    for each in link.frames:
        assert each.state is not None
        code = replace(each.state.code, magic=b"else", marshalled=b"not what it seems")
        foreign.append(replace(each, state=replace(each.state, code=code)))
    error = _error_of(notebook, replace(result, failure=Failure((replace(link, frames=tuple(foreign)),), 0)))
    _, function = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert (function.f_code.co_name, function.f_lineno, function.f_locals["y"]) == ("divide", 5, 2)


def _without_states(result: CellResult) -> CellResult:
    assert result.failure is not None
    (link,) = result.failure.chain
    bare = tuple(Frame(each.filename, each.line, each.function, each.text) for each in link.frames)
    return replace(result, failure=Failure((replace(link, frames=bare),), 0))


def _result_of(notebook: Notebook, source: str, *before: str) -> CellResult:
    """Return the result of a cell, as its node returns it."""
    for each in before:
        notebook(each)
    name = notebook.shell.compile.cache(source, 99)
    sent = capture(analyse(source, filename=name), notebook.shell.user_ns)
    result: CellResult = sent.pending.fn(*sent.pending.args)
    return result


def _error_of(notebook: Notebook, result: CellResult) -> BaseException:
    error = _Binder(notebook.shell.user_ns, result, Originals()).error()
    assert error is not None
    return error
