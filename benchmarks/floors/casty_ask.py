"""Floor of a call: a bare casty ask, awaited from another thread. Run as a module, it is the serving process."""

import asyncio
import sys
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from casty import ActorSystem, Askable, Client, Cluster, Context, Runtime, actor

from benchmarks.floors.process import Served

__all__ = ["CastyAsk"]


@dataclass(frozen=True)
class Ping(Askable[int]):
    """A question with the answer 1."""

    number: int = 0


@actor(pinned=True, initial=0, idle_after=timedelta(days=1))
async def answering(ctx: Context[int, Ping]) -> None:
    """Answer at once."""
    async for message in ctx.inbox:
        message.reply_to.tell(1)


class CastyAsk:
    """One process to ask, and a loop on a thread to ask from, for a `with` block.

    Args:
        served: the process; None starts one.
        dial: address to connect to; empty for that of the process.
    """

    def __init__(self, served: Served | None = None, dial: str = "") -> None:
        self._served = served or Served("casty_ask")
        address, way = self._served.address, dial or self._served.address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = Client(
            seeds=(way,),
            address_map=lambda wanted: way if wanted == address else wanted,
            runtime=Runtime(threads=1),
            observer=_ignore,
        )
        self._run(self._enter())
        self._ref = self._client.ref(answering, "floor", at=self._served.address)

    async def _enter(self) -> None:
        await self._client.__aenter__()

    async def _exit(self) -> None:
        await self._client.__aexit__(None, None, None)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def ask(self) -> int:
        """Ask, and wait for the answer."""
        return asyncio.run_coroutine_threadsafe(self._ask(), self._loop).result()

    async def _ask(self) -> int:
        return await self._ref.ask(Ping())

    def many(self, number: int, window: int) -> None:
        """Ask `count` times, with a window of pending questions."""
        self._run(self._many(number, window))

    async def _many(self, number: int, window: int) -> None:
        gate = asyncio.Semaphore(window)

        async def one() -> None:
            async with gate:
                await self._ref.ask(Ping())

        await asyncio.gather(*(one() for _ in range(number)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._exit())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._served.__exit__()


def _ignore(_: object) -> None:
    """Collects reports of the engine."""


async def _serve() -> None:
    cluster = Cluster(bind="127.0.0.1:0")
    async with ActorSystem(cluster=cluster, runtime=Runtime(threads=1), observer=_ignore) as system:
        print(system.node.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    from benchmarks.floors.casty_ask import _serve as serve  # the actor must have the name that the client uses

    asyncio.run(serve())
