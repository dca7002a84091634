"""The agent of a node: takes commands from the engine, hands tasks to slots, and sends their events home.

It lives on the engine's loop, on a thread of its own, so that the main thread is free for tasks. Nothing here waits.
"""

import asyncio
import contextlib
import hmac
import itertools
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from skyward.errors import CollectionUnavailableError
from skyward.instance import InstanceInfo, set_instance_info
from skyward.wire.messages import (
    Batch,
    Blob,
    Cancel,
    Code,
    Command,
    Commands,
    Credit,
    Drop,
    Event,
    Exchange,
    Farewell,
    Feed,
    Fetch,
    Finished,
    Join,
    Known,
    Leave,
    Metrics,
    Need,
    Output,
    Peering,
    Report,
    Reported,
    Shutdown,
    Started,
    Submit,
    Topology,
)
from skyward.worker.arrivals import Arrivals
from skyward.worker.blobs import BlobStore
from skyward.worker.cluster import Membership
from skyward.worker.execute import Functions, input_streams
from skyward.worker.executor import Executor
from skyward.worker.holds import Holds
from skyward.worker.jobs import Job
from skyward.worker.outbox import Outbox
from skyward.worker.peers import Peers
from skyward.worker.slots import ProcessSlot, ThreadSlot

if TYPE_CHECKING:
    from collections.abc import Callable

    from casty import Ref

__all__ = ["RESTART", "Agent"]

HOLD = 1.0
"""Seconds after which an `Exchange` is answered even with nothing to say: the heartbeat of the node."""

TICK = 0.02
"""Seconds between looks at deadlines while there are tasks; events that are not urgent go out at this pace at most."""

BURST = 32
"""Events between two answers from which on those that follow wait for the next tick, and go together."""

SETTLE = 1.0
"""Seconds that a task's end waits at most until nobody counts it among those who wait for a collection."""

REMEMBERED = 8192
"""Tasks that a new client can be told of at least, those that came last."""

ENDING = 1.5
"""Seconds that tasks, and what they have registered for the end of their process, have when the worker ends."""

HEARD = 1.0
"""Seconds that a worker which ends waits for the client to have heard it."""

GLANCE = 0.25
"""Seconds between looks at what the processes of slots say while they have no task."""

RESTART = 75
"""Exit status of a worker that asks to be started again (EX_TEMPFAIL)."""


class Agent:
    """The one agent of a worker process.

    Args:
        loop: the engine's loop.
        token: what proves that a message comes from the pool.
        node: rank of the node.
        slots: how many tasks run at once.
        processes: whether each slot is a process of its own.

    Attributes:
        drain: waits, a moment at most, for what is on its way from the descriptors of the process.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, token: bytes, node: int, slots: int, *, processes: bool
    ) -> None:
        self.store = BlobStore()
        self.arrivals = Arrivals(self.store)
        self._loop = loop
        self._token = token
        self._node = node
        self._slots = slots
        self._processes = processes
        self._holds = Holds(self.store)
        self._codes: dict[bytes, Code] = {}
        self._recent: dict[int, tuple[bytes, bool, bool, str]] = {}
        self._functions = Functions(lambda blob: self.store.map(blob.key))
        self._outbox = Outbox(self._wake)
        self.cluster = Membership(loop, lambda event: self._outbox.put(event, urgent=True, wait=False))
        self._peers = Peers(self.arrivals, lambda event: self._outbox.put(event, urgent=True, wait=False))
        self.drain: Callable[[], None] = lambda: None
        self._executor = Executor(self._started, self._settle, self._finished, self._replace_slot, self._end_process)
        self._children: list[ProcessSlot] = []
        self._info = ""
        self._received = 0
        self._waiting: deque[Ref[Batch]] = deque()
        self._answered = 0.0
        self._flushing = False
        self._emitted = 0
        self._burst = False
        self._ticking = False
        self._stopped = threading.Event()
        self._main_ended = threading.Event()
        self._parted = threading.Event()

    def start(self) -> None:
        """Start the slots that are threads of their own. Slot 0 of the thread executor waits for `serve`."""
        for _ in range(self._slots if self._processes else self._slots - 1):
            self._start_slot()

    def serve(self) -> None:
        """Give the main thread to tasks, or let it wait, until the worker is told to end."""
        if self._processes:
            while not self._stopped.wait(GLANCE):
                for child in tuple(self._children):
                    child.glance()
        else:
            self._executor.serve(ThreadSlot(self._node, self, self.store, self._functions))

    def part(self) -> None:
        """Wait until all that there is to say has been said, and heard where somebody listens. After `serve`."""
        self._main_ended.set()
        self._parted.wait()

    def _start_slot(self) -> None:
        def serve() -> None:
            if self._processes:
                slot = ProcessSlot(
                    self._node, len(self._children), self.emit, self.store, lambda: self._info, self.cluster.ask
                )
                self._children.append(slot)
                slot.warm()
                self._executor.serve(slot)
            else:
                self._executor.serve(ThreadSlot(self._node, self, self.store, self._functions))

        threading.Thread(target=serve, name="skyward-slot", daemon=True).start()

    # What the executor asks for.

    def _started(self, task: int) -> None:
        self._outbox.put(Started(task), urgent=False, wait=False)

    def _settle(self, event: Finished) -> None:
        self.drain()
        if (settled := self.cluster.task_ended(event.task, event.outcome not in ("value", "error"))) is not None:
            with contextlib.suppress(TimeoutError, CollectionUnavailableError):
                settled.result(SETTLE)

    def _finished(self, event: Finished) -> None:
        self._holds.ended(event.task)
        self._outbox.put(event, urgent=True, wait=False)

    def _replace_slot(self) -> None:
        self._start_slot()

    def _end_process(self) -> None:
        """Exit once the client has what there is to say, or soon if it does not listen."""

        def leave() -> None:
            self.drain()
            self._be_heard()
            os._exit(RESTART)

        threading.Thread(target=leave, name="skyward-leave", daemon=True).start()

    def _be_heard(self) -> None:
        """Wait until the client has all events, or seems not to listen."""
        deadline = time.monotonic() + HEARD
        while self._outbox.unheard and time.monotonic() < deadline:
            self._loop.call_soon_threadsafe(self._press)
            time.sleep(TICK)

    def _press(self) -> None:
        """Answer whatever was asked, for the next question to say what has been heard."""
        while self._waiting:
            self._answer()

    # The port of tasks.

    def emit(self, event: Event) -> None:
        """Queue an event of a running task; waits while the client is too far behind."""
        self._emitted += 1
        if isinstance(event, Need):
            self._holds.consumed(event)
        self._outbox.put(event, urgent=not self._burst, wait=True)

    def keep(self, views: list[memoryview]) -> list[bytes]:
        """Keep buffers of a result until the client drops them; their keys."""
        return self.store.keep(views)

    def emit_metrics(self, metrics: Metrics) -> None:
        """Have `metrics` go along with what is sent next, in place of those that did not go yet."""
        self._outbox.put_latest(metrics)

    def emit_output(self, output: Output) -> None:
        """Queue output."""
        self.emit(output)

    def alone(self) -> int:
        """The one task that runs now; 0 if there are several or none."""
        running = self._executor.running
        return running[0] if len(running) == 1 else 0

    @property
    def idle(self) -> bool:
        """Whether no task runs or waits here."""
        return self._executor.idle

    # The engine's side.

    def receive(self, message: Commands | Exchange) -> None:
        """Take a message of the client. One without the pool's token is dropped unread."""
        if not hmac.compare_digest(message.token, self._token):
            return
        match message:
            case Commands(_, first, items):
                self._take(first, items)
            case Exchange():
                self._park(message)
                self._take(message.first, message.items)
                self._flush()

    def _take(self, first: int, items: tuple[Command, ...]) -> None:
        if first > self._received + 1:
            return  # some were lost before these; the client sees that in the next batch and sends them all again
        for number, command in enumerate(items, first):
            if number > self._received:
                self._received = number
                self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case Submit():
                self._submit(command)
            case Code():
                self._codes[command.digest] = command
            case Cancel(task, recall):
                self._executor.cancel(task, recall=recall)
            case Credit():
                self._executor.relay(command)
            case Feed():
                self._holds.fed(command)
                self._executor.relay(command)
            case Drop(keys):
                self.store.drop(keys)
            case Topology(info):
                os.environ["COMPUTE_POOL"] = info
                set_instance_info(InstanceInfo.from_json(info))
                self._info = info
            case Join() | Leave():
                self.cluster.obey(command)
            case Peering() | Fetch():
                self._peers.obey(command)
            case Report():
                self._report()
            case Shutdown():
                self._shutdown(listened_to=True)

    def _submit(self, submit: Submit) -> None:
        self._recent[submit.task] = (submit.code, submit.stream, submit.inputs > 0, submit.label)
        if len(self._recent) > 2 * REMEMBERED:
            for task in tuple(itertools.islice(self._recent, REMEMBERED)):
                del self._recent[task]
        job = Job(submit, self._codes[submit.code])
        self._holds.submitted(submit.task, (job.code.payload, submit.call))
        job.inputs = input_streams(job, self, lambda blob: self.store.map(blob.key))
        self._executor.submit(job)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK, self._tick)

    def _report(self) -> None:
        wanted = {*self._executor.tasks, *self._outbox.ended}
        known = tuple(
            Known(task, self._codes[code].name, stream, fed, label)
            for task, (code, stream, fed, label) in self._recent.items()
            if task in wanted
        )
        blobs = tuple(Blob(key, size) for key, size in self.store.sizes().items())
        event = Reported(known, blobs, max(self._recent, default=0))
        self._outbox.put(event, urgent=True, wait=False)

    def _tick(self) -> None:
        self._executor.tick()
        self._flush()
        self._ticking = not self._executor.idle
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _park(self, exchange: Exchange) -> None:
        """Keep the client's wish for an answer until there are events. It has two of them here at most."""
        self._outbox.acknowledge(exchange.acknowledged)
        if exchange.again:
            self._outbox.rewind()
            self._waiting.clear()
        self._waiting.append(exchange.reply_to)
        if len(self._waiting) > 2:
            self._answer()

    def _wake(self, urgent: bool) -> None:
        if urgent and not self._flushing:
            self._flushing = True
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self._waiting and self._outbox.pending:
            self._answer()

    def _answer(self) -> None:
        first, events = self._outbox.take()
        self._answered = time.monotonic()
        self._burst, self._emitted = self._emitted > BURST, 0
        self._waiting.popleft().tell(Batch(first, events, self._received))

    def beat(self) -> None:
        """Answer when nothing was said for `HOLD`; again and again. One timer: one for each answer costs more."""
        if self._waiting and time.monotonic() - self._answered >= HOLD:
            self._answer()
        self._loop.call_later(HOLD / 2, self.beat)

    def _shutdown(self, *, listened_to: bool) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self._executor.shutdown(self._slots)
            threading.Thread(target=self._part, args=(listened_to,), name="skyward-parting", daemon=True).start()

    def _part(self, listened_to: bool) -> None:
        """Let everything that writes come to its end, in the time it has; then say farewell."""
        try:
            self._end_all(time.monotonic() + ENDING, listened_to)
        finally:
            self._parted.set()

    def _end_all(self, deadline: float, listened_to: bool) -> None:
        if not listened_to:
            self._outbox.close()
        children = tuple(self._children)
        for child in children:
            child.dismiss()
        while not self._executor.idle and time.monotonic() < deadline:
            time.sleep(0.001)
        for child in children:
            child.close(deadline)
        self._main_ended.wait(max(0.0, deadline - time.monotonic()))
        self.drain()
        self._outbox.put(Farewell(), urgent=True, wait=False)
        if listened_to:
            self._be_heard()
            self._outbox.close()

    def stop(self) -> None:
        """End the worker as `Shutdown` does, with nobody to listen; from any thread."""
        self._loop.call_soon_threadsafe(lambda: self._shutdown(listened_to=False))
