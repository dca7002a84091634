"""The two kinds of slot: a thread of the worker, and a child process."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock  # tasks may replace the attributes of the module
from typing import Any

from skyward.errors import PluginError
from skyward.process.clock import clock
from skyward.task.instance import InstanceInfo
from skyward.wire.collections.requests import CollectionRequest
from skyward.wire.payloads.payload import blobs_of
from skyward.wire.protocol.messages import (
    CODES,
    Code,
    Feed,
    Finished,
    Output,
    PartialResultPending,
    Payload,
    PluginPart,
    WorkerEvent,
)
from skyward.worker.blobs.store import BlobLocation, BlobStore
from skyward.worker.events.context import Port
from skyward.worker.events.output import Pump
from skyward.worker.tasks.child_process import ChildProcess
from skyward.worker.tasks.exceptions import failed
from skyward.worker.tasks.execute import Functions, execute
from skyward.worker.tasks.guard import Reason, ThreadGuard
from skyward.worker.tasks.jobs import ForJob, Job
from skyward.worker.tasks.plugins import NO_PLUGINS, Plugins

__all__ = ["ProcessSlot", "ThreadSlot"]

_TEXT_WITHIN = 1.0
"""Seconds that output below Python waits at most for text that Python wrote before it."""

_POLL_EVERY = 0.0001

_PREPARED_WITHIN = 300.0
"""Seconds that the plugins have to start in a process that replaces another one: the client waits for the first one."""

_LEAVES_WITHIN = 1.5
"""Seconds that a process has to leave the contexts of its plugins before it is replaced."""


_ENDS_WITHIN = 5.0
"""Seconds that a process has to end after it was killed."""


class _NeverReadyError(PluginError):
    """A plugin could not be started in a child process, and will not be in any other."""


class ThreadSlot:
    """A slot that runs jobs on the thread that creates it, inside the contexts of `plugins`.

    `node` is the rank of the node.
    """

    def __init__(self, node: int, port: Port, store: BlobStore, functions: Functions, plugins: Plugins) -> None:
        self._node = node
        self._port = port
        self._store = store
        self._functions = functions
        self._plugins = plugins
        self._guard = ThreadGuard()

    def get_ready(self) -> None:
        """Do nothing: a thread is always ready."""

    def run(self, job: Job) -> Finished:
        """Run `job` until it ends."""
        self._guard.reason = None
        job.run_here()
        return execute(
            job,
            self._port,
            self._functions,
            lambda blob: self._store.read(blob.key),
            self._node,
            self._guard,
            self._plugins,
        )

    def interrupt(self, reason: Reason) -> None:
        """Interrupt the running job."""
        self._guard.interrupt(reason)

    def give_up(self) -> bool:
        """Return False: a thread cannot be killed."""
        return False


class ProcessSlot:
    """A slot that runs jobs in a child process, which is restarted after it died.

    Args:
        node, worker: rank of the node, and index of the slot on it.
        emit: takes the events of the child.
        store: the node's blobs.
        info: returns the value of `instance_info()` on the node, as JSON.
        ask: performs operations on collections.
        prepared: the plugins of the node; and their parts, which each child makes anew.
        started: called once, when the first child is ready for jobs, with an empty text; or with why it is not, and
            whether it never will be.
        unfit: called with the reason when no child can be made ready for a job, which is returned then.
    """

    def __init__(
        self,
        node: int,
        worker: int,
        emit: Callable[[WorkerEvent], None],
        store: BlobStore,
        info: Callable[[], str],
        ask: Callable[[CollectionRequest], Future[Any]],
        prepared: tuple[Plugins, tuple[PluginPart, ...]] = (NO_PLUGINS, ()),
        started: Callable[[str, bool], None] | None = None,
        unfit: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._node = node
        self._worker = worker
        self._unfit = unfit
        self._info = info
        self._sent_info = ""
        self._emit = emit
        self._ask = ask
        self._operations: dict[int, Future[Any]] = {}
        self._store = store
        self._child: ChildProcess | None = None
        self._known: set[bytes] = set()
        self._reason: Reason | None = None
        self._task = 0
        self._job: Job | None = None
        self._reading = Lock()
        self._dismissed = False
        self._pump: Pump | None = None
        self._taking = False
        self._plugins, self._parts = prepared
        self._started = started
        self._is_used_up = self._is_killed = self._is_preparing = False
        self._killed_at = 0.0

    def run(self, job: Job) -> Finished:
        """Run `job` in the child until it, or the child, ends."""
        self._reason, self._is_killed = None, False
        with self._reading:
            self._task, self._job = job.submit.task, job
            try:
                try:
                    child = self._ready()
                except Exception as error:
                    return self._not_run(job, error)
                try:
                    self._tell_info(child)
                    child.send(
                        (
                            self._code(job),
                            job.submit,
                            self._places([job.code.payload, job.submit.call, *job.submit.values]),
                        )
                    )
                    job.run_elsewhere(self._relay)
                    self._is_used_up = job.submit.collective is not None and self._plugins.once
                    finished = self._attend(child)
                    if self._is_used_up and finished.outcome != "value":
                        self._forget_child()  # by itself, it may wait for the other members
                    return finished
                except (EOFError, OSError):
                    return self._died(job)
            except Exception as error:  # in this process, such as a missing blob: it ends this task alone
                self._cancel_operations()
                self._forget_child()
                return failed(job.submit.task, error, self._node)
            finally:
                self._drain()
                self._task, self._job = 0, None

    def _not_run(self, job: Job, error: Exception) -> Finished:
        """Return a job for which there is no child, unless it was to end: no other one could run here either."""
        if self._reason is not None or self._is_killed or self._dismissed:
            return self._died(job)
        self._forget_child()
        self._unfit(self._why_not_ready(error))
        return Finished(job.submit.task, "returned", Payload(b""), 0.0)

    def _why_not_ready(self, error: Exception) -> str:
        if not isinstance(error, EOFError | OSError):
            return str(error) or type(error).__name__
        why = f"the process of slot {self._worker} on node {self._node} ended while it was prepared"
        return f"{why}: {error}" if str(error) else why

    def _tell_info(self, child: ChildProcess) -> None:
        info = self._info()
        if info != self._sent_info:
            self._sent_info = info
            child.send(("info", info))

    def _attend(self, child: ChildProcess) -> Finished:
        try:
            while True:
                self._taking = False
                child.wait()
                self._taking = True  # before the message leaves the socket: see `_let_text_pass`
                if isinstance(message := child.receive(), Finished):
                    return message
                self._take(message, child)
        finally:
            self._taking = False

    def _take(self, message: Any, child: ChildProcess) -> None:
        match message:
            case ("keep", parts):
                child.send(("kept", self._keep(parts)))
            case ("ask", number, request):
                self._operations[number] = operation = self._ask(request)
                operation.add_done_callback(partial(self._answer, child, number))
            case ("take back", number):
                if (withdrawn := self._operations.pop(number, None)) is not None:
                    withdrawn.cancel()
            case PartialResultPending() if self._job is not None:
                self._job.leaving = True
                self._emit(message)
            case Output():
                if self._pump is not None:
                    self._pump.catch_up(read=True)  # output that was written to the descriptors before
                self._emit(message)
            case event:
                self._emit(event)

    def _keep(self, parts: list[BlobLocation]) -> list[bytes] | MemoryError:
        """Take over parts of a result, all of them or none; return their keys."""
        keys: list[bytes] = []
        try:
            keys.extend(self._store.adopt(place) for place in parts)
        except BaseException as error:
            self._store.drop(keys)
            if isinstance(error, MemoryError):
                return error
            raise
        return keys

    def _let_text_pass(self) -> None:
        """Wait briefly for text that the child sent before it wrote to its descriptors."""
        deadline = clock.monotonic() + _TEXT_WITHIN
        child = self._child
        with contextlib.suppress(OSError):  # the connection is closed
            # In this order: a message that has left the socket is marked as being withdrawn.
            while child is not None and (child.unread or self._taking) and clock.monotonic() < deadline:
                clock.sleep(_POLL_EVERY)

    def glance(self) -> None:
        """Forward events that the child sent since its last job ended; do nothing while it has a job."""
        if self._reading.acquire(blocking=False):
            try:
                self._read_rest(clock.monotonic())
            finally:
                self._reading.release()

    def _read_rest(self, deadline: float) -> None:
        """Handle messages of the child, until none comes before the deadline or the child is gone."""
        with contextlib.suppress(EOFError, OSError):
            while self._child is not None and self._child.says(max(0.0, deadline - clock.monotonic())):
                self._take(self._child.receive(), self._child)

    def _drain(self) -> None:
        if self._pump is not None:
            self._pump.catch_up()

    def _answer(self, child: ChildProcess, number: int, done: Future[Any]) -> None:
        """Send the child the result of an operation."""
        if self._operations.pop(number, None) is None or done.cancelled():
            return
        error = done.exception()
        child.send(("answer", number, None if error is not None else done.result(), error))

    def _died(self, job: Job) -> Finished:
        self._cancel_operations()
        self._read_rest(clock.monotonic())
        self._forget_child()
        # A member of a collective whose process died is the loss that the others are stopped for, though it was too.
        is_lost = job.submit.collective is not None and self._reason == "cancelled" and not self._is_killed
        outcome = "lost" if is_lost or self._reason is None else self._reason
        return Finished(job.submit.task, outcome, Payload(b""), 0.0)

    def _cancel_operations(self) -> None:
        operations, self._operations = self._operations, {}
        for operation in operations.values():
            operation.cancel()

    def _forget_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def get_ready(self) -> None:
        """Start the child unless it runs. If that fails, the next job tries again."""
        why, is_final = "", False
        with self._reading:
            try:
                if not self._dismissed:
                    self._ready()
            except Exception as error:  # the next job tries again
                why, is_final = self._why_not_ready(error), isinstance(error, _NeverReadyError)
        started, self._started = self._started, None
        if started is not None:
            started(why, is_final)

    def _ready(self) -> ChildProcess:
        """Return the child, started and prepared.

        Raises:
            PluginError: a plugin could not be started in it.
            EOFError, OSError: it cannot be started, or ended.
        """
        if self._is_used_up and self._child is not None:
            self._child.send(("end",))
            self._read_rest(clock.monotonic() + _LEAVES_WITHIN)
            self._forget_child()
        if self._child is not None and self._child.lives:
            return self._child
        self._read_rest(clock.monotonic())
        self._forget_child()
        info = self._info()
        variables = self._plugins.environment(InstanceInfo.from_json(info), self._worker) if self._plugins else {}
        self._pump = Pump(self._emit, lambda: self._task, self._let_text_pass)
        try:
            self._child = ChildProcess.start(self._node, self._worker, variables, *self._pump.writers)
        finally:
            self._pump.start()  # the pump ends by itself where there is no child
        self._known.clear()
        self._sent_info = ""
        self._is_used_up = False
        self._child.send((self._parts, info))
        self._is_preparing = True
        try:
            if self._dismissed:
                self._child.kill()
            self._wait_until_up(self._child)
        finally:
            self._is_preparing = False
        return self._child

    def _wait_until_up(self, child: ChildProcess) -> None:
        deadline = clock.monotonic() + _PREPARED_WITHIN if self._started is None else None
        while True:
            if deadline is not None and not child.says(max(0.0, deadline - clock.monotonic())):
                self._forget_child()
                raise PluginError(
                    f"the plugins did not start within {_PREPARED_WITHIN:g} s in a new process on node {self._node}"
                )
            if (message := child.receive()) == "up":
                return
            match message:
                case ("failed", str() as why, is_final):
                    self._forget_child()
                    raise (_NeverReadyError if is_final else PluginError)(why)
                case _:
                    self._take(message, child)

    def _code(self, job: Job) -> Code | None:
        if job.code.digest in self._known:
            return None
        if len(self._known) >= CODES:  # the child clears its own codes at the same time
            self._known.clear()
        self._known.add(job.code.digest)
        return job.code

    def _places(self, payloads: list[Payload]) -> dict[bytes, BlobLocation]:
        return {blob.key: self._store.get(blob.key).place for blob in blobs_of(payloads)}

    def interrupt(self, reason: Reason) -> None:
        """Interrupt the running job."""
        self._reason = reason
        self._tell(("interrupt", reason))

    def _relay(self, command: ForJob) -> None:
        places: dict[bytes, BlobLocation] = {}
        if isinstance(command, Feed):
            places = self._places([*command.items, command.failure] if command.failure else [*command.items])
        self._tell(("relay", command, places))

    def _tell(self, message: object) -> None:
        if (child := self._child) is not None:
            child.send(message)

    def give_up(self) -> bool:
        """Kill the child, and return whether that ends it; the next job gets a new one.

        A process that waits for a file of a mount, whose store is away, goes on waiting.
        """
        if not self._is_killed:
            self._is_killed, self._killed_at = True, clock.monotonic()
        if (child := self._child) is None:
            return True
        child.kill()
        return not child.lives or clock.monotonic() - self._killed_at < _ENDS_WITHIN

    def dismiss(self) -> None:
        """Ask the child to end after its job; kill it if it is being prepared, which can take minutes."""
        self._dismissed = True
        if self._is_preparing and (child := self._child) is not None:
            child.kill()
        self._tell(("end",))

    def close(self, deadline: float) -> None:
        """End the child permanently, once its last events are handled, or at the deadline."""
        if self._reading.acquire(timeout=max(0.0, deadline - clock.monotonic())):
            self._read_rest(deadline)
            self._drain()
            self._forget_child()
        else:
            self.give_up()
