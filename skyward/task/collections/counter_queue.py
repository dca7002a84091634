"""`sky.counter` and `sky.queue`."""

from typing import Any

from skyward.errors import SpecError
from skyward.task.collections.base import Collection, packed, unpacked

__all__ = ["Counter", "Queue"]


class Counter(Collection):
    """A number that the nodes of a pool, and the client, share. As large as it gets.

    Every change happens once, whole, and one after the other, `reset` included; a change that is sent again because a
    node was lost is not made twice. With "strong" consistency, the default, it survives the loss of one of three
    nodes; with "eventual", the last changes may be lost with the node that kept the counter.
    """

    kind = "counter"

    @property
    def value(self) -> int:
        """The number now."""
        return int(self._ask("value"))

    def increment(self, n: int = 1) -> int:
        """Add `n`; the number after it."""
        return int(self._ask("add", _whole(n)))

    def decrement(self, n: int = 1) -> int:
        """Take `n` away; the number after it."""
        return int(self._ask("add", -_whole(n)))

    def reset(self, value: int = 0) -> None:
        """Become `value`, whatever it was."""
        self._ask("reset", _whole(value))

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    async def value_async(self) -> int:
        """The number now."""
        return int(await self._ask_async("value"))

    async def increment_async(self, n: int = 1) -> int:
        """See `increment`."""
        return int(await self._ask_async("add", _whole(n)))

    async def decrement_async(self, n: int = 1) -> int:
        """See `decrement`."""
        return int(await self._ask_async("add", -_whole(n)))

    async def reset_async(self, value: int = 0) -> None:
        """See `reset`."""
        await self._ask_async("reset", _whole(value))


class Queue(Collection):
    """A queue that the nodes of a pool, and the client, share: first in, first out.

    An item that `put` has taken survives the loss of one of three nodes. Each goes to one `get`; if the node of that
    `get` is lost before the item has reached it, the item goes to another, half a minute later. Those who wait are
    served in the order in which they came.

    None is an item like any other, so `get` says with `default` that there was none.
    """

    kind = "queue"

    def put(self, item: object) -> None:
        """Append an item."""
        self._ask("put", packed(item, f"an item of {self.name}"))

    def get(self, timeout: float | None = None, default: Any = None) -> Any:
        """The next item. Waits for it, at most `timeout` seconds where that is given, and then gives `default`."""
        data = self._ask("get", _seconds(timeout))
        return default if data is None else unpacked(data)

    def empty(self) -> bool:
        """Whether there is no item now."""
        return len(self) == 0

    def __len__(self) -> int:
        return int(self._ask("size"))

    def __bool__(self) -> bool:
        """True: the collection is there, whether it has items or not. Ask `empty` for those."""
        return True

    async def put_async(self, item: object) -> None:
        """Append an item."""
        await self._ask_async("put", packed(item, f"an item of {self.name}"))

    async def get_async(self, timeout: float | None = None, default: Any = None) -> Any:  # noqa: ASYNC109  # it is of the synchronous form too
        """See `get`."""
        data = await self._ask_async("get", _seconds(timeout))
        return default if data is None else unpacked(data)

    async def empty_async(self) -> bool:
        """Whether there is no item now."""
        return await self.size_async() == 0

    async def size_async(self) -> int:
        """How many items there are."""
        return int(await self._ask_async("size"))


def _whole(number: int) -> int:
    if isinstance(number, int):
        return int(number)
    if hasattr(number, "__index__"):
        return int(number.__index__())
    raise SpecError(f"A counter counts in whole numbers, but got {number!r}.")


def _seconds(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)) or timeout != timeout or timeout < 0:
        raise SpecError(f"timeout must be seconds, or None to wait for as long as it takes, but got {timeout!r}.")
    return None if timeout == float("inf") else float(timeout)
