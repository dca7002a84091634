"""The agent of a node: takes commands from the engine, dispatches tasks to slots, and sends their events to the client.

It lives on the engine's loop, on a thread of its own, so that the main thread is free for tasks. Nothing here blocks.
"""

import asyncio
import contextlib
import os
import sys
import weakref
from dataclasses import replace
from threading import Event as ThreadEvent
from threading import Lock, Thread  # tasks may replace the attributes of the module
from typing import TYPE_CHECKING, Any

from skyward.errors import CollectionUnavailableError, CredentialsError, PayloadError, PluginError, StorageError
from skyward.process.clock import clock
from skyward.process.exit_status import NO_PROCESS, NOT_STOPPED
from skyward.task.instance import InstanceInfo, set_instance_info
from skyward.wire.payloads.payload import blobs_of
from skyward.wire.protocol.messages import (
    Blob,
    Cancel,
    Code,
    CollectionsWritten,
    Commands,
    Credit,
    Drop,
    Exchange,
    Farewell,
    Feed,
    Fetch,
    Finished,
    ForgetValues,
    Join,
    LeaseSet,
    Leave,
    Losses,
    Meet,
    Metrics,
    Need,
    NodeCommand,
    NodeReport,
    Output,
    Peering,
    Prepare,
    Prepared,
    ReclaimNotice,
    SetLease,
    Shutdown,
    Started,
    Submit,
    Topology,
    WorkerClosing,
    WorkerEvent,
)
from skyward.wire.protocol.volumes import AttachVolumes, RefreshVolumes, VolumeStates
from skyward.worker.blobs.incoming import IncomingBlobs
from skyward.worker.blobs.peers import Peers
from skyward.worker.blobs.references import BlobReferences
from skyward.worker.blobs.store import BlobStore
from skyward.worker.events.backlog import Backlog
from skyward.worker.runtime.cluster import Membership
from skyward.worker.runtime.recent_tasks import RecentTasks
from skyward.worker.runtime.replies import Replies
from skyward.worker.tasks.exceptions import failed
from skyward.worker.tasks.execute import Functions, input_streams
from skyward.worker.tasks.executor import TaskExecutor
from skyward.worker.tasks.forked import is_forked, leave_if_forked, write
from skyward.worker.tasks.jobs import Job
from skyward.worker.tasks.kept import NoValueStore, ValueStore
from skyward.worker.tasks.plugins import NO_PLUGINS, Plugins, is_final
from skyward.worker.tasks.slots import ProcessSlot, ThreadSlot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skyward.kept.keep import KeptStore
    from skyward.worker.volumes.volumes import Volumes

__all__ = ["Agent", "is_ours"]

TICK = 0.02
"""Seconds between checks of deadlines while there are tasks; events that are not urgent are sent at most this often."""

SETTLE = 1.0
"""Seconds that the end of a task waits at most until its operations on collections are cancelled."""

ENDING = 1.5
"""Seconds that tasks and their `atexit` functions have when the worker ends."""

ENDING_WITH_LISTENER = 3.0
"""The same while a client listens: shorter than its timeout, so that the last events reach it."""

GLANCE = 0.25
"""Seconds between polls of the processes of idle slots."""


class Agent:
    """The one agent of a worker process.

    Args:
        loop: the engine's loop.
        node: rank of the node.
        slots: number of tasks that run at once.
        backlog: takes the events while no client listens.
        processes: True to run each slot in a process of its own.
        has_plugins: True to start the slots only once `Prepare` has told the plugins.
        scratch: the folder that is removed with the node; None if there is none.

    Attributes:
        replies: answers the client.
        kept: the value store of `sky.keep` in tasks.
        drain: waits briefly until output in the descriptors of the process has been sent.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: int,
        slots: int,
        backlog: Backlog,
        *,
        processes: bool,
        has_plugins: bool = False,
        scratch: "Path | None" = None,
    ) -> None:
        self.store = BlobStore()
        self.incoming = IncomingBlobs(self.store)
        self._loop = loop
        self._node = node
        self._slots = slots
        self._processes = processes
        self._references = BlobReferences(self.store)
        self._codes: dict[bytes, Code] = {}
        self._recent = RecentTasks()
        self._values = ValueStore(node, self.emit)
        self.kept: KeptStore = NoValueStore() if processes else self._values
        self._functions = Functions(lambda blob: self.store.read(blob.key))
        self.replies = Replies(loop, backlog, self._report, self._for_next_client)
        self.set_lease: Callable[[float, float], None] = lambda seconds, finish_within: None
        self._outbox = self.replies.outbox
        self.cluster = Membership(loop, self.replies.put)
        self._peers = Peers(self.incoming, self.replies.put)
        self._volumes: Volumes | None = None
        self._scratch = scratch
        self.drain: Callable[[], None] = lambda: None
        self._executor = TaskExecutor(
            self._started, self._begin, self._settle, self._finished, self._replace_slot, self._end_process
        )
        self._children: list[ProcessSlot] = []
        self._has_plugins = has_plugins
        self._plugins = NO_PLUGINS
        self._prepare = Prepare((), "")
        self._told_plugins = ThreadEvent()
        self._unstarted = slots
        self._start_lock = Lock()
        self._is_unfit = False
        self._info = ""
        self._ticking = False
        self._stopped = ThreadEvent()
        self._main_ended = ThreadEvent()
        self._shutdown_over = ThreadEvent()

    def serve(self) -> None:
        """Run tasks on the main thread, or block it, until the worker has to end."""
        if self._has_plugins:
            while not (self._told_plugins.wait(GLANCE) or self._stopped.is_set()):
                pass
            if not self._told_plugins.is_set() or not self._prepare_plugins():
                self._stopped.wait()
                return
        for _ in range(self._slots if self._processes else self._slots - 1):
            self._start_slot()
        if self._processes:
            while not self._stopped.wait(GLANCE):
                for child in tuple(self._children):
                    child.glance()
        else:
            self._executor.serve(self._thread_slot())
            self._plugins.leave()

    def _prepare_plugins(self) -> bool:
        """Load the plugins, and enter their contexts where tasks run on threads; return whether that was possible."""
        prepare = self._prepare
        try:
            self._plugins = Plugins(prepare.parts, prepare.fixed)
            if not self._processes:
                info = InstanceInfo.from_json(prepare.info)
                os.environ.update(self._plugins.environment(info, 0))
                self._plugins.enter(info)
        except PluginError as error:
            self.replies.put(Prepared(str(error), is_final(error)))
            return False
        if not self._processes:
            self.replies.put(Prepared())
        return True

    def _slot_started(self, why: str, is_final: bool) -> None:
        """Tell the client once all slots with processes of their own are ready, or the first one that is not."""
        with self._start_lock:
            self._unstarted -= 1
            is_told = self._unstarted < 0
            is_last = not self._unstarted
            if why:
                self._unstarted = 0
        if self._has_plugins and not is_told and (why or is_last):
            self.replies.put(Prepared(why, is_final))

    def _slot_unfit(self, why: str) -> None:
        """End the worker once its running tasks have ended: a slot that cannot run tasks would fail every one it gets.

        The client replaces the node then.
        """
        with self._start_lock:
            is_known, self._is_unfit = self._is_unfit, True
        if is_known:
            return
        self._executor.hold()
        self.replies.put(Output(0, "stderr", f"node {self._node} ends, since a task can get no process: {why}\n"))
        self.replies.put(WorkerClosing())

        def leave() -> None:
            while self._executor.has_unreported or not self.replies.has_listener:
                if self._stopped.wait(TICK):
                    return
            self._leave(NO_PROCESS)

        Thread(target=leave, name="skyward-leave", daemon=True).start()

    def _attach_volumes(self, command: AttachVolumes) -> None:
        from skyward.worker.volumes.volumes import Volumes  # few nodes have volumes, and it takes a while to load

        if self._volumes is None:
            self._volumes = volumes = Volumes(self._node, self._tell_of_volumes, self._scratch, self._peers.connect)
            self._peers.serve_file = lambda connection, key: volumes.shared.serve(connection, key, clock.sleep)
            self._volumes.attach(command)

    def _close_volumes(self) -> None:
        if self._volumes is not None:
            self._volumes.close()

    def wait_for_volumes(self, seconds: float) -> None:
        """Wait until the volumes are flushed, for so many seconds at most."""
        if self._volumes is not None:
            self._volumes.closed.wait(seconds)

    def _tell_of_volumes(self, event: WorkerEvent) -> None:
        if isinstance(event, VolumeStates):
            self._outbox.put_latest(event)
        else:
            self.replies.put(event)

    def _leave(self, status: int) -> None:
        """Exit once the client has all events."""
        self.drain()
        self._close_volumes()
        self._executor.return_waiting()
        self.replies.wait_acknowledged()
        os._exit(status)

    def _thread_slot(self) -> ThreadSlot:
        return ThreadSlot(self._node, self, self.store, self._functions, self._plugins)

    def part(self) -> None:
        """Wait until the last events have been sent, and acknowledged if a client listens. Called after `serve`."""
        self._main_ended.set()
        self._shutdown_over.wait()

    def _start_slot(self) -> None:
        if self._processes:  # made here, on one thread: each has an index of its own
            slot = ProcessSlot(
                self._node,
                len(self._children),
                self.emit,
                self.store,
                lambda: self._info,
                self.cluster.ask,
                (self._plugins, self._prepare.parts),
                self._slot_started,
                self._slot_unfit,
            )
            self._children.append(slot)
        make = (lambda: slot) if self._processes else self._thread_slot
        Thread(target=lambda: self._executor.serve(make()), name="skyward-slot", daemon=True).start()

    # Callbacks of the executor.

    def _started(self, task: int) -> None:
        self._outbox.put(Started(task), urgent=False, wait=False)

    def _begin(self, job: Job) -> Finished | None:
        if self._volumes is None:
            return None
        try:
            self._volumes.before_task()
        except (StorageError, CredentialsError, OSError) as error:
            return failed(job.submit.task, error, self._node)
        return None

    def _settle(self, event: Finished) -> Finished:
        self.drain()
        if (settled := self.cluster.task_ended(event.task, event.outcome not in ("value", "error"))) is not None:
            with contextlib.suppress(TimeoutError, CollectionUnavailableError):
                settled.result(SETTLE)
        if self._volumes is None or not (unsaved := self._volumes.after_task()):
            return event
        if event.outcome != "value":
            return replace(event, unsaved=unsaved)
        return replace(event, unsaved=unsaved, error=event.error or "VolumeError", reason=event.reason or unsaved)

    def _finished(self, event: Finished) -> None:
        self._references.ended(event.task)
        if self._executor.idle:
            self.replies.say(event)
        else:  # other tasks are about to end: send the events together
            self.replies.put(event)

    def _replace_slot(self) -> None:
        self._start_slot()

    def _end_process(self, finished: Finished) -> bool:
        """Exit once the client has all events. Where no client listens, stay: unacknowledged results are worth more."""
        if not self.replies.has_listener:
            return False
        self.replies.put(WorkerClosing())  # first, so that the client dispatches no other task to this process
        self._finished(finished)
        Thread(target=self._leave, args=(NOT_STOPPED,), name="skyward-leave", daemon=True).start()
        return True

    # The `Port` of tasks.

    def emit(self, event: WorkerEvent) -> None:
        """Queue an event of a running task; block while the client is too far behind."""
        if is_forked():
            write(event)
            return
        if isinstance(event, Need):
            self._references.consumed(event)
        self.replies.emit(event)

    def keep(self, views: list[memoryview]) -> list[bytes]:
        """Keep buffers of a result until the client drops them; return their keys. Memory that may change is copied.

        Raises:
            MemoryError: there is not enough memory for the copies.
        """
        leave_if_forked()
        keys: list[bytes] = []
        try:
            keys.extend(self.store.own(view) if is_ours(view) else self.store.keep(view) for view in views)
        except BaseException:
            self.store.drop(keys)
            raise
        return keys

    def emit_metrics(self, metrics: Metrics) -> None:
        """Send `metrics` with the next events, in place of metrics that have not been sent yet."""
        self._outbox.put_latest(metrics)

    def emit_output(self, output: Output) -> None:
        """Queue output of a task."""
        self.emit(output)

    def emit_notice(self, notice: ReclaimNotice) -> None:
        """Report that the machine will be taken away, and begin to upload what waits for it."""
        self.emit(notice)
        if self._volumes is not None:
            self._volumes.save_soon()

    def alone(self) -> int:
        """Return the only running task; 0 if there are several or none."""
        running = self._executor.running
        return running[0] if len(running) == 1 else 0

    @property
    def idle(self) -> bool:
        """True if no task runs or waits here."""
        return self._executor.idle

    # Messages of the client.

    def receive(self, message: Commands | Exchange) -> None:
        """Handle a message of the client, which the engine has authenticated."""
        match message:
            case Commands(first, items):
                self._take(first, items)
            case Exchange():
                self.replies.park(message)
                self._take(message.first, message.items)
                self.replies.flush()

    def _take(self, first: int, items: tuple[NodeCommand, ...]) -> None:
        if first > self.replies.received + 1:
            return  # commands before these were lost; the client sees that in the next batch and sends them all again
        for number, command in enumerate(items, first):
            if number > self.replies.received:
                self.replies.received = number
                try:
                    self._apply(command)
                except Exception as error:  # the commands behind it belong to other tasks
                    self._failed(command, error)

    def _failed(self, command: NodeCommand, error: Exception) -> None:
        """Report a command that failed to the client; a task that could not be submitted has failed."""
        if isinstance(command, Submit):
            self.replies.put(failed(command.task, error, self._node))
        else:
            what = f"node {self._node} could not execute {type(command).__name__}: {type(error).__name__}: {error}"
            self.replies.put(Output(0, "stderr", f"{what}\n"))

    def _apply(self, command: NodeCommand) -> None:
        match command:
            case Submit():
                self._submit(command)
            case Code():
                self._codes[command.digest] = command
            case Cancel(task, recall):
                if not recall:
                    self._outbox.cancelled(task)
                self._executor.cancel(task, recall=recall)
            case Credit(task, units):
                self._outbox.consumed(task, units)
                self._executor.relay(command)
            case Feed():
                self._references.fed(command)
                self._recent.fed(command)
                self._executor.relay(command)
            case Drop(keys, codes):
                self.store.drop(keys)
                for digest in codes:
                    self._codes.pop(digest, None)
            case ForgetValues(values):
                self._values.forget(values)
            case Meet():
                self._executor.relay(command)
            case Prepare(_, info):
                self._set_info(info)
                self._prepare = command
                self._told_plugins.set()
            case Topology(info):
                self._set_info(info)
            case Join() | Losses() | CollectionsWritten() | Leave():
                self.cluster.apply(command)
            case Peering() | Fetch():
                self._peers.apply(command)
            case AttachVolumes():
                self._attach_volumes(command)
            case RefreshVolumes(mounts):
                if self._volumes is not None:
                    self._volumes.stale(mounts)
            case SetLease(seconds, finish_within):
                self.set_lease(seconds, finish_within)
                self.replies.put(LeaseSet())
            case Shutdown():
                self._shutdown(has_listener=True)

    def _set_info(self, info: str) -> None:
        os.environ["COMPUTE_POOL"] = info
        set_instance_info(InstanceInfo.from_json(info))
        self._info = info

    def _submit(self, submit: Submit) -> None:
        job = Job(submit, self._codes[submit.code])
        self._recent.submitted(submit, job.code)
        self._references.submitted(submit.task, (job.code.payload, submit.call, *submit.values))
        job.inputs = input_streams(job, self, lambda blob: self.store.read(blob.key))
        self._executor.submit(job)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK, self._tick)

    def _report(self) -> NodeReport:
        if self._volumes is not None:
            self._volumes.tell_states()
        self._codes.clear()  # a new client does not know which codes are here
        known = self._recent.known([*self._executor.tasks, *self._outbox.ended])
        blobs = tuple(Blob(key, size) for key, size in self.store.sizes().items())
        return NodeReport(known, blobs, self._recent.last, self._values.report())

    def _for_next_client(self, events: list[WorkerEvent]) -> list[WorkerEvent]:
        """Return events as the next client gets them: without return values that the former client has fetched."""
        return [self._without_fetched(event) if isinstance(event, Finished) else event for event in events]

    def _without_fetched(self, event: Finished) -> Finished:
        sizes = self.store.sizes()
        if all(blob.key in sizes for blob in blobs_of([event.payload])):
            return event
        reason = (
            "the former client had fetched the return value, and the node no longer has it; run the generator again"
        )
        return failed(event.task, PayloadError(reason), self._node, event.seconds)

    def _tick(self) -> None:
        self._executor.tick()
        self.replies.flush()
        self._ticking = not self._executor.idle
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _shutdown(self, *, has_listener: bool) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self._executor.shutdown(self._slots)
            Thread(target=self._finish_shutdown, args=(has_listener,), name="skyward-shutdown", daemon=True).start()

    def _finish_shutdown(self, has_listener: bool) -> None:
        """Wait for tasks and children up to their deadlines; then send the last messages."""
        try:
            self._end_all(clock.monotonic() + (ENDING_WITH_LISTENER if has_listener else ENDING), has_listener)
        finally:
            self._shutdown_over.set()

    def _end_all(self, deadline: float, has_listener: bool) -> None:
        if not has_listener:
            self._outbox.close()
        children = tuple(self._children)
        for child in children:
            child.dismiss()
        while not self._executor.idle and clock.monotonic() < deadline:
            clock.sleep(0.001)
        for child in children:
            child.close(deadline)
        self._main_ended.wait(max(0.0, deadline - clock.monotonic()))
        self.drain()
        self._close_volumes()
        self.replies.put(Farewell())
        if has_listener:
            self.replies.wait_acknowledged()
            self._outbox.close()

    def stop(self) -> None:
        """End the worker as `Shutdown` does, with no client to wait for. Thread-safe."""
        self._loop.call_soon_threadsafe(lambda: self._shutdown(has_listener=False))


def is_ours(view: memoryview) -> bool:
    """Return whether nothing can change the memory of `view`, now that the task is over: it holds the last reference.

    False where that is not certain: for an array to which the task, or a library, has kept a reference; for a view of
    another array; and for objects of other kinds than `bytes` and NumPy arrays.
    """
    shown: Any = view.obj
    if type(shown) is bytes:
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None or type(shown) is not numpy.ndarray or not shown.flags.owndata:
        return False
    del shown  # it would be counted, too
    return _references(view) <= _ALONE and not weakref.getweakrefcount(view.obj)


def _references(view: memoryview) -> int:
    return sys.getrefcount(view.obj)


def _of_one_view() -> int:
    view = memoryview(bytearray(1))
    return _references(view)


_ALONE = _of_one_view()
"""Reference count of an object that only a view refers to. It varies with the version of Python."""
