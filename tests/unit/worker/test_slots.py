"""A slot that runs its tasks in a child process."""

import contextlib
import json
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import pytest

from skyward.process.clock import clock
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode
from skyward.wire.failures.failure import Failure
from skyward.wire.payloads.payload import dumps, encode
from skyward.wire.protocol.messages import Blob, Code, Finished, Payload, PluginPart, Submit, WorkerEvent
from skyward.worker.blobs.store import BlobStore
from skyward.worker.tasks.jobs import Job
from skyward.worker.tasks.plugins import Plugins
from skyward.worker.tasks.slots import ProcessSlot
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

DOUBLED = Code(b"doubled", encode(lambda number: 2 * number, "function").payload, "doubled")


class Waits(OnNode):
    """A plugin that takes its time to start."""

    def __init__(self, path: str) -> None:
        self._path = path

    def around_process(self, node: InstanceInfo) -> contextlib.AbstractContextManager[None]:
        """Report the start, and wait for an hour."""
        Path(self._path).touch()
        clock.sleep(3600)
        return contextlib.nullcontext()


class StartsOnce(OnNode):
    """A plugin that starts in one process only."""

    def __init__(self, path: str) -> None:
        self._path = path

    def around_process(self, node: InstanceInfo) -> contextlib.AbstractContextManager[None]:
        """Raise in each process but the first one."""
        if Path(self._path).exists():
            raise FileExistsError("disk full")
        Path(self._path).touch()
        return contextlib.nullcontext()


@contextlib.contextmanager
def opened(
    info: str,
    *parts: PluginPart,
    started: Callable[[str, bool], None] | None = None,
    unfit: Callable[[str], None] = lambda _: None,
) -> Iterator[ProcessSlot]:
    """Open a slot of node 3, without blobs, whose process gets `info` about its pool, and these plugins."""
    events: list[WorkerEvent] = []
    prepared = Plugins(parts), parts
    slot = ProcessSlot(3, 0, events.append, BlobStore(), lambda: info, lambda _: Future(), prepared, started, unfit)
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


def test_job_is_returned_where_plugins_start_in_no_process(tmp_path: Path) -> None:
    """The node would stay, and fail each task that it is given."""
    part = PluginPart("broken", "tests.unit.worker.test_slots:StartsOnce", json.dumps({"path": str(tmp_path / "once")}))
    unfit: list[str] = []
    with opened(InstanceInfo(node=3, total_nodes=4).to_json(), part, unfit=unfit.append) as slot:
        assert slot.run(job(1, Payload(dumps(((21,), {}))))).outcome == "value"
        slot.give_up()
        for number in (2, 3):
            ended = slot.run(job(number, Payload(dumps(((21,), {})))))
            while ended.outcome == "lost":  # the process was still being killed
                ended = slot.run(job(number, Payload(dumps(((21,), {})))))
            assert (ended.task, ended.outcome) == (number, "returned")
    assert unfit == ["plugin 'broken' could not start on node 3: FileExistsError: disk full"] * 2


def test_dismissed_process_whose_plugins_start_ends_at_once(tmp_path: Path) -> None:
    """The end of a node would wait for an import until its deadline."""
    begun = tmp_path / "begun"
    part = PluginPart("waits", "tests.unit.worker.test_slots:Waits", json.dumps({"path": str(begun)}))
    told: list[str] = []
    with opened(InstanceInfo(node=3, total_nodes=4).to_json(), part, started=lambda why, _: told.append(why)) as slot:
        preparing = Thread(target=slot.get_ready)
        preparing.start()
        wait_for(begun.exists, "the plugin to start")
        slot.dismiss()
        preparing.join()
    (why,) = told
    assert why.startswith("the process of slot 0 on node 3 ended while it was prepared")


def data_of(ended: Finished) -> bytes:
    assert isinstance(ended.payload.data, bytes)
    return ended.payload.data
