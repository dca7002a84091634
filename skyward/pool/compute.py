"""`sky.Compute`: a pool of nodes as ordinary blocking code sees it.

The pool itself lives on the library's loop. Everything here prepares a call on the calling thread (pickling included),
hands it over, and waits where it must.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack, cast, overload

from skyward.config.pools import configured
from skyward.control.act.pool import Pool
from skyward.control.act.tasks import stopping
from skyward.control.act.tasks.group_stream import GroupStream
from skyward.control.act.tasks.run import Run
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.task import Sink, TaskFuture
from skyward.control.observe.snapshot import PoolReport, PoolSnapshot
from skyward.errors import (
    NoGroupFitsError,
    NotOnNodeError,
    OperatorError,
    PoolClosedError,
    ProvisioningError,
    SpecError,
    UsageError,
)
from skyward.events.bus import EventBus
from skyward.events.decisions import DecisionEvent
from skyward.formatting import asked_to_stop, nodes_text
from skyward.functions.function import (
    PendingFunction,
    PendingFunctionGroup,
    RightSide,
    SkyFunction,
    Target,
    current_pool,
    function,
    is_generator,
)
from skyward.functions.target import described
from skyward.journal import ClusterEntry, PoolRecord
from skyward.kept.handles import Kept
from skyward.pool.dispatch import Dispatcher
from skyward.pool.event_source import EventSource
from skyward.pool.heard import Heard
from skyward.pool.map import calls_of_map, note_items
from skyward.pool.open_pools import observed, opened
from skyward.pool.progress import watched
from skyward.pool.resource_requests import Bundle, request_resources
from skyward.pool.shown import Shown
from skyward.process import background
from skyward.process.forked import is_forked, refuse_forked
from skyward.published_names import OF_A_POOL
from skyward.reporting import Console, report
from skyward.reporting.screen import notify
from skyward.reporting.task_output import ConsoleSink
from skyward.specs import ComputeFields, Nodes, NodesLike, Options, Spec, resolve_groups
from skyward.specs.placement import On, Several, target_of
from skyward.task.collections.base import refuse_standalone
from skyward.task.collections.opener import CollectionFactory, Shared
from skyward.values import limits
from skyward.values.validation import FrozenMap, closest, number, shown

if TYPE_CHECKING:
    from skyward.control.act.recovered_tasks import RecoveredTask
    from skyward.control.observe.snapshot import KeptView
    from skyward.scaling.snapshot import Demand

__all__ = ["Compute", "On"]

_numbers = itertools.count(1)
_outer: ContextVar[tuple[Target | None, ...]] = ContextVar("skyward_outer_pools", default=())
"""What was in scope around each `with` block of a pool."""


class Compute(RightSide, Shared, Heard, EventSource, Shown):
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
        self._shared: CollectionFactory | None = None
        self._bus = EventBus(self.name)
        self._console: Console | None = None
        self._opening, self._counting = threading.Lock(), threading.Lock()
        self._blocks = 0
        self._resized: dict[str, Nodes] = {}

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
    def asked_nodes(self) -> Nodes:
        """The number of nodes that the first group was last asked to have, by its spec or by `resize`."""
        return self._resized.get(next(iter(self._groups)), self.spec.nodes)

    @property
    def is_open(self) -> bool:
        """Whether tasks can be sent."""
        return self._pool is not None and self._pool.state == "ready"

    @property
    def is_scoped(self) -> bool:
        """Whether a `with` block is to close it."""
        return self._blocks > 0

    def open(self) -> Self:
        """Get the nodes; returns when enough of them are ready. Does nothing where the pool is open.

        Raises:
            ProvisioningError: they cannot be had. Nothing is left running.
            JournalError: they cannot be written down, so they were not asked for.
        """
        refuse_forked()
        _refuse_on_node()
        with self._opening:  # another thread may be about to open it too
            if self._pool is not None and self._pool.state == "stopping":
                background.run(self._pool.close()).result()
            if self._pool is not None and self._pool.state != "closed":
                return self
            lease = max(spec.ttl for specs in self._groups.values() for spec in specs)
            with observed(self):
                self._open(PoolRecord.new(self.name, self._groups, self._options, lease), ())
        return self

    @classmethod
    def attached(
        cls,
        name: str,
        groups: Mapping[str, tuple[Spec, ...]],
        options: Options,
        take_over: Callable[[], PoolRecord],
        earlier: Sequence[ClusterEntry],
    ) -> Self:
        """A pool that another process has opened, ours from now on: see `sky.attach`.

        Args:
            take_over: makes the pool's record this process's.
            earlier: what is on record of the pool.
        """
        self = cls(*next(iter(groups.values())), name=name)
        self._groups, self._options = FrozenMap(groups), options
        with observed(self):
            self._open(take_over(), earlier)
        return self

    def _open(self, record: PoolRecord, earlier: Sequence[ClusterEntry]) -> None:
        if self._bus.ended:
            self._bus = EventBus(self.name)
        self._resized = {}
        self._console = report(self._bus, self._options, self._look)
        try:
            pool = Pool(self.name, self._groups, self._options, notify, record, self._bus)
        except BaseException:
            self._bus.end()
            if earlier:
                record.leave()
            else:
                record.end()
            raise
        self._pool, self._dispatch = pool, Dispatcher(pool, self._options)
        pool.kept_values.start_with(self.start)
        self._shared = None if pool.clustering is None else CollectionFactory(pool.clustering)
        opened.add(self)
        opening = background.run(pool.open(earlier))
        try:
            with self._console:
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
                with self._shown():
                    background.run(self._pool.close()).result()
        except ProvisioningError:  # all was tried: what is left is for `sky reap`
            opened.discard(self)
            self._was_closed()
            raise
        self._bus.end()
        opened.discard(self)
        self._was_closed()

    def leave(self) -> bool:
        """Have the nodes outlive this process, under their lease, for `sky.attach`; False where none of them can."""
        if not (self.is_open and any(node.outlives for node in self.snapshot().nodes)):
            return False
        opened.discard(self)
        self._bus.end()
        self._was_closed()
        return True

    def __enter__(self) -> Self:
        """Open the pool and put it in scope. Blocks may be nested: the end of the last one closes the pool."""
        with self._counting:
            self._blocks += 1
        try:
            self.open()
        except BaseException:
            with self._counting:
                self._blocks -= 1
            raise
        _outer.set((*_outer.get(), current_pool.get()))
        current_pool.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if outer := _outer.get():
            current_pool.set(outer[-1])
            _outer.set(outer[:-1])
        if is_forked():
            return  # it is the parent's
        with self._counting:
            self._blocks -= 1
            last = self._blocks == 0
        if last:
            self.close()

    def resize(self, nodes: NodesLike, group: str | None = None) -> None:
        """Change how many nodes there are: a number, (min, max), or `Nodes`. Nodes that go finish their tasks first.

        Args:
            group: of which; needed where the pool has several.

        Raises:
            SpecError: not a number of nodes, or no such group.
            UsageError: nodes that keep values would have to go.
            PoolClosedError: the pool is not open.
        """
        if group is None and len(self._groups) > 1:
            raise SpecError(f"Pool {self.name!r} has several groups: name one, `group={next(iter(self._groups))!r}`.")
        if group is not None and group not in self._groups:
            raise SpecError(f"Pool {self.name!r} has no group {group!r}; {closest(group, self._groups)}")
        pool, wanted = self._ready(), Nodes.of(nodes)
        if reason := background.call(lambda: pool.resize(wanted, group)):
            raise UsageError(
                f"Pool {self.name!r} cannot have {wanted} nodes: {reason}. Free what they keep first, with `.drop()` "
                "of its handle or `%sky drop`, or ask for more nodes."
            )
        self._resized[group or next(iter(self._groups))] = wanted

    def request_resources(self, *wanted: Bundle, bundles: Iterable[Bundle] | None = None) -> None:
        """Keep room for these bundles in this pool: `sky.request_resources(..., pool=self)`."""
        request_resources(*wanted, bundles=bundles, pool=self)

    def set_floor(self, floor: "Sequence[Demand]") -> None:
        """Keep room for `floor` from now on, whether it is used or not.

        Raises:
            NoGroupFitsError: no node of the pool can ever have it.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        if reason := background.call(lambda: pool.infeasible(floor)):
            raise NoGroupFitsError(f"request_resources asks for {reason}.")
        background.call_soon(pool.request_resources, tuple(floor))

    def set_budget(self, budget: float | None) -> None:
        """Change what the pool may cost, USD in all, what it has cost so far included; None for no limit.

        Raises:
            SpecError: not an amount.
            UsageError: the price of some of its machines is not known, so a budget could not be kept.
            PoolClosedError: the pool is not open.
        """
        number(budget, "budget", optional=True, most=limits.USD)
        pool = self._ready()
        if reason := background.call(lambda: pool.fund(budget)):
            raise UsageError(
                f"The budget could not be kept: {reason}. Open a pool with `budget=` from the start, which leaves out "
                "offers without a price."
            )

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
        if pool is None or not pool.is_known:
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
        if pool is None or not pool.is_known:
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

    def cancel(self, tasks: int | Iterable[int] = (), *, cell: int | None = None) -> int:
        """Stop tasks, by their numbers in `report()`, or all of a cell, by its number; how many were not over yet.

        Raises:
            UsageError: `tasks` are no numbers.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        try:
            numbers = [index(task) for task in (tasks if isinstance(tasks, Iterable) else (tasks,))]
        except TypeError:
            raise UsageError(f"cancel takes the numbers of tasks, such as `[5, 6]`, but got {shown(tasks)}.") from None
        return background.call(lambda: pool.cancel_numbers(numbers if cell is None else pool.task_record.of_cell(cell)))

    def drain(self, node: int) -> None:
        """Let the node of a rank finish its tasks and go. The pool has one node less then.

        Raises:
            UsageError: it is the head, is not up, or the pool has no more nodes than its fewest.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        if reason := background.call(lambda: pool.drain(node)):
            raise UsageError(f"Node {node} of pool {self.name!r} cannot be drained: {reason}.")

    def kept(self) -> "tuple[KeptView, ...]":
        """What the nodes keep for later tasks, by node, the oldest first: see `sky.keep`."""
        return tuple(view for node in self.snapshot().nodes for view in node.kept)

    def handle(self, name: str) -> "Kept[Any]":
        """The handle of what nodes keep under a name; where several do, of what each of them kept last.

        As with any handle, what it stands for is freed when nothing here refers to it any more.

        Raises:
            UsageError: nothing of that name is kept.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        found = background.call(lambda: pool.kept_values.named(name))
        if not found:
            known = {view.name for view in self.kept()}
            raise UsageError(f"No node of pool {self.name!r} keeps anything called {name!r}; {closest(name, known)}")
        return Kept.of((entry.key for entry in found), name)

    def holds(self, digest: bytes) -> frozenset[int]:
        """Ranks of the nodes that hold the blob of this content address."""
        return frozenset() if self._pool is None else self._pool.holds(digest)

    def _opener(self, what: str) -> CollectionFactory:
        self._ready()
        refuse_standalone(what, self._shared)
        return cast("CollectionFactory", self._shared)

    # Dispatch.

    def run[T](self, pending: PendingFunction[T]) -> T:
        """`>>`: run on one node and wait; an iterator over the elements of a generator function."""
        __tracebackhide__ = True
        runs: list[Run[Any]] = []
        with self._stopping(runs):
            self.start(pending, runs=runs, waits=True)
            if runs[0].is_stream:
                return runs[0].items()  # type: ignore[return-value]  # T is Iterator[...] for a generator function
            with self._shown():
                return runs[0].future.take()  # type: ignore[no-any-return]

    def submit[T](self, pending: PendingFunction[T]) -> TaskFuture[T]:
        """`>`: run on one node, and have the result in a future. Cancelling it stops the work."""
        runs: list[Run[Any]] = []
        with self._stopping(runs):
            self.start(pending, runs=runs)
            return runs[0].given()

    def broadcast[T](self, pending: PendingFunction[T]) -> list[T]:
        """`@`: run on every node; the results in the order of ranks."""
        __tracebackhide__ = True
        runs: list[Run[Any]] = []
        with self._stopping(runs):
            self.start(pending, on="all", sink=ConsoleSink(label=True), runs=runs, waits=True)
            with self._shown():
                return runs[0].future.take()  # type: ignore[no-any-return]

    def run_group(self, group: PendingFunctionGroup[Any]) -> Any:
        """A group under `>>`: its results as a tuple, or an iterator over them with `stream=True`."""
        __tracebackhide__ = True
        runs: list[Run[Any]] = []
        with self._stopping(runs):
            self._start_group(group, runs, waits=True)
            if group.stream:
                return GroupStream(runs, ordered=group.ordered)
            with watched([run.future for run in runs]), self._shown():
                return tuple([run.items() if run.is_stream else run.future.take() for run in runs])

    def submit_group(self, group: PendingFunctionGroup[Any]) -> TaskFuture[tuple[Any, ...]]:
        """A group under `>`: a future of its results. Cancelling it stops the work of them all."""
        runs: list[Run[Any]] = []
        with self._stopping(runs):
            self._start_group(group, runs)
            return self._dispatcher().gathered(runs)

    @overload
    def map[S, T](
        self, fn: Callable[[S], PendingFunction[T]], items: Iterable[S], *, chunksize: int = 1
    ) -> list[T]: ...
    @overload
    def map[S, T](
        self, fn: Callable[[S], Coroutine[Any, Any, T]], items: Iterable[S], *, chunksize: int = 1
    ) -> list[T]: ...
    @overload
    def map[S, T](self, fn: Callable[[S], T], items: Iterable[S], *, chunksize: int = 1) -> list[T]: ...
    def map(self, fn: Any, items: Iterable[Any], *, chunksize: int = 1) -> list[Any]:
        """Call `fn` with each item, all of them in parallel, and wait; the results in the order of the items.

        The first error is raised, with a note that names its item, and stops the other calls.

        Args:
            fn: a function of one argument; it need not be decorated with `@sky.function`.
            chunksize: items of one task, which are called one after the other. More than one pays where a call takes
                less than a millisecond. A timeout of the function is that of each call; retries run the task again.

        Raises:
            OperatorError: it is a generator function.
            SpecError: `chunksize` is no number of items.

        Example:
            squares = pool.map(lambda x: x * x, range(10))
        """
        __tracebackhide__ = True
        call = fn if isinstance(fn, SkyFunction) else function(fn)
        given = list(items)
        runs: list[Run[Any]] = []
        results: list[Any] = []
        with self._stopping(runs):
            self._dispatcher().start(calls_of_map(call, given, chunksize), ConsoleSink(), None, runs, waits=True)
            with watched([run.future for run in runs]), self._shown():
                for first, run in zip(range(0, len(given), chunksize), runs, strict=True):
                    try:
                        result = run.future.take()
                    except BaseException as error:
                        del run  # see `_stopping`
                        if isinstance(error, Exception):
                            note_items(error, first, given[first : first + chunksize])
                        raise
                    results += [result] if chunksize == 1 else result
        return results

    def start(
        self,
        pending: PendingFunction[Any],
        *,
        on: On = "one",
        sink: Sink | None = None,
        runs: list[Run[Any]] | None = None,
        waits: bool = False,
    ) -> Run[Any]:
        """Send a task, and return at once with what follows it.

        Args:
            on: where to run. On "one" free node, the "head", or the node of a rank: one result. On "all" nodes, those
                of a list or range of ranks, or those of a group, by its name: a list of results, by rank.
            runs: takes the run before the task is sent, so that a caller who is interrupted meanwhile can stop it.
            waits: whether the caller waits until the task is over, before anybody changes what goes along. Otherwise
                memory that can be written to is copied, as the task is to see it as it is now; that of a generator
                function always is.

        Raises:
            OperatorError: it is no call of a `@sky.function`.
            PayloadError: it cannot travel; nothing was sent.
            PoolClosedError: the pool is not open.
            UsageError: `on` is not one of those.
        """
        _check_call(pending)
        target = target_of(on, self.name, self._groups)
        dispatcher = self._dispatcher()
        runs = [] if runs is None else runs
        if isinstance(target, Several):
            if is_generator(pending.fn):
                raise OperatorError(
                    "A generator function streams from one node, so it cannot be broadcast with `@`; "
                    "use `>>`, or return a list."
                )
            dispatcher.broadcast(pending, sink or ConsoleSink(label=True), runs, target, waits=waits)
        else:
            dispatcher.start([pending], sink or ConsoleSink(), target, runs, waits=waits)
        return runs[-1]

    def _start_group(self, group: PendingFunctionGroup[Any], runs: list[Run[Any]], *, waits: bool = False) -> None:
        if not isinstance(group, PendingFunctionGroup):
            raise OperatorError(f"A group is made with `sky.gather(f(1), f(2))`, but got {described(group)}.")
        items = list(group)
        if group.timeout is not None:
            items = [item if item.timeout is not None else item.with_timeout(group.timeout) for item in items]
        waits = waits and not group.stream
        self._dispatcher().start(items, ConsoleSink(), None, runs, within=group.timeout, waits=waits)

    @contextmanager
    def _stopping(self, runs: list[Run[Any]]) -> Iterator[None]:
        """Stop the work of `runs` when the block ends by an error or an interrupt.

        The block fills the list. It is empty afterwards: no frame of a traceback may keep a future, which keeps the
        error, since the loop that the error leaves would keep its stream, and that its slot, until the next collection
        of garbage.
        """
        __tracebackhide__ = True
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_stop(runs)) from None
        except BaseException:
            stop_all(runs)
            raise
        finally:
            runs.clear()

    def _shown(self) -> AbstractContextManager[None]:
        """A context to wait in, during which the console shows how far the pool is."""
        return nullcontext() if self._console is None else self._console

    def _look(self) -> PoolSnapshot | None:
        pool = self._pool
        return None if pool is None or not pool.is_known else pool.snapshot()

    def _dispatcher(self) -> Dispatcher:
        self._ready()
        if self._dispatch is None:
            raise PoolClosedError(f"Pool {self.name!r} is not open.")
        return self._dispatch

    def _ready(self) -> Pool:
        refuse_forked()
        if self._pool is None or self._pool.state != "ready":
            raise PoolClosedError(
                f"Pool {self.name!r} is not open; use it inside `with sky.Compute(...) as pool:`, or call open() first."
            )
        return self._pool

    if not TYPE_CHECKING:  # the type checkers would take every name for an attribute

        async def __aenter__(self) -> NoReturn:
            raise UsageError(
                "A pool is no asynchronous context: write `with sky.Compute(...) as pool:`, also in a coroutine, which "
                "can wait for its tasks with `await (f(x) > pool)`."
            )

        async def __aexit__(self, *_: object) -> None:
            """See `__aenter__`."""

        def __getattr__(self, name: str) -> object:
            instead = OF_A_POOL.get(name)
            hint = "" if instead is None else f": {instead}"
            raise AttributeError(f"A pool has no {name!r}{hint}.", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Compute {self.name!r}: {'open' if self.is_open else 'closed'}>"


def _check_call(pending: object) -> None:
    if not isinstance(pending, PendingFunction):
        raise OperatorError(
            f"A pool runs a call of a `@sky.function`, such as `train(10)`, but got {described(pending)}."
        )


def _stop(runs: Sequence[Run[Any]]) -> str:
    """Stop what has not ended, wait a little for the nodes to say that it has, and return what was done."""
    asked = stop_all(runs)
    try:
        running = asked.result()
        wait([run.future for run in running], stopping.GRACE)
    except KeyboardInterrupt:
        running = [run for run in runs if not run.future.done() or run.future.cancelled()]
    if not running and any(run.nodes for run in runs):
        return "the work had ended"
    if waiting := _ranks(run for run in running if not run.future.done()):
        return asked_to_stop(waiting)
    ranks = _ranks(running)
    return f"the work on {nodes_text(ranks)} was stopped" if ranks else "the work was not started"


def _ranks(runs: Iterable[Run[Any]]) -> set[int]:
    return {rank for run in runs for rank in run.nodes}


def _refuse_on_node() -> None:
    import os

    if "SKYWARD_NODE" in os.environ:
        raise NotOnNodeError("A pool cannot be opened from inside a task; open it in the notebook or script instead.")
