"""The two kinds of slot: a thread of the worker, and a process of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from skyward.wire.messages import Code, Credit, Event, Feed, Finished, Payload
from skyward.wire.payload import blobs_of
from skyward.wire.shared.requests import Request
from skyward.worker.blobs import BlobStore
from skyward.worker.context import Port
from skyward.worker.execute import Functions, Reason, execute
from skyward.worker.guard import ThreadGuard
from skyward.worker.jobs import Job
from skyward.worker.output import Pump

__all__ = ["ProcessSlot", "ThreadSlot"]

_PIPE = 32 * 1024
"""Bytes that a pipe surely takes without waiting for its reader."""


class ThreadSlot:
    """Runs jobs on the thread that makes it. `node` is the rank of the node."""

    def __init__(self, node: int, port: Port, store: BlobStore, functions: Functions) -> None:
        self._node = node
        self._port = port
        self._store = store
        self._functions = functions
        self._guard = ThreadGuard()

    def run(self, job: Job) -> Finished:
        """Run `job` to its end."""
        self._guard.reason = None
        job.run_here()
        return execute(
            job, self._port, self._functions, lambda blob: self._store.map(blob.key), self._node, self._guard
        )

    def interrupt(self, reason: Reason) -> None:
        """Interrupt the job that runs."""
        self._guard.interrupt(reason)

    def give_up(self) -> bool:
        """False: a thread cannot be ended by force."""
        return False


class ProcessSlot:
    """Runs jobs in a child process, which is started again after it died.

    Args:
        node, worker: rank of the node, and index of the slot on it.
        info: gives what `instance_info()` says on the node, as JSON.
        ask: carries out operations on collections.
    """

    def __init__(
        self,
        node: int,
        worker: int,
        emit: Callable[[Event], None],
        store: BlobStore,
        info: Callable[[], str],
        ask: Callable[[Request], Future[Any]],
    ) -> None:
        self._node = node
        self._worker = worker
        self._info = info
        self._told = ""
        self._emit = emit
        self._ask = ask
        self._questions: dict[int, Future[Any]] = {}
        self._store = store
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._known: set[bytes] = set()
        self._reason: Reason | None = None
        self._task = 0
        self._reading = threading.Lock()
        self._pump: Pump | None = None

    def run(self, job: Job) -> Finished:
        """Run `job` in the child to its end, or to the child's."""
        self._reason = None
        with self._reading:
            self._task = job.submit.task
            try:
                connection = self._ready()
                with self._lock:
                    self._tell_info(connection)
                    connection.send((self._code(job), job.submit, self._paths([job.code.payload, job.submit.call])))
                job.run_elsewhere(self._relay)
                return self._attend(connection)
            except (EOFError, OSError):
                return self._died(job)
            finally:
                self._drain()
                self._task = 0

    def _tell_info(self, connection: "Connection[Any, Any]") -> None:
        info = self._info()
        if info != self._told:
            self._told = info
            connection.send(("info", info))

    def _attend(self, connection: "Connection[Any, Any]") -> Finished:
        while not isinstance(message := connection.recv(), Finished):
            self._take(message, connection)
        return message

    def _take(self, message: Any, connection: "Connection[Any, Any]") -> None:
        match message:
            case ("keep", parts):
                keys = [self._store.adopt(path, size) for path, size in parts]
                with self._lock:
                    connection.send(("kept", keys))
            case ("ask", number, request):
                self._questions[number] = question = self._ask(request)
                question.add_done_callback(partial(self._answer, connection, number))
            case ("take back", number):
                if (taken := self._questions.pop(number, None)) is not None:
                    taken.cancel()
            case event:
                self._emit(event)

    def glance(self) -> None:
        """Hand on what the child said since its last job ended; nothing while it has one."""
        if self._reading.acquire(blocking=False):
            try:
                self._read_rest(time.monotonic())
            finally:
                self._reading.release()

    def _read_rest(self, deadline: float) -> None:
        """Take what the child sends, until it is silent at the deadline or gone."""
        with contextlib.suppress(EOFError, OSError):
            while self._connection is not None and self._connection.poll(max(0.0, deadline - time.monotonic())):
                self._take(self._connection.recv(), self._connection)

    def _drain(self) -> None:
        if self._pump is not None:
            self._pump.drain()

    def _answer(self, connection: "Connection[Any, Any]", number: int, done: Future[Any]) -> None:
        """Tell the child what came of an operation. Called on the engine's loop, which a full pipe must not hold up."""
        if self._questions.pop(number, None) is None or done.cancelled():
            return
        error = done.exception()
        answer = None if error is not None else done.result()

        def tell() -> None:
            with self._lock, contextlib.suppress(OSError):
                connection.send(("answer", number, answer, error))

        if isinstance(answer, bytes) and len(answer) > _PIPE:
            threading.Thread(target=tell, name="skyward-answer", daemon=True).start()
        else:
            tell()

    def _died(self, job: Job) -> Finished:
        questions, self._questions = self._questions, {}
        for question in questions.values():
            question.cancel()
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
        if self._connection is not None:
            self._read_rest(time.monotonic())
            self._connection.close()
            self._connection = None
        return Finished(job.submit.task, self._reason or "lost", Payload(b""), 0.0)

    def warm(self) -> None:
        """Start the child ahead of the first job, which tries again where that fails."""
        with contextlib.suppress(OSError):
            self._ready()

    def _ready(self) -> "Connection[Any, Any]":
        if self._child is not None and self._child.poll() is None and self._connection is not None:
            return self._connection
        self._read_rest(time.monotonic())
        ours, theirs = socket.socketpair()
        self._pump = Pump(self._emit, lambda: self._task)
        out, err = self._pump.writers
        try:
            with theirs:
                self._child = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "skyward.worker.child",
                        str(theirs.fileno()),
                        str(self._node),
                        str(self._worker),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=dict(os.environ),  # a copy: another thread may grow the one that the child would read
                )
        finally:
            self._pump.start()  # which ends by itself where there is no child
        self._connection = Connection(ours.detach())
        self._known.clear()
        self._told = ""
        return self._connection

    def _code(self, job: Job) -> Code | None:
        if job.code.digest in self._known:
            return None
        self._known.add(job.code.digest)
        return job.code

    def _paths(self, payloads: list[Payload]) -> dict[bytes, tuple[str, int]]:
        stored = {blob.key: self._store.get(blob.key) for blob in blobs_of(payloads)}
        return {key: (blob.path, blob.size) for key, blob in stored.items()}

    def interrupt(self, reason: Reason) -> None:
        """Interrupt the job that runs."""
        self._reason = reason
        self._tell(("interrupt", reason))

    def _relay(self, command: Credit | Feed) -> None:
        paths: dict[bytes, tuple[str, int]] = {}
        if isinstance(command, Feed):
            paths = self._paths([*command.items, command.failure] if command.failure else [*command.items])
        self._tell(("relay", command, paths))

    def _tell(self, message: object) -> None:
        with self._lock:
            if self._connection is not None:
                try:
                    self._connection.send(message)
                except OSError:
                    return  # the child is gone; the slot's own thread sees that too

    def give_up(self) -> bool:
        """End the child; the next job gets a new one."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
        return True

    def dismiss(self) -> None:
        """Tell the child to end when its job has."""
        self._tell(("end",))

    def close(self, deadline: float) -> None:
        """End the child for good, once it has said its last words, or at the deadline."""
        if self._reading.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._read_rest(deadline)
            self._drain()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
