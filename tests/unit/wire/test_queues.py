"""A large item of a queue stays on its page until the queue has received its acknowledgement."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from skyward.wire.collections.queue import Acknowledge, Forget, Load, QueuePut, QueueTake, Write
from skyward.wire.collections.queue_client import QueueClient

pytestmark = pytest.mark.unit

LARGE = bytes(5000)


class FakeQueue:
    """A fake queue with its pages; it records the messages in order."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.pages: dict[str, tuple[bytes, ...]] = {}
        self.messages: list[object] = []
        self.acknowledged, self.may_answer = asyncio.Event(), asyncio.Event()

    async def ask(self, message: Any) -> Any:
        match message:
            case QueuePut(_, _, items):
                self.items += items
                return (True,) * len(items)
            case QueueTake():
                return self.items.pop(0) if self.items else None
            case Acknowledge():
                self.messages.append(message)
                self.acknowledged.set()
                await self.may_answer.wait()

    wait = ask

    def page(self, name: str) -> Any:
        return Page(self, name)


class Page:
    def __init__(self, fake: FakeQueue, name: str) -> None:
        self._fake, self._name = fake, name

    async def ask(self, message: Any) -> Any:
        match message:
            case Write(items):
                self._fake.pages[self._name] = items
            case Load():
                return self._fake.pages.get(self._name, ())

    def tell(self, message: Any) -> None:
        self._fake.messages.append(message)


def queueing(fake: FakeQueue, spawned: list[asyncio.Task[Any]]) -> QueueClient:
    def spawn(coroutine: Coroutine[Any, Any, Any]) -> None:
        spawned.append(asyncio.get_running_loop().create_task(coroutine))

    address: Any = fake
    return QueueClient(address, fake.page, b"client", spawn)


def test_page_of_item_is_deleted_after_acknowledgement() -> None:
    async def scene() -> None:
        fake, spawned = FakeQueue(), list[asyncio.Task[Any]]()
        queue = queueing(fake, spawned)
        await queue.put(LARGE)
        assert await queue.get(None) == LARGE
        async with asyncio.timeout(20):
            await fake.acknowledged.wait()
        assert not any(isinstance(each, Forget) for each in fake.messages), "the queue has not answered yet"
        fake.may_answer.set()
        await asyncio.gather(*spawned)
        assert [type(each) for each in fake.messages] == [Acknowledge, Forget]

    asyncio.run(scene())


@pytest.mark.parametrize("within", [None, 0.0, 20.0])
def test_item_taken_by_another_caller_is_skipped(within: float | None) -> None:
    async def scene() -> None:
        fake, spawned = FakeQueue(), list[asyncio.Task[Any]]()
        fake.may_answer.set()
        queue = queueing(fake, spawned)
        await queue.put(LARGE)
        fake.pages.clear()
        await queue.put(b"next")
        assert await queue.get(within) == b"next"
        assert await queue.get(0.0) is None
        await asyncio.gather(*spawned)
        ids = [id for each in fake.messages if isinstance(each, Acknowledge) for id in each.ids]
        assert len(ids) == 1, "the item that was taken before is confirmed, and does not come again"

    asyncio.run(scene())
