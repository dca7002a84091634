"""Types of the collections that a node knows before it joins, so that it copies their values when it does."""

import asyncio
from itertools import product
from typing import Any

import pytest
from casty import ActorSystem

from skyward.wire.collections.hub import Hub, declare
from skyward.wire.collections.requests import CollectionRequest

pytestmark = pytest.mark.unit

OPERATIONS: list[tuple[Any, str, tuple[Any, ...]]] = [
    ("dict", "put", (b"key", b"value")),
    ("set", "add", (b"member",)),
    ("set", "size", ()),
    ("counter", "add", (1,)),
]


def test_all_types_that_collections_use_are_declared() -> None:
    async def scene() -> None:
        async with ActorSystem() as used:
            hub = Hub(used, lambda _: None)
            for (kind, verb, args), level in product(OPERATIONS, ("strong", "eventual")):
                await hub.perform(CollectionRequest(kind, level, verb, args, level))
            await hub.perform(CollectionRequest("queue", "q", "put", (b"x" * 2**18,)))
            await hub.perform(CollectionRequest("lock", "l", "acquire", (0.0,)))
            await hub.perform(CollectionRequest("barrier", "b", "wait", (1, 0.0)))
            hub.close()
            needed = set(used.stats().actors)
        declared = ActorSystem()
        declare(declared)
        async with declared:
            assert needed <= set(declared.stats().actors)

    asyncio.run(scene())
