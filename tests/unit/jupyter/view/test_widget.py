"""The widget of a pool: one for all displays, replaced by the static form at the end or without anywidget."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ipywidgets.widgets import widget as ipywidgets  # type: ignore[import-untyped]

from skyward import Compute
from skyward.specs import Nodes
from skyward_jupyter import view
from skyward_jupyter.view import widget as widgets
from skyward_jupyter.view.widget import PoolWidget
from skyward_kernel.panel.protocol import VIEW_TARGET
from tests.unit.jupyter.view.test_live import watching
from tests.unit.kernel.conftest import FakePool
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

VIEW = "application/vnd.jupyter.widget-view+json"


class ShownPool(FakePool):
    """A pool that can be displayed."""

    _ipython_display_: Any = Compute._ipython_display_
    _repr_mimebundle_: Any = Compute._repr_mimebundle_

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.name = name

    def close(self) -> None:
        self.changed(state="closed", nodes=())
        super().close()


class FakeKernelShell:
    """A kernel's shell, which records displays."""

    def __init__(self) -> None:
        self.kernel = SimpleNamespace(comm_manager=self)
        self.events = self
        self.displayed: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.after: list[Callable[..., object]] = []
        self.targets: dict[str, Callable[[Any, dict[str, Any]], object]] = {}

    def register_target(self, name: str, opened: Callable[[Any, dict[str, Any]], object]) -> None:
        self.targets[name] = opened

    def display(self, data: dict[str, Any], **_: object) -> "FakeKernelShell":
        self.displayed.append(data)
        return self

    def update(self, data: dict[str, Any], **_: object) -> None:
        self.updates.append(data)

    def register(self, event: str, call: Callable[..., object]) -> None:
        assert event == "post_run_cell"
        self.after.append(call)

    def unregister(self, event: str, call: Callable[..., object]) -> None:
        self.after.remove(call)

    def end_cell(self) -> None:
        for call in list(self.after):
            call(None)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> FakeKernelShell:
    notebook = FakeKernelShell()
    monkeypatch.setattr(view, "_notebook", lambda: notebook)
    monkeypatch.setattr("IPython.display.display", notebook.display)
    return notebook


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ShownPool]:
    monkeypatch.setattr(ipywidgets, "_instances", {})  # without the widgets of other tests
    pool = ShownPool("p")
    yield pool
    pool.close()
    assert not watching()
    assert not comms()


def comms() -> dict[str, Any]:
    """Return the open widgets by id, including layouts."""
    found: dict[str, Any] = ipywidgets._instances
    return found


def the_widget() -> PoolWidget:
    (found,) = (each for each in comms().values() if isinstance(each, PoolWidget))
    return found


def test_display_has_every_mime_type(notebook: FakeKernelShell, pool: ShownPool) -> None:
    pool._ipython_display_()
    (shown,) = notebook.displayed
    assert set(shown) == {VIEW, "text/html", "text/plain"}
    assert shown[VIEW]["model_id"] == the_widget().model_id
    assert the_widget().first["pools"]["p"]["name"] == "p"
    assert watching()  # no front end can send "look" while the cell is running


def test_one_widget_serves_all_displays_and_leaves_the_static_form(notebook: FakeKernelShell, pool: ShownPool) -> None:
    pool._ipython_display_()
    pool._ipython_display_()
    first, second = notebook.displayed
    assert first[VIEW] == second[VIEW]
    notebook.end_cell()
    pool.close()
    assert len(notebook.updates) == 2
    for left in notebook.updates:
        assert set(left) == {"text/html", "text/plain"}
        assert left["text/plain"].startswith("p: closed")
    with pytest.raises(NotImplementedError):  # a closed pool has no live view
        pool._ipython_display_()


def test_pool_is_polled_until_the_front_end_leaves(notebook: FakeKernelShell, pool: ShownPool) -> None:
    pool._ipython_display_()
    widget = the_widget()
    widget._handle_custom_msg({"kind": "look", "view": "a", "page": "1"}, [])
    notebook.end_cell()
    assert watching()
    widget._handle_custom_msg({"kind": "leave", "view": "a"}, [])
    assert not watching()


def test_polling_ends_if_no_front_end_looks(
    notebook: FakeKernelShell, pool: ShownPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widgets, "GRACE", 0.01)
    pool._ipython_display_()
    assert watching()
    notebook.end_cell()
    wait_for(lambda: not watching(), "the end of polling")


class Comm:
    """The kernel's end of a comm that was opened by a view."""

    is_closed = False

    def __init__(self) -> None:
        self.hear: Callable[[dict[str, Any]], object] = lambda _: None

    def on_msg(self, hear: Callable[[dict[str, Any]], object]) -> None:
        self.hear = hear

    def close(self) -> None:
        self.is_closed = True


def test_view_with_its_own_comm_sends_commands(notebook: FakeKernelShell, pool: ShownPool) -> None:
    pool._ipython_display_()
    opened, ours = notebook.targets[VIEW_TARGET], Comm()
    opened(ours, {"content": {"data": {"view": the_widget().key}}})
    ours.hear(
        {
            "content": {
                "data": {"kind": "run", "id": "x", "command": "scale", "arguments": {"pool": "p", "nodes": "1:7"}}
            }
        }
    )
    wait_for(lambda: pool.done, "the command")
    assert pool.done == [Nodes(1, 7)]
    nonsense: list[object] = [{"kind": "look"}, {"view": 7, "kind": "look"}, None, [], "x"]
    for broken in nonsense:
        ours.hear({"content": {"data": broken}})
    assert not ours.is_closed


@pytest.mark.parametrize("data", [{"view": "of a widget that is gone"}, {"view": None}, {}, [], None])
def test_comm_of_an_unknown_widget_is_closed(notebook: FakeKernelShell, pool: ShownPool, data: object) -> None:
    pool._ipython_display_()
    theirs = Comm()
    notebook.targets[VIEW_TARGET](theirs, {"content": {"data": data}})
    assert theirs.is_closed


def test_pool_is_stopped_from_the_widget(notebook: FakeKernelShell, pool: ShownPool) -> None:
    pool._ipython_display_()
    message = {"kind": "run", "id": "x", "command": "down", "arguments": {"pool": "p"}}
    the_widget()._handle_custom_msg(message, [])
    wait_for(lambda: notebook.updates and not comms(), "the static form")
    assert pool.done == ["closed"]


def test_widget_stays_open_for_a_reloaded_page(notebook: FakeKernelShell, pool: ShownPool) -> None:
    """The page does not know which output to replace, and would show nothing."""
    pool._ipython_display_()
    widget = the_widget()
    for page in "12":
        widget._handle_custom_msg({"kind": "look", "view": page, "page": page}, [])
    pool.close()
    assert not watching()
    assert widget.first["pools"]["p"]["state"] == "closed"
    assert the_widget() is widget
    widget.close()


def test_widget_closed_by_ipywidgets_is_recreated(notebook: FakeKernelShell, pool: ShownPool) -> None:
    pool._ipython_display_()
    the_widget().close()
    assert not watching()
    assert len(notebook.updates) == 1
    pool._ipython_display_()
    assert the_widget().model_id == notebook.displayed[-1][VIEW]["model_id"]


def test_static_form_is_shown_without_anywidget(
    notebook: FakeKernelShell, pool: ShownPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "skyward_jupyter.view.widget")
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(NotImplementedError):
        pool._ipython_display_()
    assert set(pool._repr_mimebundle_()) == {"text/html", "text/plain"}
    view.watch(pool)  # type: ignore[arg-type]  # a fake pool
    assert [set(each) for each in notebook.displayed] == [{"text/html", "text/plain"}]
