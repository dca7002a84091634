"""Fake pools, and notebooks on them. (`Notebook` is that of all tiers, in tests/notebook.py.)"""

import io
import linecache
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from skyward.commands.table.pool_options import POOL_LABELS
from skyward.control.act.tasks.run import TaskOutcome
from skyward.control.observe.snapshot import NodeView, PoolSnapshot
from skyward.errors import TaskCancelledError
from skyward.events.decisions import DecisionEvent
from skyward.functions.pending import PendingFunction
from skyward.pool.hooks import observed
from skyward.specs import Nodes, NodesLike, resolve_groups
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.returned_state import ReturnedState
from skyward_kernel.pools import PoolManager
from tests.notebook import Notebook, Ran, add_magics, new_shell

__all__ = ["Elements", "FakeCompute", "FakeRun", "Notebook", "Ran", "new_shell"]


class Elements:
    """The elements of a stream."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self._stream = stream

    def __iter__(self) -> "Elements":
        return self

    def __next__(self) -> Any:
        return next(self._stream)


class FakeRun:
    """A run that finishes at once, unless `hold` is set."""

    def __init__(self, value: Callable[[], Any], nodes: list[int], stream: Any = None, *, hold: bool = False) -> None:
        self.future: Future[Any] = Future()
        self.nodes = nodes
        self.retries: list[tuple[int, str]] = []
        self.hardware = ["A100"]
        self.cost = 0.0011
        self.size = len(nodes)
        self.timed_out = self.stopped = 0
        self.unsaved: list[tuple[int, str]] = []
        self.is_only_unsaved = False
        self._value = value
        self._stream = stream
        self._hold = hold
        self.left: Any = [CellResult(ReturnedState(), node=node) for node in nodes]
        self.errors: dict[int, Exception] = {}
        if not hold:
            self.finish()

    def finish(self) -> None:
        """Finish with the result of the work."""
        try:
            self.future.set_result(self._value())
        except Exception as error:
            self.future.set_exception(error)

    @property
    def state(self) -> str:
        if not self.future.done():
            return "running"
        return "failed" if self.failed else "done"

    @property
    def failed(self) -> int:
        if not self.future.done():
            return 0
        if self.future.exception():
            return 1
        result = self.future.result()
        return sum(each.failure is not None for each in (result if isinstance(result, list) else [result]) if each)

    def items(self) -> Any:
        return None if self._stream is None else Elements(self._stream)

    def _works(self) -> list[Any]:
        return []

    @property
    def is_stream(self) -> bool:
        return self._stream is not None

    @property
    def has_state(self) -> bool:
        return self.future.done() and not self.future.exception()

    bytes_in_transfer = 0
    is_leaving = False

    def _returned(self) -> Any:
        while self._stream is not None:
            try:
                next(self._stream)
            except StopIteration as end:
                return end.value
        return self.future.result()

    def remains(self) -> list[TaskOutcome]:
        """Return the result of the run on each node, or what it left."""
        if not self.future.done():
            return [TaskOutcome(node, is_over=False) for node in self.nodes]
        value = self.left if self.future.exception() else self._returned()
        values = value if isinstance(value, list) else [value]
        return [
            TaskOutcome(node, True, value, error=self.errors.get(node))
            for node, value in zip(self.nodes, values, strict=True)
        ]

    def cancel(self) -> bool:
        if self.future.done():
            return False
        self.future.set_exception(TaskCancelledError("was cancelled on node 0.", subject="run_cell()"))
        return True


class FakeCompute:
    """A pool that runs cells in this process, sequentially."""

    made: list["FakeCompute"]
    hold = False
    fail: Exception | None = None

    def __init__(self, *, name: str, **fields: Any) -> None:
        resolved = resolve_groups((), None, fields, name)
        self.options = resolved.options
        self.groups = resolved.groups
        self.spec = next(iter(self.groups.values()))[0]
        self.name = name
        self.fields = fields
        self.nodes = self.spec.nodes
        self.is_open = False
        self.closed = 0
        self.alive = True
        self.runs: list[FakeRun] = []
        self.metrics: dict[int, Any] = {}
        self.decided: list[DecisionEvent] = []
        self.sent: list[tuple[PendingFunction[Any], Any]] = []
        self._pool = None
        self._at_close: list[Callable[[], object]] = []
        self.made.append(self)

    def open(self) -> "FakeCompute":
        if not self.is_open:
            with observed(self):  # type: ignore[arg-type]  # a fake Compute
                if self.fail is not None:
                    raise self.fail
                self.is_open = self.alive = True
        return self

    def close(self) -> None:
        self.is_open = False
        self.closed += 1
        calls, self._at_close = self._at_close, []
        for call in calls:
            call()

    @property
    def requested_nodes(self) -> Nodes:
        return self.nodes

    def resize(self, nodes: NodesLike, group: str | None = None) -> None:
        self.nodes = Nodes.of(nodes)

    def set_budget(self, budget: float | None) -> None:
        self.options = replace(self.options, budget=budget)

    def decisions(self) -> list[DecisionEvent]:
        return self.decided

    def kept(self) -> tuple[Any, ...]:
        return ()

    def snapshot(self) -> PoolSnapshot:
        count = self.nodes.min if self.alive else 0
        views = tuple(
            NodeView(
                rank, "active", "ready", f"127.0.0.{rank + 1}", 1, 0, 0, machine=rank, metrics=self.metrics.get(rank)
            )
            for rank in range(count)
        )
        least, most = self.nodes.min, self.nodes.ceiling
        state: Any = "ready" if self.is_open else "closed"
        return PoolSnapshot(self.name, state, "local", views, 0, 0, len(self.runs), 0, least, most, least)

    def start(self, pending: PendingFunction[Any], *, on: Any, sink: Any, runs: list[Any], waits: bool) -> FakeRun:
        self.sent.append((pending, on))

        ranks = list(range(self.nodes.min)) if on == "all" else None if isinstance(on, (int, str)) else list(on)

        def call() -> Any:
            caught = io.StringIO()
            lines = dict(linecache.cache)
            with redirect_stdout(caught):
                value = pending.fn(*pending.args, **pending.kwargs)
            linecache.cache.update(lines)  # a node has its own cache
            sink.output(0, "stdout", caught.getvalue())
            return value if ranks is None else [value] * len(ranks)

        if pending.fn.__name__ == "stream_cell":
            run = FakeRun(lambda: None, [0], pending.fn(*pending.args))
        else:
            run = FakeRun(call, ranks or [0], hold=self.hold)
        self.runs.append(run)
        runs.append(run)
        return run


@pytest.fixture
def compute() -> type[FakeCompute]:
    """Class of the pools of a test; `made` has all instances."""
    return type("Pools", (FakeCompute,), {"made": []})


@pytest.fixture
def pools(compute: type[FakeCompute]) -> PoolManager:
    return PoolManager(compute, POOL_LABELS)  # type: ignore[arg-type]  # a fake Compute


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    with new_shell() as shell:
        yield shell


@pytest.fixture
def notebook(shell: InteractiveShell, pools: PoolManager) -> Notebook:
    return add_magics(shell, pools)
