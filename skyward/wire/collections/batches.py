"""Batches of operations of one process on one actor: one message is in flight at a time; later steps share the next.

So a repeated message is recognised by its number alone, and many small operations cost little.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Batches"]


class Batches[S, A]:
    """Sends steps in order.

    Args:
        send: takes a message number, increasing by one, and steps; returns an answer for each step.
        most: maximum number of steps in one message.
        size: cost of a step.
        budget: maximum cost of one message; a single step may exceed it.
    """

    def __init__(
        self,
        send: Callable[[int, tuple[S, ...]], Awaitable[Sequence[A]]],
        most: int = 256,
        size: Callable[[S], int] = lambda _: 1,
        budget: int = 1024 * 1024,
    ) -> None:
        self._send = send
        self._most = most
        self._size = size
        self._budget = budget
        self._number = 0
        self._waiting: list[tuple[S, asyncio.Future[A]]] = []
        self._running: asyncio.Task[None] | None = None

    async def add(self, step: S) -> A:
        """Return the answer to `step`. The step happens even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting.append((step, answer))
        if self._running is None:
            self._running = loop.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next()
                self._number += 1
                try:
                    answers = await self._send(self._number, tuple(step for step, _ in batch))
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (_, future), answer in zip(batch, answers, strict=True):
                        if not future.done():
                            future.set_result(answer)
        finally:
            self._running = None
            for _, future in self._waiting:  # the loop is shutting down
                future.cancel()

    def _next(self) -> list[tuple[S, asyncio.Future[A]]]:
        cost = count = 0
        for step, _ in self._waiting[: self._most]:
            cost += self._size(step)
            if count and cost > self._budget:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch
