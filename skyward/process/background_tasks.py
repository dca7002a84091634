"""Background tasks of one owner on its event loop.

asyncio keeps only a weak reference to a task, and `asyncio.TaskGroup` cancels all of its tasks when one fails and ends
with a block. The owners here live longer than any block, and one failed task must not end the others.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

__all__ = ["BackgroundTasks"]


class BackgroundTasks:
    """Tasks that are kept until they are done, and cancelled together.

    Example:
        >>> async def main():
        ...     tasks = BackgroundTasks()
        ...     tasks.spawn(asyncio.sleep(3600))
        ...     await tasks.cancel()
        ...     return len(tasks)
        >>> asyncio.run(main())
        0
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn[T](self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task on the running loop, and keep it until it is done."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self) -> None:
        """Cancel every task, and wait until all are done. Their exceptions are dropped. Idempotent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)
