"""The objects of the notebook that a cell took along, which take over what it changed in their copies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from skyward.wire.objects.changes import Likeness, Location, number_to_compare
from skyward.wire.objects.notebook import Side, digest_of

__all__ = ["Originals", "not_shared"]

_NO_LOCALS: Mapping[str, Any] = MappingProxyType({})

_MISSING = object()


class Originals:
    """Finds the objects by their places in what was sent.

    Args:
        memos: of each pickle that was sent, the memo, which keeps its objects alive; None if it came packed.
        local: the variables of the function in which the cell is, that it took along: nothing can be bound to them.
        apart: names of values that share memory here, and not on the node; one name twice, if it is inside one.
        roots: of each pickle, its values by their names.
        names: the values of names that the cell takes along or unbinds, as they were.
        as_sent: of each pickle, what tells whether its objects are still what was sent, but for memory of arrays.
    """

    def __init__(
        self,
        memos: Sequence[Any] = (),
        local: Mapping[str, Any] = _NO_LOCALS,
        apart: Sequence[tuple[str, str]] = (),
        roots: Sequence[Mapping[str, Any]] = (),
        names: Mapping[str, Any] | None = None,
        as_sent: Sequence[Callable[[], bool]] = (),
    ) -> None:
        self.local = local
        self.apart = apart
        self._memos = memos
        self._roots = roots
        self._names = names
        self._as_sent = as_sent
        self._known_as_sent: dict[int, bool] = {}
        self._objects: dict[int, dict[int, Any]] = {}
        self._numbers: dict[int, dict[int, int]] = {}

    def at(self, places: Iterable[tuple[int, int]]) -> list[Any]:
        """The objects at `places`: the number of a pickle, and that of an object in it."""
        return [self._part(part)[number] for part, number in places]

    def is_bound_as_before(self, name: str, user_ns: Mapping[str, Any]) -> bool:
        """Whether a name stands for what it stood for when the cell was sent, or for nothing now."""
        here = user_ns.get(name, _MISSING)
        return self._names is None or here is _MISSING or here is self._names.get(name, _MISSING)

    def names_of(self, value: Any, part: int) -> list[str]:
        """The names under which an object was sent, or under which those were that it travelled with."""
        roots = self._roots[part] if part < len(self._roots) else {}
        return [name for name, root in roots.items() if root is value] or list(roots)

    def is_name_of(self, name: str, value: Any) -> bool:
        """Whether a name stood for an object."""
        return any(roots.get(name, _MISSING) is value for roots in self._roots)

    def is_root(self, value: Any, part: int) -> bool:
        """Whether any name stood for an object."""
        return part < len(self._roots) and any(root is value for root in self._roots[part].values())

    def has(self, holder: Any) -> bool:
        """Whether it is one of these collections, and none of the notebook's."""
        ours = (*self._roots, self._names, *self._objects.values(), *self._numbers.values())
        return any(holder is each for each in ours)

    def is_as_sent(self, part: int) -> bool:
        """Whether the objects of a pickle are what was sent. To be asked before anything is put into them."""
        if part not in self._known_as_sent:
            self._known_as_sent[part] = part < len(self._as_sent) and self._as_sent[part]()
        return self._known_as_sent[part]

    def likeness(self, part: int, side: Side) -> Likeness:
        """What compares values of the notebook with what stands for values of a pickle."""

        def number_of(value: Any) -> int | None:
            return number_to_compare(self._numbers_in(part), value)

        def original(place: Location) -> Any:
            return self._part(place.part)[place.number]

        return Likeness(original, partial(digest_of, side=side, number_of=number_of, content_of=lambda view: view))

    def release(self) -> None:
        """Keep nothing alive any more: the cell is over."""
        self._memos = self._roots = self._as_sent = ()
        self._names = None
        self._objects.clear()
        self._numbers.clear()

    def _part(self, part: int) -> dict[int, Any]:
        if part not in self._objects:
            self._objects[part] = dict(self._memos[part].copy().values())
        return self._objects[part]

    def _numbers_in(self, part: int) -> dict[int, int]:
        if part not in self._numbers:
            self._numbers[part] = {id(value): number for number, value in self._part(part).items()}
        return self._numbers[part]


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
