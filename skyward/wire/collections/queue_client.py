"""The client of a queue, for one process in the cluster."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from skyward.wire.collections.ask import Address, fresh_id
from skyward.wire.collections.batches import Batches
from skyward.wire.collections.queue import Acknowledge, Forget, Load, QueuePut, QueueTake, QueueWithdraw, Size, Write

__all__ = ["QueueClient"]

_INLINE = 4096
"""Bytes up to which an item is stored in the queue itself; a larger one has a page of its own."""

_BATCH = 64 * 1024
_ACKNOWLEDGE_AFTER = 0.05
_IN_QUEUE, _ON_PAGE = b"\0", b"\1"


class QueueClient:
    """Client of a queue.

    Args:
        page: returns the actor of a page, by the end of its name.
        spawn: runs a coroutine in the background.
    """

    def __init__(
        self,
        address: "Address[QueuePut | QueueTake | QueueWithdraw | Acknowledge | Size]",
        page: "Callable[[str], Address[Write | Load | Forget]]",
        client: bytes,
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        self._address = address
        self._page = page
        self._spawn = spawn
        self._unacknowledged: tuple[bytes, ...] = ()
        self._loaded: dict[bytes, Address[Write | Load | Forget]] = {}
        self._acknowledging = False
        self._puts: Batches[bytes, bool] = Batches(
            lambda number, items: address.ask(QueuePut(client, number, items, self._take_unacknowledged())),
            size=len,
            budget=_BATCH,
        )

    async def put(self, item: bytes) -> None:
        """Append an item."""
        if len(item) <= _INLINE:
            await self._puts.add(_IN_QUEUE + item)
            return
        id = fresh_id()
        await self._page(id.hex()).ask(Write((item,)))
        await self._puts.add(_ON_PAGE + id)

    async def get(self, within: float | None) -> bytes | None:
        """Return the next item, or None if there is none within `within` seconds."""
        clock = asyncio.get_running_loop().time
        until = None if within is None else clock() + within
        while (taken := await self._take(None if until is None else until - clock())) is not None:
            id, item = taken
            if item[:1] == _IN_QUEUE:
                self._acknowledge(id)
                return item[1:]
            page = self._page(item[1:].hex())
            values = await page.ask(Load())
            self._acknowledge(id, page)
            if values:
                return values[0]  # else another taker was handed the item, and has acknowledged it
        return None

    async def _take(self, within: float | None) -> tuple[bytes, bytes] | None:
        """Return the next item as stored in the queue, with the identity of the request that took it."""
        id = fresh_id()
        try:
            if within is not None and within <= 0:
                item = await self._address.ask(QueueTake(id, wait=False, acknowledged=self._take_unacknowledged()))
            else:
                async with asyncio.timeout(within):
                    item = await self._address.wait(QueueTake(id, wait=True, acknowledged=self._take_unacknowledged()))
        except TimeoutError:
            item = await self._address.ask(QueueWithdraw(id))
        except asyncio.CancelledError:
            await self._address.withdraw(QueueWithdraw(id, back=True))
            raise
        return None if item is None else (id, item)

    async def size(self) -> int:
        """Return the number of items."""
        return await self._address.ask(Size())

    def _take_unacknowledged(self) -> tuple[bytes, ...]:
        acknowledged, self._unacknowledged = self._unacknowledged, ()
        return acknowledged

    def _acknowledge(self, id: bytes, page: "Address[Write | Load | Forget] | None" = None) -> None:
        """Acknowledge an item, with the next operation or else soon; then delete its page."""
        if page is None:
            self._unacknowledged = (*self._unacknowledged, id)
        else:
            self._loaded[id] = page
        if not self._acknowledging:
            self._acknowledging = True
            self._spawn(self._acknowledge_soon())

    async def _acknowledge_soon(self) -> None:
        await asyncio.sleep(_ACKNOWLEDGE_AFTER)
        self._acknowledging = False
        loaded, self._loaded = self._loaded, {}
        if acknowledged := (*self._take_unacknowledged(), *loaded):
            await self._address.ask(Acknowledge(acknowledged))
        for page in loaded.values():  # only now: the item may have been handed to another taker, who needs the page
            page.tell(Forget())
