"""Fake pools with given reports, and a fake kernel with comms."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from skyward.control.observe.origin import Origin
from skyward.control.observe.snapshot import NodeView, OutputView, PoolReport, PoolSnapshot, TaskView
from skyward.errors import UsageError
from skyward.events.decisions import DecisionEvent, DecisionInputs
from skyward.events.output import LogEntry
from skyward.specs import Nodes
from skyward_kernel.pools import PoolManager
from tests.notebook import Notebook, new_notebook

CELL = Origin(7, "cell-id", "train(1)")


def node(rank: int, **other: Any) -> NodeView:
    """Return an active node."""
    return replace(NodeView(rank, "active", "ready", "127.0.0.1", 2, 0, 0, machine=rank + 1, asked_at=100.0), **other)


def snapshot(name: str = "p", **other: Any) -> PoolSnapshot:
    """Return a snapshot of a pool of two nodes."""
    plain = PoolSnapshot(name, "ready", "local", (node(0), node(1)), 0, 0, 0, 0, 1, 4, 2, "pressure", at=1000.0)
    return replace(plain, **other)


def task(number: int, **other: Any) -> TaskView:
    """Return a queued task."""
    return replace(TaskView(number, "train", "queued", None, CELL, 990.0), **other)


def decision(number: int, **other: Any) -> DecisionEvent:
    """Return a decision to scale up by one node."""
    sizes = {"default": 1}, {"default": 2}
    inputs = DecisionInputs(queued=2)
    plain = DecisionEvent(990.0 + number, "policy", "pressure", inputs, *sizes, "2 queued", number=number)
    return replace(plain, **other)


class FakePool:
    """A pool that reports given values."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.shown = snapshot(fields["name"])
        self.tasks: list[TaskView] = []
        self.decided: list[DecisionEvent] = []
        self.wrote: list[OutputView] = []
        self.revision = 0
        self.is_open = False
        self.done: list[Any] = []
        self.options = self.spec = _Anything()
        self.groups = {"default": (self.spec,)}
        self.recovered: tuple[str, ...] = ()
        self.log: list[LogEntry] = []
        self._at_close: list[Callable[[], object]] = []
        self.lives_on = self.is_scoped = False
        self.requested_nodes = Nodes(1)

    def open(self) -> "FakePool":
        self.is_open = True
        return self

    def close(self) -> None:
        self.is_open = False
        self.done.append("closed")
        for call in self._at_close:
            call()

    def leave(self) -> bool:
        return self.lives_on

    def snapshot(self) -> PoolSnapshot:
        return self.shown

    def report(self, *, decisions_after: int = 0, output_after: int = 0, tasks: int = 1000) -> PoolReport:
        decided = tuple(event for event in self.decided if event.number > decisions_after)
        wrote = tuple(piece for piece in self.wrote if piece.number > output_after)
        return PoolReport(self.shown, decided, tuple(self.tasks), wrote)

    def logs(self, task: int | None, node: int | None, *, tail: int) -> list[LogEntry]:
        return [entry for entry in self.log if task in (None, entry.task) and node in (None, entry.node)][-tail:]

    def start_log(self, node: int) -> str:
        self.done.append(("start log", node))
        return f"node {node}: worker"

    def changed(self, **other: Any) -> None:
        """Change the snapshot, and increment the revision."""
        self.shown = replace(self.shown, **other)
        self.revision += 1

    def resize(self, nodes: Nodes, group: str | None = None) -> None:
        self.requested_nodes = nodes
        self.done.append(nodes)

    def cancel(self, tasks: Any = (), *, cell: int | None = None) -> int:
        found = [each for each in self.tasks if each.number in tasks or (each.origin and each.origin.number == cell)]
        self.done.extend(("cancel", each.number) for each in found)
        return len(found)

    def drain(self, node: int) -> None:
        if node == 0:
            raise UsageError("Node 0 cannot be drained.")
        self.done.append(("drain", node))


class _Anything:
    nodes = 1
    console = True


class FakeComm:
    """A comm that the panel opened."""

    def __init__(self, comm_id: str) -> None:
        self.comm_id = comm_id
        self.closed = False
        self._receive: Callable[[Mapping[str, Any]], None] = lambda _: None
        self._left: Callable[[Mapping[str, Any]], None] = lambda _: None

    def on_msg(self, receive: Callable[[Mapping[str, Any]], None]) -> None:
        self._receive = receive

    def on_close(self, left: Callable[[Mapping[str, Any]], None]) -> None:
        self._left = left

    def close(self) -> None:
        self.closed = True

    def send(self, data: object) -> None:
        """Send a message as the panel does."""
        self._receive({"content": {"data": data}})

    def leave(self) -> None:
        """Close the comm as the panel does."""
        self._left({})


class FakeKernel:
    """A kernel's comm manager and session, which records published messages."""

    def __init__(self) -> None:
        self.comm_manager = self
        self.session = self
        self.iopub_socket = object()
        self.published: list[dict[str, Any]] = []
        self.comms: set[str] = set()
        self.targets: dict[str, Callable[[FakeComm, Any], None]] = {}
        self.ended: list[bool] = []

    def do_shutdown(self, restart: bool) -> None:
        self.ended.append(restart)

    def register_target(self, name: str, opened: Callable[[FakeComm, Any], None]) -> None:
        self.targets[name] = opened

    def unregister_target(self, name: str, opened: object) -> None:
        del self.targets[name]

    def register_comm(self, comm: Any) -> None:
        self.comms.add(comm.comm_id)

    def unregister_comm(self, comm: Any) -> None:
        self.comms.remove(comm.comm_id)

    def send(self, _socket: object, kind: str, content: dict[str, Any], **_: object) -> None:
        assert kind == "comm_msg"
        self.published.append(content["data"])

    def connect(self, client: str = "page") -> FakeComm:
        """Connect a panel."""
        (opened,) = self.targets.values()
        comm = FakeComm(f"comm-of-{client}-{len(self.published)}")
        opened(comm, {"content": {"data": {"client": client}}})
        return comm

    def messages(self, kind: str) -> list[dict[str, Any]]:
        """Return the published messages of a kind."""
        return [message for message in self.published if message["kind"] == kind]


@pytest.fixture
def pools() -> PoolManager:
    return PoolManager(FakePool)  # type: ignore[arg-type]  # a fake Compute


@pytest.fixture
def pool(pools: PoolManager) -> FakePool:
    """An open pool, p."""
    return pools.get_or_open("p")  # type: ignore[return-value]  # the same


@pytest.fixture
def notebook(pools: PoolManager) -> Iterator[Notebook]:
    """A plain IPython shell with the magics."""
    with new_notebook(pools) as notebook:
        yield notebook


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()
