"""`sky.counter` and `sky.queue`."""

from typing import Any

from skyward.errors import SpecError
from skyward.task.collections.base import Collection, checked_timeout, packed, unpacked

__all__ = ["Counter", "Queue"]


class Counter(Collection):
    """An integer of any size that the nodes of a pool and the client share.

    Changes, including `reset`, are atomic, serialized and applied exactly once, also when a node is lost. With "strong"
    consistency, the default, the counter survives the loss of one of three nodes; with "eventual", the last changes may
    be lost with the node that stores it.

    Example:
        >>> steps = pool.counter("epochs")
        >>> steps.increment(10)
        >>> steps.value
    """

    kind = "counter"

    @property
    def value(self) -> int:
        """The current number."""
        return int(self._ask("value"))

    def increment(self, n: int = 1) -> int:
        """Add `n`. Return the new number."""
        return int(self._ask("add", _whole(n)))

    def decrement(self, n: int = 1) -> int:
        """Subtract `n`. Return the new number."""
        return int(self._ask("add", -_whole(n)))

    def reset(self, value: int = 0) -> None:
        """Set the number to `value`."""
        self._ask("reset", _whole(value))

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    async def value_async(self) -> int:
        """Return the current number."""
        return int(await self._ask_async("value"))

    async def increment_async(self, n: int = 1) -> int:
        """Form of `increment` for coroutines."""
        return int(await self._ask_async("add", _whole(n)))

    async def decrement_async(self, n: int = 1) -> int:
        """Form of `decrement` for coroutines."""
        return int(await self._ask_async("add", -_whole(n)))

    async def reset_async(self, value: int = 0) -> None:
        """Form of `reset` for coroutines."""
        await self._ask_async("reset", _whole(value))


class Queue(Collection):
    """A first-in, first-out queue that the nodes of a pool and the client share.

    An item is safe against the loss of one of three nodes once `put` returns. Each item goes to one `get`; if the node
    of that `get` is lost before the item arrives, another `get` receives it 30 seconds later. Waiting callers are
    served in order of arrival.

    None is a valid item; pass a `default` to `get` to recognise an empty queue.

    Example:
        >>> waiting = pool.queue("jobs")
        >>> waiting.put("a")
        >>> waiting.get(timeout=5)
    """

    kind = "queue"

    def put(self, item: object) -> None:
        """Append an item."""
        self._ask("put", packed(item, f"an item of {self.name}"))

    def get(self, timeout: float | None = None, default: Any = None) -> Any:
        """Return the next item. Wait at most `timeout` seconds, if given; then return `default`.

        Example:
            nothing = object()
            while (job := jobs.get(timeout=5, default=nothing)) is not nothing:
                process(job)  # also a job that is None
        """
        data = self._ask("get", checked_timeout(timeout))
        return default if data is None else unpacked(data)

    def empty(self) -> bool:
        """Return whether the queue has no items now."""
        return len(self) == 0

    def __len__(self) -> int:
        return int(self._ask("size"))

    def __bool__(self) -> bool:
        """True, with or without items, because the handle is not None. See `empty`."""
        return True

    async def put_async(self, item: object) -> None:
        """Append an item."""
        await self._ask_async("put", packed(item, f"an item of {self.name}"))

    async def get_async(self, timeout: float | None = None, default: Any = None) -> Any:  # noqa: ASYNC109  # as in the synchronous form
        """Form of `get` for coroutines."""
        data = await self._ask_async("get", checked_timeout(timeout))
        return default if data is None else unpacked(data)

    async def empty_async(self) -> bool:
        """Return whether the queue has no items now."""
        return await self.size_async() == 0

    async def size_async(self) -> int:
        """Return the number of items."""
        return int(await self._ask_async("size"))


def _whole(number: int) -> int:
    if isinstance(number, int):
        return int(number)
    if hasattr(number, "__index__"):
        return int(number.__index__())
    raise SpecError(f"A counter takes whole numbers, but got {number!r}.")
