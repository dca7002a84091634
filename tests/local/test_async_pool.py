"""Pools that are opened, used and closed in coroutines, which never block their event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.pool.hooks import opened
from tests.local import tasks
from tests.local.test_stopping import stands_still
from tests.waiting import wait_for, wait_for_async

pytestmark = pytest.mark.local


@contextlib.asynccontextmanager
async def beats() -> AsyncIterator[list[float]]:
    """Record the pauses of the running loop, in seconds, while the block runs."""
    pauses: list[float] = []

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(0)
            now = loop.time()
            pauses.append(now - last)
            last = now

    beating = asyncio.create_task(beat())
    try:
        yield pauses
    finally:
        beating.cancel()


def test_block_opens_the_pool_puts_it_in_scope_and_closes_it() -> None:
    async def use() -> tuple[Any, ...]:
        async with sky.Compute(provider="local") as pool:
            assert pool.is_open
            assert pool.is_scoped
            both = await sky.gather(tasks.add(3, 4), tasks.sleep(0.01))
            return pool, await tasks.add(1, 2), both

    pool, *results = asyncio.run(use())
    assert results == [3, (7, "slept")]
    assert not pool.is_open
    assert not pool.is_scoped


def test_opening_and_closing_do_not_block_the_loop() -> None:
    turns = 0

    async def use() -> None:
        nonlocal turns
        async with beats() as pauses:
            async with sky.Compute(provider="local"):
                opened_after = len(pauses)
            turns = min(opened_after, len(pauses) - opened_after)

    asyncio.run(use())
    assert turns > 100, "the loop runs while the pool opens and closes"


def test_blocks_may_be_nested_with_each_other_and_with_plain_ones() -> None:
    async def use() -> None:
        async with sky.Compute(provider="local", name="outer") as outer:
            async with sky.Compute(provider="local", name="inner"), outer:
                assert await tasks.add(1, 1) == 2
            assert outer.is_open
            with outer:
                assert await tasks.add(2, 2) == 4
            assert outer.is_open
        assert not outer.is_open

    asyncio.run(use())


def test_each_coroutine_has_its_own_pool_in_scope() -> None:
    async def use() -> tuple[sky.Compute, int]:
        async with sky.Compute(provider="local") as pool:
            await asyncio.sleep(0)
            await tasks.add(1, 2)
            return pool, pool.snapshot().done

    async def both() -> list[tuple[sky.Compute, int]]:
        return list(await asyncio.gather(use(), use()))

    (first, one), (second, other) = asyncio.run(both())
    assert first is not second
    assert (one, other) == (1, 1)


def test_error_of_the_block_closes_the_pool() -> None:
    async def use() -> None:
        async with sky.Compute(provider="local"):
            await tasks.fail("bad")

    with pytest.raises(ValueError, match="^bad"):
        asyncio.run(use())
    assert not opened


def test_cancelling_while_the_pool_opens_closes_it() -> None:
    async def use() -> sky.Compute:
        pool = sky.Compute(provider=sky.Local(boot_time=60))
        using = asyncio.create_task(pool.__aenter__())
        await wait_for_async(lambda: pool in opened, "the pool to be launched")
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        return pool

    pool = asyncio.run(use())
    assert pool.snapshot().state == "closed"
    assert not pool.is_scoped


def test_cancelling_while_the_pool_closes_closes_it_to_the_end() -> None:
    async def use() -> sky.Compute:
        pool = await sky.Compute(provider="local").__aenter__()
        closing = asyncio.create_task(pool.__aexit__(None, None, None))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return pool

    assert asyncio.run(use()).snapshot().state == "closed"


def test_pool_that_cannot_open_raises_and_leaves_no_scope() -> None:
    pool = sky.Compute(provider=sky.Local(hourly_price=3600.0), budget=1.0)

    async def use() -> None:
        async with pool:
            pass

    with pytest.raises(sky.NodeStartError, match="cannot afford its first nodes"):
        asyncio.run(use())
    assert not pool.is_scoped


def test_await_of_a_cancelled_call_stops_its_task(tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    async def use() -> None:
        async with sky.Compute(provider="local"):
            asking = asyncio.ensure_future(sky.gather(tasks.heartbeat(str(beat), 60)))
            await asyncio.to_thread(wait_for, beat.exists, "the task to run")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.to_thread(wait_for, lambda: stands_still(beat), "the task to stop")

    asyncio.run(use())


def test_await_without_a_pool_in_scope_names_the_fix() -> None:
    async def use() -> None:
        await tasks.add(1, 2)

    with pytest.raises(sky.NoPoolError, match=r"add\(\.\.\.\) >> pool"):
        asyncio.run(use())
