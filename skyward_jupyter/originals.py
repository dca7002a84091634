"""The objects of the notebook that a cell took along, which take over what it changed in their copies."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

__all__ = ["Originals", "not_shared"]


_NO_LOCALS: Mapping[str, Any] = MappingProxyType({})


class Originals:
    """Finds the objects by their places in what was sent.

    Args:
        memos: of each pickle that was sent, the memo, which keeps its objects alive; None if it came packed.
        local: the variables of the function in which the cell is, that it took along: nothing can be bound to them.
        apart: names of values that share memory here, and not on the node; one name twice, if it is inside one.
    """

    def __init__(
        self,
        memos: Sequence[Any] = (),
        local: Mapping[str, Any] = _NO_LOCALS,
        apart: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.local = local
        self.apart = apart
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


def not_shared(names: tuple[str, str]) -> str:
    """The sentence about values of these names, which share memory here, and not on the node."""
    one, other = names
    if one == other:
        return (
            f"Arrays in {one} share memory here, and not on the node: what the cell changes in one of them does not "
            "show in the other. Make them in the cell."
        )
    return (
        f"{one} and {other} share memory here, and not on the node: what the cell changes in one of them does not show "
        f"in the other. Make {other} in the cell."
    )
