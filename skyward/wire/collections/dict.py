"""A dict: one actor per key, so that keys are spread over the nodes and do not wait for each other."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from casty import Askable, Context, actor

from skyward.wire.collections.ask import Address, fresh_id

__all__ = ["DictClient", "entry_eventual", "entry_strong"]

_RECENT = 32
"""Last writes of a key that are recognised when they are repeated."""

_AT_ONCE = 64
_ADDRESSES = 4096


@dataclass(frozen=True)
class DictEntry:
    """One key. `taken` is the last value removed and its taker, until the next write or a minute without messages."""

    value: bytes | None = None
    recent: tuple[bytes, ...] = ()
    taken: tuple[bytes, bytes] | None = None


@dataclass(frozen=True)
class Get(Askable[bytes | None]):
    """Read the value; the answer is None without one."""


@dataclass(frozen=True)
class Has(Askable[bool]):
    """Check for a value."""


@dataclass(frozen=True)
class DictPut(Askable[None]):
    """Set `value`, once."""

    id: bytes
    value: bytes


@dataclass(frozen=True)
class DictTake(Askable[bytes | None]):
    """Remove the value, once; the answer is that value."""

    id: bytes


type DictMessage = Get | Has | DictPut | DictTake


async def _serve(ctx: Context[DictEntry, Get | Has | DictPut | DictTake]) -> None:
    async for message in ctx.inbox:
        entry = ctx.state.value
        match message:
            case Get():
                message.reply_to.tell(entry.value)
            case Has():
                message.reply_to.tell(entry.value is not None)
            case DictPut(id, value):
                if id not in entry.recent:
                    await ctx.state.set(DictEntry(value, _with(entry, id)))
                message.reply_to.tell(None)
            case DictTake(id):
                if id not in entry.recent and entry.value is not None:
                    entry = DictEntry(None, _with(entry, id), (id, entry.value))
                    await ctx.state.set(entry)
                message.reply_to.tell(entry.taken[1] if entry.taken is not None and entry.taken[0] == id else None)
    entry = ctx.state.value
    if entry.value is None and entry.recent:
        await ctx.state.delete()
    elif entry.taken is not None:
        await ctx.state.set(replace(entry, taken=None))


def _with(entry: DictEntry, id: bytes) -> tuple[bytes, ...]:
    return (*entry.recent[1 - _RECENT :], id)


@actor(initial=DictEntry(), write="majority")
async def entry_strong(ctx: Context[DictEntry, Get | Has | DictPut | DictTake]) -> None:
    """A key whose writes are confirmed by a quorum of its copies."""
    await _serve(ctx)


@actor(initial=DictEntry(), write="one")
async def entry_eventual(ctx: Context[DictEntry, Get | Has | DictPut | DictTake]) -> None:
    """A key whose writes are confirmed by one copy."""
    await _serve(ctx)


class DictClient:
    """Client of a dict, for one process in the cluster. Keys and values are bytes; a value is never empty.

    Args:
        find: the actor of a key.
    """

    def __init__(self, find: Callable[[bytes], Address[DictMessage]]) -> None:
        self._find = find
        self._addresses: OrderedDict[bytes, Address[DictMessage]] = OrderedDict()

    def _at(self, key: bytes) -> Address[DictMessage]:
        address = self._addresses.pop(key, None) or self._find(key)
        self._addresses[key] = address
        if len(self._addresses) > _ADDRESSES:
            self._addresses.popitem(last=False)
        return address

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None."""
        return await self._at(key).ask(Get())

    async def has(self, key: bytes) -> bool:
        """Return whether `key` has a value."""
        return await self._at(key).ask(Has())

    async def put(self, key: bytes, value: bytes) -> None:
        """Set the value of `key`."""
        await self._at(key).ask(DictPut(fresh_id(), value))

    async def take(self, key: bytes) -> bytes | None:
        """Remove `key` and return its value."""
        return await self._at(key).ask(DictTake(fresh_id()))

    async def update(self, values: Mapping[bytes, bytes]) -> None:
        """Set the values of many keys, each independently."""
        left = iter(values.items())

        async def work() -> None:
            for key, value in left:
                await self.put(key, value)

        workers = [asyncio.create_task(work()) for _ in range(min(_AT_ONCE, len(values)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
