"""`sky.barrier` and `sky.lock`."""

import asyncio
import threading
from typing import Any

from skyward.errors import LockLostError, SpecError
from skyward.task.collections.base import Collection, current_owner
from skyward.task.collections.counter_queue import _seconds as seconds
from skyward.wire.collections.requests import Backend

__all__ = ["Barrier", "Lock"]


class Barrier(Collection):
    """Where `n` parties wait for each other, again and again.

    It waits as long as it was told to. It survives the loss of any node but those of the parties: a party whose node
    is lost counts as there for 16 seconds at most, and who comes in its place counts for it.
    """

    kind = "barrier"

    def __init__(self, backend: Backend, name: str, n: int) -> None:
        super().__init__(backend, name)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise SpecError(f"Barrier {name!r} must be for 1 party or more, but got {n!r}.")
        self.n = n

    def wait(self, timeout: float | None = None) -> None:
        """Wait until `n` are waiting; then all of them go on.

        Raises:
            TimeoutError: they were not all there within `timeout` seconds. Who timed out counts no more.
            threading.BrokenBarrierError: it was reset meanwhile.
            SpecError: others wait at it for another number of parties.
        """
        timeout = seconds(timeout)
        self._judge(self._ask("wait", self.n, timeout), timeout)

    async def wait_async(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # it is of the synchronous form too
        """See `wait`."""
        timeout = seconds(timeout)
        self._judge(await self._ask_async("wait", self.n, timeout), timeout)

    def reset(self) -> None:
        """Send away those who wait: their `wait` raises `threading.BrokenBarrierError`."""
        self._ask("reset")

    async def reset_async(self) -> None:
        """See `reset`."""
        await self._ask_async("reset")

    def _judge(self, answer: tuple[str, int], timeout: float | None) -> None:
        why, there = answer
        if why == "late":
            raise TimeoutError(f"Barrier {self.name!r}: {there} of {self.n} were there after {timeout:g} s.")
        if why == "it was reset":
            raise threading.BrokenBarrierError(f"Barrier {self.name!r} was reset.")
        if why:
            raise SpecError(f"Barrier {self.name!r}: {why}.")

    def _settings(self) -> tuple[Any, ...]:
        return (self.n,)


class Lock(Collection):
    """Held by one at a time, among all nodes of a pool and the client. For a `with` block, or an `async with` block.

    It is given in the order in which it was asked for. Who holds it keeps it until `release`, or until the task ends
    that acquired it. It survives the loss of one of three nodes; that of the node which holds it frees it 20 seconds
    later. A process that is stopped for longer than that has lost it too, which `release` tells.

    It is held by the thread, or the asyncio task, that acquired it, which cannot acquire it twice.
    """

    kind = "lock"

    def __init__(self, backend: Backend, name: str, timeout: float | None = 30) -> None:
        super().__init__(backend, name)
        self.timeout = seconds(timeout)
        self._tokens: dict[object, int] = {}

    def with_timeout(self, timeout: float | None) -> "Lock":
        """The same lock, with another time to wait for it."""
        same = Lock(self._backend, self.name, timeout)
        same._tokens = self._tokens
        return same

    def acquire(self, timeout: float | None = -1) -> bool:
        """Hold it; True.

        Args:
            timeout: seconds to wait for it; None for as long as it takes; that of the lock if not given.

        Raises:
            TimeoutError: it was not free in time.
            RuntimeError: the caller holds it already.
        """
        me, timeout = self._claim(timeout)
        return self._acquired(me, self._ask("acquire", timeout), timeout)

    def release(self) -> None:
        """Let it go.

        Raises:
            RuntimeError: the caller does not hold it.
            LockLostError: the caller had lost it: another may have held it meanwhile.
        """
        self._released(self._ask("release", self._token()))

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def acquire_async(self, timeout: float | None = -1) -> bool:  # noqa: ASYNC109  # it is of the synchronous form too
        """See `acquire`."""
        me, timeout = self._claim(timeout)
        return self._acquired(me, await self._ask_async("acquire", timeout), timeout)

    async def release_async(self) -> None:
        """See `release`."""
        self._released(await self._ask_async("release", self._token()))

    async def __aenter__(self) -> "Lock":
        await self.acquire_async()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_async()

    def _claim(self, timeout: float | None) -> tuple[object, float | None]:
        me = _me()
        if me in self._tokens:
            raise RuntimeError(f"Lock {self.name!r} is held here already; it cannot be acquired twice.")
        return me, self.timeout if timeout == -1 else seconds(timeout)

    def _acquired(self, me: object, token: int, timeout: float | None) -> bool:
        if not token:
            raise TimeoutError(f"Lock {self.name!r} was not free within {timeout:g} s.")
        self._tokens[me] = token
        return True

    def _token(self) -> int:
        token = self._tokens.pop(_me(), None)
        if token is None:
            raise RuntimeError(f"Lock {self.name!r} is not held here.")
        return token

    def _released(self, held: bool) -> None:
        if not held:
            raise LockLostError(
                f"Lock {self.name!r} was lost before it was released: its process was not heard of for too long, or "
                "all nodes that kept it were gone, so another may have held it meanwhile."
            )

    def _settings(self) -> tuple[Any, ...]:
        return (self.timeout,)


def _me() -> object:
    """Who asks: the asyncio task, or else the thread; in which task of the pool."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return current_owner(), task or threading.get_ident()
