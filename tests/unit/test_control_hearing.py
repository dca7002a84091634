"""What nodes say, brought to the tasks it is about."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from skyward.control.hearing import Hearing
from skyward.control.task_messages import Ended
from skyward.errors import RemoteError
from skyward.wire.failure import Failure
from skyward.wire.messages import Blob, Drop, Finished, Payload

pytestmark = pytest.mark.unit

BLOB = Blob(b"k" * 32, 5)


def nothing(*_: object) -> None:
    """What happens where nobody listens."""


class Holder:
    """A node that holds a result which cannot be had."""

    rank = 0

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.told: list[object] = []

    def fetch(self, blob: Blob) -> Future[memoryview]:
        future: Future[memoryview] = Future()
        future.set_exception(self._error)
        return future

    def tell(self, command: object) -> None:
        self.told.append(command)


def ended(error: Exception) -> tuple[object, Hearing, Holder]:
    """How a task ends whose result cannot be fetched for this reason."""
    node: Any = Holder(error)
    told: list[object] = []

    async def scene() -> Hearing:
        spawned: list[asyncio.Task[None]] = []

        def spawn(coroutine: Coroutine[Any, Any, None]) -> None:
            spawned.append(asyncio.get_running_loop().create_task(coroutine))

        work: Any = SimpleNamespace(seconds=None)
        hearing = Hearing({7: work}, lambda _: node, told.append, nothing, spawn, nothing)
        hearing.heard(node, Finished(7, "value", Payload(BLOB), 1.0))
        await asyncio.gather(*spawned, return_exceptions=True)
        return hearing

    hearing = asyncio.run(scene())
    (end,) = told
    return end, hearing, node


def test_a_task_whose_result_cannot_be_had_here_ends_with_the_reason() -> None:
    end, hearing, node = ended(MemoryError("no memory for 5 bytes"))
    assert end == Ended(7, 0, "error", 1.0)
    failure = hearing.arrived[7].decode()
    assert isinstance(failure, Failure)
    error = failure.rebuild()
    assert isinstance(error, RemoteError)
    assert str(error) == "What came of the task could not be brought here: MemoryError: no memory for 5 bytes."
    assert node.told == [Drop((BLOB.key,))], "the node need not keep it"


def test_a_task_whose_node_goes_with_its_result_is_lost() -> None:
    end, _, node = ended(ConnectionError("gone"))
    assert end == Ended(7, 0, "lost", 1.0)
    assert node.told == []
