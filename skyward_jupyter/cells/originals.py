"""The notebook's objects that a cell captured, to which its changes are applied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from skyward.frontends.cells import CellEnd, Location, StandInComparison, digest_of, number_to_compare

__all__ = ["Originals", "not_shared"]

_NO_LOCALS: Mapping[str, Any] = MappingProxyType({})

_MISSING = object()


class Originals:
    """Access to the captured objects by their places in the pickles.

    Args:
        memos: the memo of each pickle, which keeps its objects alive; None for a value that was already packed.
        local: captured variables of the function that the cell is in: these cannot be rebound.
        apart: pairs of names whose values share memory here, but not on the node; one name twice for sharing inside it.
        roots: for each pickle, its values by their names.
        names: the values of names that the cell captured or unbinds, when it was sent.
        as_sent: for each pickle, returns whether its objects are still as they were sent, except memory of arrays.
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
        """Return the objects at `places`: the number of a pickle, and the memo number of an object in it."""
        return [self._part(part)[number] for part, number in places]

    def is_bound_as_before(self, name: str, user_ns: Mapping[str, Any]) -> bool:
        """Return whether a name is unbound, or bound to the same object as when the cell was sent."""
        here = user_ns.get(name, _MISSING)
        return self._names is None or here is _MISSING or here is self._names.get(name, _MISSING)

    def names_of(self, value: Any, part: int) -> list[str]:
        """Return the names of a captured object, or the names of the values in the same pickle."""
        roots = self._roots[part] if part < len(self._roots) else {}
        return [name for name, root in roots.items() if root is value] or list(roots)

    def is_name_of(self, name: str, value: Any) -> bool:
        """Return whether `value` was captured under this name."""
        return any(roots.get(name, _MISSING) is value for roots in self._roots)

    def is_root(self, value: Any, part: int) -> bool:
        """Return whether `value` was captured under any name."""
        return part < len(self._roots) and any(root is value for root in self._roots[part].values())

    def has(self, holder: Any) -> bool:
        """Return whether `holder` is a collection of this object, and not of the notebook."""
        ours = (*self._roots, self._names, *self._objects.values(), *self._numbers.values())
        return any(holder is each for each in ours)

    def is_as_sent(self, part: int) -> bool:
        """Return whether the objects of a pickle are still as they were sent. Call before any change is applied."""
        if part not in self._known_as_sent:
            self._known_as_sent[part] = part < len(self._as_sent) and self._as_sent[part]()
        return self._known_as_sent[part]

    def likeness(self, part: int, side: CellEnd) -> StandInComparison:
        """Return a comparison of the notebook's values with stand-ins for values of a pickle."""

        def number_of(value: Any) -> int | None:
            return number_to_compare(self._numbers_in(part), value)

        def original(place: Location) -> Any:
            return self._part(place.part)[place.number]

        return StandInComparison(
            original, partial(digest_of, side=side, number_of=number_of, content_of=lambda view: view)
        )

    def release(self) -> None:
        """Drop all references once the cell has ended. Idempotent."""
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
    """Return a notice about values that share memory here, but not on the node."""
    one, other = names
    if one == other:
        return (
            f"Arrays in {one} share memory here, but not on the node: a change of one of them in the cell does not "
            "show in the other. Create them in the cell."
        )
    return (
        f"{one} and {other} share memory here, but not on the node: a change of one of them in the cell does not show "
        f"in the other. Create {other} in the cell."
    )
