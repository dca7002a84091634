"""Router of node events to the tasks they belong to."""

import asyncio
import logging
import pickle
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from skyward.control.act.kept_values import KeptValues
from skyward.control.act.tasks.future import EncodedResult, handles_in, is_lent
from skyward.control.act.tasks.history import TaskHistory
from skyward.control.act.tasks.remote_blobs import ResultLostError
from skyward.control.act.tasks.remote_results import NOTICED_WITHIN, RemoteResult, RemoteResults
from skyward.control.act.tasks.task import Work
from skyward.control.decide import messages as plane
from skyward.control.decide.tasks import messages as tasks
from skyward.control.observe.log import Log
from skyward.errors import RemoteError, TooLargeError
from skyward.formatting import first_line, raised_text
from skyward.link.bulk import NodeFullError
from skyward.process import background
from skyward.reporting.task_output import ConsoleSink
from skyward.wire.failures.failure import Failure, capture_failure
from skyward.wire.payloads.payload import blobs_of, encode
from skyward.wire.protocol.messages import (
    AtMeeting,
    Blob,
    Cancel,
    Display,
    Drop,
    Finished,
    Need,
    Output,
    PartialResultPending,
    Paused,
    Payload,
    Started,
    ValueKept,
    WorkerClosing,
    WorkerEvent,
    Yielded,
)

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node
    from skyward.control.act.tasks.task import Sink

__all__ = ["EventRouter", "RoutingPool"]

_NOT_RETRIED = frozenset({"MissingModuleError", "ModuleNotFoundError", "TaskExitError", "VolumeError"})
"""Exceptions of a cell that a retry cannot change."""

_logger = logging.getLogger(__name__)


class RoutingPool(Protocol):
    """A pool, as the router of its nodes' events uses it."""

    def node_at(self, rank: int) -> "Node | None":
        """Return the node of a rank."""

    def tell(self, message: plane.PlaneMessage) -> None:
        """Send a message to the control plane."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> object:
        """Run a coroutine for as long as the pool is open."""


class EventRouter:
    """Router of the events of a pool's nodes. Runs on the library's loop.

    Args:
        works: unfinished tasks, by number.
        pool: the pool of the nodes.
        history: takes printed output.
        results: takes large results that stay on their nodes.
        kept_values: takes new kept values.
        withhold: holds a task back that was not sent, because an input of it, the result, was lost.

    Attributes:
        arrived: results of tasks that are about to end, by number.
        sink: takes output that belongs to no unfinished task.
        log: the output of all nodes.
        closing: True once the pool is closing; from then on only output is handled.
    """

    def __init__(
        self,
        works: dict[int, Work],
        pool: RoutingPool,
        history: TaskHistory,
        results: RemoteResults,
        kept_values: KeptValues,
        withhold: "Callable[[Node, Work, RemoteResult], None]",
    ) -> None:
        self.works = works
        self.arrived: dict[int, EncodedResult | RemoteResult] = {}
        self.sink = ConsoleSink(label=True, of_pool=True)
        self._failed: WeakSet[Sink] = WeakSet()
        self.log = Log()
        self.closing = False
        self._pool = pool
        self._history = history
        self._results = results
        self._kept_values = kept_values
        self._withhold = withhold

    def handle(self, node: "Node", event: WorkerEvent) -> None:
        """Handle an event of a node. From a node that is leaving, only output is handled."""
        if (self.closing or self._pool.node_at(node.rank) is not node) and not isinstance(event, Output | Display):
            return
        work = self.works.get(event.task)
        try:
            self._take(node, event, work)
        except Exception as error:  # later events belong to other tasks
            self._fail(node, event, error)

    def _fail(self, node: "Node", event: WorkerEvent, error: Exception) -> None:
        """End the task of an event that could not be handled, and stop it on its node."""
        _logger.error("could not handle the event %s of node %s", type(event).__name__, node.rank, exc_info=error)
        if (work := self.works.get(event.task)) is not None:
            node.tell(Cancel(event.task))
            work.error, work.reason = "RemoteError", first_line(f"{type(error).__name__}: {error}")
            self.arrived[event.task] = _fetch_failed(error)
            self._pool.tell(tasks.Ended(event.task, node.rank, "error", 0.0))

    def _take(self, node: "Node", event: WorkerEvent, work: Work | None) -> None:
        match event:
            case Finished():
                self._on_finished(node, event, work)
            case Output(task, stream, text):
                self.log.add(node.rank, node.machine, event, time.time())
                self._history.wrote(node.rank, task, stream, text)
                sink = self.sink if work is None else work.sink
                self._show(sink, lambda: sink.output(node.rank, stream, text))
            case Yielded(_, items) if work is not None and work.stream is not None:
                is_first = not work.yielded
                work.yielded += len(items)
                work.stream.arrive(items)
                if is_first:
                    self._pool.tell(tasks.Delivered(event.task))
            case PartialResultPending() if work is not None:
                work.is_leaving = True
            case Paused(_, credited) if work is not None and work.stream is not None:
                work.stream.pause(credited)
            case AtMeeting(_, address):
                self._pool.tell(tasks.MemberArrived(event.task, node.rank, address))
            case Started():
                self._pool.tell(tasks.StartedOnNode(event.task))
            case WorkerClosing():
                self._pool.tell(tasks.RankDraining(node.rank))
            case Need(_, index, count) if work is not None and work.feeders:
                work.feeders[index].grant(count)
            case Display(_, payload) if work is not None and isinstance(payload.data, bytes):
                data, metadata, display_id, update = pickle.loads(payload.data)
                shown = work.sink
                self._show(shown, lambda: shown.display(node.rank, data, metadata, display_id, update))
            case ValueKept(info, task):
                self._kept_values.add(node, info, task)
            case Yielded(_, items):
                if blobs := blobs_of(items):
                    node.tell(Drop(tuple(blob.key for blob in blobs)))
            case _:
                pass  # its task has ended

    def not_sent(self, node: "Node", work: Work, error: Exception) -> None:
        """Handle a task that did not reach its node."""
        if isinstance(error, ResultLostError):
            self._withhold(node, work, error.result)
        elif isinstance(error, ConnectionError):
            self._pool.spawn(self._transfer_failed(node, work.task, 0.0))
        elif isinstance(error, NodeFullError):
            self._node_full(node, work, error)
        else:
            _logger.error("%s() could not be sent to node %s", work.code.name, node.rank, exc_info=error)
            kind = type(error).__name__
            failed = RemoteError(f"could not be sent: {kind}: {error}.", kind, subject=f"{work.code.name}()")
            self._ended(node, _finished(work, failed), _failed(failed), work)

    def not_fed(self, node: "Node", work: Work, error: ConnectionError | NodeFullError) -> None:
        """Handle input elements that did not reach their node; the task was stopped there."""
        if isinstance(error, ConnectionError):
            self._pool.tell(tasks.Ended(work.task, node.rank, "lost", 0.0))
        else:
            self._node_full(node, work, error)

    def _node_full(self, node: "Node", work: Work, error: NodeFullError) -> None:
        failed = TooLargeError(
            f"Node {node.rank} has no memory for the data sent to {work.code.name}(): {error}. Send less at a time, "
            "or use nodes with more memory."
        )
        self._ended(node, _finished(work, failed), _failed(failed), work)

    async def _transfer_failed(self, node: "Node", task: int, seconds: float) -> None:
        """Requeue a task after a failed transfer, once its node's loss is known or excluded.

        A broken transfer is the first sign of a lost node. Without this wait, tasks sent there before the loss is
        known would use up their attempts at once.
        """
        if not await node.lost_within(NOTICED_WITHIN) and self._pool.node_at(node.rank) in (node, None):
            self._pool.tell(tasks.Ended(task, node.rank, "lost", seconds))

    def _show(self, sink: "Sink", show: Callable[[], None]) -> None:
        """Write to a sink. A sink that fails is not used again: its output is still in the pool's log."""
        if sink in self._failed:
            return
        try:
            show()
        except BaseException as error:  # of a replaced `sys.stdout`: it must not end the loop
            self._failed.add(sink)
            why = f"{type(error).__name__}: {error}"
            _logger.warning("cannot show the output of tasks any more (%s); pool.logs() still has it", why)

    def task_ended(self, work: Work) -> None:
        """Flush a task's unfinished lines, before its caller is notified."""
        for rank in dict.fromkeys(work.nodes):
            self._show(work.sink, partial(work.sink.task_ended, rank))

    def close(self) -> None:
        """Flush output and close the log: no more events arrive."""
        self._show(self.sink, self.sink.flush)
        self.works.clear()
        self.log.close()

    def _on_finished(self, node: "Node", event: Finished, work: Work | None) -> None:
        if work is not None and work.timeout is not None and event.seconds > work.timeout:
            event = self._timed_out(node, event, work)
        payload = event.payload
        if not (isinstance(payload.data, Blob) or (payload.buffers and blobs_of([payload]))):
            self._ended(node, event, EncodedResult(payload, kept=handles_in(payload)), work)
        elif work is not None and not event.unsaved and (left := self._results.leave(node, event, work)) is not None:
            self._ended(node, event, left, work)
        else:
            blobs = blobs_of([payload])
            if work is not None:
                work.bytes_in_transfer = sum(blob.size for blob in blobs)
            self._pool.spawn(self._fetch_result(node, event, blobs))

    def _timed_out(self, node: "Node", event: Finished, work: Work) -> Finished:
        """Return the end of a task that ran past its timeout.

        Its late result is dropped, unless the task has a grace period: then the result is the state it left.
        """
        if event.outcome not in ("value", "error"):
            return event
        if event.outcome == "value" and work.grace:
            return replace(event, outcome="timeout")
        if keys := tuple(blob.key for blob in blobs_of([event.payload])):
            node.tell(Drop(keys))
        return replace(event, outcome="timeout", payload=Payload(b""))

    async def _fetch_result(self, node: "Node", event: Finished, blobs: list[Blob]) -> None:
        """Fetch a large result before its task counts as ended: if the node dies meanwhile, the task runs again."""
        fetched = {}
        try:
            for blob in blobs:
                fetched[blob.key] = await asyncio.wrap_future(node.fetch(blob))
        except ConnectionError:
            if (work := self.works.get(event.task)) is not None:
                work.is_leaving, work.bytes_in_transfer = False, 0
            await self._transfer_failed(node, event.task, event.seconds)
            return
        except Exception as error:
            if event.outcome in ("value", "error"):
                reason = first_line(f"{type(error).__name__}: {error}")
                event = replace(event, outcome="error", error="RemoteError", reason=reason)
                arrived = _fetch_failed(error)
            else:
                arrived = EncodedResult(Payload(b""))
        else:
            arrived = EncodedResult(event.payload, fetched, handles_in(event.payload))
        work, keys = self.works.get(event.task), tuple(blob.key for blob in blobs)
        if work is not None and event.outcome == "value" and is_lent(work.future):
            node.keep_result(blobs)  # other tasks take it, perhaps on this node
            background.call_when_gone(work.future, node.discard, keys)
        else:
            node.tell(Drop(keys))
        self._ended(node, event, arrived, work)

    def _ended(self, node: "Node", event: Finished, arrived: EncodedResult | RemoteResult, work: Work | None) -> None:
        retry, raised = "", event.outcome == "value" and bool(event.error)
        if work is not None:
            work.seconds, work.error, work.reason = event.seconds, event.error, event.reason
            work.follows_loss, work.unsaved = event.follows_loss, event.unsaved
            self.arrived[event.task] = arrived
            if event.outcome == "error" and work.retries.times and isinstance(arrived, EncodedResult):
                retry = _retry_reason(work, arrived)
            elif raised and work.retries.times:  # a cell: its result has the error
                kind = event.error.rpartition(".")[2]
                retry = "" if kind in _NOT_RETRIED else f"it raised {raised_text(kind, event.reason)}"
        ended = tasks.Ended(event.task, node.rank, event.outcome, event.seconds, retry, event.follows_loss, raised)
        self._pool.tell(ended)


def _retry_reason(work: Work, arrived: EncodedResult) -> str:
    """Return the reason for a retry, if the task's retries cover what it raised; empty otherwise."""
    try:
        failure = arrived.decode()
        if isinstance(failure, Failure) and work.retries.covers(failure.rebuild()):
            return f"it raised {raised_text(failure.type_name, failure.reason)}"
    except BaseException as error:  # raised by the exception's class: it must not end the loop
        _logger.debug("could not inspect the exception of %s(): %r", work.code.name, error)
    return ""


def _fetch_failed(error: Exception) -> EncodedResult:
    """Return the error of a task whose result exists and cannot be fetched. A retry would fail the same way."""
    kind = type(error).__name__
    failed = RemoteError(f"Could not fetch the task's result: {kind}: {error}.", kind)
    failed.__cause__ = error
    return _failed(failed)


def _finished(work: Work, error: Exception) -> Finished:
    """Return the end of a task with an error of the client."""
    return Finished(work.task, "error", Payload(b""), 0.0, type(error).__name__, first_line(str(error)))


def _failed(error: Exception) -> EncodedResult:
    outgoing = encode(capture_failure(error))
    return EncodedResult(outgoing.payload, outgoing.blobs)
