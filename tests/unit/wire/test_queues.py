"""A large item of a queue stays on its page until the queue has received its acknowledgement."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from skyward.wire.collections.queue import Forget, Got, Load, Put, Take, Write
from skyward.wire.collections.queue_client import QueueClient

pytestmark = pytest.mark.unit

LARGE = bytes(5000)


class KeptStore:
    """A fake queue with its pages; it records the messages in order."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.pages: dict[str, tuple[bytes, ...]] = {}
        self.messages: list[object] = []
        self.received_got, self.may_answer = asyncio.Event(), asyncio.Event()

    async def ask(self, message: Any) -> Any:
        match message:
            case Put(_, _, items):
                self.items += items
                return (True,) * len(items)
            case Take():
                return self.items.pop(0) if self.items else None
            case Got():
                self.messages.append(message)
                self.received_got.set()
                await self.may_answer.wait()

    wait = ask

    def page(self, name: str) -> Any:
        return Page(self, name)


class Page:
    def __init__(self, shelf: KeptStore, name: str) -> None:
        self._shelf, self._name = shelf, name

    async def ask(self, message: Any) -> Any:
        match message:
            case Write(items):
                self._shelf.pages[self._name] = items
            case Load():
                return self._shelf.pages.get(self._name, ())

    def tell(self, message: Any) -> None:
        self._shelf.messages.append(message)


def queueing(shelf: KeptStore, spawned: list[asyncio.Task[Any]]) -> QueueClient:
    def spawn(coroutine: Coroutine[Any, Any, Any]) -> None:
        spawned.append(asyncio.get_running_loop().create_task(coroutine))

    address: Any = shelf
    return QueueClient(address, shelf.page, b"client", spawn)


def test_page_of_item_is_deleted_after_acknowledgement() -> None:
    async def scene() -> None:
        shelf, spawned = KeptStore(), list[asyncio.Task[Any]]()
        queue = queueing(shelf, spawned)
        await queue.put(LARGE)
        assert await queue.get(None) == LARGE
        async with asyncio.timeout(20):
            await shelf.received_got.wait()
        assert not any(isinstance(each, Forget) for each in shelf.messages), "the queue has not answered yet"
        shelf.may_answer.set()
        await asyncio.gather(*spawned)
        assert [type(each) for each in shelf.messages] == [Got, Forget]

    asyncio.run(scene())


@pytest.mark.parametrize("within", [None, 0.0, 20.0])
def test_item_taken_by_another_caller_is_skipped(within: float | None) -> None:
    async def scene() -> None:
        shelf, spawned = KeptStore(), list[asyncio.Task[Any]]()
        shelf.may_answer.set()
        queue = queueing(shelf, spawned)
        await queue.put(LARGE)
        shelf.pages.clear()
        await queue.put(b"next")
        assert await queue.get(within) == b"next"
        assert await queue.get(0.0) is None
        await asyncio.gather(*spawned)
        ids = [id for each in shelf.messages if isinstance(each, Got) for id in each.ids]
        assert len(ids) == 1, "the item that was taken before is confirmed, and does not come again"

    asyncio.run(scene())
