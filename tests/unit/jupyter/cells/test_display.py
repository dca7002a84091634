"""Displays of a cell, as they leave the node."""

import base64
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from ipywidgets import widgets  # type: ignore[import-untyped]  # it has no types

from skyward.wire.protocol.messages import Display, WorkerEvent
from skyward.worker.display import publishing
from skyward.worker.display.represent import represent
from skyward.worker.events.context import TaskContext, running
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

type Shown = tuple[dict[str, Any], dict[str, Any], str | None, bool]

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is missing")


class Screen:
    """A client that records displays."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []

    def emit(self, event: WorkerEvent) -> None:
        assert isinstance(event, Display)
        assert isinstance(event.payload.data, bytes)
        self.shown.append(pickle.loads(event.payload.data))

    def keep(self, views: list[memoryview]) -> list[bytes]:
        raise NotImplementedError

    @property
    def texts(self) -> list[str]:
        return [data.get("text/plain", "") for data, *_ in self.shown]


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    token = running.set(TaskContext(1, 2, screen))
    yield screen
    running.reset(token)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("1 + 1", ["2"]),
        ("1 + 1;", []),
        ("None", []),
        ("x = 1", []),
        ("'a'", ["'a'"]),
        ("import asyncio\nawait asyncio.sleep(0, 'b')", ["'b'"]),
        ("for i in range(3): i", []),
        ("display(1, 'a')\n3", ["1", "'a'", "3"]),
        ("{'b': 1, 'a': [2]}", ["{'b': 1, 'a': [2]}"]),
        ("class A: pass\nA", ["__main__.A"]),
    ],
)
def test_last_expression_is_displayed(notebook: CellHarness, screen: Screen, source: str, texts: list[str]) -> None:
    notebook.sky(source)
    assert screen.texts == texts


def test_streaming_cell_displays_its_last_expression(notebook: CellHarness, screen: Screen) -> None:
    assert list(notebook.stream("yield 1\n'end'")) == [1]
    assert screen.texts == ["'end'"]


def test_failing_cell_displays_nothing_after_the_failure(notebook: CellHarness, screen: Screen) -> None:
    with pytest.raises(ZeroDivisionError):
        notebook.sky("display(1)\n1 / 0")
    assert screen.texts == ["1"]


@pytest.mark.parametrize("shown", ["r", "display(r)", "display(1, r)", "update_display(r, display_id='a')"])
def test_ipython_display_method_is_called(
    notebook: CellHarness, screen: Screen, capsys: pytest.CaptureFixture[str], shown: str
) -> None:
    notebook.sky(
        "from skyward.worker.display.publishing import update_display\n"
        "class R:\n    def _ipython_display_(self): print('ipd')\n"
        f"    def _repr_html_(self): return 'html'\nr = R()\n{shown}"
    )
    assert capsys.readouterr().out == "ipd\n"
    assert screen.texts == (["1"] if "1" in shown else [])


def test_repr_is_used_if_ipython_display_fails(notebook: CellHarness, screen: Screen) -> None:
    notebook.sky(
        "class R:\n    def _ipython_display_(self): 1 / 0\n    def __repr__(self): return 'R'\ndisplay(R, R())"
    )
    assert screen.texts == ["__main__.R", "R"]


class OfLibrary:
    """An object that displays itself with objects of the notebook's process."""

    def __repr__(self) -> str:
        return "plain"

    def _ipython_display_(self) -> None:
        raise AssertionError

    def _repr_html_(self) -> str:
        return "html"


def test_library_object_is_displayed_by_its_rich_representation(screen: Screen) -> None:
    publishing.display(OfLibrary())
    ((data, *_),) = screen.shown
    assert data == {"text/plain": "plain", "text/html": "html"}


def test_display_outside_a_task_prints_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    publishing.display({"a": 1})
    assert capsys.readouterr().out == "{'a': 1}\n"


class Rich:
    def __repr__(self) -> str:
        return "rich"

    def _repr_html_(self) -> str:
        return "<b>rich</b>"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return b"png", {"width": 3}

    def _repr_jpeg_(self) -> bytes:
        return b"jpeg"

    def _repr_latex_(self) -> None:
        return None

    def _repr_markdown_(self) -> str:
        raise NotImplementedError


class Bundle:
    def __repr__(self) -> str:
        return "plain"

    def _repr_html_(self) -> str:
        return "old"

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/html": "new", "application/x": {"a": 1}}, {"text/html": {"isolated": True}}


class QueryHandler:
    """An object with any attribute, like a mock."""

    def __repr__(self) -> str:
        return "yes"

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: "yes"


class Broken:
    def __repr__(self) -> str:
        raise ValueError("no repr")


class TestRepresentations:
    def test_representation_methods_are_called(self) -> None:
        assert represent(Rich()) == (
            {"text/plain": "rich", "text/html": "<b>rich</b>", "image/png": base64.b64encode(b"png").decode()},
            {"image/png": {"width": 3}},
        )

    def test_mime_bundle_takes_precedence_over_methods(self) -> None:
        assert represent(Bundle()) == (
            {"text/plain": "plain", "text/html": "new", "application/x": {"a": 1}},
            {"text/html": {"isolated": True}},
        )

    def test_class_is_not_represented_by_methods_of_its_instances(self) -> None:
        assert list(represent(Rich)[0]) == ["text/plain"]

    def test_object_with_any_attribute_has_plain_text_only(self) -> None:
        assert represent(QueryHandler()) == ({"text/plain": "yes"}, {})

    def test_failing_repr_is_reported(self) -> None:
        assert represent(Broken())[0]["text/plain"] == "<Broken whose repr() fails: ValueError: no repr>"

    def test_include_and_exclude_select_mime_types(self) -> None:
        assert list(represent(Rich(), include=["text/html"])[0]) == ["text/html"]
        assert "text/html" not in represent(Rich(), exclude=["text/html"])[0]

    def test_long_lists_are_wrapped_like_in_ipython(self) -> None:
        assert represent(list(range(60)))[0]["text/plain"].startswith("[0,\n 1,\n")


class TestDisplayFunctions:
    def test_handle_updates_its_display(self, screen: Screen) -> None:
        handle = publishing.display("a", display_id=True)
        assert handle is not None
        handle.update("b")
        publishing.update_display("c", display_id=handle.display_id)
        assert [(data["text/plain"], name, update) for data, _, name, update in screen.shown] == [
            ("'a'", handle.display_id, False),
            ("'b'", handle.display_id, True),
            ("'c'", handle.display_id, True),
        ]

    def test_raw_data_and_metadata_are_sent(self, screen: Screen) -> None:
        publishing.display({"text/html": "<i>"}, raw=True, metadata={"x": 1}, display_id="me")
        publishing.publish_display_data({"text/plain": "p"}, transient={"display_id": "me"}, update=True)
        assert screen.shown == [
            ({"text/html": "<i>"}, {"x": 1}, "me", False),
            ({"text/plain": "p"}, {}, "me", True),
        ]

    def test_clear_output_is_sent(self, screen: Screen) -> None:
        publishing.clear_output(wait=True)
        publishing.display(1, clear=True)
        assert [data for data, *_ in screen.shown] == [
            {publishing.CLEAR_MIME: {"wait": True}},
            {publishing.CLEAR_MIME: {"wait": True}},
            {"text/plain": "1"},
        ]


SCRIPT = """
import pickle, sys
from skyward.worker.cells.cell import CellRequest, run_cell
from skyward.worker.events.context import TaskContext, running
from skyward.wire.protocol.messages import Display

class Port:
    shown = []
    def emit(self, event):
        self.shown.append(pickle.loads(event.payload.data))
    def keep(self, views):
        raise NotImplementedError

running.set(TaskContext(1, 0, Port()))
result = run_cell(CellRequest(sys.argv[1]))
if result.failure:
    print(result.failure.render())
for data, metadata, name, update in Port.shown:
    print(*sorted(data), data.get("text/plain"), update)
"""


def on_a_node(source: str, *outputs: str, environment: dict[str, str] | None = None) -> list[str]:
    """Return the displays of a cell in a fresh process: here IPython and matplotlib may be configured otherwise."""
    import os

    env = {**os.environ, **(environment or {})}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, source, *outputs], capture_output=True, text=True, check=True, env=env
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("before", ["", "1 + 1\n"])
def test_display_functions_of_ipython_display_in_the_cell(before: str) -> None:
    shown = on_a_node(
        f"{before}from IPython.display import display, clear_output, update_display, HTML\n"
        "handle = display(HTML('<i>'), display_id='h')\nhandle.update(2)\nclear_output()\nprint('printed')"
    )
    assert shown == [
        "printed",
        "text/html text/plain <IPython.core.display.HTML object> False",
        "text/plain 2 True",
        f"{publishing.CLEAR_MIME} None False",
    ]


@needs_matplotlib
class TestFigures:
    figure = "image/png text/plain <Figure size 640x480 with 1 Axes> False"

    def test_figures_are_displayed_and_closed_at_the_end(self) -> None:
        assert on_a_node("import matplotlib.pyplot as plt\nplt.plot([1, 2]);\nplt.figure().gca();") == [self.figure] * 2

    def test_show_displays_figures_at_once(self) -> None:
        source = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\ndisplay('after')\nplt.get_fignums()"
        assert on_a_node(source) == [self.figure, "text/plain 'after' False", "text/plain [] False"]

    def test_figure_as_last_expression_is_displayed_once(self) -> None:
        assert on_a_node("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nfig") == [self.figure]

    def test_figures_are_not_displayed_after_a_failure(self) -> None:
        shown = on_a_node("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0")
        assert shown[-1] == "ZeroDivisionError: division by zero"

    @pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "agg", ""])
    def test_backend_of_the_notebook_is_ignored(self, backend: str) -> None:
        source = "import matplotlib.pyplot as plt\nplt.plot([1]);"
        assert on_a_node(source, environment={"MPLBACKEND": backend}) == [self.figure]

    def test_backend_set_by_the_user_is_kept(self) -> None:
        source = "import matplotlib\nmatplotlib.get_backend().lower()"
        assert on_a_node(source, environment={"MPLBACKEND": "svg"}) == ["text/plain 'svg' False"]


@pytest.fixture
def no_widgets_stay() -> Iterator[None]:
    yield
    widgets.Widget.close_all()


@pytest.mark.usefixtures("no_widgets_stay")
def test_widgets_are_displayed_as_text() -> None:
    """Widgets have their models on the node, so no front end could draw them."""
    assert represent(widgets.HTML("<b>bold</b>"))[0]["text/html"] == "<b>bold</b>"
    assert represent(widgets.Label("a label"))[0] == {"text/plain": "a label"}
    assert represent(widgets.Image(value=b"\x89PNG", format="png"))[0]["image/png"] == "iVBORw=="
    slider = represent(widgets.IntSlider(3))[0]
    assert list(slider) == ["text/plain"]
    assert slider["text/plain"].startswith("IntSlider(value=3")
