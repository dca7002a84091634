"""The actor of a barrier, in a system of one process."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from casty import ActorSystem

from skyward.wire.collections.ask import Address
from skyward.wire.collections.barrier import Arrive, BarrierClient, BarrierWithdraw, Break, barrier

pytestmark = pytest.mark.unit

type Barrier = Address[Arrive | BarrierWithdraw | Break]


def on_a_barrier(test: Callable[[Barrier], Awaitable[None]]) -> None:
    async def go() -> None:
        async with asyncio.timeout(30), ActorSystem() as system:
            await test(Address("barrier 'b'", lambda: system.ref(barrier, "b")))

    asyncio.run(go())


@pytest.mark.parametrize("within", [0, 1e-9])
def test_last_party_passes_however_short_its_timeout(within: float) -> None:
    async def test(address: Barrier) -> None:
        assert await BarrierClient(address).wait(1, within) == ("passed", 0)
        other = asyncio.create_task(BarrierClient(address).wait(2, None))
        while await BarrierClient(address).wait(2, within) != ("passed", 0):
            pass
        assert await other == ("passed", 0)

    on_a_barrier(test)


def test_party_that_was_late_does_not_count_any_more() -> None:
    async def test(address: Barrier) -> None:
        for within in (0, 0.01, 0):
            assert await BarrierClient(address).wait(2, within) == ("late", 1)

    on_a_barrier(test)
