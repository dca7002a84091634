"""A large item of a queue stays on its page until the queue knows that it has arrived."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from skyward.wire.collections.queue import Forget, Got, Load, Put, Take, Write
from skyward.wire.collections.queue_client import Queueing

pytestmark = pytest.mark.unit

LARGE = bytes(5000)


class Shelf:
    """A queue and its pages, each of which only keeps what it is told, and what was said in which order."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.pages: dict[str, tuple[bytes, ...]] = {}
        self.said: list[object] = []
        self.heard_got, self.may_answer = asyncio.Event(), asyncio.Event()

    async def ask(self, message: Any) -> Any:
        match message:
            case Put(_, _, items):
                self.items += items
                return (True,) * len(items)
            case Take():
                return self.items.pop(0) if self.items else None
            case Got():
                self.said.append(message)
                self.heard_got.set()
                await self.may_answer.wait()

    wait = ask

    def page(self, name: str) -> Any:
        return Page(self, name)


class Page:
    def __init__(self, shelf: Shelf, name: str) -> None:
        self._shelf, self._name = shelf, name

    async def ask(self, message: Any) -> Any:
        match message:
            case Write(items):
                self._shelf.pages[self._name] = items
            case Load():
                return self._shelf.pages.get(self._name, ())

    def tell(self, message: Any) -> None:
        self._shelf.said.append(message)


def queueing(shelf: Shelf, spawned: list[asyncio.Task[Any]]) -> Queueing:
    def spawn(coroutine: Coroutine[Any, Any, Any]) -> None:
        spawned.append(asyncio.get_running_loop().create_task(coroutine))

    address: Any = shelf
    return Queueing(address, shelf.page, b"client", spawn)


def test_the_page_of_an_item_is_forgotten_when_the_queue_has_heard_that_it_arrived() -> None:
    async def scene() -> None:
        shelf, spawned = Shelf(), list[asyncio.Task[Any]]()
        queue = queueing(shelf, spawned)
        await queue.put(LARGE)
        assert await queue.get(None) == LARGE
        async with asyncio.timeout(20):
            await shelf.heard_got.wait()
        assert not any(isinstance(each, Forget) for each in shelf.said), "the queue has not answered yet"
        shelf.may_answer.set()
        await asyncio.gather(*spawned)
        assert [type(each) for each in shelf.said] == [Got, Forget]

    asyncio.run(scene())


@pytest.mark.parametrize("within", [None, 0.0, 20.0])
def test_an_item_that_another_has_taken_is_passed_over(within: float | None) -> None:
    async def scene() -> None:
        shelf, spawned = Shelf(), list[asyncio.Task[Any]]()
        shelf.may_answer.set()
        queue = queueing(shelf, spawned)
        await queue.put(LARGE)
        shelf.pages.clear()
        await queue.put(b"next")
        assert await queue.get(within) == b"next"
        assert await queue.get(0.0) is None
        await asyncio.gather(*spawned)
        ids = [id for each in shelf.said if isinstance(each, Got) for id in each.ids]
        assert len(ids) == 1, "the item that was taken before is confirmed, and does not come again"

    asyncio.run(scene())
