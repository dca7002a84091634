"""Bounded buffer of the last elements of a stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from skyward.frontends.calls import LockedCondition

__all__ = ["HEAVIEST", "MOST", "Elements", "counted", "weight"]

MOST = 100_000
"""Maximum number of elements of a stream that are kept: the last ones."""

HEAVIEST = 1 << 30
"""Maximum size in bytes of the kept elements, as `weight` counts it; the last element is kept whatever its size."""

_LEAST_FREED = 1024


class Elements:
    """The last elements of a stream, in order. Thread-safe.

    Args:
        most: maximum number of elements.
        heaviest: maximum size of the elements, bytes.
        on_drop: called once, by the thread that adds, when the first element is dropped.

    Attributes:
        count: number of elements that were added.
        is_over: True once the stream has ended.
    """

    def __init__(
        self, on_drop: Callable[[], object] = lambda: None, *, most: int = MOST, heaviest: int = HEAVIEST
    ) -> None:
        self._on_drop = on_drop
        self._most = most
        self._heaviest = heaviest
        self._kept: list[tuple[Any, int] | None] = []
        self._gone = 0  # number of leading entries of `_kept` that are dropped, and None
        self._bytes = 0
        self._changed = LockedCondition()
        self._watchers: list[Callable[[], object]] = []
        self.count = 0
        self.is_over = False

    def add(self, value: Any, nbytes: int) -> None:
        """Append an element of `nbytes` bytes, and drop the oldest ones as needed."""
        with self._changed.lock:
            had_dropped = self.dropped
            self._kept.append((value, nbytes))
            self.count += 1
            self._bytes += nbytes
            while self._length > self._most or (self._bytes > self._heaviest and self._length > 1):
                self._drop()
            starts_to_drop = bool(self.dropped) and not had_dropped
            self._notify()
        if starts_to_drop:
            self._on_drop()

    def finish(self) -> None:
        """Mark the end of the stream."""
        with self._changed.lock:
            self.is_over = True
            self._notify()

    @property
    def dropped(self) -> int:
        """Number of leading elements that were dropped."""
        return self.count - self._length

    def kept(self) -> list[Any]:
        """Return the elements that are kept, in order."""
        with self._changed.lock:
            return [entry[0] for entry in self._kept[self._gone :] if entry is not None]

    def wait(self, position: int) -> tuple[int, Any] | None:
        """Wait for the element at `position`, or the first kept one after it, and return both; None at the end."""
        with self._changed.lock:
            while (found := self._at(position)) is None and not self.is_over:
                self._changed.wait()
            return found

    def get(self, position: int) -> tuple[int, Any] | None:
        """Return the same as `wait` without waiting; None if there is no such element yet."""
        with self._changed.lock:
            return self._at(position)

    @contextmanager
    def watched(self, changed: Callable[[], object]) -> Iterator[None]:
        """Call `changed` within the context for each element and at the end, from the thread that adds them."""
        with self._changed.lock:
            self._watchers.append(changed)
        try:
            yield
        finally:
            with self._changed.lock:
                self._watchers.remove(changed)

    @property
    def _length(self) -> int:
        return len(self._kept) - self._gone

    def _at(self, position: int) -> tuple[int, Any] | None:
        position = max(position, self.dropped)
        if position >= self.count:
            return None
        entry = self._kept[self._gone + position - self.dropped]
        assert entry is not None, "only dropped entries are None"
        return position, entry[0]

    def _drop(self) -> None:
        entry = self._kept[self._gone]
        assert entry is not None, "only dropped entries are None"
        self._kept[self._gone] = None
        self._gone += 1
        self._bytes -= entry[1]
        if self._gone >= max(_LEAST_FREED, len(self._kept) // 2):
            del self._kept[: self._gone]
            self._gone = 0

    def _notify(self) -> None:
        self._changed.notify_all()
        for changed in self._watchers:
            changed()


def weight(value: object) -> int:
    """Return the size of an element in bytes: that of arrays, strings and bytes, also one level down in a container."""
    own = _own_weight(value)
    if isinstance(value, dict):
        return own + sum(_own_weight(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return own + sum(map(_own_weight, value))
    return own


def counted(number: int) -> str:
    """Return a number of elements as text."""
    return f"{number:,} element{'' if number == 1 else 's'}"


def _own_weight(value: object) -> int:
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    nbytes = getattr(value, "nbytes", 0)
    return nbytes if isinstance(nbytes, int) else 0
