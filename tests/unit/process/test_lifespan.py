"""Opening and closing of a pool that overlap."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from skyward.errors import NodeStartError, PoolClosedError
from skyward.process.lifespan import Lifespan

pytestmark = pytest.mark.unit


async def nothing() -> None:
    """Release nothing."""


async def forever() -> None:
    await asyncio.Event().wait()


async def fail_once_cancelled() -> None:
    try:
        await forever()
    except asyncio.CancelledError:
        raise NodeStartError("no node") from None


def test_opening_that_another_caller_closes_is_refused() -> None:
    async def main() -> None:
        life = Lifespan("p", nothing, print)
        opening = asyncio.create_task(life.open(forever()))
        await asyncio.sleep(0)
        await life.close()
        with pytest.raises(PoolClosedError, match="^Pool 'p' was closed while it was opening.$"):
            await opening

    asyncio.run(main())


@pytest.mark.parametrize("open_nodes", [forever, fail_once_cancelled])
def test_cancelled_opening_ends_as_cancelled_even_if_the_pool_closes_meanwhile(
    open_nodes: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Otherwise the error, for which nobody waits, would be printed as one that was never retrieved."""

    async def main() -> None:
        life = Lifespan("p", nothing, print)
        opening = asyncio.create_task(life.open(open_nodes()))
        await asyncio.sleep(0)
        opening.cancel()
        await life.close()
        await asyncio.wait([opening])
        assert opening.cancelled()

    asyncio.run(main())
