"""The pool's runtime: executes the control plane's effects, and makes no decisions itself.

Runs on the library's loop; `skyward.pool.compute` is its API for other threads.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from skyward import events
from skyward.control.act.driver import Timer, plane_of
from skyward.control.act.event_publisher import FAILURES, EventPublisher
from skyward.control.act.event_router import EventRouter
from skyward.control.act.feeding import Feeding
from skyward.control.act.kept_values import KeptValues, keys_of
from skyward.control.act.nodes.cluster import ClusterManager
from skyward.control.act.nodes.fleet import Fleet
from skyward.control.act.nodes.launching import launchers_of
from skyward.control.act.nodes.node import Node
from skyward.control.act.recovered_tasks import RecoveredTask, end_inputs
from skyward.control.act.report import view
from skyward.control.act.tasks.deadlock import DeadlockDetector
from skyward.control.act.tasks.history import TaskHistory, unix_offset
from skyward.control.act.tasks.inputs import TaskInputs, with_note
from skyward.control.act.tasks.prerequisites import Prerequisites
from skyward.control.act.tasks.remote_results import RemoteResult, RemoteResults
from skyward.control.act.tasks.settle import final, settle
from skyward.control.act.tasks.task import BroadcastWork, EncodedResult, Work
from skyward.control.decide import messages as plane
from skyward.control.decide.machines import messages as machine_messages
from skyward.control.decide.plane import ControlPlane, undrainable
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.tasks.placement import chosen_ranks, no_node
from skyward.control.lifecycle import POOL, Lifecycle, PoolState
from skyward.control.observe.snapshot import PoolSnapshot
from skyward.errors import NodeStartError, PoolClosedError, ProvisioningError, RemoteError, SkywardError
from skyward.events.bus import EventBus
from skyward.events.decisions import DecisionEvent
from skyward.journal import ClusterEntry, PoolRecord
from skyward.process.background_tasks import BackgroundTasks
from skyward.process.lifespan import Lifespan, Say
from skyward.scaling.snapshot import Demand
from skyward.specs import Nodes, Options, Spec
from skyward.wire.protocol.messages import NO_PARTIAL_RESULT, Blob, Credit, Drop, NodeReport

if TYPE_CHECKING:
    from skyward.events.metrics import NodeMetrics
    from skyward.events.output import Follower, OutputFilter
    from skyward.values.needs import Needs

__all__ = ["Pool"]

_RENEW_EVERY = 20.0

_logger = logging.getLogger(__name__)


class Pool:
    """A pool of nodes and the tasks sent to it."""

    def __init__(
        self,
        name: str,
        groups: Mapping[str, Sequence[Spec]],
        options: Options,
        say: Say,
        record: PoolRecord,
        bus: EventBus,
    ) -> None:
        self.name = name
        self._bus = bus
        self._publisher: EventPublisher | None = None
        self._began = 0.0
        self._options = options
        self._life: Lifecycle[PoolState] = Lifecycle(f"pool {name!r}", POOL, "new")
        self._record = record
        self._launchers = launchers_of(record, groups, options)
        self._plane: ControlPlane | None = None
        self.clustering = (
            None
            if options.cluster is False
            else ClusterManager(name, record.derive("authority"), self._use_node, self._note)
        )
        self._background = BackgroundTasks()
        self._works: dict[int, Work] = {}
        self.task_record = TaskHistory(self._works, self._rank_of)
        self.kept_values = KeptValues(name, self._ready, self.tell, self.node_at)
        self._results = RemoteResults(
            name,
            options.retry_on_interruption,
            self.submit,
            self._holds_results,
            self._note,
            lambda: self._fleet.nodes.values(),
            self._background.spawn,
        )
        self._router = EventRouter(self._works, self, self.task_record, self._results, self.kept_values)
        self._arrived, self.log = self._router.arrived, self._router.log
        self._fleet = Fleet(self._launchers, self.tell, self._router.handle, self.clustering, self._reported)
        self.startups = self._fleet.startups
        self._feeding = Feeding(self._node_of, self._router.not_fed, self.delivered, self._background.spawn)
        self._prerequisites = Prerequisites(self._background.spawn)
        self._cancelling: list[Work] = []
        self._broadcasts: dict[int, BroadcastWork] = {}
        self._timer = Timer(lambda: self.tell(plane.Tick()))
        self._progress = asyncio.Event()
        self._lifespan = Lifespan(name, self._close, say)
        self._keep_machines = False
        self.recovered: list[RecoveredTask] = []

    # Opening and closing.

    @property
    def state(self) -> PoolState:
        """State of the pool's lifecycle."""
        return self._life.state

    async def open(self, earlier: Sequence[ClusterEntry] = ()) -> None:
        """Launch the nodes, and return once enough of them are ready.

        Args:
            earlier: recorded clusters of the process that opened the pool: their machines are taken over.

        Raises:
            ProvisioningError: not enough nodes started, or none of the recorded ones exists. Whatever was launched is
                terminated. If the state of recorded machines could not be determined, all of them are left running.
        """
        self._began = _now()
        self._life.move("requesting", self._began)
        self._bus.emit(events.PoolRequesting)
        self._keep_machines = bool(earlier)
        for group, launcher in self._launchers.items():
            launcher.adopt([entry for entry in earlier if entry.group == group])
        self._background.spawn(self._renew_record())
        await self._lifespan.open(self._open())
        self._life.move("ready", _now())
        self._bus.emit(events.PoolReady, len(self._ready().tasks.ranks), _now() - self._began)
        self._background.spawn(DeadlockDetector(self.name, self._works, self.cancel).watch(self._ready()))
        if self.clustering is not None:
            self.clustering.start()

    async def _open(self) -> None:
        try:
            await self._start_nodes()
        except Exception as error:
            self._bus.emit(events.PoolFailed, type(error).__name__, str(error))
            raise

    async def _start_nodes(self) -> None:
        for launcher in self._launchers.values():
            await launcher.prepare()
        for note in dict.fromkeys(note for launcher in self._launchers.values() for note in launcher.notes):
            self._bus.emit(events.PoolNote, note)
        self._life.move("provisioning", _now())
        self._plane = control = plane_of(self._launchers, self._options)
        self._publisher = EventPublisher(self._bus, control, self._works, self._broadcasts, self.startups)
        self._bus.emit(events.PoolProvisioning, self._provider, sum(control.first.values()))
        self.tell(plane.Open())
        while self._entering or not (self._plane.ready or self._fleet.entered):
            if self._plane.cannot_start:
                raise NodeStartError(f"Pool {self.name!r} {self._plane.failure}")
            if self._keep_machines and not self._entering and not self._fleet.entered:
                self._keep_machines = False
                raise NodeStartError(f"Pool {self.name!r} is gone: could not attach to any of its nodes.")
            self._progress.clear()
            await self._progress.wait()
        self._keep_machines = False

    async def close(self) -> None:
        """Stop all tasks and terminate every machine. Idempotent; continues in the background if cancelled.

        Raises:
            ProvisioningError: some machines may be left; they are on record, for `sky reap`.
        """
        await self._lifespan.close()

    async def _close(self) -> None:
        if self.state == "new":
            self._life.move("closed", _now())
            self._record.end()
            self._bus.end()
            return
        self._life.move("stopping", _now())
        self._bus.emit(events.PoolStopping)
        self._router.closing = True
        self._timer.stop()
        await self._background.cancel()
        closed = f"Pool {self.name!r} was closed before this task ended. Open it and send it again."
        if self._publisher is not None and not self._keep_machines:
            self._publisher.publish_stopping(closed)
        self._prerequisites.close()
        for work in tuple(self._works.values()):
            self._router.task_ended(work)
            settle(work, PoolClosedError(closed))
            if work.inputs is not None and not work.is_member:
                work.inputs.release()
        while self._broadcasts:
            _, broadcast = self._broadcasts.popitem()
            if broadcast.members or broadcast.is_cancelled:
                self._end_broadcast(broadcast)
            else:
                broadcast.future.set_exception(PoolClosedError(closed))
        # Errors here must not keep the machines from being terminated.
        await asyncio.gather(self._results.close(bring=not self._keep_machines), return_exceptions=True)
        try:
            await self._fleet.close(leave=self._keep_machines)
            if self._plane is not None:
                self._plane.ledger.close(_now())
            if self._keep_machines:
                notice = f"Pool {self.name!r} is left as it was: attach to it again, or `sky reap {self.name}`."
                self._bus.emit(events.PoolNote, notice)
            else:
                if self._publisher is not None:
                    self._publisher.publish_closed(_now())
                self._record.end()
        except Exception as error:
            why = str(error) or type(error).__name__
            notice = f"Machines of pool {self.name!r} may be left: {why}. Run `sky reap {self.name}` to terminate them."
            raise ProvisioningError(notice) from error
        finally:
            self._record.leave()
            self._router.close()
            if self._plane is not None:
                self.kept_values.close()
            self._life.move("closed", _now())
            spent = 0.0 if self._plane is None else self._plane.ledger.spent(_now())
            self._bus.emit(events.PoolClosed, _now() - self._began, *self._counts, spent)
            self._bus.end()

    def _note(self, text: str) -> None:
        """Show a notice to the user."""
        self._bus.emit(events.PoolNote, f"Pool {self.name!r}: {text}")

    @property
    def is_known(self) -> bool:
        """True once opening has progressed so far that a snapshot can be taken."""
        return self._plane is not None and self.state not in ("new", "requesting")

    @property
    def _provider(self) -> str:
        return ", ".join(dict.fromkeys(launcher.provider_name for launcher in self._launchers.values()))

    @property
    def _counts(self) -> tuple[int, int]:
        """Number of tasks that returned a value, and of tasks that ended in any other way."""
        return self._bus.count(events.TaskCompleted), self._bus.count(*FAILURES)

    @property
    def _entering(self) -> bool:
        return self._fleet.entering > 0 or any(launcher.existing_machines for launcher in self._launchers.values())

    async def _renew_record(self) -> None:
        """Renew the pool's record periodically, as a heartbeat of this process."""
        while True:
            self._record.renew()
            await asyncio.sleep(_RENEW_EVERY)

    # Tasks.

    def submit(self, works: Sequence[Work]) -> None:
        """Accept tasks, in order. Tasks with prerequisites are queued later."""
        if self.state in ("stopping", "closed"):
            closed = PoolClosedError(f"Pool {self.name!r} is closed. Open it, or a new one, first.")
            for work in works:
                settle(work, closed)
            return
        for work in works:
            work.task = self._ready().tasks.number()
        self._enqueue([work for work in works if work.inputs is None or work.inputs.is_ready])
        for work in works:
            if work.inputs is not None and not work.inputs.is_ready:
                self._hold(work, work.inputs)

    def _hold(self, work: Work, inputs: TaskInputs) -> None:
        """Queue a task once its prerequisites are met."""
        self._works[work.task] = work
        work.future.parts = lambda: inputs.futures
        if self._publisher is not None:
            self._publisher.publish_waiting(work)
        self.task_record.revision += 1

        def broken(error: BaseException, why: str) -> None:
            work.broken, work.error = error, type(error).__name__
            self._end_held(work, "error", why)

        def unwanted(why: str) -> None:
            work.unwanted = f": {why}"
            self._end_held(work, "cancelled", why)

        self._prerequisites.hold(work.task, inputs, lambda: self._enqueue([work]), broken, unwanted)

    def _end_held(self, work: Work, outcome: tasks.SettleOutcome, reason: str = "") -> None:
        """End a task that was never queued."""
        ended = final(work, tasks.Settle(work.task, outcome, reason))
        if self._publisher is not None:
            self._publisher.publish_effect(ended)
        self._settle(ended)
        self.task_record.revision += 1

    def _enqueue(self, works: Sequence[Work]) -> None:
        """Queue tasks whose prerequisites are met."""
        table = self._ready().reconciler.table
        batches: dict[tuple[int | None, bool, Needs, int, tuple[str, ...]], list[int]] = {}
        blobs: dict[int, Mapping[bytes, int]] = {}
        for work in works:
            rank = work.target
            if rank is not None and rank not in table.assignments:
                self._refuse(work, no_node(self.name, [rank], table))
                continue
            if work.kept:
                try:
                    rank = self.kept_values.place(work, rank)
                except SkywardError as error:
                    self._refuse(work, error)
                    continue
            self._works[work.task] = work
            work.future.parts = tuple
            if work.blobs:
                blobs[work.task] = {key: view.nbytes for key, view in work.blobs.items()}
            kind = rank, not work.feeders, work.needs, work.retries.times, keys_of(work.kept)
            batches.setdefault(kind, []).append(work.task)
        for (rank, replayable, needs, retries, kept), numbers in batches.items():
            self.tell(tasks.Submitted(tuple(numbers), rank, replayable, needs, retries, kept, blobs))

    def _refuse(self, work: Work, error: SkywardError) -> None:
        """End a task that cannot run."""
        if work.task in self._works:
            work.broken, work.error = error, type(error).__name__
            self._end_held(work, "error", str(error))
        else:
            settle(work, error)

    def broadcast(self, work: BroadcastWork) -> None:
        """Send a task to every node, and to nodes that join while it runs; or only to the nodes it is pinned to."""
        if self.state in ("stopping", "closed"):
            work.collect({})
            return
        work.number = self._ready().tasks.number()
        self._broadcasts[work.number] = work

        def begin() -> None:
            try:
                self._begin_broadcast(work)
            except SkywardError as error:
                broken(error, "")
                if work.inputs is not None:
                    self._release_inputs(work.inputs)

        def broken(error: BaseException, _: str) -> None:
            del self._broadcasts[work.number]
            work.future.set_exception(error)

        def unwanted(why: str) -> None:
            del self._broadcasts[work.number]
            work.future.end_cancelled(f"{work.name}() was cancelled: {why}.")

        if work.inputs is None:
            begin()
            return
        self._prerequisites.hold(work.number, work.inputs, begin, broken, unwanted)

    def _begin_broadcast(self, work: BroadcastWork) -> None:
        """Send a broadcast to its nodes.

        Raises:
            SkywardError: it cannot run on them.
        """
        ready = self._ready()
        ranks = chosen_ranks(self.name, work.where, work.needs, ready.reconciler.table, ready.tasks)
        if work.kept:
            ranks, notice = self.kept_values.places(work, ranks)
            if notice:
                self._note(notice)
        self.tell(tasks.Broadcast(work.number, work.needs, work.retries.times, ranks, keys_of(work.kept)))

    def _release_inputs(self, inputs: TaskInputs) -> None:
        """Release the inputs of a finished task; later on the loop, as it causes another step of the control plane."""
        asyncio.get_running_loop().call_soon(inputs.release)

    def _holds_results(self, node: Node, count: int) -> None:
        """Tell the control plane how many results exist only on a node."""
        if self._fleet.nodes.get(node.rank) is node:
            self.tell(tasks.UniqueResults(node.rank, count))

    def withhold(self, node: Node, work: Work, result: RemoteResult) -> None:
        """Hold a task back until a lost result among its inputs is restored."""
        work.running = False
        self.tell(tasks.Withheld(work.task, node.rank))

        async def restore() -> None:
            try:
                await self._results.restore(result)
            except Exception as error:
                note = (
                    f"{work.code.name}() did not run: it takes the result of {result.recipe.code.name}(), which failed."
                )
                work.broken, work.error = with_note(error, note), type(error).__name__
            self.tell(tasks.Released(work.task, broken=work.broken is not None))

        self._background.spawn(restore())

    def cancel(self, works: Iterable[Work]) -> None:
        """Cancel tasks, later on the loop: many calls make one step. Each ends once its node has stopped it."""
        if not self._cancelling:
            asyncio.get_running_loop().call_soon(self._cancel_requested)
        self._cancelling += works

    def _cancel_requested(self) -> None:
        works, self._cancelling = self._cancelling, []
        self.cancel_numbers(work.task for work in works)

    def limit(self, works: Sequence[Work], seconds: float) -> None:
        """Cancel the tasks of `works` that run longer than `seconds` from now; they end with `TaskTimeoutError`."""
        left = len(works)

        def expire() -> None:
            late = [work for work in works if not work.future.done()]
            for work in late:
                work.group_limit = seconds
            self.cancel(late)

        def one_done(_: Future[Any]) -> None:
            nonlocal left
            left -= 1
            if not left:
                expiring.cancel()

        expiring = asyncio.get_running_loop().call_later(seconds, expire)
        for work in works:
            work.future.when_over(one_done)

    def cancel_numbers(self, numbers: Iterable[int]) -> int:
        """Cancel tasks by their numbers. Return how many of them exist."""
        found = [number for number in numbers if number in self._works]
        held = [number for number in found if self._prerequisites.drop(number)]
        for number in held:
            self._end_held(self._works[number], "cancelled")
        self.tell(tasks.CancelTasks(tuple(number for number in found if number not in held)))
        return len(found)

    def cancel_broadcast(self, broadcast: BroadcastWork) -> None:
        """Cancel every member of a broadcast; it gets no new members."""
        broadcast.is_cancelled = True
        if self._prerequisites.drop(broadcast.number):
            self._end_broadcast(self._broadcasts.pop(broadcast.number))
        self.tell(tasks.CancelBroadcast(broadcast.number))

    def credit(self, work: Work, units: int) -> None:
        """Grant a task credit for the part of its stream that the caller has consumed."""
        node = self._node_of(work.task)
        if node is not None:
            node.tell(Credit(work.task, units))

    def fetch(self, work: Work, blob: Blob) -> Future[memoryview]:
        """Fetch a large element of a stream from its node; from any thread."""
        rank = work.nodes[-1]
        node = self._fleet.nodes.get(rank)
        if node is None:
            raise ConnectionError(f"node {rank}, which holds the element, is gone")
        return node.fetch(blob)

    def drop(self, work: Work, keys: tuple[bytes, ...]) -> None:
        """Have the node of a task drop elements of its stream that are not needed any more."""
        node = self._fleet.nodes.get(work.nodes[-1])
        if node is not None:
            node.tell(Drop(keys))

    def node_at(self, rank: int) -> Node | None:
        """Return the node of a rank; None if it has no machine."""
        return self._fleet.nodes.get(rank)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine for as long as the pool is open."""
        self._background.spawn(coroutine)

    def _rank_of(self, task: int) -> int | None:
        return None if self._plane is None else self._plane.tasks.node_of(task)

    def _node_of(self, task: int) -> Node | None:
        rank = self._rank_of(task)
        return None if rank is None else self._fleet.nodes.get(rank)

    def _ready(self) -> ControlPlane:
        if self._plane is None:
            raise PoolClosedError(f"Pool {self.name!r} is not open.")
        return self._plane

    def tell(self, message: plane.PlaneMessage) -> None:
        """Send a message to the control plane, and execute the effects."""
        if self._plane is None or self._publisher is None or self.state in ("stopping", "closed"):
            return
        self.task_record.revision += 1
        if isinstance(message, tasks.Ended) and (left := self._works.get(message.task)) is not None:
            left.running = False
        sent: set[Node] = set()
        now = _now()
        effects = self._plane.handle(message, now)
        self._publisher.publish_step(message, effects, now)
        for effect in effects:
            try:
                self._execute(effect, sent)
            except Exception as error:  # later effects belong to other tasks and nodes
                self._execute_failed(effect, error)
        for node in sent:
            node.flush()
        self._publisher.publish_costs()
        self._progress.set()
        self._timer.set(self._plane.next_tick)

    def _execute(self, effect: plane.PlaneEffect, sent: set[Node]) -> None:
        """Execute one effect; nodes that were sent a command are added to `sent`."""
        control = self._ready()
        if isinstance(effect, tasks.Settle) and (settled := self._works.get(effect.task)) is not None:
            effect = final(settled, effect)
        if self._publisher is not None:
            self._publisher.publish_effect(effect)
        match effect:
            case tasks.Dispatch(task, rank, attempt, share):
                node = self._fleet.nodes[rank]
                self._send(self._works[task], node, attempt, share)
                sent.add(node)
            case tasks.Settle():
                self._settle(effect)
            case tasks.Stop(task, rank):
                self._stop(task, rank, "cancelled")
            case tasks.Recall(task, rank):
                self._stop(task, rank, "returned", recall=True)
            case tasks.Member(broadcast, task, rank):
                owner = self._broadcasts[broadcast]
                owner.members[rank] = self._works[task] = work = owner.make()
                work.task = task
            case tasks.BroadcastEnded(broadcast):
                self._end_broadcast(self._broadcasts.pop(broadcast))
            case tasks.Requeue(task, _, retries, reason):
                again = self._works[task]
                again.running, again.retried, again.retried_after = False, retries, reason
                again.is_leaving, again.bytes_in_transfer = False, 0
                self._arrived.pop(task, None)
                asyncio.get_running_loop().call_soon(self.kept_values.task_failed, task)
            case plane.ThresholdReached() | plane.Decided():
                pass
            case plane.ForgetKept() | plane.KeptValuesLost():
                self.kept_values.execute(effect)
            case machine_messages.Drain(rank) if rank in self._fleet.nodes:
                self._results.clear(self._fleet.nodes[rank])
            case machine_messages.GiveUp():
                self._bus.emit(events.PoolNote, f"Pool {self.name!r} {control.failure}")
            case _:
                self._fleet.do(effect, sum(control.desired.values()))

    def _execute_failed(self, effect: plane.PlaneEffect, error: Exception) -> None:
        """Log an effect that failed. A task that could not be sent ends with the error, rather than never."""
        _logger.error("could not execute %s of pool %r", type(effect).__name__, self.name, exc_info=error)
        if not isinstance(effect, tasks.Dispatch):
            return
        if (work := self._works.get(effect.task)) is not None:
            work.broken, work.error = _internal_error("was not sent", error, f"{work.code.name}()"), "RemoteError"
        if (node := self._fleet.nodes.get(effect.rank)) is not None:
            with suppress(Exception):  # the node has failed once already
                node.stop_task(effect.task)
        asyncio.get_running_loop().call_soon(self.tell, tasks.Ended(effect.task, effect.rank, "error", 0.0))

    def _stop(self, task: int, rank: int, outcome: Literal["cancelled", "returned"], *, recall: bool = False) -> None:
        node = self._fleet.nodes.get(rank)
        work = self._works.get(task)
        as_is = work is not None and work.as_is and not recall
        if node is not None and not node.stop_task(task, recall=recall, as_is=as_is):
            if outcome == "cancelled":
                self._arrived[task] = EncodedResult(NO_PARTIAL_RESULT)
            asyncio.get_running_loop().call_soon(self.tell, tasks.Ended(task, rank, outcome, 0.0))

    def delivered(self, task: int) -> None:
        """Record that part of a task's stream was delivered, or of its input consumed: it cannot be replayed."""
        self._ready().tasks.handle(tasks.Delivered(task), _now())

    def _send(self, work: Work, node: Node, attempt: int, share: tuple[int, int] | None) -> None:
        work.nodes.append(node.rank)
        work.running, work.sent_at, work.slot_price = True, _now(), node.slot_price
        node.submit(work, attempt, share, partial(self._router.not_sent, node, work))
        self._feeding.begin(work)

    def _settle(self, settled: tasks.Settle) -> None:
        task = settled.task
        work = self._works.pop(task, None)
        if work is None:
            return
        try:
            self._end(work, settled)
        except Exception as error:
            _logger.exception("task %s of pool %r could not be settled", task, self.name)
            settle(work, _internal_error(f"The result of {work.code.name}() was lost", error))
        finally:
            if work.inputs is not None and not work.is_member:
                self._release_inputs(work.inputs)
        self.log.task_ended(task)

    def _end(self, work: Work, settled: tasks.Settle) -> None:
        outcome, reason = settled.outcome, settled.reason
        if outcome in ("abandoned", "unfunded"):
            reason = f"Pool {self.name!r} {reason}"
        self._router.task_ended(work)
        self.task_record.ended(work, outcome, reason)
        arrived = self._arrived.pop(work.task, None)
        if outcome not in ("value", "raised") and self._ready().kept.entries:
            left = keys_of(arrived.kept) if isinstance(arrived, EncodedResult) else ()
            asyncio.get_running_loop().call_soon(self.kept_values.task_failed, work.task, left)
        cause = self._ready().causes.get(settled.cause) if outcome == "lost" else None
        settle(work, outcome, reason, arrived, "" if cause is None else str(cause))

    def _end_broadcast(self, broadcast: BroadcastWork) -> None:
        try:
            if broadcast.is_cancelled and not broadcast.members:
                broadcast.future.end_cancelled(f"{broadcast.name}() was cancelled before it started.")
            else:
                broadcast.collect(broadcast.members)
        except Exception as error:
            _logger.exception("broadcast %s of pool %r could not be settled", broadcast.number, self.name)
            broadcast.future.set_exception(_internal_error(f"The result of {broadcast.name}() was lost", error))
        finally:
            if broadcast.inputs is not None:
                self._release_inputs(broadcast.inputs)

    # Tasks that another process sent.

    def _reported(self, node: Node, report: NodeReport) -> None:
        found = [RecoveredTask(known, self) for known in report.tasks]
        for recovered in found:
            work = recovered.work
            self._works[work.task] = work
            work.nodes.append(node.rank)
            work.sent_at, work.slot_price = _now(), node.slot_price
        self.recovered += found
        self.tell(tasks.TasksFound(tuple(each.work.task for each in found), node.rank, report.last))
        for known in report.tasks:
            end_inputs(node, known)
        for info in report.kept:
            self.kept_values.add(node, info)

    # Scaling.

    def resize(self, wanted: Nodes, group: str | None = None) -> str:
        """Change the number of nodes. Nodes that are removed finish their tasks first.

        Return the reason if it is refused, in which case nothing changes; else an empty string.
        """
        name = group if group is not None else next(iter(self._launchers))
        retained = self._ready().retained(_now()).get(name)
        if retained is not None and wanted.ceiling < retained.nodes:
            return f"{retained.why}, so {retained.nodes} nodes stay"
        self.tell(plane.Resize({name: (wanted.min, wanted.ceiling)}))
        return ""

    def drain(self, rank: int) -> str:
        """Drain and remove a node, which makes the pool smaller. Return the reason if it is refused; else empty."""
        ready = self._ready()
        kept = ready.kept.busy_nodes(_now())
        reason = undrainable(ready.reconciler.table, ready.groups, ready.desired, kept, rank)
        self.tell(plane.DrainNode(rank))
        return reason

    def request_resources(self, floor: Sequence[Demand]) -> None:
        """Keep capacity for these demands, even while it is idle."""
        self.tell(plane.SetFloor(tuple(floor)))

    def infeasible(self, floor: Sequence[Demand]) -> str:
        """Return the reason why the pool could never hold `floor`, even at its largest; empty if it could."""
        return self._ready().infeasible(floor)

    def fund(self, budget: float | None) -> str:
        """Change the budget. Return the reason if it is refused, in which case nothing changes; else empty."""
        unpriced = [str(place) for launcher in self._launchers.values() for place in launcher.unpriced]
        if budget is not None and unpriced:
            return f"pool {self.name!r} may have nodes at {', '.join(unpriced[:3])}, whose price is not known"
        self.tell(plane.SetBudget(budget))
        return ""

    def _use_node(self) -> str:
        """Request a node for the client's use of collections. Return the reason if there can be none; else empty."""
        self.tell(plane.CollectionUsed())
        ready = self._ready()
        return f"pool {self.name!r} {ready.failure}" if ready.budget_exhausted or ready.cannot_start else ""

    # Views.

    def holds(self, key: bytes) -> frozenset[int]:
        """Return the ranks of the nodes that hold a blob."""
        return frozenset(rank for rank, node in tuple(self._fleet.nodes.items()) if node.holds(key))

    def follow(self, wanted: "OutputFilter", tail: int | None) -> "Follower":
        """Return a follower of the output, which starts with the last `tail` pieces of what was printed so far."""
        over = self.state == "closed" or (wanted.task is not None and wanted.task not in self._works)
        return self.log.follow(wanted, tail, ended=over)

    def metrics(self) -> "dict[int, tuple[NodeMetrics, ...]]":
        """Return the latest metrics of the nodes, by rank."""
        return {rank: tuple(node.metrics) for rank, node in sorted(self._fleet.nodes.items())}

    def snapshot(self) -> PoolSnapshot:
        """Return a snapshot of the pool."""
        found = view(self._ready(), self._fleet.nodes, self.name, self.state, self._launchers, *self._counts)
        return replace(found, queued=found.queued + len(self._prerequisites) + self._ready().tasks.withheld)

    def decisions(self) -> list[DecisionEvent]:
        """Return the latest decisions, oldest first; `at` in Unix time."""
        if self._plane is None:
            return []
        since = unix_offset()
        return [replace(event, at=event.at + since) for event in self._plane.decisions]


def _internal_error(what: str, error: Exception, subject: str = "") -> RemoteError:
    """Return the error of a task that failed because of an error in the library itself."""
    kind = type(error).__name__
    failed = RemoteError(f"{what}, because of an error in Skyward itself: {kind}: {error}.", kind, subject=subject)
    failed.__cause__ = error
    return failed


def _now() -> float:
    return time.monotonic()
