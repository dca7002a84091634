"""`sky.barrier` and `sky.lock`."""

import asyncio
import threading
from typing import Any, Literal

from skyward.errors import LockLostError, SpecError
from skyward.task.collections.base import Collection, checked_timeout, current_owner
from skyward.wire.collections.requests import Backend, BarrierOutcome

__all__ = ["Barrier", "Lock"]


class Barrier(Collection):
    """A reusable barrier at which `n` parties wait for each other.

    It survives the loss of any node except those of the parties: a party whose node is lost still counts for at most
    16 seconds, and its replacement takes its place.

    Example:
        >>> gate = pool.barrier("gate", 1)
        >>> gate.wait()
    """

    kind = "barrier"

    def __init__(self, backend: Backend, name: str, n: int) -> None:
        super().__init__(backend, name)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise SpecError(f"Barrier {name!r} needs at least 1 party, but got {n!r}.")
        self.n = n

    def wait(self, timeout: float | None = None) -> None:
        """Wait until `n` parties are waiting; then all of them go on.

        Raises:
            TimeoutError: fewer than `n` parties arrived within `timeout` seconds. The caller no longer counts.
            threading.BrokenBarrierError: the barrier was reset meanwhile.
            SpecError: others wait at this barrier with another number of parties.
        """
        timeout = checked_timeout(timeout)
        self._check_outcome(self._ask("wait", self.n, timeout), timeout)

    async def wait_async(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in the synchronous form
        """Form of `wait` for coroutines."""
        timeout = checked_timeout(timeout)
        self._check_outcome(await self._ask_async("wait", self.n, timeout), timeout)

    def reset(self) -> None:
        """Reset the barrier: the `wait` of each waiting party raises `threading.BrokenBarrierError`."""
        self._ask("reset")

    async def reset_async(self) -> None:
        """Form of `reset` for coroutines."""
        await self._ask_async("reset")

    def _check_outcome(self, answer: tuple[BarrierOutcome, int], timeout: float | None) -> None:
        outcome, parties = answer
        match outcome:
            case "late":
                raise TimeoutError(
                    f"Barrier {self.name!r}: {parties} of {self.n} parties arrived within {timeout:g} s."
                )
            case "reset":
                raise threading.BrokenBarrierError(f"Barrier {self.name!r} was reset.")
            case "mismatch":
                raise SpecError(
                    f"Barrier {self.name!r}: this call asks for {self.n} parties, and the waiting ones for {parties}."
                )

    def _settings(self) -> tuple[Any, ...]:
        return (self.n,)


class Lock(Collection):
    """A lock for one holder at a time among all nodes of a pool and the client. Use it with `with` or `async with`.

    It is granted in the order of requests. The holder keeps it until `release`, or until the task that acquired it
    ends. It survives the loss of one of three nodes; the loss of the holder's node frees it after 20 seconds. A process
    that is suspended for longer than that has lost the lock too, and `release` raises.

    The holder is the thread or the asyncio task that acquired the lock. It is not reentrant.

    Example:
        >>> with pool.lock("file"):
        ...     print("only one holds it")
    """

    kind = "lock"

    def __init__(self, backend: Backend, name: str, timeout: float | None = 30) -> None:
        super().__init__(backend, name)
        self.timeout = checked_timeout(timeout)
        self._tokens: dict[object, int] = {}

    def with_timeout(self, timeout: float | None) -> "Lock":
        """Return the same lock, with another timeout."""
        same = Lock(self._backend, self.name, timeout)
        same._tokens = self._tokens
        return same

    def acquire(self, timeout: float | Literal["default"] | None = "default") -> bool:
        """Acquire the lock. Return True.

        Args:
            timeout: seconds to wait; None to wait without a limit; "default" for the lock's own timeout.

        Raises:
            TimeoutError: the lock was not free in time.
            RuntimeError: the caller holds it already.
            SpecError: `timeout` is negative, or not a number: unlike in `threading`, -1 is not "without a limit".
        """
        caller, timeout = self._claim(timeout)
        return self._acquired(caller, self._ask("acquire", timeout), timeout)

    def release(self) -> None:
        """Release the lock.

        Raises:
            RuntimeError: the caller does not hold it.
            LockLostError: the caller lost it before; another may have held it meanwhile.
        """
        self._released(self._ask("release", self._token()))

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def acquire_async(self, timeout: float | Literal["default"] | None = "default") -> bool:  # noqa: ASYNC109  # as in the synchronous form
        """Form of `acquire` for coroutines."""
        caller, timeout = self._claim(timeout)
        return self._acquired(caller, await self._ask_async("acquire", timeout), timeout)

    async def release_async(self) -> None:
        """Form of `release` for coroutines."""
        self._released(await self._ask_async("release", self._token()))

    async def __aenter__(self) -> "Lock":
        await self.acquire_async()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release_async()

    def _claim(self, timeout: float | Literal["default"] | None) -> tuple[object, float | None]:
        caller = _caller()
        if caller in self._tokens:
            raise RuntimeError(
                f"Lock {self.name!r} is already held by this thread or asyncio task, and it is not reentrant."
            )
        return caller, self.timeout if timeout == "default" else checked_timeout(timeout)

    def _acquired(self, caller: object, token: int, timeout: float | None) -> bool:
        if not token:
            raise TimeoutError(f"Lock {self.name!r} was not free within {timeout:g} s.")
        self._tokens[caller] = token
        return True

    def _token(self) -> int:
        token = self._tokens.pop(_caller(), None)
        if token is None:
            raise RuntimeError(f"Lock {self.name!r} is not held by this thread or asyncio task.")
        return token

    def _released(self, held: bool) -> None:
        if not held:
            raise LockLostError(
                f"Lock {self.name!r} was lost before it was released: its process did not renew it in time, or "
                "all nodes with a copy of it were lost, so another may have held it meanwhile."
            )

    def _settings(self) -> tuple[Any, ...]:
        return (self.timeout,)


def _caller() -> object:
    """Return the identity of the caller: its asyncio task or else its thread, and its task of the pool."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return current_owner(), task or threading.get_ident()
