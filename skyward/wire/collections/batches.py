"""Operations of one process on one actor: one message under way at a time, and what comes meanwhile goes in the next.

So a message that is sent again can be told from a new one by its number alone, and many small operations cost little.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Batches"]


class Batches[S, A]:
    """Sends steps, in their order.

    Args:
        send: takes a number, one higher each time, and steps; gives an answer for each of them.
        most: steps in one message.
        size: cost of a step.
        budget: cost of one message, unless a single step is more.
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
        """The answer to `step`. Given up, it happens all the same."""
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
            for _, future in self._waiting:  # the loop is ending
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
