"""`sky.Compute`: the blocking API of a pool.

The pool itself lives on the library's event loop. Methods prepare a call on the calling thread, including pickling,
hand it over to the loop, and wait if they must.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack, cast, overload

from skyward.config.pools import configured, with_named_settings
from skyward.control.act.pool import Pool
from skyward.control.act.tasks.future import TaskFuture, wait_result
from skyward.control.act.tasks.group_stream import GroupStream
from skyward.control.act.tasks.run import Run, future_of
from skyward.control.act.tasks.task import Sink
from skyward.control.decide.causes import bounds_text
from skyward.control.observe.snapshot import PoolReport, PoolSnapshot
from skyward.errors import (
    NoGroupFitsError,
    OnNodeError,
    OperatorError,
    PoolClosedError,
    ProvisioningError,
    SpecError,
    StorageError,
    UsageError,
)
from skyward.events import BaseEvent, Event, EventStream
from skyward.events.bus import EventBus
from skyward.events.decisions import DecisionEvent
from skyward.events.metrics import NodeMetrics
from skyward.events.output import Follower, Logs, OutputFilter, StreamName
from skyward.functions.decorator import (
    PendingFunction,
    PendingFunctionGroup,
    RightSide,
    SkyFunction,
    Target,
    current_pool,
    function,
)
from skyward.functions.target import described
from skyward.journal import ClusterEntry, PoolRecord
from skyward.kept.handles import Kept
from skyward.pool.dispatch import Dispatcher
from skyward.pool.executor import PoolExecutor
from skyward.pool.hooks import observed, opened, watched
from skyward.pool.interruption import stopping
from skyward.pool.joblib_registration import register_with_joblib
from skyward.pool.map import calls_of_map, check_map, is_serial, note_items
from skyward.pool.resource_requests import Bundle, demands_of
from skyward.pool.series import SentMap
from skyward.process import background
from skyward.process.cancellation import until_done
from skyward.process.forked import is_forked, refuse_forked
from skyward.published_names import OF_A_POOL
from skyward.reporting import PoolConsole, report
from skyward.reporting.screen import notify
from skyward.reporting.task_output import ConsoleSink
from skyward.specs import ComputeFields, Nodes, NodesLike, Options, Spec, resolve_groups
from skyward.specs.placement import On, Several, target_of
from skyward.specs.update import SpecHistory, UpdateFields, updated
from skyward.task.collections import Barrier, Counter, Dict, Lock, Queue, Set
from skyward.task.collections.base import refuse_standalone
from skyward.task.collections.factory import CollectionFactory
from skyward.values import limits
from skyward.values.gangs import GangPlacement, gang_placement
from skyward.values.validation import FrozenMap, closest, number, shown
from skyward.wire.collections.requests import Consistency

if TYPE_CHECKING:
    from concurrent.futures import Future

    from skyward.control.act.recovered_tasks import RecoveredTask
    from skyward.control.observe.snapshot import KeptView
    from skyward.specs.plugin import Plugin
    from skyward.wire.payloads.code import PreparedCode

__all__ = ["Compute", "On", "nodes_with", "open_attached", "send", "when_closed"]

_ABORTED_WITHIN = 0.05
"""Seconds between two attempts at ending the launch of nodes on another thread, which may be just about to begin."""

_numbers = itertools.count(1)


class _Block(NamedTuple):
    """A `with` block of a pool.

    Attributes:
        outer: the target in scope outside of it.
        entered: the contexts of the plugins around it.
    """

    outer: Target | None
    entered: ExitStack


_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("skyward_blocks", default=())
"""The enclosing blocks of pools, the innermost last."""


class Compute(RightSide):
    """Pool of ephemeral nodes, open in a `with` or `async with` block, or between `open()` and `close()`.

    Takes the fields of one `Spec` as keywords, or several `Spec`s; and the fields of `Options`, or `options=`. If
    `skyward.toml` has a table `[pools.NAME]` for its `name`, the table supplies the fields that are not given.

    Attributes:
        name: its name; `pool-N` if none was given.

    Raises:
        SpecError: a field is unknown, given twice, or has a value that is not allowed.
        ProviderMissingError: `provider` is the name of no installed provider, and of no `[providers.NAME]` table of
            `skyward.toml`.

    Example:
        >>> with sky.Compute(nodes=2, accelerator="A100") as pool:
        ...     result = train(10) >> pool
    """

    def __init__(
        self, *specs: Spec, name: str | None = None, options: Options | None = None, **fields: Unpack[ComputeFields]
    ) -> None:
        resolved = resolve_groups(specs, options, configured(name, specs, options, fields), name)
        self._groups = FrozenMap(
            {group: tuple(map(with_named_settings, specs)) for group, specs in resolved.groups.items()}
        )
        self._options = resolved.options
        self.name = name or f"pool-{next(_numbers)}"
        self._pool: Pool | None = None
        self._dispatch: Dispatcher | None = None
        self._shared: CollectionFactory | None = None
        self._bus = EventBus(self.name)
        self._console: PoolConsole | None = None
        self._opening, self._counting = threading.RLock(), threading.Lock()  # a plugin may open the pool again
        self._launching: Future[None] | None = None
        self._blocks = 0
        self._resized: dict[str, Nodes] = {}
        self._at_close: list[Callable[[], object]] = []
        self._entered = ExitStack()
        register_with_joblib()

    # Lifecycle.

    @property
    def spec(self) -> Spec:
        """Spec of the nodes of the first group."""
        return next(iter(self._groups.values()))[0]

    @property
    def groups(self) -> Mapping[str, tuple[Spec, ...]]:
        """Specs of the nodes by group; several specs are alternatives."""
        return self._groups

    @property
    def options(self) -> Options:
        """Options of the pool."""
        return self._options

    @property
    def requested_nodes(self) -> Nodes:
        """Requested number of nodes of the first group, by its spec or the last `resize`."""
        return self._resized.get(next(iter(self._groups)), self.spec.nodes)

    @property
    def is_open(self) -> bool:
        """True if the pool accepts tasks."""
        return self._pool is not None and self._pool.state == "ready"

    @property
    def is_scoped(self) -> bool:
        """True inside a `with` block of the pool."""
        return self._blocks > 0

    def open(self) -> Self:
        """Launch the nodes, and return when enough of them are ready. Idempotent.

        Raises:
            ProvisioningError: the nodes cannot be provisioned. Nothing is left running.
            JournalError: the journal cannot be written, so no node was requested.
        """
        refuse_forked()
        _refuse_on_node()
        with self._opening:  # another thread may open it at the same time
            if self._pool is not None and self._pool.state == "stopping":
                background.run(self._pool.close()).result()
            if self._pool is not None and self._pool.state != "closed":
                return self
            self._leave_plugins()  # of a pool that has ended by itself
            lease = max(spec.ttl for specs in self._groups.values() for spec in specs)
            with observed(self):
                self._open(PoolRecord.new(self.name, self._groups, self._options, lease), ())
        return self

    def _open(
        self, record: PoolRecord, earlier: Sequence[ClusterEntry], specs: Mapping[str, SpecHistory] | None = None
    ) -> None:
        if self._bus.ended:
            self._bus = EventBus(self.name)
        self._resized = {}
        self._console = report(self._bus, self._options, self._current)
        try:
            pool = Pool(self.name, self._groups, self._options, notify, record, self._bus, specs or {})
        except BaseException:
            self._bus.end()
            if earlier:
                record.leave()
            else:
                record.end()
            raise
        self._pool, self._dispatch = pool, Dispatcher(pool.tasks, self._options)
        pool.tasks.kept_values.start_with(self.start)
        self._shared = None if pool.clustering is None else CollectionFactory(pool.clustering)
        opened.add(self)
        self._launching = background.run(pool.open(earlier))
        try:
            with self._console:
                self._launching.result()
            self._enter_plugins()
        except BaseException:
            if earlier:  # its nodes are not lost because attaching was interrupted, or a plugin has failed
                background.call(pool.keep_as_found)
            self._launching.cancel()
            with contextlib.suppress(ProvisioningError):  # `close` has reported what may be left
                self.close()
            raise
        finally:
            self._launching = None

    def close(self) -> None:
        """Leave the contexts of the plugins, stop running tasks and terminate all machines. Idempotent.

        Raises:
            ProvisioningError: some machines may be left; `skyward reap` terminates them.
            StorageError: files that tasks wrote to volumes could not be uploaded; the message names them.
        """
        try:
            self._leave_plugins()
        finally:
            self._close()

    def _close(self) -> None:
        if self._console is not None:
            self._console.show_here()
        try:
            if self._pool is not None:
                with self._shown():
                    background.run(self._pool.close()).result()
        except (ProvisioningError, StorageError):  # machines that are left are for `skyward reap`
            opened.discard(self)
            _was_closed(self)
            raise
        self._bus.end()
        opened.discard(self)
        _was_closed(self)
        if self._pool is not None and (self._pool.warm_until or self._pool.borrowed):
            from skyward.pool.reaping.warm import after_close

            after_close(self._pool)

    def leave(self) -> bool:
        """Leave the nodes running under their lease, for `sky.attach`; return False if none can outlive the process.

        It takes effect when this process ends: until then the pool stays open, and belongs to it. `close` still
        terminates the nodes.

        With a budget, the lease gets no longer than the rest of it covers: then the nodes end, with the tasks that run.

        Raises:
            UsageError: the pool is in a `with` block, whose end terminates the nodes; or the rest of its budget covers
                no lease. Nothing has changed.
        """
        if self.is_scoped:
            raise UsageError(
                f"Pool {self.name!r} cannot be left: it is in a `with` block, whose end terminates its nodes. Open it "
                "with `pool.open()` instead."
            )
        if not (self.is_open and any(node.outlives for node in self.snapshot().nodes)):
            return False
        pool = self._ready()
        if reason := background.call(pool.leases.why_not_left):
            raise UsageError(f"Pool {self.name!r} cannot be left: {reason}")
        self._leave_plugins()
        background.run(pool.leave()).result()
        background.call(pool.tasks.kept_values.leave)
        opened.discard(self)
        self._bus.end()
        _was_closed(self)
        return True

    def __enter__(self) -> Self:
        """Open the pool and put it in scope. Blocks may be nested: the outermost one closes the pool."""
        with self._counting:
            self._blocks += 1
        entered = self._put_in_scope()  # before plugins are entered, which look at it
        try:
            self.open()
            for plugin in self._plugins():
                entered.enter_context(plugin.around_block(self))
        except BaseException:
            with contextlib.suppress(ProvisioningError):  # `close` has reported what may be left
                self._exit(closes=self.is_open)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit(closes=True)

    def _exit(self, *, closes: bool) -> None:
        """Leave a block; close the pool if it is the outermost one."""
        try:
            if blocks := _blocks.get():
                blocks[-1].entered.close()
        finally:
            if self._leave_block() and closes:
                self.close()

    async def __aenter__(self) -> Self:
        """Open the pool and put it in scope, as `with` does; the event loop of the caller is not blocked.

        If the coroutine is cancelled meanwhile, the pool is closed again. Contexts of plugins around the pool are
        entered and left on other threads, where the pool is not in scope; those around a block are not entered.
        """
        with self._counting:
            self._blocks += 1
        opening = asyncio.ensure_future(asyncio.to_thread(self.open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await until_done(self._abort(opening))
            raise
        except BaseException:
            with self._counting:
                self._blocks -= 1
            raise
        self._put_in_scope()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._leave_block():
            await until_done(asyncio.to_thread(self.close))

    def _enter_plugins(self) -> None:
        """Enter the contexts of the plugins around the pool. After an error, none of them is entered."""
        with ExitStack() as entered:
            for plugin in self._plugins():
                entered.enter_context(plugin.around_pool(self))
            self._entered = entered.pop_all()

    def _plugins(self) -> "list[Plugin]":
        """Return the plugins of all groups; of equal ones, the first."""
        plugins: list[Plugin] = []
        for spec in itertools.chain.from_iterable(self._groups.values()):
            plugins += [plugin for plugin in spec.plugins if plugin not in plugins]
        return plugins

    def _leave_plugins(self) -> None:
        with self._counting:
            entered, self._entered = self._entered, ExitStack()
        entered.close()

    def _put_in_scope(self) -> ExitStack:
        """Put the pool in scope; return the contexts of the block, of which none is entered yet."""
        block = _Block(current_pool.get(), ExitStack())
        _blocks.set((*_blocks.get(), block))
        current_pool.set(self)
        return block.entered

    def _leave_block(self) -> bool:
        """Restore the scope outside of a block, and return whether the pool must be closed."""
        if blocks := _blocks.get():
            current_pool.set(blocks[-1].outer)
            _blocks.set(blocks[:-1])
        if is_forked():
            return False  # the pool belongs to the parent
        with self._counting:
            self._blocks -= 1
            return self._blocks == 0

    async def _abort(self, opening: asyncio.Future[Self]) -> None:
        """End `open()` on another thread, unless another block needs the pool."""
        while not opening.done():
            with self._counting:
                is_only_block = self._blocks == 1
            if is_only_block and self._launching is not None:
                self._launching.cancel()
            await asyncio.sleep(_ABORTED_WITHIN)
        with self._counting:
            self._blocks -= 1
            is_last = self._blocks == 0
        if is_last and not opening.cancelled() and opening.exception() is None:
            await asyncio.to_thread(self.close)

    def resize(self, nodes: NodesLike, group: str | None = None) -> None:
        """Change the number of nodes: a number, (min, max), or `Nodes`. Removed nodes finish their tasks first.

        Args:
            group: name of the group; required if the pool has several.

        Raises:
            SpecError: not a number of nodes, or no such group.
            UsageError: nodes that keep values would have to be removed, or the groups have more than `max_nodes`.
            PoolClosedError: the pool is not open.
        """
        name = self._group_name(group)
        pool, wanted = self._ready(), Nodes.of(nodes)
        if reason := background.call(lambda: pool.resize(wanted, name)):
            size = bounds_text(wanted.min, wanted.ceiling, None if group is None else name)
            raise UsageError(f"Pool {self.name!r} cannot have {size}: {reason}.")
        self._resized[name] = wanted

    def _group_name(self, group: str | None) -> str:
        """Return the name of a group, which may be left out for a pool that has one only."""
        if group is not None and not isinstance(group, str):
            raise SpecError(
                f"group must be the name of a group, such as {next(iter(self._groups))!r}, but got {group!r}."
            )
        if group is None and len(self._groups) > 1:
            raise SpecError(f"Pool {self.name!r} has several groups: name one, `group={next(iter(self._groups))!r}`.")
        if group is not None and group not in self._groups:
            raise SpecError(f"Pool {self.name!r} has no group {group!r}; {closest(group, self._groups)}")
        return next(iter(self._groups)) if group is None else group

    def update(self, *, group: str | None = None, **fields: Unpack[UpdateFields]) -> None:
        """Change the spec of the nodes, and replace the nodes there are one by one: a rolling update.

        New nodes are launched from the changed spec from now on. One node more than desired is launched; once it is
        active, one node of the earlier spec gets no more tasks, and is removed when its tasks have ended; another one
        gets its rank. Then the next one follows, idle ones first, node 0 last. Without room for one node more, each is
        removed before its successor is launched. Until the last one is gone, which `snapshot()` tells by `outdated` of
        its nodes, tasks run on nodes of both specs. See "Rolling updates" in `docs/use/scaling.md`.

        Returns once the update has begun. If nodes of the changed spec cannot be launched, those of the earlier one
        stay, and `decisions()` has the reason. Another update supersedes the one under way. An equal spec, or
        one that differs only in fields that the provider does not act on, changes nothing, and a notice says so.

        Args:
            group: name of the group; required if the pool has several.
            fields: the fields of `Spec` that change; of alternative specs, in all of them.

        Raises:
            SpecError: a field is unknown, has a value that is not allowed or cannot change on an open pool; or there
                is no such group.
            UsageError: tasks that have not ended could run on no node of the changed spec, the nodes could not form a
                cluster, or the budget could not be enforced. Nothing changes.
            NoOffersError: no offer fits. Nothing changes.
            ProvisioningError: the provider failed. Nothing changes.
            PoolClosedError: the pool is not open.

        Example:
            >>> pool.update(image=sky.Image(env={"STAGE": "second"}))
        """
        name = self._group_name(group)
        pool = self._ready()
        specs = tuple(map(with_named_settings, updated(self._groups[name], fields, self._options.worker)))

        async def change() -> None:
            if await pool.update(name, specs):
                self._groups = FrozenMap({**self._groups, name: specs})

        if self._console is not None:
            self._console.show_here()  # notices of the update, also those that come later, belong to the caller's cell
        changing = background.run(change())
        try:
            changing.result()
        except BaseException:
            changing.cancel()
            raise

    def request_resources(self, *wanted: Bundle, bundles: Iterable[Bundle] | None = None) -> None:
        """Request capacity for these bundles, used or not, until the next call. See `sky.request_resources`.

        Raises:
            SpecError: a bundle is not valid.
            NoGroupFitsError: no node of the pool can have a bundle.
            PoolClosedError: the pool is not open.
        """
        floor = tuple(demands_of(wanted, bundles))
        pool = self._ready()
        if reason := background.call(lambda: pool.infeasible(floor)):
            raise NoGroupFitsError(f"request_resources asks for {reason}.")
        background.call_soon(pool.request_resources, floor)

    def set_budget(self, budget: float | None) -> None:
        """Change the budget: the maximum total cost in USD, including the cost so far; None for no limit.

        Raises:
            SpecError: not an amount.
            UsageError: the price of some machines is unknown, so a budget cannot be enforced.
            PoolClosedError: the pool is not open.
        """
        number(budget, "budget", optional=True, most=limits.USD)
        pool = self._ready()
        if reason := background.call(lambda: pool.fund(budget)):
            raise UsageError(
                f"The budget cannot be enforced: {reason}. Open a pool with `budget=` from the start, which skips "
                "offers without a price."
            )
        self._options = replace(self._options, budget=budget)

    @property
    def recovered(self) -> "Sequence[RecoveredTask]":
        """Tasks of the previous client, for a pool from `sky.attach`; see there."""
        return () if self._pool is None else tuple(self._pool.tasks.recovered)

    def decisions(self) -> list[DecisionEvent]:
        """Return the latest scaling decisions, oldest first, with their inputs and reasons."""
        return [] if self._pool is None else background.call(self._pool.decisions)

    def task_history(self, task: int) -> tuple[str, ...]:
        """Return the latest changes of a task's state, oldest first, each with its reason and cause.

        A cause is shown as in `decisions()`, or by its number alone if it changed no machine. Empty if the task was not
        queued yet, or was not among the last 300 to end. For example:

            12:04:31 sent -> running (#19)
            12:04:40 running -> queued: node 3 died: it was killed (#31: machine 7 of node 3 lost: it was killed)

        Args:
            task: its number, as in `Run.tasks` and `report()`.

        Example:
            >>> for task in pool.report().tasks:
            ...     print(*pool.task_history(task.number), sep="\\n")
        """
        return () if self._pool is None else background.call(partial(self._pool.task_history, task))

    def snapshot(self) -> PoolSnapshot:
        """Return the current state of the pool: nodes, numbers of tasks, and cost."""
        pool = self._pool
        if pool is None or not pool.is_known:
            wanted = [specs[0].nodes for specs in self._groups.values()]
            least, most = sum(nodes.min for nodes in wanted), sum(nodes.ceiling for nodes in wanted)
            return PoolSnapshot(self.name, "new" if pool is None else pool.state, "", (), 0, 0, 0, 0, least, most, 0)
        return background.call(pool.snapshot)

    def report(self, *, decisions_after: int = 0, output_after: int = 0, tasks: int = 1000) -> PoolReport:
        """Return the current state of the pool with its decisions, tasks and output, for live views.

        Args:
            decisions_after, output_after: number of the latest decision or output that is already known.
            tasks: maximum number of running and waiting tasks to list.
        """
        pool = self._pool
        if pool is None or not pool.is_known:
            return PoolReport(self.snapshot())
        history = pool.tasks.history

        def read() -> PoolReport:
            decided = tuple(event for event in pool.decisions() if event.number > decisions_after)
            printed = history.output(output_after)
            return PoolReport(pool.snapshot(), decided, history.tasks(tasks), printed, history.cells())

        return background.call(read)

    @property
    def revision(self) -> int:
        """Counter that increases with every change of the pool. Cheap to read: a view polls it before `report()`."""
        return 0 if self._pool is None else self._pool.tasks.history.revision

    def cancel(self, tasks: int | Iterable[int] = (), *, cell: int | None = None) -> int:
        """Cancel tasks, by their numbers in `report()`, or all tasks of a cell; return how many had not ended yet.

        Raises:
            UsageError: `tasks` are not numbers.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        try:
            numbers = [index(task) for task in (tasks if isinstance(tasks, Iterable) else (tasks,))]
        except TypeError:
            raise UsageError(f"cancel takes task numbers, such as `[5, 6]`, but got {shown(tasks)}.") from None
        sent = pool.tasks
        return background.call(lambda: sent.cancel_numbers(numbers if cell is None else sent.history.of_cell(cell)))

    def drain(self, node: int) -> None:
        """Drain the node of a rank: remove it after its tasks. The pool then has one node less.

        The policy of an elastic pool may launch another node in its place for waiting tasks. A drained node stays if a
        new task must run on this very node, or if it keeps a value; then the pool does not get smaller.

        Raises:
            UsageError: it is the head, it is not active, it keeps a value, or the pool is at its minimum.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        if reason := background.call(lambda: pool.drain(node)):
            raise UsageError(f"Node {node} of pool {self.name!r} cannot be drained: {reason}.")

    def kept(self) -> "tuple[KeptView, ...]":
        """Return the values that nodes keep for later tasks, by node, oldest first: see `sky.keep`."""
        return tuple(view for node in self.snapshot().nodes for view in node.kept)

    def handle(self, name: str) -> "Kept[Any]":
        """Return the handle of the values that nodes keep under a name; of each node, the last one.

        As with any handle, the values are freed when no reference to the handle is left.

        Raises:
            UsageError: no value of that name is kept.
            PoolClosedError: the pool is not open.
        """
        pool = self._ready()
        found = background.call(lambda: pool.tasks.kept_values.named(name))
        if not found:
            known = {view.name for view in self.kept()}
            raise UsageError(f"No node of pool {self.name!r} keeps a value named {name!r}; {closest(name, known)}")
        return Kept.of((entry.key for entry in found), name)

    # Output, resource usage and events.

    def logs(
        self,
        task: int | None = None,
        node: int | None = None,
        *,
        stream: StreamName | None = None,
        since: int = 0,
        tail: int | None = None,
    ) -> Logs:
        """Return the output of tasks and nodes, oldest first; also after the pool was closed.

        The log holds 16 million characters; `dropped` of the result is the number of characters that were dropped.

        Args:
            task: only output of the task of this number (`Run.tasks`); 0 for output of the nodes themselves.
            node: only output of the node of this rank.
            stream: only this stream.
            since: only output from this offset of the stream on; for one stream of one task, or of one node itself.
            tail: maximum number of pieces, the last ones.

        Raises:
            UsageError: there is no such stream, or `since` is given without a single stream.
        """
        wanted = OutputFilter.checked(task, node, stream, since)
        return Logs() if self._pool is None else background.call(partial(self._pool.tasks.log.read, wanted, tail))

    def follow(
        self,
        task: int | None = None,
        node: int | None = None,
        *,
        stream: StreamName | None = None,
        since: int = 0,
        tail: int | None = None,
    ) -> Follower:
        """Return an iterator over the log, as `logs` returns it, and then over new output as it arrives.

        It ends with the pool; with `task=`, with that task.

        Raises:
            UsageError: there is no such stream, or `since` is given without a single stream.
            PoolClosedError: the pool is not open.
        """
        return background.call(partial(self._ready().follow, OutputFilter.checked(task, node, stream, since), tail))

    def start_log(self, node: int) -> str:
        """Return the startup log of the node of a rank, for its last few starts: a line per phase, and all output of a
        failed phase. Empty if the node was never started.
        """
        return "" if self._pool is None else background.call(partial(self._pool.startups.log, node))

    def metrics(self, node: int | None = None) -> Mapping[int, tuple[NodeMetrics, ...]]:
        """Return the resource usage of nodes in the last five minutes, oldest first, by rank.

        Args:
            node: only the node of this rank.
        """
        usage = {} if self._pool is None else background.call(self._pool.metrics)
        return usage if node is None else {rank: history for rank, history in usage.items() if rank == node}

    @overload
    def events(self, *, replay: bool = False) -> "EventStream[Event]": ...
    @overload
    def events[A: BaseEvent](self, kind: type[A], /, *, replay: bool = False) -> EventStream[A]: ...
    @overload
    def events[A: BaseEvent, B: BaseEvent](
        self, kind: type[A], kind_2: type[B], /, *, replay: bool = False
    ) -> EventStream[A | B]: ...
    @overload
    def events[A: BaseEvent, B: BaseEvent, C: BaseEvent](
        self, kind: type[A], kind_2: type[B], kind_3: type[C], /, *, replay: bool = False
    ) -> EventStream[A | B | C]: ...
    @overload
    def events(self, *kinds: type[BaseEvent], replay: bool = False) -> "EventStream[Event]": ...
    def events(self, *kinds: type[BaseEvent], replay: bool = False) -> EventStream[Any]:
        """Return an iterator over the events of the pool, for `for` and `async for`, until it is closed.

        Subscribe before `open()` to see the pool start. A subscriber that falls 10,000 events behind gets an
        `EventsDropped` in place of the oldest; it never slows down the pool.

        Args:
            kinds: only events of these classes, such as `sky.events.NodeLost` or the base class `sky.events.TaskEvent`.
            replay: start with the latest past events, up to 2,000 of tasks and 2,000 others; also after the pool was
                closed.

        Raises:
            UsageError: a kind is not an event class.

        Example:
            >>> pool = sky.Compute(nodes=2)
            >>> stream = pool.events(sky.events.NodeReady)
            >>> with pool:
            ...     print(next(stream).node)
        """
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseEvent)):
                raise UsageError(f"{kind!r} is not an event class; use classes of `sky.events`, such as NodeReady.")
        bus = self._bus
        return EventStream(bus.subscribe(*(kinds or (BaseEvent,)), replay=replay), bus.unsubscribe)

    # Dispatch.

    def run[T](self, pending: PendingFunction[T]) -> T:
        """Run a call on one node and return its result; an iterator for a generator function (operator `>>`)."""
        __tracebackhide__ = True
        runs: list[Run[Any]] = []
        with stopping(runs):
            self.start(pending, runs=runs, waits=True)
            if runs[0].is_stream:
                return runs[0].items()  # type: ignore[return-value]  # T is Iterator[...] for a generator function
            with self._shown():
                return wait_result(runs[0].future)  # type: ignore[no-any-return]

    def submit[T](self, pending: PendingFunction[T]) -> TaskFuture[T]:
        """Run a call on one node and return a future; cancelling the future stops the task (operator `>`)."""
        runs: list[Run[Any]] = []
        with stopping(runs):
            self.start(pending, runs=runs)
            return future_of(runs[0])

    def broadcast[T](self, pending: PendingFunction[T]) -> list[T]:
        """Run a call on every node and return the results in order of rank (operator `@`).

        For a generator function, return an iterator over pairs of a rank and an element, as they arrive from all nodes.
        """
        __tracebackhide__ = True
        runs: list[Run[Any]] = []
        with stopping(runs):
            self.start(pending, on="all", sink=ConsoleSink(label=True), runs=runs, waits=True)
            if runs[0].is_stream:
                return runs[0].items()  # type: ignore[return-value]  # T is Iterator[...] for a generator function
            with self._shown():
                return wait_result(runs[0].future)

    def run_group(self, group: PendingFunctionGroup[Any]) -> Any:
        """Run a group and return a tuple of results, or an iterator for `gather(..., stream=True)` (operator `>>`)."""
        __tracebackhide__ = True
        runs: list[Run[Any]] = []
        with stopping(runs):
            self._start_group(group, runs, waits=True)
            if group.stream:
                return GroupStream(runs, ordered=group.ordered)
            if group.placement is not None:  # the first error ends the wait: others may wait for the one that failed
                together = self._dispatcher().gathered(runs)
                with watched([run.future for run in runs]), self._shown():
                    return wait_result(together)
            with watched([run.future for run in runs]), self._shown():
                return tuple([run.items() if run.is_stream else wait_result(run.future) for run in runs])

    def submit_group(self, group: PendingFunctionGroup[Any]) -> TaskFuture[tuple[Any, ...]]:
        """Run a group and return a future; cancelling the future stops all its tasks (operator `>`)."""
        runs: list[Run[Any]] = []
        with stopping(runs):
            self._start_group(group, runs)
            return self._dispatcher().gathered(runs)

    @overload
    def map[S, T](
        self, fn: Callable[[S], PendingFunction[T]], items: Iterable[S], /, *, chunksize: int | None = None
    ) -> list[T]: ...
    @overload
    def map[S, T](
        self, fn: Callable[[S], Coroutine[Any, Any, T]], items: Iterable[S], /, *, chunksize: int | None = None
    ) -> list[T]: ...
    @overload
    def map[S, T](self, fn: Callable[[S], T], items: Iterable[S], /, *, chunksize: int | None = None) -> list[T]: ...
    @overload
    def map[T](
        self,
        fn: Callable[..., T],
        first: Iterable[Any],
        second: Iterable[Any],
        /,
        *more: Iterable[Any],
        chunksize: int | None = None,
    ) -> list[T]: ...
    def map(self, fn: Any, /, *iterables: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """Call `fn` with each item, in parallel, and return the results in the order of the items.

        With several iterables, `fn` takes an element of each, as with the built-in `map`. The first error stops the
        other calls and is raised, with a note that names its item. It suits what takes a `map`, such as `workers=` of
        SciPy's optimizers and `pool=` of emcee.

        Args:
            fn: a function; it need not be decorated with `@sky.function`.
            chunksize: items per task, which are processed in sequence; a timeout applies per call, and retries run the
                whole task again. None for one, except that many short items are sent several at a time
                if the function has no timeout and no retries.

        Raises:
            OperatorError: `fn` is a generator function.
            SpecError: `chunksize` is not a number of items.
            TypeError: without an iterable.

        Example:
            squares = pool.map(lambda x: x * x, range(10))
        """
        __tracebackhide__ = True
        if not iterables:
            raise TypeError("pool.map takes a function and at least one iterable: `pool.map(fn, items)`.")
        call = fn if isinstance(fn, SkyFunction) else function(fn)
        given = list(zip(*iterables, strict=False))
        runs: list[Run[Any]] = []
        results: list[Any] = []
        check_map(call, chunksize)
        if chunksize is None and is_serial(call, len(given), self._most_slots()):
            with stopping(runs):
                sent = self._dispatcher().map(call, given, ConsoleSink(), runs, waits=True)
                with watched(sent.futures), self._shown():
                    return list(sent.results())
        chunksize = chunksize or 1
        with stopping(runs):
            calls = list(calls_of_map(call, given, chunksize, self._options.default_compute_timeout))
            self._dispatcher().start(calls, ConsoleSink(), None, runs, waits=True)
            with watched([run.future for run in runs]), self._shown():
                for first, run in zip(range(0, len(given), chunksize), runs, strict=True):
                    try:
                        result = wait_result(run.future)
                    except BaseException as error:
                        del run  # see `stopping`
                        if isinstance(error, Exception):
                            note_items(error, first, given[first : first + chunksize])
                        raise
                    results += [result] if chunksize == 1 else result
        return results

    def executor(self) -> PoolExecutor:
        """Return an executor whose calls run on the pool, for code that takes a `concurrent.futures.Executor`.

        Example:
            with pool.executor() as executor:
                for future in concurrent.futures.as_completed([executor.submit(pow, 2, n) for n in range(4)]):
                    print(future.result())
        """
        timeout = self._options.default_compute_timeout
        return PoolExecutor(self._send, self._send_map, self._most_slots, timeout)

    def _send(self, pendings: Sequence[PendingFunction[Any]]) -> list[TaskFuture[Any]]:
        """Send calls of functions that are no generator functions, and return their futures."""
        runs: list[Run[Any]] = []
        with stopping(runs):
            self._dispatcher().start(pendings, ConsoleSink(), None, runs)
            return [future_of(run) for run in runs]

    def _send_map(
        self,
        call: SkyFunction[..., Any],
        items: Sequence[tuple[Any, ...]],
        started: Callable[[TaskFuture[Any]], object],
    ) -> SentMap:
        """Send a call for each item, several in one task where they are short; see `Dispatcher.map`."""
        runs: list[Run[Any]] = []
        with stopping(runs):
            return self._dispatcher().map(call, items, ConsoleSink(), runs, started)

    def _most_slots(self) -> int:
        """Return the number of slots of the pool at its maximum size."""
        nodes = (self._resized.get(group, specs[0].nodes) for group, specs in self._groups.items())
        return self._options.worker.concurrency * sum(Nodes.of(each).ceiling for each in nodes)

    def start(
        self,
        pending: PendingFunction[Any],
        *,
        on: On = "one",
        sink: Sink | None = None,
        runs: list[Run[Any]] | None = None,
        waits: bool = False,
    ) -> Run[Any]:
        """Send a task, and return its run at once.

        Args:
            on: placement. "one" free node, the "head", or the node of a rank: one result. "all" nodes, the nodes of a
                list or range of ranks, or of a group, by its name: a list of results, by rank.
            runs: list to which the run is added before the task is sent, so that an interrupted caller can stop it.
            waits: True if the caller waits for the task, so that its arguments do not change meanwhile. Otherwise
                writable buffers are copied, so that the task sees their current content; the arguments of a generator
                function are always copied.

        Raises:
            OperatorError: it is not a call of a `@sky.function`.
            PayloadError: the task cannot be sent; nothing was sent.
            PoolClosedError: the pool is not open.
            UsageError: `on` is not a valid placement.
        """
        _check_call(pending)
        target = target_of(on, self.name, self._groups)
        dispatcher = self._dispatcher()
        runs = [] if runs is None else runs
        if isinstance(target, Several):
            dispatcher.broadcast(pending, sink or ConsoleSink(label=True), runs, target, waits=waits)
        else:
            dispatcher.start([pending], sink or ConsoleSink(), target, runs, waits=waits)
        return runs[-1]

    def start_gang(
        self,
        pendings: Sequence[PendingFunction[Any]],
        placement: GangPlacement = "pack",
        *,
        sinks: Sequence[Sink] | None = None,
        runs: list[Run[Any]] | None = None,
        within: float | None = None,
        waits: bool = False,
    ) -> Sequence[Run[Any]]:
        """Send a gang, tasks that start together or not at all, and return their runs at once.

        Args:
            pendings: the calls, by their ranks in the gang.
            placement: how they are spread over the nodes; see `sky.gang`.
            sinks: receiver of the output of each; None for the standard streams.
            runs: list to which the runs are added before the tasks are sent.
            within: seconds after which the tasks are stopped, with their wait for nodes; None for no limit.
            waits: see `start`.

        Raises:
            OperatorError: one of `pendings` is not a call of a `@sky.function`.
            PayloadError: a task cannot be sent; nothing was sent.
            PoolClosedError: the pool is not open.
            UsageError: a task cannot be a member of a gang, as one that takes a future.
        """
        for pending in pendings:
            _check_call(pending)
        runs = [] if runs is None else runs
        dispatcher = self._dispatcher()
        sinks = [ConsoleSink()] * len(pendings) if sinks is None else sinks
        dispatcher.start_gang(pendings, gang_placement(placement), sinks, runs, within, waits=waits)
        return runs

    def _start_group(self, group: PendingFunctionGroup[Any], runs: list[Run[Any]], *, waits: bool = False) -> None:
        if not isinstance(group, PendingFunctionGroup):
            raise OperatorError(f"A group is made with `sky.gather(f(1), f(2))`, but got {described(group)}.")
        items = list(group)
        if group.timeout is not None:
            items = [item if item.timeout is not None else item.with_timeout(group.timeout) for item in items]
        if group.placement is not None:
            self.start_gang(items, group.placement, runs=runs, within=group.timeout, waits=waits)
            return
        waits = waits and not group.stream
        self._dispatcher().start(items, ConsoleSink(), None, runs, within=group.timeout, waits=waits)

    # Display.

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, str]:
        """Return the current state of the pool as HTML and text."""
        from skyward.views.static import mime_bundle

        return mime_bundle(self.report())

    def _ipython_display_(self) -> None:
        """Show a live view of the pool; without one, IPython falls back to `_repr_mimebundle_`."""
        from skyward.views.live import show_live

        if not show_live(self):
            raise NotImplementedError  # makes IPython fall back

    # Collections. Below this line, `dict` and `set` are methods in annotations.

    def dict(self, name: str, *, consistency: Consistency | None = None) -> Dict:
        """Return the dict of this name, shared with the nodes. See `sky.dict`."""
        return self._collections("dict").dict(name, consistency=consistency)

    def set(self, name: str, *, consistency: Consistency | None = None) -> Set:
        """Return the set of this name, shared with the nodes. See `sky.set`."""
        return self._collections("set").set(name, consistency=consistency)

    def counter(self, name: str, *, consistency: Consistency | None = None) -> Counter:
        """Return the counter of this name, shared with the nodes. See `sky.counter`."""
        return self._collections("counter").counter(name, consistency=consistency)

    def queue(self, name: str) -> Queue:
        """Return the queue of this name, shared with the nodes. See `sky.queue`."""
        return self._collections("queue").queue(name)

    def barrier(self, name: str, n: int) -> Barrier:
        """Return the barrier of this name for `n` parties, shared with the nodes. See `sky.barrier`."""
        return self._collections("barrier").barrier(name, n)

    def lock(self, name: str, timeout: float | None = 30) -> Lock:
        """Return the lock of this name, shared with the nodes. See `sky.lock`."""
        return self._collections("lock").lock(name, timeout)

    def _collections(self, kind: str) -> CollectionFactory:
        refuse_standalone(kind, self._ready().standalone)
        return cast("CollectionFactory", self._shared)

    # Internals.

    def _shown(self) -> AbstractContextManager[None]:
        """Return a context for waiting, in which the console shows progress."""
        return nullcontext() if self._console is None else self._console

    def _current(self) -> PoolSnapshot | None:
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

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name: str) -> object:
            replacement = OF_A_POOL.get(name)
            hint = "" if replacement is None else f": {replacement}"
            raise AttributeError(f"A pool has no {name!r}{hint}.", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Compute {self.name!r}: {'open' if self.is_open else 'closed'}>"


def open_attached(
    name: str,
    groups: Mapping[str, tuple[Spec, ...]],
    options: Options,
    take_over: Callable[[], PoolRecord],
    earlier: Sequence[ClusterEntry],
    specs: Mapping[str, SpecHistory],
) -> Compute:
    """Return a pool taken over from another process: see `sky.attach`.

    Args:
        take_over: transfers the pool's record to this process.
        earlier: recorded clusters of the pool.
        specs: the specs that groups have had, if the pool was updated.
    """
    pool = Compute(*next(iter(groups.values())), name=name)
    pool._groups, pool._options = FrozenMap(groups), options
    with observed(pool):
        pool._open(take_over(), earlier, specs)
    found = pool._ready()
    for name, (least, most) in background.call(lambda: found.bounds).items():
        nodes = Nodes.of(groups[name][0].nodes)
        if (least, most) != (nodes.min, nodes.ceiling):  # its former process resized it
            pool._resized[name] = Nodes(least, None if least == most else most)
    return pool


def nodes_with(pool: Compute, digest: bytes) -> frozenset[int]:
    """Return the ranks of the nodes that hold the blob of this digest."""
    return frozenset() if pool._pool is None else pool._pool.holds(digest)


def limit_leases(pool: Compute) -> None:
    """Keep the leases of a pool's nodes within its budget from now on, so that it holds if this process is killed."""
    background.call(pool._ready().limit_leases)


def send[T](pool: Compute, pending: PendingFunction[T], codes: "dict[int, PreparedCode]") -> Run[T]:
    """Send a call to one node, as `Compute.start` does.

    Args:
        codes: functions that are not pickled again, by their identity; the function is added.
    """
    runs: list[Run[Any]] = []
    with stopping(runs):
        pool._dispatcher().start([pending], ConsoleSink(), None, runs, codes=codes)
        return runs[0]


def when_closed(pool: Compute, call: Callable[[], object]) -> None:
    """Call `call` once after a pool was closed or left, on the thread that did so."""
    pool._at_close.append(call)


def _was_closed(pool: Compute) -> None:
    calls, pool._at_close = pool._at_close, []
    for call in calls:
        with contextlib.suppress(Exception):  # a failing view must not keep machines from being terminated
            call()


def _check_call(pending: object) -> None:
    if not isinstance(pending, PendingFunction):
        raise OperatorError(
            f"A pool runs a call of a `@sky.function`, such as `train(10)`, but got {described(pending)}."
        )


def _refuse_on_node() -> None:
    import os

    if "SKYWARD_NODE" in os.environ:
        raise OnNodeError("A pool cannot be opened from inside a task; open it in the notebook or script instead.")
