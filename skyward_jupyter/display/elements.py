"""The elements of a stream that are kept: the last ones, up to a number and a size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any

__all__ = ["HEAVIEST", "MOST", "Elements", "counted", "weight"]

MOST = 100_000
"""Elements of a stream that are kept, the last ones."""

HEAVIEST = 1 << 30
"""Bytes of a stream that are kept, as far as `weight` sees them; the last element is kept whatever it weighs."""

_LEAST_FREED = 1024


class Elements:
    """The last elements of a stream, in order. It may be used from any thread.

    Args:
        most: elements that are kept.
        heaviest: bytes that are kept.
        on_drop: called once, by the thread that adds, as soon as an element is not kept any more.

    Attributes:
        count: how many elements there were.
        is_over: whether no more will come.
    """

    def __init__(
        self, on_drop: Callable[[], object] = lambda: None, *, most: int = MOST, heaviest: int = HEAVIEST
    ) -> None:
        self._on_drop = on_drop
        self._most = most
        self._heaviest = heaviest
        self._kept: list[tuple[Any, int] | None] = []
        self._gone = 0  # so many of `_kept`, the first ones, are dropped, and None
        self._bytes = 0
        self._changed = Condition()
        self._watchers: list[Callable[[], object]] = []
        self.count = 0
        self.is_over = False

    def add(self, value: Any, nbytes: int) -> None:
        """Keep an element that weighs `nbytes`, and drop the oldest ones as needed."""
        with self._changed:
            had_dropped = self.dropped
            self._kept.append((value, nbytes))
            self.count += 1
            self._bytes += nbytes
            while self._length > self._most or (self._bytes > self._heaviest and self._length > 1):
                self._drop()
            starts_to_drop = bool(self.dropped) and not had_dropped
            self._tell()
        if starts_to_drop:
            self._on_drop()

    def finish(self) -> None:
        """No more will come."""
        with self._changed:
            self.is_over = True
            self._tell()

    @property
    def dropped(self) -> int:
        """How many elements, the first ones, are not kept any more."""
        return self.count - self._length

    def kept(self) -> list[Any]:
        """The elements that are kept, in order."""
        with self._changed:
            return [entry[0] for entry in self._kept[self._gone :] if entry is not None]

    def wait(self, position: int) -> tuple[int, Any] | None:
        """The element at `position`, or the first one behind it that is kept, once there is one; None at the end."""
        with self._changed:
            while (found := self._at(position)) is None and not self.is_over:
                self._changed.wait()
            return found

    def get(self, position: int) -> tuple[int, Any] | None:
        """As `wait`, but None where there is no such element yet."""
        with self._changed:
            return self._at(position)

    @contextmanager
    def watched(self, changed: Callable[[], object]) -> Iterator[None]:
        """Inside, `changed` is called for each element and at the end, by the thread that adds them."""
        with self._changed:
            self._watchers.append(changed)
        try:
            yield
        finally:
            with self._changed:
                self._watchers.remove(changed)

    @property
    def _length(self) -> int:
        return len(self._kept) - self._gone

    def _at(self, position: int) -> tuple[int, Any] | None:
        position = max(position, self.dropped)
        if position >= self.count:
            return None
        entry = self._kept[self._gone + position - self.dropped]
        assert entry is not None, "what is not dropped is there"
        return position, entry[0]

    def _drop(self) -> None:
        entry = self._kept[self._gone]
        assert entry is not None, "what is not dropped is there"
        self._kept[self._gone] = None
        self._gone += 1
        self._bytes -= entry[1]
        if self._gone >= max(_LEAST_FREED, len(self._kept) // 2):
            del self._kept[: self._gone]
            self._gone = 0

    def _tell(self) -> None:
        self._changed.notify_all()
        for changed in self._watchers:
            changed()


def weight(value: object) -> int:
    """Bytes of an element, as far as arrays, texts and bytes show them, also one level down in a container."""
    own = _own_weight(value)
    if isinstance(value, dict):
        return own + sum(_own_weight(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return own + sum(map(_own_weight, value))
    return own


def counted(number: int) -> str:
    """A number of elements, in words."""
    return f"{number:,} element{'' if number == 1 else 's'}"


def _own_weight(value: object) -> int:
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    nbytes = getattr(value, "nbytes", 0)
    return nbytes if isinstance(nbytes, int) else 0
