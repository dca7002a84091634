"""Contexts of plugins on the client: `around_pool` and `around_block`."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest

import skyward as sky
from skyward.functions.target import current_pool
from skyward.pool.hooks import opened
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local

happened: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_happened() -> None:
    happened.clear()


class Recorded(sky.plugins.Plugin):
    """A plugin that records its context, in which it runs a task."""

    __slots__ = ()

    fails: str

    def around_pool(self, pool: sky.Compute) -> AbstractContextManager[None]:
        """Record entering and leaving; raise where `fails` says."""

        @contextmanager
        def context() -> Iterator[None]:
            scope = " in scope" if current_pool.get() is pool else ""
            happened.append(f"{self.name} enters{scope}")
            assert tasks.add(1, 2) >> pool == 3
            if self.fails == "entering":
                raise ValueError("cannot enter")
            try:
                yield
            finally:
                assert tasks.add(1, 2) >> pool == 3
                happened.append(f"{self.name} leaves")
            if self.fails == "leaving":
                raise ValueError("cannot leave")

        return context()


@dataclass(frozen=True, slots=True, kw_only=True)
class First(Recorded):
    name = "first"
    fails: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Second(Recorded):
    name = "second"
    fails: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBlocks(sky.plugins.Plugin):
    """A plugin that records the contexts of blocks, with their threads."""

    name = "blocks"
    fails: str = ""

    @contextmanager
    def around_block(self, pool: sky.Compute) -> Iterator[None]:
        """Record entering and leaving; raise where `fails` says."""
        thread = threading.get_ident()
        assert current_pool.get() is pool
        happened.append("block")
        if self.fails == "entering":
            raise ValueError("cannot enter")
        yield
        assert threading.get_ident() == thread
        assert current_pool.get() is pool
        happened.append("end")
        if self.fails == "leaving":
            raise ValueError("cannot leave")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOtherBlocks(OfBlocks):
    name = "other blocks"


ENTERED = ["first enters in scope", "second enters in scope"]
LEFT = ["second leaves", "first leaves"]


def test_contexts_surround_a_block_and_are_left_in_reverse_order() -> None:
    with sky.Compute(provider="local", plugins=[First(), Second()]):
        assert happened == ENTERED
    assert happened == ENTERED + LEFT


def test_nested_block_enters_nothing_again() -> None:
    with sky.Compute(provider="local", plugins=[First()]) as pool:
        with pool, pool:
            pass
        assert happened == ENTERED[:1]
        assert pool.is_open
    assert happened == [ENTERED[0], LEFT[1]]


def test_pool_without_a_block_enters_them_out_of_scope() -> None:
    pool = sky.Compute(provider="local", plugins=[First()])
    pool.open()
    try:
        pool.open()
        with pool.open():  # closes it: it is the outermost block
            pass
    finally:
        pool.close()
    assert happened == ["first enters", "first leaves"]


def test_pool_that_is_opened_again_enters_them_again() -> None:
    pool = sky.Compute(provider="local", plugins=[First()])
    for _ in range(2):
        with pool:
            pass
    assert happened == [ENTERED[0], LEFT[1]] * 2


def test_async_block_enters_them_on_another_thread_out_of_scope() -> None:
    async def use() -> None:
        async with sky.Compute(provider="local", plugins=[First(), Second()]) as pool:
            assert happened == ["first enters", "second enters"]
            assert current_pool.get() is pool

    asyncio.run(use())
    assert happened[2:] == LEFT


def test_equal_plugins_of_several_groups_are_entered_once() -> None:
    groups = {
        "small": sky.Spec(provider="local", vcpus=1, plugins=[First(), Second()]),
        "large": sky.Spec(provider="local", vcpus=1, plugins=[Second(), First(fails="no")]),
    }
    with sky.Compute(groups=groups):
        assert happened == [*ENTERED, ENTERED[0]]


def test_error_of_entering_leaves_those_entered_and_closes_the_pool() -> None:
    pool = sky.Compute(provider="local", plugins=[First(), Second(fails="entering")])
    with pytest.raises(ValueError, match="cannot enter"), pool:
        pytest.fail("the block is not entered")
    assert happened == [*ENTERED, LEFT[1]]
    assert not pool.is_open
    assert not pool.is_scoped
    assert current_pool.get() is None
    assert pool not in opened


def test_error_of_leaving_leaves_the_others_and_closes_the_pool() -> None:
    pool = sky.Compute(provider="local", plugins=[First(), Second(fails="leaving")])
    with pytest.raises(ValueError, match="cannot leave"), pool:
        pass
    assert happened == ENTERED + LEFT
    assert not pool.is_open
    assert pool not in opened


def test_plugin_may_open_its_pool_again() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Again(sky.plugins.Plugin):
        name = "again"

        def around_pool(self, pool: sky.Compute) -> AbstractContextManager[None]:
            """Open the pool, which is ready."""
            assert pool.open().is_open
            return super(Again, self).around_pool(pool)

    with sky.Compute(provider="local", plugins=[Again()]) as pool:
        assert tasks.add(1, 2) >> pool == 3


# Around blocks.


def test_each_block_enters_contexts_of_its_own() -> None:
    pool = sky.Compute(provider="local", plugins=[OfBlocks()])
    pool.open()
    assert happened == []
    with pool:
        with pool:
            assert happened == ["block", "block"]
        assert happened == ["block", "block", "end"]
    assert happened == ["block", "block", "end", "end"]
    assert not pool.is_open


def test_block_leaves_its_contexts_on_its_thread_wherever_the_pool_is_closed() -> None:
    with sky.Compute(provider="local", plugins=[OfBlocks()]) as pool:
        closing = threading.Thread(target=pool.close)
        closing.start()
        closing.join()
        assert happened == ["block"]
    assert happened == ["block", "end"]


def test_block_that_outlives_that_of_the_opener_leaves_its_contexts_itself() -> None:
    opened_here, entered_here_too, left = threading.Event(), threading.Event(), threading.Event()

    def open_first() -> None:
        with pool:
            opened_here.set()
            entered_here_too.wait()
        left.set()

    pool = sky.Compute(provider="local", plugins=[OfBlocks()])
    opener = threading.Thread(target=open_first, daemon=True)
    opener.start()
    wait_for(opened_here.is_set, "the pool to open")
    with pool:
        entered_here_too.set()
        wait_for(left.is_set, "the opener to leave its block")
        assert pool.is_open
        assert happened == ["block", "block", "end"]
    opener.join()
    assert happened == ["block", "block", "end", "end"]
    assert not pool.is_open


def test_async_block_enters_no_contexts_of_blocks() -> None:
    async def use() -> None:
        async with sky.Compute(provider="local", plugins=[OfBlocks()]):
            pass

    asyncio.run(use())
    assert happened == []


def test_error_of_entering_a_block_leaves_the_others_and_closes_the_pool() -> None:
    pool = sky.Compute(provider="local", plugins=[First(), OfBlocks(), OfOtherBlocks(fails="entering")])
    with pytest.raises(ValueError, match="cannot enter"), pool:
        pytest.fail("the block is not entered")
    assert happened == [ENTERED[0], "block", "block", "end", LEFT[1]]
    assert not pool.is_open
    assert not pool.is_scoped
    assert current_pool.get() is None


def test_error_of_leaving_a_block_closes_the_pool() -> None:
    pool = sky.Compute(provider="local", plugins=[OfBlocks(fails="leaving")])
    with pytest.raises(ValueError, match="cannot leave"), pool:
        pass
    assert not pool.is_open
    assert not pool.is_scoped
    assert current_pool.get() is None
