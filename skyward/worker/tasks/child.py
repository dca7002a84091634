"""Process that runs the jobs of one slot, with an interpreter of its own.

Started by `ProcessSlot` with the descriptor of a socket: jobs arrive on it, one at a time, with the commands for the
running job; events leave.
"""

import itertools
import os
import queue
import sys
import traceback
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.connection import Connection
from threading import Lock, Thread  # tasks may replace the attributes of the module
from typing import Any

from skyward.errors import PluginError
from skyward.kept.keep import set_store
from skyward.task.collections.base import install_collections
from skyward.task.instance import InstanceInfo, instance_info, set_instance_info
from skyward.wire.collections.requests import CollectionRequest
from skyward.wire.payloads.pickler import track_classes_by_call
from skyward.wire.protocol.messages import (
    CODES,
    Blob,
    Code,
    Credit,
    Feed,
    Meet,
    Output,
    PluginPart,
    Submit,
    WorkerEvent,
)
from skyward.worker.blobs.store import BlobLocation, BlobStore, read_place
from skyward.worker.events.flush import run_exit_functions
from skyward.worker.events.output import Descriptors
from skyward.worker.events.streams import replace_streams
from skyward.worker.tasks.execute import Functions, execute, input_streams
from skyward.worker.tasks.folder import remember
from skyward.worker.tasks.forked import ForkedProcessError, is_forked, leave_if_forked, write
from skyward.worker.tasks.guard import ThreadGuard
from skyward.worker.tasks.jobs import Job
from skyward.worker.tasks.kept import NoValueStore
from skyward.worker.tasks.plugins import NO_PLUGINS, Plugins, is_final
from skyward.worker.tasks.threads import bind_threads


class Child:
    """State of the process: its connection, the running job, and the locations of blobs."""

    def __init__(self, connection: "Connection[Any, Any]", node: int, worker: int) -> None:
        self._connection = connection
        self._node = node
        self._worker = worker
        self._send_lock = Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._kept: queue.SimpleQueue[list[bytes] | MemoryError] = queue.SimpleQueue()
        self._places: dict[bytes, BlobLocation] = {}
        self._codes: dict[bytes, Code] = {}
        self._job: Job | None = None
        self._guard = ThreadGuard()
        self._store = BlobStore()
        self._operations: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._plugins = NO_PLUGINS
        os.set_inheritable(connection.fileno(), False)
        os.register_at_fork(after_in_child=connection.close)

    def _send(self, message: object) -> None:
        with self._guard.shielded(), self._send_lock:  # a partial message would break the connection
            self._connection.send(message)

    def ask(self, request: CollectionRequest) -> Future[Any]:
        """Start an operation on a collection, which the parent performs; return a future of its result."""
        if is_forked():
            raise ForkedProcessError("a collection")
        number = next(self._numbers)
        operation = self._operations[number] = Future()
        operation.add_done_callback(lambda done: self._take_back(number) if done.cancelled() else None)
        self._send(("ask", number, request))
        return operation

    def _take_back(self, number: int) -> None:
        self._operations.pop(number, None)
        self._send(("take back", number))

    def _answer(self, number: int, answer: Any, error: BaseException | None) -> None:
        operation = self._operations.pop(number, None)
        if operation is None or not operation.set_running_or_notify_cancel():
            return
        if error is None:
            operation.set_result(answer)
        else:
            operation.set_exception(error)

    def get_ready(self) -> None:
        """Enter the contexts of the plugins, and tell the parent that jobs can run. Without that, end the process."""
        parts: tuple[PluginPart, ...]
        parts, info = self._connection.recv()
        try:
            if parts:
                self._set_info(info)
                self._plugins = Plugins(parts)
                self._plugins.enter(instance_info())
        except PluginError as error:
            self._send(("failed", str(error), is_final(error)))
            os._exit(1)
        self._send("up")

    def _set_info(self, info: str) -> None:
        set_instance_info(replace(InstanceInfo.from_json(info), worker=self._worker))
        os.environ["COMPUTE_POOL"] = info

    @property
    def task(self) -> int:
        """Number of the running job; 0 for none."""
        return self._job.submit.task if self._job is not None else 0

    def emit(self, event: WorkerEvent) -> None:
        """Send an event to the parent; block while the client is behind."""
        if is_forked():
            write(event)
        else:
            self._send(event)

    def keep(self, views: list[memoryview]) -> list[bytes]:
        """Hand buffers over to the parent; return their keys there."""
        leave_if_forked()
        local: list[bytes] = []
        try:
            local.extend(self._store.keep(view) for view in views)
            self._send(("keep", [self._store.get(key).place for key in local]))
            kept = self._kept.get()
        finally:
            self._store.drop(local)
        if isinstance(kept, MemoryError):
            raise kept
        return kept

    def fetch(self, blob: Blob) -> memoryview:
        """Return the bytes of a blob that the parent holds."""
        return read_place(self._places[blob.key])

    def listen(self) -> None:
        """Handle messages of the parent until it is gone; then end the process, whatever runs."""
        try:
            while True:
                match self._connection.recv():
                    case (Code() | None as code, Submit() as submit, dict() as places):
                        self._take(code, submit, places)
                    case ("relay", Credit() | Feed() | Meet() as command, places):
                        self._places.update(places)
                        if self._job is not None and self._job.submit.task == command.task:
                            self._job.deliver(command)
                    case ("interrupt", reason):
                        if self._job is not None:
                            self._job.stop(reason)
                        self._guard.interrupt(reason)
                    case ("info", str() as info):
                        self._set_info(info)
                    case ("kept", keys):
                        self._kept.put(keys)
                    case ("end",):
                        self._jobs.put(None)
                    case ("answer", number, answer, error):
                        self._answer(number, answer, error)
        except (EOFError, OSError):
            os._exit(0)
        except Exception:  # end the process: the parent would wait for one that no longer listens
            try:
                os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
            finally:
                os._exit(1)

    def _take(self, code: Code | None, submit: Submit, places: dict[bytes, BlobLocation]) -> None:
        if code is not None:
            if len(self._codes) >= CODES:  # the parent counts too, and sends needed codes again
                self._codes.clear()
            self._codes[code.digest] = code
        self._places = {**places}
        job = Job(submit, self._codes[submit.code])
        job.inputs = input_streams(job, self, self.fetch)
        job.run_here()
        self._job = job
        self._guard.reason = None
        self._jobs.put(job)

    def serve(self) -> None:
        """Run jobs on the calling thread, which is the main thread."""
        functions = Functions(self.fetch)
        while (job := self._jobs.get()) is not None:
            finished = execute(job, self, functions, self.fetch, self._node, self._guard, self._plugins)
            self._job = None
            self._send(finished)
        self._plugins.leave()


def main() -> None:
    """Entry point of `python -m skyward.worker.tasks.child FD NODE WORKER`."""
    remember()
    child = Child(Connection(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]))

    def emit(output: Output) -> None:
        child.emit(output)

    bind_threads()
    track_classes_by_call()
    descriptors = Descriptors()
    replace_streams(emit, lambda: child.task, descriptors.wait_for_reader, descriptors.restore)
    install_collections(child, lambda: child.task)
    set_store(NoValueStore())
    child.get_ready()
    Thread(target=child.listen, name="skyward-listen", daemon=True).start()
    child.serve()
    run_exit_functions()
    os._exit(0)  # a task's own threads must not keep the process alive


if __name__ == "__main__":
    main()
