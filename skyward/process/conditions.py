"""A condition that an interrupt cannot leave locked.

`Condition.__enter__` and `__exit__` of the standard library are Python functions around a lock. An interrupt (SIGINT,
or an exception that another thread raises in this one) between their steps leaves the lock held for ever, and whoever
notifies waits for ever. A `with` statement on the lock itself has no such steps.
"""

from threading import Condition, RLock  # tasks may replace the attributes of the module

__all__ = ["LockedCondition"]


class LockedCondition(Condition):
    """Condition with a reentrant lock. Enter `lock`, and not the condition itself.

    Attributes:
        lock: its lock.

    Example:
        >>> changed = LockedCondition()
        >>> with changed.lock:
        ...     changed.notify_all()
    """

    def __init__(self) -> None:
        self.lock = RLock()
        super().__init__(self.lock)

    def __enter__(self) -> bool:
        """Refuse: an interrupt could leave the lock held."""
        raise RuntimeError("Enter the lock of the condition: `with condition.lock:`.")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; return whether there was one. The lock is held afterwards, also if interrupted."""
        try:
            return super().wait(timeout)
        except BaseException:
            if not self._is_owned():  # type: ignore[attr-defined]  # interrupted right after the release
                self.lock.acquire()
            raise
