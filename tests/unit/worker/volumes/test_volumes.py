"""Volumes of a node together: when they are saved, and what the client is told at the end."""

import threading
from pathlib import Path
from typing import Any

import pytest

from skyward.events.volumes import VolumeState, VolumeStatus
from skyward.wire.protocol.messages import WorkerEvent
from skyward.wire.protocol.volumes import VolumesFlushed, VolumeStates
from skyward.worker.volumes.volume import Unsaved
from skyward.worker.volumes.volumes import Volumes


class FakeVolume:
    """A volume with files that cannot be uploaded."""

    def __init__(self, *left: str) -> None:
        self.left = Unsaved(left, "the store is away")
        self.saved = threading.Event()
        self.refreshing, self.go = threading.Event(), threading.Event()
        self.detached = self.refreshed = 0
        self.waiting = 0

    @property
    def state(self) -> VolumeState:
        status: VolumeStatus = "flushing" if self.waiting else "ready"
        return VolumeState("/data", "s3://bucket", "sync", False, "/data", status, unflushed=self.waiting)

    @property
    def contents(self) -> str:
        return ""

    def attach(self) -> Path:
        return Path("/data")

    def refresh(self) -> None:
        self.refreshing.set()
        assert self.go.wait(10)
        self.refreshed += 1

    def save(self, stalled: float) -> Unsaved:
        self.saved.set()
        self.waiting = len(self.left.names)
        return self.left

    def detach(self) -> None:
        self.detached += 1


def with_volumes(told: list[WorkerEvent], *volumes: FakeVolume) -> Volumes:
    def connect(_: str) -> Any:
        raise AssertionError("no other node is asked")

    made = Volumes(0, told.append, None, connect)
    made._attached = list(volumes)
    return made


def test_notice_that_the_machine_is_taken_back_begins_to_save_at_once() -> None:
    volume = FakeVolume()
    with_volumes([], volume).save_soon()
    assert volume.saved.wait(10)


def test_end_tells_the_files_that_are_left_and_detaches_once() -> None:
    told: list[WorkerEvent] = []
    volume = FakeVolume("s3://bucket/a", "s3://bucket/b")
    made = with_volumes(told, volume)
    made.close()
    made.close()
    assert told == [
        VolumeStates((volume.state,)),
        VolumesFlushed("2 files could not be uploaded: s3://bucket/a and s3://bucket/b; the store is away"),
    ]
    assert volume.detached == 1
    assert made.closed.is_set()


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        ((), ""),
        (("s3://bucket/a",), "1 file could not be uploaded: s3://bucket/a; the store is away"),
        (
            tuple(f"s3://bucket/{number}" for number in range(30)),
            "30 files could not be uploaded: "
            + ", ".join(f"s3://bucket/{number}" for number in range(20))
            + " and 10 more; the store is away",
        ),
    ],
)
def test_end_of_a_task_tells_the_files_that_are_left(left: tuple[str, ...], sentence: str) -> None:
    again = ". The next task of that node tries again" if left else ""
    assert with_volumes([], FakeVolume(*left)).after_task() == sentence + again


def test_end_of_a_task_tells_the_objects_that_are_kept_and_no_attempt_that_must_fail() -> None:
    volume = FakeVolume()
    volume.left = Unsaved(("s3://b/n",), "rename the file", ("s3://b/a", "s3://b/c"), is_tried_again=False)
    kept = "2 objects were not deleted, since files that could not be uploaded may have their content: s3://b/a and s3:"
    assert with_volumes([], volume).after_task() == (
        f"1 file could not be uploaded: s3://b/n; {kept}//b/c; rename the file"
    )
    volume.left = Unsaved((), "the store is away", ("s3://b/a",))
    assert with_volumes([], volume).after_task() == (
        "1 object was not deleted: s3://b/a; the store is away. The next task of that node tries again"
    )


def test_states_are_told_on_request() -> None:
    told: list[WorkerEvent] = []
    volume = FakeVolume()
    with_volumes(told, volume).tell_states()
    assert told == [VolumeStates((volume.state,))]


def test_state_is_told_once_a_task_has_uploaded_its_files_and_not_again_if_it_is_the_same() -> None:
    told: list[WorkerEvent] = []
    volume = FakeVolume()
    made = with_volumes(told, volume)
    volume.waiting = 3
    made.tell_states()
    made.after_task()
    made.after_task()
    assert [each.states[0].unflushed for each in told if isinstance(each, VolumeStates)] == [3, 0]


def test_task_waits_for_a_refresh_that_another_task_has_begun() -> None:
    volume = FakeVolume()
    made = with_volumes([], volume)
    made.stale(("/data",))
    tasks = [threading.Thread(target=made.before_task) for _ in range(2)]
    tasks[0].start()
    assert volume.refreshing.wait(10)
    tasks[1].start()
    tasks[1].join(0.05)
    assert tasks[1].is_alive(), "the second task did not wait"
    volume.go.set()
    for task in tasks:
        task.join(10)
    assert volume.refreshed == 1


def test_change_that_is_reported_during_a_refresh_is_looked_for_by_the_next_task() -> None:
    volume = FakeVolume()
    made = with_volumes([], volume)
    made.stale(("/data",))
    task = threading.Thread(target=made.before_task)
    task.start()
    assert volume.refreshing.wait(10)
    made.stale(("/data",))
    volume.go.set()
    task.join(10)
    made.before_task()
    made.before_task()
    assert volume.refreshed == 2
