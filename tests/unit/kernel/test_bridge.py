"""The bridge to panels: connections, published messages, and commands."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import skyward.frontends.pools
from skyward.commands.table.pool_options import POOL_OPTIONS
from skyward.config import Config
from skyward.errors import NodeStartError, PoolClosedError
from skyward.events.output import LogEntry
from skyward.pool.reaping.orphans import Orphan
from skyward.pool.reaping.reap import Reaped
from skyward.providers.protocol import ExecAccess, InstanceType, LocalAccess, Offer, SSHAccess
from skyward.specs import Nodes
from skyward_kernel.panel.bridge import MOST_CLIENTS, PanelBridge
from skyward_kernel.panel.form import form_fields
from skyward_kernel.panel.protocol import STATE_COMM
from skyward_kernel.pools import PoolManager
from tests.unit.kernel.conftest import FakeComm, FakeKernel, FakePool, node, task
from tests.unit.listed_cloud import ListedCloud
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


@pytest.fixture
def left() -> list[Orphan]:
    """Orphaned pools of other processes."""
    return []


@pytest.fixture
def bridge(kernel: FakeKernel, pools: PoolManager, left: list[Orphan]) -> Iterator[PanelBridge]:
    bridge = PanelBridge(kernel, pools, lambda: left)
    yield bridge
    bridge.close()
    bridge.close()
    assert (kernel.targets, kernel.comms) == ({}, set())
    assert not [thread for thread in threading.enumerate() if thread.name == "skyward-panel"]


def answer(kernel: FakeKernel, comm: FakeComm, **command: object) -> tuple[str, str]:
    """Send a command and return the state and text of its last answer."""
    before = len(kernel.published)
    comm.send({"id": "x", **command})

    def last() -> dict[str, str]:
        return next((m for m in reversed(kernel.published[before:]) if m["kind"] == "answer"), {"state": "heard"})

    wait_for(lambda: last()["state"] != "heard", f"an answer to {command}")
    return last()["state"], last()["text"]


def test_open_panel_learns_of_a_new_kernel(bridge: PanelBridge, kernel: FakeKernel) -> None:
    assert kernel.comms == {STATE_COMM}
    (first,) = kernel.published
    assert (first["kind"], first["seq"], first["tables"]) == ("snapshot", 1, {})
    assert [field["flag"] for field in first["form"]] == [option.name for option in POOL_OPTIONS]


def test_snapshot_on_connect_is_followed_by_deltas_in_sequence(
    bridge: PanelBridge, kernel: FakeKernel, pool: FakePool
) -> None:
    kernel.connect()
    wait_for(lambda: len(kernel.messages("snapshot")) > 1, "the snapshot")
    assert set(kernel.published[-1]["tables"]) == {"pools", "nodes", "points"}
    pool.changed(nodes=(node(0),))
    wait_for(lambda: kernel.messages("delta"), "the delta")
    delta = kernel.messages("delta")[-1]
    assert delta["gone"] == {"nodes": ("p/2",)}
    numbers = [message["seq"] for message in kernel.published if "seq" in message]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len({message["session"] for message in kernel.published if "session" in message}) == 1


def test_refresh_sends_a_snapshot(bridge: PanelBridge, kernel: FakeKernel, pool: FakePool) -> None:
    comm = kernel.connect()
    wait_for(lambda: len(kernel.messages("snapshot")) == 2, "the snapshot")
    comm.send({"kind": "refresh", "id": "1"})
    wait_for(lambda: len(kernel.messages("snapshot")) == 3, "another snapshot")


def test_pool_that_fails_to_report_is_polled_again(
    bridge: PanelBridge, kernel: FakeKernel, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[str] = []

    def closing(**_: object) -> None:
        polls.append("closed meanwhile" if polls else "broken")
        raise PoolClosedError("It is closed.") if len(polls) > 1 else RuntimeError("It is broken.")

    with monkeypatch.context() as patched:
        patched.setattr(pool, "report", closing)
        kernel.connect()
        wait_for(lambda: len(polls) > 2, "three polls")
    wait_for(lambda: "p" in kernel.published[-1]["tables"].get("pools", {}), "the pool")
    assert kernel.published[-1]["kind"] == "snapshot"


def test_thread_ends_with_the_last_panel(bridge: PanelBridge, kernel: FakeKernel) -> None:
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


def test_reloaded_page_replaces_its_connection(bridge: PanelBridge, kernel: FakeKernel) -> None:
    comms = [kernel.connect("same") for _ in range(3)]
    assert [comm.closed for comm in comms] == [True, True, False]
    many = [kernel.connect(f"page {n}") for n in range(MOST_CLIENTS)]
    assert comms[-1].closed
    assert not any(comm.closed for comm in many)


def run(kernel: FakeKernel, comm: FakeComm, command: str, /, **arguments: object) -> tuple[str, str]:
    """Run a command and return the state and text of its last answer."""
    return answer(kernel, comm, kind="run", command=command, arguments=arguments)


def test_commands_are_executed(bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager, pool: FakePool) -> None:
    comm = kernel.connect()
    pool.tasks = [task(1), task(2)]
    assert run(kernel, comm, "cancel", pool="p", task=2) == ("done", "Stopping task 2.")
    assert run(kernel, comm, "cancel", pool="p", task=9)[0] == "refused"
    assert run(kernel, comm, "cancel", cell=7) == ("done", "Stopping 2 tasks of cell 7.")
    assert run(kernel, comm, "cancel", cell=8)[0] == "refused"
    assert run(kernel, comm, "scale", pool="p", nodes="2:5") == ("done", "Scaling pool 'p' to 2:5 nodes.")
    assert run(kernel, comm, "scale", pool="p", nodes="5:2")[0] == "refused"
    pool.changed(queued=0)
    draining = "Draining node 1 of pool 'p': it terminates once its tasks are done, unless they keep a value there."
    assert run(kernel, comm, "drain", pool="p", node=1) == ("done", draining)
    pool.changed(queued=3)
    another = "3 tasks wait, so the pool may launch another node."
    assert run(kernel, comm, "drain", pool="p", node=1) == ("done", f"{draining} {another}")
    assert run(kernel, comm, "drain", pool="p", node=0) == ("refused", "Node 0 cannot be drained.")
    assert pool.done == [("cancel", 2), ("cancel", 1), ("cancel", 2), Nodes(2, 5), ("drain", 1), ("drain", 1)]
    assert run(kernel, comm, "down", pool="p") == ("done", "Pool 'p' is closed.")
    assert run(kernel, comm, "down", pool="p")[0] == "refused"
    assert run(kernel, comm, "down", every=True) == ("done", "There are no pools.")
    assert pools.names == []


def test_closed_pool_has_a_bill(bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager, pool: FakePool) -> None:
    comm = kernel.connect()
    pool.changed(spent=1.234)
    assert run(kernel, comm, "down", pool="p") == ("done", "Pool 'p' is closed ($1.23 spent).")
    assert run(kernel, comm, "up", pool="q", options={})[0] == "done"
    assert run(kernel, comm, "down", every=True) == ("done", "Closed: q.")


def test_form_opens_new_pools_only(bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager) -> None:
    comm = kernel.connect()
    assert run(kernel, comm, "up", pool="q", options={"--nodes": "2", "--budget": " "}) == ("done", "Pool 'q' is open.")
    opened: Any = pools.get("q")
    assert opened.fields == {"name": "q", "nodes": Nodes(2)}
    taken = "There is a pool 'q' already: choose another name."
    assert run(kernel, comm, "up", pool="q", options={}) == ("refused", taken)
    assert run(kernel, comm, "up", pool=" ", options={}) == ("refused", "A pool needs a name.")
    state, text = run(kernel, comm, "up", pool="r", options={"--nodes": "x"})
    assert (state, text.partition(":")[0]) == ("refused", "--nodes x")
    assert pools.names == ["q"]


def orphan(name: str, **other: object) -> Orphan:
    """Return an orphaned pool."""
    plain = Orphan(f"{name}-1", name, "here", 12, 10.0, 2, False, seen=1000.0, lease=600.0, per_hour=3.0)
    return replace(plain, **other)  # type: ignore[arg-type]  # its own fields


def test_orphans_are_listed_and_can_be_attached_or_reaped(
    bridge: PanelBridge,
    kernel: FakeKernel,
    pools: PoolManager,
    left: list[Orphan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reap(names: list[str], *, warm: bool) -> list[Reaped]:
        assert not warm
        gone = [Reaped(each, terminated=each.machines) for each in left if each.id in names]
        left[:] = [each for each in left if each.id not in names]
        return gone

    def attach(name: str, *, budget: float | None) -> FakePool:
        assert budget is None
        left[:] = [each for each in left if each.name != name]
        pool: Any = pools.get_or_open(name)
        pool.recovered = (SimpleNamespace(origin=None, number=7, name="train", node=0, state="running", printed=5),)
        return pool  # type: ignore[no-any-return]  # the pool that the fixture's factory makes

    monkeypatch.setattr(skyward.frontends.pools, "reap", reap)
    monkeypatch.setattr(pools, "attach", attach)
    left += [orphan("train"), orphan("old", due=True), orphan("never", machines=0), orphan("other")]
    comm = kernel.connect()

    def offered() -> set[str]:
        rows: set[str] = set()
        for message in kernel.published:
            if message["kind"] == "snapshot":
                rows = set()
            rows |= set(message.get("tables", {}).get("orphans", {}))
            rows -= set(message.get("gone", {}).get("orphans", ()))
        return rows

    wait_for(lambda: offered() == {"train-1", "other-1"}, "the two pools that can be attached to")
    reply = run(kernel, comm, "attach", pool="train")
    assert reply == ("done", "Attached to pool 'train' with 1 recovered task.")
    wait_for(lambda: offered() == {"other-1"}, "one orphan")
    reply = run(kernel, comm, "reap", pools=["other-1"])
    assert reply == ("done", "other: 2 machines terminated.")
    wait_for(lambda: offered() == set(), "no orphans")
    assert run(kernel, comm, "reap", pools=["other-1"])[0] == "refused"


def test_pool_that_fails_to_open_is_shown_until_it_is_dismissed_or_opened(
    bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: FakePool) -> None:
        raise NodeStartError("Pool 'q' could not start node 0: refused:\nlast line")

    def failed() -> dict[str, str]:
        comm.send({"kind": "refresh", "id": "1"})
        rows = kernel.messages("snapshot")[-1]["tables"].get("failed_pools", {})
        return {name: row["reason"] for name, row in rows.items()}

    comm = kernel.connect()
    reasons = dict.fromkeys(("q", "r"), "Pool 'q' could not start node 0: refused:\nlast line")
    with monkeypatch.context() as patched:
        patched.setattr(FakePool, "open", refused)
        for name in reasons:
            assert run(kernel, comm, "up", pool=name, options={}) == ("refused", reasons[name])
    wait_for(lambda: failed() == reasons, "the two failed pools")
    assert run(kernel, comm, "up", pool="q", options={})[0] == "done"
    wait_for(lambda: list(failed()) == ["r"], "one failed pool")
    assert answer(kernel, comm, kind="dismiss", pool="r") == ("done", "")
    wait_for(lambda: failed() == {}, "no failed pool")


def test_restarting_kernel_leaves_pools_that_outlive_it(
    bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager, pool: FakePool
) -> None:
    far: Any = pools.get_or_open("far")
    far.lives_on = True
    kernel.do_shutdown(False)
    assert pools.names == ["p", "far"]
    kernel.do_shutdown(True)
    assert pools.names == ["p"]
    assert (kernel.ended, far.done) == ([False, True], [])


def test_connecting_panels_and_pools_do_not_leak(bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager) -> None:
    threads, comms, targets = threading.active_count(), set(kernel.comms), set(kernel.targets)
    for number in range(50):
        panel = kernel.connect(f"page {number % 3}")
        pools.get_or_open(f"pool {number}")
        panel.send({"kind": "refresh", "id": "1"})
        pools.close(f"pool {number}")
        panel.leave()
    wait_for(lambda: threading.active_count() == threads, "the threads to end")
    assert (set(kernel.comms), set(kernel.targets), bridge._clients) == (comms, targets, {})
    kernel.connect()
    wait_for(lambda: kernel.published[-1].get("tables") == {}, "a snapshot of nothing")


def reply(kernel: FakeKernel, comm: FakeComm, wanted: str, **question: object) -> dict[str, Any]:
    """Send a query and return its reply."""
    before = len(kernel.published)
    comm.send({"id": "q", **question})
    wait_for(lambda: any(m["kind"] == wanted for m in kernel.published[before:]), f"the answer to {question}")
    return next(message for message in kernel.published[before:] if message["kind"] == wanted)


def test_price_is_estimated_before_anything_is_launched(
    bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "skyward.toml").write_text('[providers.cloud]\ntype = "local"\nhourly_price = 1.5\n')
    monkeypatch.chdir(tmp_path)
    assert {"cloud", "local"} <= set(next(each for each in form_fields() if each.flag == "--provider").choices)
    comm = kernel.connect()
    options = {"--nodes": "2:6", "--provider": "cloud", "--budget": " "}
    price = reply(kernel, comm, "price", kind="ask-price", name="q", options=options)
    assert (price["min"], price["max"], price["least"], price["most"]) == (2, 6, 3.0, 9.0)
    (offer,) = price["offers"]
    assert offer["per_hour"] == 1.5
    assert "vCPUs" in offer["hardware"]
    assert not price["notes"]
    assert "local" in offer["place"]
    state, text = answer(kernel, comm, kind="ask-price", name="q", options={**options, "--max-cost": "1"})
    assert state == "refused"
    assert text.startswith("No offer fits the spec: of 1 offer from local, max_hourly_cost excludes 1")
    assert answer(kernel, comm, kind="ask-price", name="q", options={"--nodes": "x"})[0] == "refused"
    state, text = answer(kernel, comm, kind="ask-price", name="q", options={"--provider": "ssh"})
    assert (state, "needs settings" in text) == ("refused", True)
    assert pools.names == []


def test_estimate_tells_what_the_pool_would_say_of_its_price(
    bridge: PanelBridge, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cloud = ListedCloud(
        (
            Offer("dear", InstanceType("dear", 8, 32), None, 30.0),
            Offer("odd", InstanceType("odd", 8, 32)),
        )
    )
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(Config, "provider", lambda *_: cloud)
    options = {"--nodes": "1:4", "--provider": "cloud"}
    price = reply(kernel, kernel.connect(), "price", kind="ask-price", name="q", options=options)
    unknown, warning = price["notes"]
    assert unknown == "The price of cloud odd on-demand is not known, and is left out."
    assert "may cost $120.00 per hour, which is above the limit of $10.00" in warning


def test_each_field_of_the_form_is_checked(
    bridge: PanelBridge, kernel: FakeKernel, pools: PoolManager, pool: FakePool
) -> None:
    comm = kernel.connect()

    def wrong(name: str, **options: str) -> dict[str, str]:
        flags = {f"--{option}": text for option, text in options.items()}
        checked: dict[str, str] = reply(kernel, comm, "checked", kind="ask-check", name=name, options=flags)["wrong"]
        return checked

    assert wrong("q", nodes="2:8", budget=" ", idle="10m") == {}
    assert wrong("p", nodes="9:3", budget="much", idle="10m") == {
        "name": "There is a pool 'p' already: choose another name.",
        "--nodes": "--nodes 9:3: the maximum, 3, is less than the minimum, 9: write 3:9.",
        "--budget": "--budget takes USD in total, such as 20, but got 'much'.",
    }
    assert wrong(" ") == {"name": "A pool needs a name."}
    assert wrong("q", plugin="keras, joblib") == {}
    assert wrong("q", plugin="torhc")["--plugin"].endswith("There is no plugin 'torhc'; did you mean 'torch'?")
    assert "Plugin 'mig' needs 'profile': " in wrong("q", plugin="mig")["--plugin"]
    assert wrong("q", plugin="torch,jax") == {
        "": "plugins has 'torch' and 'jax', which exclude each other: take one out."
    }
    assert pools.names == ["p"]


def test_terminal_command_of_a_node(bridge: PanelBridge, kernel: FakeKernel, pool: FakePool) -> None:
    far = SSHAccess("gpu 1", 2222, "me", ("/keys/k",), known_hosts="/known")
    box = ExecAccess(("docker", "exec", "-i", "box"), "box", terminal=("docker", "exec", "-it", "box", "sh"))
    accesses = (LocalAccess("127.0.0.1", "/tmp/work"), far, None, box, replace(box, terminal=()))
    pool.changed(nodes=tuple(node(rank, access=access) for rank, access in enumerate(accesses)))
    comm = kernel.connect()
    wait_for(lambda: "p/5" in kernel.published[-1].get("tables", {}).get("nodes", {}), "the nodes")
    rows = kernel.published[-1]["tables"]["nodes"]
    assert [rows[f"p/{number}"]["terminal_access"] for number in range(1, 6)] == ["here", "ssh", "", "exec", ""]
    inside = reply(kernel, comm, "shell", kind="ask-shell", pool="p", node=3)
    assert (inside["folder"], inside["line"]) == ("", "docker exec -it box sh")
    assert answer(kernel, comm, kind="ask-shell", pool="p", node=4)[0] == "refused"
    here = reply(kernel, comm, "shell", kind="ask-shell", pool="p", node=0)
    assert (here["folder"], here["line"]) == ("/tmp/work", "")
    there = str(reply(kernel, comm, "shell", kind="ask-shell", pool="p", node=1)["line"])
    assert there.startswith("ssh -t -p 2222 -l me -i /keys/k -o IdentitiesOnly=yes")
    assert there.endswith("-- 'gpu 1'")
    assert "StrictHostKeyChecking=yes" in there
    assert "BatchMode" not in there
    assert answer(kernel, comm, kind="ask-shell", pool="p", node=2)[0] == "refused"
    assert answer(kernel, comm, kind="ask-shell", pool="p", node=9)[0] == "refused"


def test_output_of_one_task_is_returned(bridge: PanelBridge, kernel: FakeKernel, pool: FakePool) -> None:
    pool.log = [LogEntry(1.0, rank, rank * 10, "stdout", 0, f"line of {rank}\n") for rank in (0, 1)]
    comm = kernel.connect()
    output = reply(kernel, comm, "printed", kind="ask-output", pool="p", node=None, task=10)
    assert [row["text"] for row in output["rows"]] == ["line of 1\n"]


def test_malformed_messages_are_refused_or_ignored(bridge: PanelBridge, kernel: FakeKernel) -> None:
    comm = kernel.connect()
    nonsense: tuple[object, ...] = (None, [], {}, {"kind": "drain"}, {"kind": []}, "x")
    for message in nonsense:
        comm.send(message)
    assert kernel.messages("answer") == []
    assert answer(kernel, comm, kind="drain")[0] == "refused"
    assert answer(kernel, comm, kind="refresh") == ("done", "")


class Gap:
    """A lock that calls a function right after its first release."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._happens: Callable[[], object] | None = happens

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()


def test_panel_that_connects_as_the_last_one_leaves_gets_updates(
    bridge: PanelBridge, kernel: FakeKernel, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = kernel.connect("last")
    monkeypatch.setattr(bridge, "_lock", Gap(lambda: kernel.connect("next")))
    last.leave()
    pool.changed(queued=5)

    def queued() -> list[int]:
        rows = (message.get("tables", {}).get("pools", {}).get("p") for message in kernel.published)
        return [row["queued"] for row in rows if row]

    wait_for(lambda: 5 in queued(), "the update of the new panel")
