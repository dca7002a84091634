"""`sky.Compute`: a pool of nodes as ordinary blocking code sees it.

The pool itself lives on the library's loop. Everything here prepares a call on the calling thread (pickling included),
hands it over, and waits where it must.
"""

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from skyward.collections.base import refuse_standalone
from skyward.collections.opener import Opener, Shared
from skyward.config.pools import configured
from skyward.console import ConsoleSink
from skyward.control import background
from skyward.control.decisions import DecisionEvent
from skyward.control.pool import Pool
from skyward.control.run import Run
from skyward.control.snapshot import PoolReport, PoolSnapshot
from skyward.control.work import Sink
from skyward.dispatch import Dispatcher
from skyward.errors import (
    NoGroupFitsError,
    NotOnNodeError,
    OperatorError,
    PoolClosedError,
    ProvisioningError,
    SpecError,
    UsageError,
)
from skyward.function import PendingFunction, PendingFunctionGroup, RightSide, Target, current_pool, is_generator
from skyward.heard import Heard
from skyward.journal import ClusterEntry, PoolRecord
from skyward.opened import opened, say
from skyward.shown import Shown
from skyward.specs import ComputeFields, Nodes, NodesLike, Options, Spec, resolve_groups
from skyward.values import FrozenMap, closest, number
from skyward.watching import watched

if TYPE_CHECKING:
    from contextvars import Token

    from skyward.control.recovered import RecoveredTask
    from skyward.scaling.snapshot import Demand

__all__ = ["Compute", "On"]

type On = Literal["one", "all", "head"] | int
"""Where to run: on one node, on every node, on the head, or on the node of a rank."""

_INTERRUPT_GRACE = 1.5
_numbers = itertools.count(1)


class Compute(RightSide, Shared, Heard, Shown):
    """A pool of ephemeral nodes, for a `with` block or between `open()` and `close()`.

    Takes the fields of one `Spec` as keywords, or several `Spec`s; and the fields of `Options`, or `options=`. A `name`
    that has a `[pools.NAME]` table in `skyward.toml` stands for what that says, but for what is given beside it.

    Raises:
        SpecError: a field is unknown, given twice, or has a value that is not allowed.
    """

    def __init__(
        self, *specs: Spec, name: str | None = None, options: Options | None = None, **fields: Unpack[ComputeFields]
    ) -> None:
        resolved = resolve_groups(specs, options, configured(name, specs, options, fields), name)
        self._groups, self._options = resolved.groups, resolved.options
        self.name = name or f"pool-{next(_numbers)}"
        self._pool: Pool | None = None
        self._dispatch: Dispatcher | None = None
        self._shared: Opener | None = None
        self._scope: Token[Target | None] | None = None

    # Life.

    @property
    def spec(self) -> Spec:
        """What the nodes of the first group are like."""
        return next(iter(self._groups.values()))[0]

    @property
    def groups(self) -> Mapping[str, tuple[Spec, ...]]:
        """What the nodes of each group are like; several specs are alternatives."""
        return self._groups

    @property
    def options(self) -> Options:
        """How the pool behaves."""
        return self._options

    @property
    def is_open(self) -> bool:
        """Whether tasks can be sent."""
        return self._pool is not None and self._pool.state == "ready"

    def open(self) -> Self:
        """Get the nodes; returns when enough of them are ready.

        Raises:
            ProvisioningError: they cannot be had. Nothing is left running.
            JournalError: they cannot be written down, so they were not asked for.
        """
        if self._pool is None or self._pool.state == "closed":
            _refuse_on_node()
            lease = max(spec.ttl for specs in self._groups.values() for spec in specs)
            self._open(PoolRecord.new(self.name, self._groups, self._options, lease), ())
        return self

    @classmethod
    def attached(
        cls,
        name: str,
        groups: Mapping[str, tuple[Spec, ...]],
        options: Options,
        record: PoolRecord,
        earlier: Sequence[ClusterEntry],
    ) -> Self:
        """A pool that another process has opened, ours from now on: see `sky.attach`."""
        self = cls(*next(iter(groups.values())), name=name)
        self._groups, self._options = FrozenMap(groups), options
        self._open(record, earlier)
        return self

    def _open(self, record: PoolRecord, earlier: Sequence[ClusterEntry]) -> None:
        try:
            pool = Pool(self.name, self._groups, self._options, say, record)
        except BaseException:
            if earlier:
                record.leave()
            else:
                record.end()
            raise
        self._pool, self._dispatch = pool, Dispatcher(pool, self._options)
        self._shared = None if pool.clustering is None else Opener(pool.clustering)
        opened.add(self)
        opening = background.run(pool.open(earlier))
        try:
            opening.result()
        except BaseException:
            opening.cancel()
            with contextlib.suppress(ProvisioningError):  # of what may be left, it was said
                self.close()
            raise

    def close(self) -> None:
        """Stop what runs and give every machine back. Twice does no harm."""
        try:
            if self._pool is not None:
                background.run(self._pool.close()).result()
        except ProvisioningError:  # all was tried: what is left is for `sky reap`
            opened.discard(self)
            self._was_closed()
            raise
        opened.discard(self)
        self._was_closed()

    def leave(self) -> bool:
        """Have the nodes outlive this process, under their lease, for `sky.attach`; False where none of them can."""
        if not (self.is_open and any(node.outlives for node in self.snapshot().nodes)):
            return False
        opened.discard(self)
        self._was_closed()
        return True

    def __enter__(self) -> Self:
        self.open()
        self._scope = current_pool.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._scope is not None:
            current_pool.reset(self._scope)
            self._scope = None
        self.close()

    def resize(self, nodes: NodesLike, group: str | None = None) -> None:
        """Change how many nodes there are: a number, (min, max), or `Nodes`. Nodes that go finish their tasks first.

        Args:
            group: of which; needed where the pool has several.

        Raises:
            SpecError: not a number of nodes, or no such group.
            PoolClosedError: the pool is not open.
        """
        if group is None and len(self._groups) > 1:
            raise SpecError(f"Pool {self.name!r} has several groups: name one, `group={next(iter(self._groups))!r}`.")
        if group is not None and group not in self._groups:
            raise SpecError(f"Pool {self.name!r} has no group {group!r}; {closest(group, self._groups)}")
        background.call_soon(self._ready().resize, Nodes.of(nodes), group)

    def request_resources(self, floor: "Sequence[Demand]") -> None:
        """Keep room for `floor` from now on, whether it is used or not. See `sky.request_resources`.

        Raises:
            NoGroupFitsError: no node of the pool can ever have it.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        if reason := background.call(lambda: pool.unfit(floor)):
            raise NoGroupFitsError(f"request_resources asks for {reason}.")
        background.call_soon(pool.request_resources, tuple(floor))

    def set_budget(self, budget: float | None) -> None:
        """Change what the pool may cost, USD in all, what it has cost so far included; None for no limit.

        Raises:
            SpecError: not an amount.
            PoolClosedError: the pool is not open.
        """
        number(budget, "budget", optional=True)
        background.call_soon(self._ready().fund, budget)

    @property
    def recovered(self) -> "Sequence[RecoveredTask]":
        """The tasks that its former client has left behind, of a pool that `sky.attach` gave; see there."""
        return () if self._pool is None else tuple(self._pool.recovered)

    def decisions(self) -> list[DecisionEvent]:
        """The latest decisions about the number of nodes, oldest first: when, what each was made from, and why."""
        return [] if self._pool is None else background.call(self._pool.decisions)

    def snapshot(self) -> PoolSnapshot:
        """The pool as it is now: its nodes, how many tasks wait, run and have ended, and what it costs."""
        pool = self._pool
        if pool is None or pool.state in ("idle", "requesting"):
            wanted = [specs[0].nodes for specs in self._groups.values()]
            least, most = sum(nodes.min for nodes in wanted), sum(nodes.ceiling for nodes in wanted)
            return PoolSnapshot(self.name, "idle" if pool is None else pool.state, "", (), 0, 0, 0, 0, least, most, 0)
        return background.call(pool.snapshot)

    def report(self, *, decisions_after: int = 0, output_after: int = 0, tasks: int = 1000) -> PoolReport:
        """The pool as it is now, with its decisions, tasks and output: what a live view of it shows.

        Args:
            decisions_after, output_after: number of the latest ones that are known already.
            tasks: how many tasks that run or wait to list at most.
        """
        pool = self._pool
        if pool is None or pool.state in ("idle", "requesting"):
            return PoolReport(self.snapshot())
        record = pool.task_record

        def look() -> PoolReport:
            decided = tuple(event for event in pool.decisions() if event.number > decisions_after)
            printed = record.output(output_after)
            return PoolReport(pool.snapshot(), decided, record.tasks(tasks), printed, record.cells())

        return background.call(look)

    @property
    def revision(self) -> int:
        """A number that grows when anything about the pool changes. Costs nothing to ask for."""
        return 0 if self._pool is None else self._pool.task_record.revision

    def cancel(self, tasks: Collection[int] = (), *, cell: int | None = None) -> int:
        """Stop tasks, by their numbers in `report()`, or all of a cell, by its number; how many were not over yet."""
        pool = self._ready()
        return background.call(lambda: pool.cancel_numbers(tasks if cell is None else pool.task_record.of_cell(cell)))

    def drain(self, node: int) -> None:
        """Let the node of a rank finish its tasks and go. The pool has one node less then.

        Raises:
            UsageError: it is the head, is not up, or the pool has no more nodes than its fewest.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        if reason := background.call(lambda: pool.drain(node)):
            raise UsageError(f"Node {node} of pool {self.name!r} cannot be drained: {reason}.")

    def holds(self, digest: bytes) -> frozenset[int]:
        """Ranks of the nodes that hold the blob of this content address."""
        return frozenset() if self._pool is None else self._pool.holds(digest)

    def _opener(self, what: str) -> Opener:
        self._ready()
        refuse_standalone(what, self._shared)
        return cast("Opener", self._shared)

    # Dispatch.

    def run[T](self, pending: PendingFunction[T]) -> T:
        """`>>`: run on one node and wait; an iterator over the elements of a generator function."""
        __tracebackhide__ = True
        run: Run[T] = self.start(pending)
        if run.is_stream:
            return run.items()  # type: ignore[return-value]  # T is Iterator[...] for a generator function
        return self._wait(run.future, [run])

    def submit[T](self, pending: PendingFunction[T]) -> Future[T]:
        """`>`: run on one node, and have the result in a future. Cancelling it stops the work."""
        run: Run[T] = self.start(pending)
        if run.is_stream:
            ready: Future[Any] = Future()
            ready.set_result(run.items())
            return ready
        return run.future

    def broadcast[T](self, pending: PendingFunction[T]) -> list[T]:
        """`@`: run on every node; the results in the order of ranks."""
        __tracebackhide__ = True
        run: Run[list[T]] = self.start(pending, on="all", sink=ConsoleSink(label=True))
        return self._wait(run.future, [run])

    def run_group(self, group: PendingFunctionGroup[Any]) -> Any:
        """A group under `>>`: its results as a tuple, or an iterator over them with `stream=True`."""
        __tracebackhide__ = True
        runs = self._start_group(group)
        if group.stream:
            return self._stream_group(runs, group.ordered)
        with watched([run.future for run in runs]):
            return tuple(self._wait(run.future, runs) if not run.is_stream else run.items() for run in runs)

    def submit_group(self, group: PendingFunctionGroup[Any]) -> Future[tuple[Any, ...]]:
        """A group under `>`: a future of its results. Cancelling it stops the work of them all."""
        return self._dispatcher().gathered(self._start_group(group))

    def start(self, pending: PendingFunction[Any], *, on: On = "one", sink: Sink | None = None) -> Run[Any]:
        """Send a task, and return at once with what follows it.

        Raises:
            PayloadError: it cannot travel; nothing was sent.
            PoolClosedError: the pool is not open.
        """
        dispatcher = self._dispatcher()
        if on == "all":
            if is_generator(pending.fn):
                raise OperatorError(
                    "A generator function streams from one node, so it cannot be broadcast with `@`; "
                    "use `>>`, or return a list."
                )
            return dispatcher.broadcast(pending, sink or ConsoleSink(label=True))
        target = {"one": None, "head": 0}.get(on) if isinstance(on, str) else on
        return dispatcher.start([pending], sink or ConsoleSink(), target)[0]

    def _start_group(self, group: PendingFunctionGroup[Any]) -> list[Run[Any]]:
        items = list(group)
        if group.timeout is not None:
            items = [item if item.timeout is not None else item.with_timeout(group.timeout) for item in items]
        return self._dispatcher().start(items, ConsoleSink(), None)

    def _wait[T](self, future: Future[T], runs: Sequence[Run[Any]]) -> T:
        """The result; on an error or an interrupt here, the rest of the work is stopped."""
        __tracebackhide__ = True
        try:
            return future.result()
        except KeyboardInterrupt:
            stopped = self._stop(runs)
            raise KeyboardInterrupt(stopped) from None
        except BaseException:
            for run in runs:
                run.cancel()
            raise

    def _stop(self, runs: Sequence[Run[Any]]) -> str:
        running = [run for run in runs if run.cancel()]
        for run in running:
            with contextlib.suppress(BaseException):
                run.future.exception(_INTERRUPT_GRACE)
        ranks = sorted({rank for run in running for rank in run.nodes})
        return f"the work on node {', '.join(map(str, ranks))} was stopped" if ranks else "the work was not started"

    def _stream_group(self, runs: list[Run[Any]], ordered: bool) -> Iterator[Any]:
        from concurrent.futures import as_completed

        futures = {run.future: run for run in runs}
        try:
            for future in list(futures) if ordered else as_completed(futures):
                yield future.result()
        finally:
            for run in runs:
                run.cancel()

    def _dispatcher(self) -> Dispatcher:
        self._ready()
        if self._dispatch is None:
            raise PoolClosedError(f"Pool {self.name!r} is not open.")
        return self._dispatch

    def _ready(self) -> Pool:
        if self._pool is None or self._pool.state != "ready":
            raise PoolClosedError(
                f"Pool {self.name!r} is not open; use it inside `with sky.Compute(...) as pool:`, or call open() first."
            )
        return self._pool

    def __repr__(self) -> str:
        return f"<Compute {self.name!r}: {'open' if self.is_open else 'closed'}>"


def _refuse_on_node() -> None:
    import os

    if "SKYWARD_NODE" in os.environ:
        raise NotOnNodeError("A pool cannot be opened from inside a task; open it in the notebook or script instead.")
