"""Routing of node events to tasks: results, failures, and lost nodes."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from skyward.control.act.event_router import EventRouter
from skyward.control.act.tasks.future import EncodedResult
from skyward.control.decide.tasks.messages import Delivered, Ended
from skyward.errors import RemoteError
from skyward.link.bulk import NodeFullError
from skyward.specs.retries import NO_RETRIES
from skyward.wire.failures.failure import Failure
from skyward.wire.protocol.messages import Blob, Cancel, Drop, Finished, Payload, Yielded

pytestmark = pytest.mark.unit

BLOB = Blob(b"k" * 32, 5)


def nothing(*_: object) -> None:
    """Callback without effect."""


OTHERS: Any = SimpleNamespace(wrote=nothing, leave=nothing, add=nothing)
"""The history, the results and the kept values of a pool that record nothing."""


def pool_of(node: Any, to_plane: list[object] | None = None, spawn: Any = nothing) -> Any:
    """Return a pool whose only node is `node`, and which collects the messages to its control plane."""
    tell = nothing if to_plane is None else to_plane.append
    return SimpleNamespace(node_at=lambda _: node, tell=tell, spawn=spawn)


class Holder:
    """A node that holds a result which cannot be fetched."""

    rank = 0

    def __init__(self, error: Exception, *, lost: bool = False) -> None:
        self._error = error
        self._lost = lost
        self.commands: list[object] = []

    async def lost_within(self, _: float) -> bool:
        return self._lost

    def fetch(self, blob: Blob) -> Future[memoryview]:
        future: Future[memoryview] = Future()
        future.set_exception(self._error)
        return future

    def tell(self, command: object) -> None:
        self.commands.append(command)


def ended(error: Exception, outcome: Any = "value", **task: float) -> tuple[object, EventRouter, Holder]:
    """Route the end of a task whose result cannot be fetched; return the message to the plane, the router, the node."""
    node: Any = Holder(error)
    to_plane, router = messages_about(node, outcome, **task)
    (end,) = to_plane
    return end, router, node


def arrived(router: EventRouter, task: int) -> EncodedResult:
    """Return the result of a task."""
    found = router.arrived[task]
    assert isinstance(found, EncodedResult)
    return found


def messages_about(
    node: Any, outcome: Any = "value", *, timeout: float | None = None, grace: float = 0.0
) -> tuple[list[object], EventRouter]:
    """Return the messages to the plane about a task whose large result is on a node."""
    to_plane: list[object] = []

    async def scene() -> EventRouter:
        spawned: list[asyncio.Task[None]] = []

        def spawn(coroutine: Coroutine[Any, Any, None]) -> None:
            spawned.append(asyncio.get_running_loop().create_task(coroutine))

        future = SimpleNamespace(is_lent=False)
        work: Any = SimpleNamespace(seconds=None, timeout=timeout, grace=grace, retries=NO_RETRIES, future=future)
        router = EventRouter({7: work}, pool_of(node, to_plane, spawn), OTHERS, OTHERS, OTHERS, nothing)
        router.handle(node, Finished(7, outcome, Payload(BLOB), 1.0))
        await asyncio.gather(*spawned, return_exceptions=True)
        return router

    return to_plane, asyncio.run(scene())


def test_task_whose_result_cannot_be_fetched_ends_with_the_reason() -> None:
    end, router, node = ended(MemoryError("no memory for 5 bytes"))
    assert end == Ended(7, 0, "error", 1.0)
    failure = arrived(router, 7).decode()
    assert isinstance(failure, Failure)
    error = failure.rebuild()
    assert isinstance(error, RemoteError)
    assert str(error) == "Could not fetch the task's result: MemoryError: no memory for 5 bytes."
    assert node.commands == [Drop((BLOB.key,))], "the node must drop the result"


def test_result_of_a_task_that_ran_past_its_timeout_is_dropped_from_its_node() -> None:
    end, _, node = ended(AssertionError("it is not fetched"), timeout=0.9)
    assert end == Ended(7, 0, "timeout", 1.0)
    assert node.commands == [Drop((BLOB.key,))]


def test_lost_node_takes_no_further_attempts() -> None:
    """Tasks sent to it before its loss is known would use up their attempts."""
    to_plane, _ = messages_about(Holder(ConnectionError("gone"), lost=True))
    assert to_plane == []


def test_task_whose_result_transfer_breaks_is_lost() -> None:
    end, _, node = ended(ConnectionError("gone"))
    assert end == Ended(7, 0, "lost", 1.0)
    assert node.commands == []


def test_stopped_task_stays_stopped_if_its_state_cannot_be_fetched() -> None:
    end, router, node = ended(MemoryError("no memory for 5 bytes"), "cancelled")
    assert end == Ended(7, 0, "cancelled", 1.0)
    assert arrived(router, 7).payload == Payload(b"")
    assert node.commands == [Drop((BLOB.key,))]


def test_late_result_of_a_task_with_grace_is_kept_as_its_state() -> None:
    class Full(Holder):
        def fetch(self, blob: Blob) -> Future[memoryview]:
            future: Future[memoryview] = Future()
            future.set_result(memoryview(b"large"))
            return future

    node: Any = Full(ConnectionError())
    to_plane, router = messages_about(node, timeout=0.5, grace=5.0)
    assert to_plane == [Ended(7, 0, "timeout", 1.0)]
    assert arrived(router, 7).blobs == {BLOB.key: b"large"}
    assert router.works[7].bytes_in_transfer == BLOB.size


def router_of(to_plane: list[object], works: dict[int, Any]) -> EventRouter:
    return EventRouter(works, pool_of(None, to_plane, asyncio.run), OTHERS, OTHERS, OTHERS, nothing)


def test_elements_of_an_ended_task_are_dropped_on_its_node() -> None:
    node: Any = Holder(ConnectionError())
    router = EventRouter({}, pool_of(node), OTHERS, OTHERS, OTHERS, nothing)
    router.handle(node, Yielded(7, (Payload(BLOB), Payload(b"small"))))
    router.handle(node, Yielded(7, (Payload(b"small"),)))
    assert node.commands == [Drop((BLOB.key,))]


def test_control_plane_is_told_once_that_elements_of_a_stream_were_delivered() -> None:
    node: Any = Holder(ConnectionError())
    to_plane: list[object] = []
    received: list[object] = []
    work: Any = SimpleNamespace(task=7, yielded=0, stream=SimpleNamespace(arrive=received.extend))
    router = EventRouter({7: work}, pool_of(node, to_plane), OTHERS, OTHERS, OTHERS, nothing)
    for _ in range(3):
        router.handle(node, Yielded(7, (Payload(b"a"), Payload(b"b"))))
    assert (work.yielded, len(received)) == (6, 6)
    assert to_plane == [Delivered(7)]


def test_task_whose_arguments_exceed_the_memory_of_a_node_ends_with_the_reason() -> None:
    node: Any = Holder(ConnectionError())
    to_plane: list[object] = []
    work: Any = SimpleNamespace(task=7, seconds=None, retries=NO_RETRIES, code=SimpleNamespace(name="f"))
    router = router_of(to_plane, {7: work})
    router.not_sent(node, work, NodeFullError("a node has no memory for 5 bytes"))
    assert to_plane == [Ended(7, 0, "error", 0.0)]
    assert work.error == "TooLargeError"
    failure = arrived(router, 7).decode()
    assert isinstance(failure, Failure)
    assert str(failure.rebuild()) == (
        "Node 0 has no memory for the data sent to f(): a node has no memory for 5 bytes. Send less at a time, or "
        "use nodes with more memory."
    )


@pytest.mark.parametrize(("lost", "expected"), [(False, [Ended(7, 0, "lost", 0.0)]), (True, [])])
def test_task_whose_arguments_did_not_arrive_is_lost_with_its_node_or_alone(lost: bool, expected: list[object]) -> None:
    node: Any = Holder(ConnectionError(), lost=lost)
    to_plane: list[object] = []
    work: Any = SimpleNamespace(task=7)
    router_of(to_plane, {7: work}).not_sent(node, work, ConnectionError("gone"))
    assert to_plane == expected


def test_task_stopped_for_lack_of_input_is_lost_at_once() -> None:
    """The node's confirmation of the stop must not settle it first."""
    node: Any = Holder(ConnectionError(), lost=True)
    to_plane: list[object] = []
    work: Any = SimpleNamespace(task=7)
    router_of(to_plane, {7: work}).not_fed(node, work, ConnectionError("gone"))
    assert to_plane == [Ended(7, 0, "lost", 0.0)]


def test_task_whose_event_cannot_be_handled_ends_with_remote_error() -> None:
    node: Any = Holder(ConnectionError())
    to_plane: list[object] = []

    def fail(_: object) -> None:
        raise LookupError("no such element")

    work: Any = SimpleNamespace(task=7, error="", yielded=0, stream=SimpleNamespace(arrive=fail))
    router = EventRouter({7: work}, pool_of(node, to_plane), OTHERS, OTHERS, OTHERS, nothing)
    router.handle(node, Yielded(7, (Payload(b"small"),)))
    assert to_plane == [Ended(7, 0, "error", 0.0)]
    assert work.error == "RemoteError"
    assert node.commands == [Cancel(7)]
