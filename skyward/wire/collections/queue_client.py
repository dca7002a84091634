"""A queue, from a process in the cluster."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from skyward.wire.collections.ask import Address, fresh_id
from skyward.wire.collections.batches import Batches
from skyward.wire.collections.queue import Forget, Got, Load, Put, Size, Take, Withdraw, Write

__all__ = ["Queueing"]

_INLINE = 4096
"""Bytes of an item up to which it is in the queue itself; a larger one is on a page of its own."""

_BATCH = 64 * 1024
_SAY_AFTER = 0.05
_HERE, _ELSEWHERE = b"\0", b"\1"


class Queueing:
    """The queue.

    Args:
        page: the actor of a page, by the end of its name.
        spawn: runs what nobody waits for.
    """

    def __init__(
        self,
        address: "Address[Put | Take | Withdraw | Got | Size]",
        page: "Callable[[str], Address[Write | Load | Forget]]",
        client: bytes,
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
    ) -> None:
        self._address = address
        self._page = page
        self._spawn = spawn
        self._got: tuple[bytes, ...] = ()
        self._loaded: dict[bytes, Address[Write | Load | Forget]] = {}
        self._saying = False
        self._puts: Batches[bytes, bool] = Batches(
            lambda number, items: address.ask(Put(client, number, items, self._take_got())), size=len, budget=_BATCH
        )

    async def put(self, item: bytes) -> None:
        """Append an item."""
        if len(item) <= _INLINE:
            await self._puts.add(_HERE + item)
            return
        id = fresh_id()
        await self._page(id.hex()).ask(Write((item,)))
        await self._puts.add(_ELSEWHERE + id)

    async def get(self, within: float | None) -> bytes | None:
        """The next item, after at most `within` seconds; None where there was none by then."""
        clock = asyncio.get_running_loop().time
        until = None if within is None else clock() + within
        while (taken := await self._take(None if until is None else until - clock())) is not None:
            id, item = taken
            if item[:1] == _HERE:
                self._say(id)
                return item[1:]
            page = self._page(item[1:].hex())
            values = await page.ask(Load())
            self._say(id, page)
            if values:
                return values[0]  # else another was given it before us, and has said so by now
        return None

    async def _take(self, within: float | None) -> tuple[bytes, bytes] | None:
        """The next item as it is in the queue, after the identity that it was taken by."""
        id = fresh_id()
        try:
            if within is not None and within <= 0:
                item = await self._address.ask(Take(id, wait=False, got=self._take_got()))
            else:
                async with asyncio.timeout(within):
                    item = await self._address.wait(Take(id, wait=True, got=self._take_got()))
        except TimeoutError:
            item = await self._address.ask(Withdraw(id))
        except asyncio.CancelledError:
            await self._address.take_back(Withdraw(id, back=True))
            raise
        return None if item is None else (id, item)

    async def size(self) -> int:
        """How many items there are."""
        return await self._address.ask(Size())

    def _take_got(self) -> tuple[bytes, ...]:
        got, self._got = self._got, ()
        return got

    def _say(self, id: bytes, page: "Address[Write | Load | Forget] | None" = None) -> None:
        """Say that an item has arrived, with the next operation or else soon; then, that its page is not needed."""
        if page is None:
            self._got = (*self._got, id)
        else:
            self._loaded[id] = page
        if not self._saying:
            self._saying = True
            self._spawn(self._say_soon())

    async def _say_soon(self) -> None:
        await asyncio.sleep(_SAY_AFTER)
        self._saying = False
        loaded, self._loaded = self._loaded, {}
        if got := (*self._take_got(), *loaded):
            await self._address.ask(Got(got))
        for page in loaded.values():  # not before: whoever is given the item again has to find it there
            page.tell(Forget())
