"""The tasks of a pool on the client: from their submission to their settlement.

Executes the effects of the task manager, and makes no decisions itself.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

from skyward.control.act.event_publisher import EventPublisher
from skyward.control.act.event_router import EventRouter, RoutingPool
from skyward.control.act.feeding import Feeding
from skyward.control.act.kept_values import KeptValues, keys_of
from skyward.control.act.nodes.node import Node
from skyward.control.act.recovered_tasks import RecoveredTask, end_inputs, recover
from skyward.control.act.tasks.future import EncodedResult, depends_on, end_cancelled, when_done
from skyward.control.act.tasks.history import TaskHistory
from skyward.control.act.tasks.inputs import TaskInputs, with_note
from skyward.control.act.tasks.prerequisites import Prerequisites
from skyward.control.act.tasks.remote_results import RemoteResult, RemoteResults
from skyward.control.act.tasks.settle import final, settle
from skyward.control.act.tasks.task import BroadcastWork, Work
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.tasks.placement import chosen_ranks, members_of, no_node
from skyward.errors import NoGroupFitsError, PoolClosedError, RemoteError, SkywardError
from skyward.scaling.snapshot import GangDemand
from skyward.values.gangs import GangPlacement
from skyward.values.needs import Needs
from skyward.wire.protocol.messages import (
    NO_PARTIAL_RESULT,
    Blob,
    Collective,
    Credit,
    Drop,
    GangMember,
    Meet,
    NodeReport,
)

__all__ = ["PoolTasks", "TaskPool"]

_logger = logging.getLogger(__name__)


class TaskPool(RoutingPool, Protocol):
    """A pool, as its tasks use it."""

    name: str

    @property
    def together(self) -> tasks.Together | None:
        """Terms of the broadcasts of the pool, if their members work together; None if they are independent."""

    @property
    def control(self) -> ControlPlane:
        """The control plane; raises `PoolClosedError` if the pool was never open."""

    @property
    def publisher(self) -> EventPublisher:
        """The publisher of events; raises `PoolClosedError` if the pool was never open."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """Nodes that have a machine, by rank."""

    def note(self, text: str) -> None:
        """Show a notice to the user."""


class PoolTasks:
    """The tasks of one pool. Runs on the library's loop, except for `fetch`.

    Args:
        pool: the pool of the tasks.
        retries: see `RemoteResults`.

    Attributes:
        works: unfinished tasks, by number.
        broadcasts: unfinished broadcasts, by number.
        prerequisites: tasks and broadcasts that are not queued yet.
        results: results that stay on their nodes.
        recovered: tasks that another process sent.
        log: the output of all nodes.
    """

    def __init__(self, pool: TaskPool, retries: int) -> None:
        self._pool = pool
        self._name, self._tell = pool.name, pool.tell
        self._id = secrets.token_hex(8)
        self.works: dict[int, Work] = {}
        self.broadcasts: dict[int, BroadcastWork] = {}
        self.history = TaskHistory(self.works, self._rank_of)
        self.kept_values = KeptValues(pool.name, lambda: pool.control, pool.tell, pool.node_at)
        self.results = RemoteResults(
            pool.name,
            retries,
            self.submit,
            self._holds_results,
            pool.note,
            lambda: pool.nodes.values(),
            pool.spawn,
        )
        self.router = EventRouter(self.works, pool, self.history, self.results, self.kept_values, self.withhold)
        self._arrived, self.log = self.router.arrived, self.router.log
        self._feeding = Feeding(self._node_of, self.router.not_fed, pool.spawn)
        self.prerequisites = Prerequisites(pool.spawn)
        self._cancelling: list[Work] = []
        self.recovered: list[RecoveredTask] = []

    @property
    def together(self) -> bool:
        """True if the members of a broadcast work together."""
        return self._pool.together is not None

    # Submission.

    def submit(self, works: Sequence[Work]) -> None:
        """Accept tasks, in order. Tasks with prerequisites are queued later."""
        if self.router.closing:
            closed = PoolClosedError(f"Pool {self._name!r} is closed. Open it, or a new one, first.")
            for work in works:
                settle(work, closed)
            return
        manager = self._pool.control.tasks
        works = [work for work in works if work.ended_at is None]  # not those cancelled before
        for work in works:
            work.task = manager.number()
        self._enqueue([work for work in works if work.inputs is None or work.inputs.is_ready])
        for work in works:
            if work.inputs is not None and not work.inputs.is_ready:
                self._hold(work, work.inputs)

    def submit_gang(self, works: Sequence[Work], placement: GangPlacement) -> None:
        """Accept tasks that start together or not at all, in the order of their ranks in the gang."""
        if self.router.closing:
            self.submit(works)  # refuses them
            return
        if any(work.ended_at is not None for work in works):  # one was cancelled before
            for work in works:
                settle(work, "cancelled")
            return
        manager = self._pool.control.tasks
        number = manager.number()
        blobs: dict[int, Mapping[bytes, int]] = {}
        for work in works:
            work.task = manager.number()
            self.works[work.task] = work
            depends_on(work.future, tuple)
            if work.blobs:
                blobs[work.task] = {key: view.nbytes for key, view in work.blobs.items()}
        demand = GangDemand(tuple(work.needs for work in works), placement)
        retries = tuple(work.retries.times for work in works)
        functions = tuple(work.function for work in works)
        self._tell(tasks.SubmitGang(number, tuple(work.task for work in works), demand, retries, blobs, functions))

    def _hold(self, work: Work, inputs: TaskInputs) -> None:
        """Queue a task once its prerequisites are met."""
        self.works[work.task] = work
        depends_on(work.future, lambda: inputs.futures)
        self._pool.publisher.publish_waiting(work)
        self.history.revision += 1

        def broken(error: BaseException, why: str) -> None:
            work.break_with(error)
            self._end_held(work, "error", why)

        def unwanted(why: str) -> None:
            work.unwanted = f": {why}"
            self._end_held(work, "cancelled", why)

        self.prerequisites.hold(work.task, inputs, lambda: self._enqueue([work]), broken, unwanted)

    def _end_held(self, work: Work, outcome: tasks.SettleOutcome, reason: str = "") -> None:
        """End a task that was never queued."""
        ended = final(work, tasks.Settle(work.task, outcome, reason))
        self._pool.publisher.publish_effect(ended)
        self._settle(ended)
        self.history.revision += 1

    def _enqueue(self, works: Sequence[Work]) -> None:
        """Queue tasks whose prerequisites are met."""
        table = self._pool.control.reconciler.table
        batches: dict[tuple[int | None, bool, Needs, int, tuple[str, ...]], list[Work]] = {}
        blobs: dict[int, Mapping[bytes, int]] = {}
        for work in works:
            rank = work.target
            if rank is not None and rank not in table.assignments:
                self._refuse(work, no_node(self._name, [rank], table))
                continue
            if work.kept:
                try:
                    rank = self.kept_values.place(work, rank)
                except SkywardError as error:
                    self._refuse(work, error)
                    continue
            self.works[work.task] = work
            depends_on(work.future, tuple)
            if work.blobs:
                blobs[work.task] = {key: view.nbytes for key, view in work.blobs.items()}
            kind = rank, not work.feeders, work.needs, work.retries.times, keys_of(work.kept)
            batches.setdefault(kind, []).append(work)
        for (rank, replayable, needs, retries, kept), batch in batches.items():
            numbers, functions = tuple(work.task for work in batch), tuple(work.function for work in batch)
            self._tell(tasks.Submitted(numbers, rank, replayable, needs, retries, kept, blobs, functions))

    def _refuse(self, work: Work, error: SkywardError) -> None:
        """End a task that cannot run."""
        if work.task in self.works:
            work.break_with(error)
            self._end_held(work, "error", str(error))
        else:
            settle(work, error)

    def broadcast(self, work: BroadcastWork) -> None:
        """Send a task to every node, and to nodes that join while it runs; or only to the nodes it is pinned to."""
        if self.router.closing:
            work.collect({})
            return
        if work.is_cancelled:
            return
        work.number = self._pool.control.tasks.number()
        self.broadcasts[work.number] = work

        def begin() -> None:
            try:
                self._begin_broadcast(work)
            except SkywardError as error:
                broken(error, "")
                if work.inputs is not None:
                    self._release_inputs(work.inputs)

        def broken(error: BaseException, _: str) -> None:
            del self.broadcasts[work.number]
            work.future.set_exception(error)

        def unwanted(why: str) -> None:
            del self.broadcasts[work.number]
            end_cancelled(work.future, f"was cancelled: {why}.", subject=f"{work.name}()")

        if work.inputs is None:
            begin()
            return
        self.prerequisites.hold(work.number, work.inputs, begin, broken, unwanted)

    def _begin_broadcast(self, work: BroadcastWork) -> None:
        """Send a broadcast to its nodes.

        Raises:
            SkywardError: it cannot run on them.
        """
        ready = self._pool.control
        together = self._pool.together
        procs = 1 if together is None else together.procs
        ranks = chosen_ranks(self._name, work.where, work.needs, procs, ready.reconciler.table, ready.tasks)
        if work.kept:
            ranks, notice = self.kept_values.places(work, ranks)
            if notice:
                self._pool.note(notice)
        if together is not None and ranks is None:
            least = sum(group.min for group in ready.groups.values())
            ranks = members_of(least, work.needs, procs, ready.reconciler.table, ready.tasks)
        if together is not None and work.needs:
            each = {name: amount * together.procs for name, amount in work.needs.resources.items()}
            if reason := ready.tasks.infeasible(Needs(each, work.needs.capabilities)):
                raise NoGroupFitsError(f"asks for {reason}.", subject=f"{work.name}() in each of its processes")
        kept = keys_of(work.kept)
        new = tasks.Broadcast(work.number, work.needs, work.retries.times, ranks, kept, together, work.name)
        self._tell(new)

    def _release_inputs(self, inputs: TaskInputs) -> None:
        """Release the inputs of a finished task; later on the loop, as it causes another step of the control plane."""
        asyncio.get_running_loop().call_soon(inputs.release)

    def _holds_results(self, node: Node, count: int) -> None:
        """Tell the control plane how many results exist only on a node."""
        if self._pool.nodes.get(node.rank) is node:
            self._tell(tasks.UniqueResults(node.rank, count))

    def withhold(self, node: Node, work: Work, result: RemoteResult) -> None:
        """Hold a task back until a lost result among its inputs is restored."""
        work.running = False
        self._tell(tasks.Withheld(work.task, node.rank))

        async def restore() -> None:
            try:
                await self.results.restore(result)
            except Exception as error:
                note = (
                    f"{work.code.name}() did not run: it takes the result of {result.recipe.code.name}(), which failed."
                )
                work.break_with(with_note(error, note))
            self._tell(tasks.Released(work.task, broken=work.broken is not None))

        self._pool.spawn(restore())

    # Requests about unfinished tasks.

    def cancel(self, works: Iterable[Work]) -> None:
        """Cancel tasks, later on the loop: many calls make one step. Each ends once its node has stopped it."""
        if not self._cancelling:
            asyncio.get_running_loop().call_soon(self._cancel_requested)
        self._cancelling += works

    def _cancel_requested(self) -> None:
        works, self._cancelling = self._cancelling, []
        for work in works:
            if not work.task:  # its caller was interrupted before it was submitted
                settle(work, "cancelled")
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
            when_done(work.future, one_done)

    def cancel_numbers(self, numbers: Iterable[int]) -> int:
        """Cancel tasks by their numbers. Return how many of them exist."""
        found = [number for number in numbers if number in self.works]
        held = [number for number in found if self.prerequisites.drop(number)]
        for number in held:
            self._end_held(self.works[number], "cancelled")
        self._tell(tasks.CancelTasks(tuple(number for number in found if number not in held)))
        return len(found)

    def cancel_broadcast(self, broadcast: BroadcastWork) -> None:
        """Cancel every member of a broadcast; it gets no new members."""
        broadcast.is_cancelled = True
        if not broadcast.number:  # its caller was interrupted before it was submitted
            self._end_broadcast(broadcast)
            return
        if self.prerequisites.drop(broadcast.number):
            self._end_broadcast(self.broadcasts.pop(broadcast.number))
        self._tell(tasks.CancelBroadcast(broadcast.number))

    def credit(self, work: Work, units: int) -> None:
        """Grant a task credit for the part of its stream that the caller has consumed."""
        node = self._node_of(work.task)
        if node is None and work.nodes:  # the task has ended; its node keeps the elements that are not consumed
            node = self._pool.nodes.get(work.nodes[-1])
        if node is not None:
            node.tell(Credit(work.task, units))

    def fetch(self, work: Work, blob: Blob) -> Future[memoryview]:
        """Fetch a large element of a stream from its node; from any thread."""
        rank = work.nodes[-1]
        node = self._pool.nodes.get(rank)
        if node is None:
            raise ConnectionError(f"node {rank}, which holds the element, is gone")
        return node.fetch(blob)

    def drop(self, work: Work, keys: tuple[bytes, ...]) -> None:
        """Have the node of a task drop elements of its stream that are not needed any more."""
        node = self._pool.nodes.get(work.nodes[-1])
        if node is not None:
            node.tell(Drop(keys))

    def _rank_of(self, task: int) -> int | None:
        return self._pool.control.tasks.node_of(task)

    def _node_of(self, task: int) -> Node | None:
        rank = self._rank_of(task)
        return None if rank is None else self._pool.nodes.get(rank)

    # Effects of the task manager.

    def final(self, settled: tasks.Settle) -> tasks.Settle:
        """Return the end of a task as its caller, the history and the events report it."""
        work = self.works.get(settled.task)
        return settled if work is None else final(work, settled)

    def execute(self, effect: tasks.TaskManagerEffect, sent: set[Node]) -> None:
        """Execute one effect; a node that was sent a task is added to `sent`."""
        match effect:
            case tasks.Dispatch(task, rank, attempt, share, collective, gang):
                node = self._pool.nodes[rank]
                if collective is not None:
                    collective = replace(collective, generation=f"{self._id}-{collective.generation}")
                self._send(self.works[task], node, attempt, share, collective, gang)
                sent.add(node)
            case tasks.MeetingOpened(task, rank, address):
                if (meeting := self._pool.nodes.get(rank)) is not None:
                    meeting.tell(Meet(task, address))
                    sent.add(meeting)
            case tasks.Settle():
                self._settle(effect)
            case tasks.Stop(task, rank):
                self._stop(task, rank, "cancelled")
            case tasks.Recall(task, rank):
                self._stop(task, rank, "returned", recall=True)
            case tasks.Member(broadcast, task, rank, local):
                owner = self.broadcasts[broadcast]
                label = len(owner.members) if self.together else rank
                owner.members[rank, local] = self.works[task] = work = owner.make(label)
                work.task = task
            case tasks.BroadcastEnded(broadcast):
                self._end_broadcast(self.broadcasts.pop(broadcast))
            case tasks.Requeue(task, _, retries, reason):
                again = self.works[task]
                again.running, again.retried, again.retried_after = False, retries, reason
                again.is_leaving, again.bytes_in_transfer, again.follows_loss = False, 0, False
                self._arrived.pop(task, None)
                asyncio.get_running_loop().call_soon(self.kept_values.task_failed, task)

    def dispatch_failed(self, effect: tasks.Dispatch, error: Exception) -> None:
        """End a task that could not be sent with the error, rather than never."""
        if (work := self.works.get(effect.task)) is not None:
            work.break_with(_internal_error("was not sent", error, f"{work.code.name}()"))
        if (node := self._pool.nodes.get(effect.rank)) is not None:
            with suppress(Exception):  # the node has failed once already
                node.stop_task(effect.task)
        asyncio.get_running_loop().call_soon(self._tell, tasks.Ended(effect.task, effect.rank, "error", 0.0))

    def _stop(self, task: int, rank: int, outcome: Literal["cancelled", "returned"], *, recall: bool = False) -> None:
        node = self._pool.nodes.get(rank)
        work = self.works.get(task)
        as_is = work is not None and work.as_is and not recall
        if node is not None and not node.stop_task(task, recall=recall, as_is=as_is):
            if outcome == "cancelled":
                self._arrived[task] = EncodedResult(NO_PARTIAL_RESULT)
            asyncio.get_running_loop().call_soon(self._tell, tasks.Ended(task, rank, outcome, 0.0))

    def _send(
        self,
        work: Work,
        node: Node,
        attempt: int,
        share: tuple[int, int] | None,
        collective: Collective | None,
        gang: GangMember | None,
    ) -> None:
        work.nodes.append(node.rank)
        work.running, work.sent_at, work.slot_price = True, _now(), node.slot_price
        node.submit(work, attempt, share, collective, gang, partial(self.router.not_sent, node, work))
        self._feeding.begin(work)

    def _settle(self, settled: tasks.Settle) -> None:
        task = settled.task
        work = self.works.pop(task, None)
        if work is None:
            return
        try:
            self._end(work, settled)
        except Exception as error:
            _logger.exception("task %s of pool %r could not be settled", task, self._name)
            settle(work, _internal_error("ended, but its result was lost", error, f"{work.code.name}()"))
        finally:
            if work.inputs is not None and not work.is_member:
                self._release_inputs(work.inputs)
        self.log.task_ended(task)

    def _end(self, work: Work, settled: tasks.Settle) -> None:
        outcome, reason = settled.outcome, settled.reason
        if outcome in ("abandoned", "unfunded"):
            reason = f"Pool {self._name!r} {reason}"
        self.router.task_ended(work)
        self.history.ended(work, outcome, reason)
        arrived = self._arrived.pop(work.task, None)
        if outcome not in ("value", "raised") and self._pool.control.kept.entries:
            left = keys_of(arrived.kept) if isinstance(arrived, EncodedResult) else ()
            asyncio.get_running_loop().call_soon(self.kept_values.task_failed, work.task, left)
        cause = self._pool.control.causes.get(settled.cause) if outcome == "lost" else None
        settle(work, outcome, reason, arrived, "" if cause is None else str(cause))

    def _end_broadcast(self, broadcast: BroadcastWork) -> None:
        try:
            if broadcast.is_cancelled and not broadcast.members:
                end_cancelled(broadcast.future, "was cancelled before it started.", subject=f"{broadcast.name}()")
            else:
                broadcast.collect(broadcast.members)
        except Exception as error:
            _logger.exception("broadcast %s of pool %r could not be settled", broadcast.number, self._name)
            broadcast.future.set_exception(
                _internal_error("ended, but its result was lost", error, f"{broadcast.name}()")
            )
        finally:
            if broadcast.inputs is not None:
                self._release_inputs(broadcast.inputs)

    # Tasks that another process sent.

    def take_over(self, node: Node, report: NodeReport) -> None:
        """Take over the tasks and the kept values that a former process left on a node."""
        for known in report.tasks:
            recovered, work = recover(known, self)
            self.recovered.append(recovered)
            self.works[work.task] = work
            work.nodes.append(node.rank)
            work.sent_at, work.slot_price = _now(), node.slot_price
        self._tell(tasks.TasksFound(tuple(known.task for known in report.tasks), node.rank, report.last))
        for known in report.tasks:
            end_inputs(node, known)
        for info in report.kept:
            self.kept_values.add(node, info)

    # The end of the pool.

    def stop(self) -> None:
        """Accept no more tasks, and take no more results."""
        self.router.closing = True

    def end_all(self, why: str) -> None:
        """End all tasks and broadcasts with `PoolClosedError`, without the control plane."""
        self.prerequisites.close()
        for work in tuple(self.works.values()):
            self.router.task_ended(work)
            settle(work, PoolClosedError(why))
            if work.inputs is not None and not work.is_member:
                work.inputs.release()
        while self.broadcasts:
            _, broadcast = self.broadcasts.popitem()
            if broadcast.members or broadcast.is_cancelled:
                self._end_broadcast(broadcast)
            else:
                broadcast.future.set_exception(PoolClosedError(why))


def _internal_error(what: str, error: Exception, subject: str) -> RemoteError:
    """Return the error of a task that failed because of an error in the library itself."""
    kind = type(error).__name__
    failed = RemoteError(f"{what}, because of an error in Skyward itself: {kind}: {error}.", kind, subject=subject)
    failed.__cause__ = error
    return failed


def _now() -> float:
    return time.monotonic()
