"""The actor of a lock, in a system of one process."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from casty import ActorSystem

from skyward.wire.collections.ask import Address
from skyward.wire.collections.lock import REMEMBERED, Acquire, Release, Renew, lock

pytestmark = pytest.mark.unit

type Lock = Address[Acquire | Renew | Release]


def on_a_lock(test: Callable[[Lock], Awaitable[None]]) -> None:
    async def go() -> None:
        async with asyncio.timeout(30), ActorSystem() as system:
            await test(Address("lock 'l'", lambda: system.ref(lock, "l")))

    asyncio.run(go())


def test_repeated_release_gets_the_same_answer() -> None:
    async def test(address: Lock) -> None:
        await address.ask(Acquire(b"a", wait=True))
        assert await address.ask(Release(b"a"))
        assert await address.ask(Release(b"a"))
        await address.ask(Acquire(b"b", wait=True))
        assert await address.ask(Release(b"a")), "another holds it by now"
        assert await address.ask(Renew(b"b"))
        assert await address.ask(Release(b"b"))

    on_a_lock(test)


def test_release_of_lock_never_held_is_rejected() -> None:
    async def test(address: Lock) -> None:
        assert not await address.ask(Release(b"a"))
        assert not await address.ask(Release(b"a"))

    on_a_lock(test)


def test_number_of_remembered_releases_is_bounded() -> None:
    async def test(address: Lock) -> None:
        ids = [b"%d" % number for number in range(REMEMBERED + 1)]
        for id in ids:
            await address.ask(Acquire(id, wait=True))
            assert await address.ask(Release(id))
        assert [await address.ask(Release(id)) for id in ids] == [False] + [True] * REMEMBERED

    on_a_lock(test)
