"""Panels that connect, ask and leave; what they are sent, and what their commands do."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from skyward.errors import PoolClosedError, UsageError
from skyward.specs import Nodes
from skyward_kernel.bridge import MOST_CLIENTS, PanelBridge
from skyward_kernel.pools import PoolManager
from skyward_kernel.protocol import STATE_COMM, FormField
from skyward_kernel.publisher import Publisher
from tests.unit.panel.conftest import FakeComm, FakeKernel, FakePool, node, task

pytestmark = pytest.mark.unit

type Opened = list[tuple[str, dict[str, str]]]


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"waited 20 s for {what}"
        time.sleep(0.005)


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def opened() -> Opened:
    """The pools that the form asked for."""
    return []


@pytest.fixture
def bridge(kernel: FakeKernel, pools: PoolManager, opened: Opened) -> Iterator[PanelBridge]:
    def open_pool(name: str, options: object) -> None:
        if name == "bad":
            raise UsageError("--nodes takes a number.")
        opened.append((name, dict(options)))  # type: ignore[call-overload]  # a mapping

    bridge = PanelBridge(kernel, pools, open_pool, [FormField("--nodes", "N", "how many")])
    yield bridge
    bridge.close()
    bridge.close()
    assert (kernel.targets, kernel.comms) == ({}, set())
    assert not [thread for thread in threading.enumerate() if thread.name == "skyward-panel"]


def answer(kernel: FakeKernel, comm: FakeComm, **command: object) -> tuple[str, str]:
    """State and sentence of the last answer to a command."""
    before = len(kernel.published)
    comm.send({"id": "x", **command})

    def last() -> dict[str, str]:
        return next((m for m in reversed(kernel.published[before:]) if m["kind"] == "answer"), {"state": "heard"})

    wait_for(lambda: last()["state"] != "heard", f"an answer to {command}")
    return last()["state"], last()["text"]


def test_a_panel_that_is_there_already_learns_of_the_kernel(bridge: PanelBridge, kernel: FakeKernel) -> None:
    assert kernel.comms == {STATE_COMM}
    (first,) = kernel.published
    assert (first["kind"], first["seq"], first["tables"]) == ("snapshot", 1, {})
    assert first["form"] == [{"flag": "--nodes", "metavar": "N", "help": "how many", "choices": (), "takes": ""}]


def test_a_snapshot_on_connect_then_deltas_in_sequence(bridge: PanelBridge, kernel: FakeKernel, pool: FakePool) -> None:
    kernel.connect()
    wait_for(lambda: len(kernel.said("snapshot")) > 1, "the snapshot")
    assert set(kernel.published[-1]["tables"]) == {"pools", "nodes", "points"}
    pool.changed(nodes=(node(0),))
    wait_for(lambda: kernel.said("delta"), "the difference")
    delta = kernel.said("delta")[-1]
    assert delta["gone"] == {"nodes": ("p/2",)}
    numbers = [message["seq"] for message in kernel.published if "seq" in message]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len({message["session"] for message in kernel.published if "session" in message}) == 1


def test_a_gap_asks_for_a_snapshot(bridge: PanelBridge, kernel: FakeKernel, pool: FakePool) -> None:
    comm = kernel.connect()
    wait_for(lambda: len(kernel.said("snapshot")) == 2, "the snapshot")
    comm.send({"kind": "refresh", "id": "1"})
    wait_for(lambda: len(kernel.said("snapshot")) == 3, "another snapshot")


def test_a_pool_that_cannot_be_looked_at_is_looked_at_again(
    bridge: PanelBridge, kernel: FakeKernel, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def closing(**_: object) -> None:
        looks.append("closed meanwhile" if looks else "broken")
        raise PoolClosedError("It is closed.") if len(looks) > 1 else RuntimeError("It is broken.")

    with monkeypatch.context() as patched:
        patched.setattr(pool, "report", closing)
        kernel.connect()
        wait_for(lambda: len(looks) > 2, "three looks")
    wait_for(lambda: "p" in kernel.published[-1]["tables"].get("pools", {}), "the pool")
    assert kernel.published[-1]["kind"] == "snapshot"


def test_nothing_is_sent_when_nothing_changes(pools: PoolManager, pool: FakePool) -> None:
    sent: list[object] = []
    publisher = Publisher(pools, sent.append)
    assert publisher.look()
    for _ in range(20):
        assert not publisher.look()
    pool.revision += 1  # something happened, and nothing is different
    assert not publisher.look()
    assert len(sent) == 1


def test_a_change_goes_out_at_most_ten_times_a_second(kernel: FakeKernel, pools: PoolManager, pool: FakePool) -> None:
    """Many changes in one tenth of a second are one message."""
    bridge = PanelBridge(kernel, pools, lambda *_: None)
    try:
        kernel.connect()
        wait_for(lambda: len(kernel.said("snapshot")) > 1, "the snapshot")
        began, before = time.monotonic(), len(kernel.published)
        while time.monotonic() - began < 1.0:
            pool.changed(queued=pool.shown.queued + 1)
        assert len(kernel.published) - before <= 11
    finally:
        bridge.close()


def test_a_pool_of_the_same_name_is_another_pool(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Publisher(pools, sent.append)
    publisher.look()
    pools.close("p")
    pools.get_or_open("p")
    publisher.look()
    assert [message["kind"] for message in sent] == ["delta", "snapshot"]


def test_while_there_is_work_a_snapshot_goes_out_now_and_then(pools: PoolManager, pool: FakePool) -> None:
    sent: list[dict[str, object]] = []
    publisher = Publisher(pools, sent.append)
    pool.changed(running=1)
    publisher.look()
    assert sent[-1]["kind"] == "snapshot"


def test_the_last_panel_that_leaves_ends_the_thread(bridge: PanelBridge, kernel: FakeKernel) -> None:
    def publishing() -> bool:
        return any(thread.name == "skyward-panel" for thread in threading.enumerate())

    first, second = kernel.connect("one"), kernel.connect("two")
    assert publishing()
    first.leave()
    assert publishing()
    second.leave()
    assert not publishing()
    kernel.connect("three")
    assert publishing()


def test_a_page_that_is_reloaded_takes_its_own_place(bridge: PanelBridge, kernel: FakeKernel) -> None:
    comms = [kernel.connect("same") for _ in range(3)]
    assert [comm.closed for comm in comms] == [True, True, False]
    many = [kernel.connect(f"page {n}") for n in range(MOST_CLIENTS)]
    assert comms[-1].closed
    assert not any(comm.closed for comm in many)


def test_commands(
    bridge: PanelBridge,
    kernel: FakeKernel,
    pools: PoolManager,
    pool: FakePool,
    opened: list[tuple[str, dict[str, str]]],
) -> None:
    comm = kernel.connect()
    pool.tasks = [task(1), task(2)]
    assert answer(kernel, comm, kind="cancel-task", pool="p", task=2) == ("done", "Stopping task 2.")
    assert answer(kernel, comm, kind="cancel-task", pool="p", task=9)[0] == "refused"
    assert answer(kernel, comm, kind="cancel-cell", cell=7) == ("done", "Stopping 2 tasks of cell 7.")
    assert answer(kernel, comm, kind="cancel-cell", cell=8)[0] == "refused"
    assert answer(kernel, comm, kind="scale", pool="p", min=2, max=5) == ("done", "Pool 'p' goes to 2:5 nodes.")
    assert answer(kernel, comm, kind="scale", pool="p", min=5, max=2)[0] == "refused"
    assert answer(kernel, comm, kind="drain", pool="p", node=1)[0] == "done"
    assert answer(kernel, comm, kind="drain", pool="p", node=0) == ("refused", "Node 0 cannot be drained.")
    assert pool.done == [("cancel", 2), ("cancel", 1), ("cancel", 2), Nodes(2, 5), ("drain", 1)]
    assert answer(kernel, comm, kind="new-pool", name="q", options={"--nodes": "2"}) == ("done", "Pool 'q' is open.")
    assert answer(kernel, comm, kind="new-pool", name="bad", options={}) == ("refused", "--nodes takes a number.")
    assert opened == [("q", {"--nodes": "2"})]
    assert answer(kernel, comm, kind="stop-pool", pool="p") == ("done", "Pool 'p' is closed.")
    assert answer(kernel, comm, kind="stop-pool", pool="p")[0] == "refused"
    assert answer(kernel, comm, kind="stop-all") == ("done", "There are no pools.")
    assert pools.names == []


def test_what_is_no_command_is_refused_if_it_can_be_and_harms_nothing(bridge: PanelBridge, kernel: FakeKernel) -> None:
    comm = kernel.connect()
    nonsense: tuple[object, ...] = (None, [], {}, {"kind": "drain"}, {"kind": []}, "x")
    for message in nonsense:
        comm.send(message)
    assert kernel.said("answer") == []
    assert answer(kernel, comm, kind="drain")[0] == "refused"
    assert answer(kernel, comm, kind="refresh") == ("done", "")
