"""The objects of the notebook that a cell took along, which take over what it changed in their copies."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

__all__ = ["Originals"]


_NO_LOCALS: Mapping[str, Any] = MappingProxyType({})


class Originals:
    """Finds the objects by their places in what was sent.

    Args:
        memos: of each pickle that was sent, the memo, which keeps its objects alive; None if it came packed.
        local: the variables of the function in which the cell is, that it took along: nothing can be bound to them.
    """

    def __init__(self, memos: Sequence[Any] = (), local: Mapping[str, Any] = _NO_LOCALS) -> None:
        self.local = local
        self._memos = memos
        self._objects: dict[int, dict[int, Any]] = {}

    def at(self, places: Iterable[tuple[int, int]]) -> list[Any]:
        """The objects at `places`: the number of a pickle, and that of an object in it."""
        return [self._part(part)[number] for part, number in places]

    def release(self) -> None:
        """Keep nothing alive any more: the cell is over."""
        self._memos = ()
        self._objects.clear()

    def _part(self, part: int) -> dict[int, Any]:
        if part not in self._objects:
            self._objects[part] = dict(self._memos[part].copy().values())
        return self._objects[part]
