"""A lock: one actor, and a lease that the process of each holder renews."""

import asyncio
import itertools
from dataclasses import dataclass

from casty import Askable, Context, Ref, actor

from skyward.errors import CollectionUnavailableError
from skyward.process.clock import clock
from skyward.wire.collections.ask import Address, fresh_id

__all__ = ["REMEMBERED", "TTL", "Held", "LockClient", "lock"]

TTL = 20.0
"""Seconds without a renewal after which a lock is free."""

REMEMBERED = 64
"""Number of releases that a lock remembers: a repeated request, whose answer was lost, gets the same answer."""

_RENEW = 4.0
_REASK = 2.0
_GONE = 4 * _REASK

_numbers = itertools.count(1)
"""Numbers of the leases of this process. The actor's own numbers restart when all nodes are lost."""


@dataclass(frozen=True)
class Acquire(Askable[int]):
    """Acquire the lock. The answer is the lease's number, increasing; 0 with `wait` False if the lock is not free."""

    id: bytes
    wait: bool


@dataclass(frozen=True)
class Renew(Askable[bool]):
    """Renew the lease; the answer says whether it is still held."""

    id: bytes


@dataclass(frozen=True)
class Release(Askable[bool]):
    """Release the lock, or stop waiting for it; the answer says whether it was still held."""

    id: bytes


@dataclass(frozen=True)
class Held:
    """The holder (b"" for none), the number of its lease, and the last releases, newest last."""

    holder: bytes = b""
    token: int = 0
    released: tuple[bytes, ...] = ()


@dataclass(slots=True)
class _Waiter:
    reply: Ref[int]
    seen: float


@actor(initial=Held(), write="majority")
async def lock(ctx: Context[Held, Acquire | Renew | Release]) -> None:
    """A lock, granted in the order of requests."""
    waiting: dict[bytes, _Waiter] = {}
    renewed = clock.monotonic()
    async for message in ctx.inbox:
        now = clock.monotonic()
        held = ctx.state.value
        match message:
            case Acquire(id, wait):
                if held.holder == id:
                    renewed = now
                    message.reply_to.tell(held.token)
                    continue
                if wait:
                    waiting[id] = _Waiter(message.reply_to, now)
                elif held.holder and now - renewed < TTL:
                    message.reply_to.tell(0)
                    continue
                else:
                    waiting.setdefault(id, _Waiter(message.reply_to, now))
            case Renew(id):
                if held.holder == id:
                    renewed = now
                message.reply_to.tell(held.holder == id)
                continue
            case Release(id):
                waiting.pop(id, None)
                if held.holder == id:
                    await ctx.state.set(Held(b"", held.token, (*held.released, id)[-REMEMBERED:]))
                message.reply_to.tell(held.holder == id or id in held.released)
        if ctx.state.value.holder and now - renewed < TTL:
            continue
        waiting = {id: waiter for id, waiter in waiting.items() if now - waiter.seen < _GONE}
        if waiting:
            id, waiter = next(iter(waiting.items()))
            held = ctx.state.value
            await ctx.state.set(Held(id, held.token + 1, held.released))
            del waiting[id]
            renewed = now
            waiter.reply.tell(ctx.state.value.token)


@dataclass(slots=True)
class _Lease:
    id: bytes
    owner: int
    keeping: asyncio.Task[None]
    lost: bool = False


class LockClient:
    """Client of a lock, shared by the callers of one process in the cluster."""

    def __init__(self, address: "Address[Acquire | Renew | Release]") -> None:
        self._address = address
        self._leases: dict[int, _Lease] = {}

    async def acquire(self, within: float | None, owner: int) -> int:
        """Acquire the lock within `within` seconds.

        Returns:
            The number of the lease, unique in this process; 0 if the lock was not free in time.
        """
        id = fresh_id()
        try:
            if within is not None and within <= 0:
                token = await self._address.ask(Acquire(id, wait=False))
            else:
                async with asyncio.timeout(within):
                    token = await self._address.wait(Acquire(id, wait=True), _REASK)
        except TimeoutError:
            await self._address.ask(Release(id))
            return 0
        except BaseException:
            await self._address.withdraw(Release(id))
            raise
        if not token:
            return 0
        number = next(_numbers)
        keeping = asyncio.get_running_loop().create_task(self._keep(number, id))
        self._leases[number] = _Lease(id, owner, keeping)
        return number

    async def _keep(self, number: int, id: bytes) -> None:
        while True:
            await asyncio.sleep(_RENEW)
            try:
                if not await self._address.ask(Renew(id)):
                    self._leases[number].lost = True
                    return
            except CollectionUnavailableError:
                continue  # the lease excludes other holders

    async def release(self, number: int) -> bool:
        """Release the lock; return False if it was lost before."""
        lease = self._leases.pop(number, None)
        if lease is None:
            return False
        lease.keeping.cancel()
        return await self._address.ask(Release(lease.id)) and not lease.lost

    async def release_of(self, owner: int) -> None:
        """Release what a task still held when it ended."""
        for number in [number for number, lease in self._leases.items() if lease.owner == owner]:
            await self.release(number)

    def close(self) -> None:
        """Stop renewing."""
        for lease in self._leases.values():
            lease.keeping.cancel()
        self._leases.clear()
