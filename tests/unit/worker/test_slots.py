"""A slot that runs its tasks in a child process."""

import contextlib
import pickle
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from skyward.process.clock import clock
from skyward.task.instance import InstanceInfo
from skyward.wire.failures.failure import Failure
from skyward.wire.payloads.payload import dumps, encode
from skyward.wire.protocol.messages import Blob, Code, Finished, Payload, Submit, WorkerEvent
from skyward.worker.blobs.store import BlobStore
from skyward.worker.tasks.jobs import Job
from skyward.worker.tasks.slots import ProcessSlot

pytestmark = pytest.mark.unit

DOUBLED = Code(b"doubled", encode(lambda number: 2 * number, "function").payload, "doubled")


@contextlib.contextmanager
def opened(info: str) -> Iterator[ProcessSlot]:
    """Open a slot of node 3, without blobs, whose process gets `info` about its pool."""
    events: list[WorkerEvent] = []
    slot = ProcessSlot(3, 0, events.append, BlobStore(), lambda: info, lambda _: Future())
    try:
        yield slot
    finally:
        slot.dismiss()
        slot.close(clock.monotonic() + 20)


def job(task: int, call: Payload) -> Job:
    """Return a task that doubles a number."""
    return Job(Submit(task, 0, DOUBLED.digest, call), DOUBLED)


def test_task_with_missing_blob_fails_and_next_task_runs() -> None:
    """An error of the worker itself must not end the thread of its slot, or the task would never end."""
    with opened(InstanceInfo(node=3, total_nodes=4).to_json()) as slot:
        ended = slot.run(job(1, Payload(Blob(b"nowhere", 5))))
        assert (ended.task, ended.outcome) == (1, "error")
        failure = pickle.loads(data_of(ended))
        assert isinstance(failure, Failure)
        assert (failure.node, failure.type_name) == (3, "KeyError")
        ended = slot.run(job(2, Payload(dumps(((21,), {})))))
        assert (ended.task, ended.outcome, pickle.loads(data_of(ended))) == (2, "value", 42)


def test_process_that_cannot_handle_a_message_ends() -> None:
    """Its slot would wait for it forever."""
    with opened("not the JSON of a pool") as slot:
        ended = slot.run(job(1, Payload(dumps(((21,), {})))))
        assert (ended.task, ended.outcome) == (1, "lost")


def data_of(ended: Finished) -> bytes:
    assert isinstance(ended.payload.data, bytes)
    return ended.payload.data
