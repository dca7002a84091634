"""Live views of a pool: visibility, updates, commands and cleanup."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skyward.specs import Nodes
from skyward_jupyter.view import live
from skyward_jupyter.view.live import LiveView
from skyward_kernel.pools import PoolManager
from tests.unit.kernel.conftest import FakePool, decision, node, snapshot, task
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

type Sent = list[dict[str, Any]]


@pytest.fixture
def pool() -> FakePool:
    pool = FakePool(name="p")
    pool.name = "p"  # type: ignore[attr-defined]  # as a pool has it
    return pool


@pytest.fixture
def sent() -> Sent:
    return []


@pytest.fixture
def view(pool: FakePool, sent: Sent) -> Iterator[LiveView]:
    view = LiveView(pool, sent.append)  # type: ignore[arg-type]  # a fake pool
    yield view
    view.end()
    view.end()
    assert not watching()


def watching() -> list[threading.Thread]:
    """Return the threads that poll a pool."""
    return [thread for thread in threading.enumerate() if thread.name == "skyward-panel"]


def of(sent: Sent, kind: str) -> Sent:
    return [message for message in sent if message["kind"] == kind]


def answer(view: LiveView, sent: Sent, command: str, **arguments: object) -> tuple[str, str]:
    """Run a command on the pool and return the state and text of its last answer."""
    view.received({"id": "x", "kind": "run", "command": command, "arguments": {"pool": "p", **arguments}})

    def last() -> dict[str, str]:
        return next((m for m in reversed(sent) if m["kind"] == "answer"), {"state": "heard"})

    wait_for(lambda: last()["state"] != "heard", f"an answer to {command}")
    return last()["state"], last()["text"]


def test_pool_is_polled_only_while_a_view_is_visible(view: LiveView, pool: FakePool, sent: Sent) -> None:
    assert not watching()
    view.received({"kind": "look", "view": "a"})
    view.received({"kind": "look", "view": "b"})
    wait_for(lambda: of(sent, "snapshot"), "a snapshot")
    assert len(watching()) == 1
    view.received({"kind": "leave", "view": "a"})
    assert len(watching()) == 1
    view.received({"kind": "leave", "view": "b"})
    view.received({"kind": "leave", "view": "b"})
    assert not watching()
    pool.changed(queued=7)
    before = len(sent)
    view.received({"kind": "look", "view": "a"})
    wait_for(lambda: any(m["tables"]["pools"]["p"]["queued"] == 7 for m in of(sent[before:], "snapshot")), "the change")


def test_only_changes_of_drawn_tables_are_sent(view: LiveView, pool: FakePool, sent: Sent) -> None:
    pool.tasks = [task(1)]
    first = view.state()
    assert set(first) <= set(live.SHOWN)
    assert first["nodes"]["p/1"]["rank"] == 0
    view.look("a")
    wait_for(lambda: of(sent, "snapshot"), "a snapshot")
    pool.decided = [decision(1)]
    pool.changed(nodes=(node(0),))
    wait_for(lambda: of(sent, "delta"), "the delta")
    (delta,) = of(sent, "delta")[:1]
    assert delta["gone"] == {"nodes": ("p/2",)}
    assert delta["tables"]["decisions"]["p/1"]["reason"] == "2 queued"
    assert all(set(message["tables"]) <= set(live.SHOWN) for message in sent)


def test_oldest_views_are_dropped(view: LiveView) -> None:
    for number in range(live.MOST_VIEWERS + 1):
        view.look(f"{number}")
    view.leave("0")  # already dropped
    for number in range(1, live.MOST_VIEWERS):
        view.leave(f"{number}")
    assert watching()
    view.leave(f"{live.MOST_VIEWERS}")
    assert not watching()


def test_ended_view_does_not_poll(view: LiveView, sent: Sent) -> None:
    view.end()
    view.look("late")
    assert not watching()
    assert not sent


def test_commands_scale_and_stop_the_pool(view: LiveView, pool: FakePool, sent: Sent) -> None:
    assert answer(view, sent, "scale", nodes="2:5") == ("done", "Scaling pool 'p' to 2:5 nodes.")
    assert answer(view, sent, "down") == ("done", "Pool 'p' is closed.")
    assert [str(each) for each in pool.done] == ["2:5", "closed"]


def test_commands_of_a_registered_pool_use_its_manager(sent: Sent, resident_of: Callable[[PoolManager], None]) -> None:
    """The manager tracks the requested size, with which requests of later cells are compared."""
    pools = PoolManager(FakePool)  # type: ignore[arg-type]  # a fake pool
    pool = pools.get_or_open("p", {"nodes": 1})
    pool.name = "p"
    resident_of(pools)
    view = LiveView(pool, sent.append)
    assert answer(view, sent, "scale", nodes="3")[0] == "done"
    assert pools.get_or_open("p", {"nodes": Nodes(3)}) is pool
    assert answer(view, sent, "down")[0] == "done"
    assert pools.names == []


@pytest.mark.parametrize(
    "message",
    [None, 7, {}, {"kind": "look"}, {"kind": "look", "view": 3}, {"kind": "run", "id": "x"}, {"kind": "drain"}],
)
def test_malformed_command_is_refused(view: LiveView, sent: Sent, message: object) -> None:
    view.received(message)
    assert [each["state"] for each in sent] == ["refused"]


def test_other_commands_of_the_panel_are_refused(view: LiveView, sent: Sent) -> None:
    assert answer(view, sent, "drain", node=1) == ("refused", "This view has no command drain.")
    assert answer(view, sent, "down", pool="other") == ("refused", "This view has no command down.")
    view.received({"id": "x", "kind": "refresh"})
    assert sent[-1]["text"] == "This view has no request refresh."


@pytest.fixture
def resident_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[PoolManager], None]:
    """A function that makes a manager the one of this kernel."""
    return lambda pools: monkeypatch.setitem(vars(live)["manager_of"].__globals__, "_resident", pools)


def test_state_is_read_from_the_pool_on_request(view: LiveView, pool: FakePool) -> None:
    pool.shown = snapshot(state="closed", nodes=())
    assert view.state()["pools"]["p"]["state"] == "closed"
