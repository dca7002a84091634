"""What nodes say, brought to the tasks it is about."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from skyward.control.act.event_router import EventRouter
from skyward.control.act.tasks.task import Arrived
from skyward.control.decide.tasks.messages import Ended
from skyward.errors import RemoteError
from skyward.link.bulk import NodeFullError
from skyward.specs.retries import NO_RETRIES
from skyward.wire.failures.failure import Failure
from skyward.wire.protocol.messages import Blob, Cancel, Drop, Finished, Payload, Yielded

pytestmark = pytest.mark.unit

BLOB = Blob(b"k" * 32, 5)


def nothing(*_: object) -> None:
    """What happens where nobody listens."""


class Holder:
    """A node that holds a result which cannot be had."""

    rank = 0

    def __init__(self, error: Exception, *, lost: bool = False) -> None:
        self._error = error
        self._lost = lost
        self.told: list[object] = []

    async def lost_within(self, _: float) -> bool:
        return self._lost

    def fetch(self, blob: Blob) -> Future[memoryview]:
        future: Future[memoryview] = Future()
        future.set_exception(self._error)
        return future

    def tell(self, command: object) -> None:
        self.told.append(command)


def ended(error: Exception, outcome: Any = "value", **task: float) -> tuple[object, EventRouter, Holder]:
    """How a task ends whose result cannot be fetched for this reason."""
    node: Any = Holder(error)
    told, hearing = told_of(node, outcome, **task)
    (end,) = told
    return end, hearing, node


def arrived(hearing: EventRouter, task: int) -> Arrived:
    """What has come of a task."""
    found = hearing.arrived[task]
    assert isinstance(found, Arrived)
    return found


def told_of(
    node: Any, outcome: Any = "value", *, timeout: float | None = None, grace: float = 0.0
) -> tuple[list[object], EventRouter]:
    """What the plane is told of a task whose large result is on a node."""
    told: list[object] = []

    async def scene() -> EventRouter:
        spawned: list[asyncio.Task[None]] = []

        def spawn(coroutine: Coroutine[Any, Any, None]) -> None:
            spawned.append(asyncio.get_running_loop().create_task(coroutine))

        future = SimpleNamespace(is_lent=False)
        work: Any = SimpleNamespace(seconds=None, timeout=timeout, grace=grace, retries=NO_RETRIES, future=future)
        router = EventRouter({7: work}, lambda _: node, told.append, nothing, spawn, nothing, nothing, nothing, nothing)
        router.heard(node, Finished(7, outcome, Payload(BLOB), 1.0))
        await asyncio.gather(*spawned, return_exceptions=True)
        return router

    return told, asyncio.run(scene())


def test_a_task_whose_result_cannot_be_had_here_ends_with_the_reason() -> None:
    end, hearing, node = ended(MemoryError("no memory for 5 bytes"))
    assert end == Ended(7, 0, "error", 1.0)
    failure = arrived(hearing, 7).decode()
    assert isinstance(failure, Failure)
    error = failure.rebuild()
    assert isinstance(error, RemoteError)
    assert str(error) == "What came of the task could not be brought here: MemoryError: no memory for 5 bytes."
    assert node.told == [Drop((BLOB.key,))], "the node need not keep it"


def test_result_of_a_task_that_ran_past_its_timeout_is_dropped_from_its_node() -> None:
    end, _, node = ended(AssertionError("it is not fetched"), timeout=0.9)
    assert end == Ended(7, 0, "timeout", 1.0)
    assert node.told == [Drop((BLOB.key,))]


def test_lost_node_is_the_end_of_its_attempts_at_once() -> None:
    """Otherwise those sent to it again, before it is known to be lost, would use up the attempts of their tasks."""
    told, _ = told_of(Holder(ConnectionError("gone"), lost=True))
    assert told == []


def test_a_task_whose_result_does_not_get_through_is_lost() -> None:
    end, _, node = ended(ConnectionError("gone"))
    assert end == Ended(7, 0, "lost", 1.0)
    assert node.told == []


def test_what_a_stopped_task_left_and_cannot_be_had_here_leaves_it_stopped() -> None:
    end, hearing, node = ended(MemoryError("no memory for 5 bytes"), "cancelled")
    assert end == Ended(7, 0, "cancelled", 1.0)
    assert arrived(hearing, 7).payload == Payload(b"")
    assert node.told == [Drop((BLOB.key,))]


def test_late_result_of_a_task_that_leaves_something_is_what_it_leaves() -> None:
    class Full(Holder):
        def fetch(self, blob: Blob) -> Future[memoryview]:
            future: Future[memoryview] = Future()
            future.set_result(memoryview(b"large"))
            return future

    node: Any = Full(ConnectionError())
    told, hearing = told_of(node, timeout=0.5, grace=5.0)
    assert told == [Ended(7, 0, "timeout", 1.0)]
    assert arrived(hearing, 7).blobs == {BLOB.key: b"large"}
    assert hearing.works[7].coming == BLOB.size


def hearing_of(told: list[object], works: dict[int, Any]) -> EventRouter:
    return EventRouter(works, lambda _: None, told.append, nothing, asyncio.run, nothing, nothing, nothing, nothing)


def test_elements_of_a_task_that_is_over_are_forgotten_by_its_node() -> None:
    node: Any = Holder(ConnectionError())
    hearing = EventRouter({}, lambda _: node, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    hearing.heard(node, Yielded(7, (Payload(BLOB), Payload(b"small"))))
    hearing.heard(node, Yielded(7, (Payload(b"small"),)))
    assert node.told == [Drop((BLOB.key,))]


def test_a_task_whose_arguments_have_no_room_on_a_node_ends_with_the_reason() -> None:
    node: Any = Holder(ConnectionError())
    told: list[object] = []
    work: Any = SimpleNamespace(task=7, seconds=None, retries=NO_RETRIES, code=SimpleNamespace(name="f"))
    hearing = hearing_of(told, {7: work})
    hearing.not_sent(node, work, NodeFullError("a node has no memory for 5 bytes"))
    assert told == [Ended(7, 0, "error", 0.0)]
    assert work.error == "TooLargeError"
    failure = arrived(hearing, 7).decode()
    assert isinstance(failure, Failure)
    assert str(failure.rebuild()) == (
        "Node 0 has no memory for what is sent to f(): a node has no memory for 5 bytes. Send it less at a time, or "
        "use nodes with more memory."
    )


@pytest.mark.parametrize(("lost", "expected"), [(False, [Ended(7, 0, "lost", 0.0)]), (True, [])])
def test_a_task_whose_arguments_did_not_get_through_is_lost_with_its_node_or_alone(
    lost: bool, expected: list[object]
) -> None:
    node: Any = Holder(ConnectionError(), lost=lost)
    told: list[object] = []
    work: Any = SimpleNamespace(task=7)
    hearing_of(told, {7: work}).not_sent(node, work, ConnectionError("gone"))
    assert told == expected


def test_task_that_was_stopped_for_want_of_its_input_is_lost_at_once() -> None:
    """Its node answers that it was stopped, which must not come first."""
    node: Any = Holder(ConnectionError(), lost=True)
    told: list[object] = []
    work: Any = SimpleNamespace(task=7)
    hearing_of(told, {7: work}).not_fed(node, work, ConnectionError("gone"))
    assert told == [Ended(7, 0, "lost", 0.0)]


def test_task_whose_event_cannot_be_handled_here_ends_as_remote_error() -> None:
    node: Any = Holder(ConnectionError())
    told: list[object] = []

    def fail(_: object) -> None:
        raise LookupError("no such element")

    work: Any = SimpleNamespace(task=7, error="", yielded=0, stream=SimpleNamespace(arrive=fail))
    hearing = EventRouter({7: work}, lambda _: node, told.append, nothing, nothing, nothing, nothing, nothing, nothing)
    hearing.heard(node, Yielded(7, (Payload(b"small"),)))
    assert told == [Ended(7, 0, "error", 0.0)]
    assert work.error == "RemoteError"
    assert node.told == [Cancel(7)]
