"""One pickle of values that refer to objects of the notebook, or to one another.

The pickle contains the values that the cell bound and, of each object of the notebook that it changed, the differences.
The objects themselves are replaced with references, which the notebook resolves to its own objects. Objects that the
cell did not change stay as they are in the notebook, whatever else it changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyward.errors import NotPicklableError
from skyward.kept.keep import stand_in
from skyward.wire.kinds.arrays import ArrayView, extent_of, shared_views, view_in
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.changes import Change, Location, Opaque
from skyward.wire.objects.mutability import is_fixed, is_plain, is_shared_visibly, parts_of
from skyward.wire.objects.pickling import Shared, objects_used, pack_shared
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.captured_objects import CapturedObjects, PartObjects
from skyward.worker.cells.differences import CONTAINERS, Changed, Differences

__all__ = ["Bound", "ObjectGraph", "PackedGraph", "groups"]


_MISSING = object()

_STEPS = frozenset({dict, tuple})
"""Types of intermediate objects in a pickle, such as the state of an object or the arguments of a call."""


@dataclass(frozen=True, slots=True)
class PackedGraph:
    """Values that refer to objects of the notebook, or to one another.

    Attributes:
        packed: by name, the values that the cell bound; for each object that it changed, its number among `seeds` and
            the changes; and the new objects that replace those in `given_up`.
        names: the names.
        seeds: the objects that the pickle refers to: the number of a captured part, and that of an object in it.
        replaced: captured names whose objects cannot be updated in place: they are rebound to new objects.
        given_up: the objects that cannot be updated in place, each with a stand-in for its original state.
    """

    packed: Packed
    names: tuple[str, ...] = ()
    seeds: tuple[tuple[int, int], ...] = ()
    replaced: tuple[str, ...] = ()
    given_up: tuple[tuple[Location, Opaque], ...] = ()


@dataclass(slots=True)
class Bound:
    """A value to return, packed on its own."""

    name: str
    value: Any
    shared: Shared
    objects: Mapping[int, tuple[int, Any]] = field(default_factory=dict)


def groups(bound: Sequence[Bound], captured: CapturedObjects, changed: Sequence[Changed]) -> list[list[Bound]]:
    """Return groups of values that share objects with one another or with the notebook."""
    leaders: dict[int, int] = {}

    def leader(each: int) -> int:
        while leaders.setdefault(each, each) != each:
            each = leaders[each]
        return each

    many = [each for each in bound if each.objects]
    notebook = -1
    owner_of: dict[int, int] = {}
    memory_of: dict[int, int] = {}
    if any(each.shared.arrays for each in many):
        memory_of = {id(extent_of(array).owner): notebook for part in captured.parts for _, array in part.arrays}
    for number, each in enumerate(many):
        ids = each.objects.keys()
        in_notebook = [ids & part.ids for part in captured.parts] + [ids & change.objects.keys() for change in changed]
        if any(is_shared_visibly(each.objects[key][1]) for keys in in_notebook for key in keys):
            leaders[leader(number)] = leader(notebook)
        for key in ids & owner_of.keys():
            if is_shared_visibly(each.objects[key][1]):
                leaders[leader(number)] = leader(owner_of[key])
        owner_of.update(dict.fromkeys(ids, number))
        for array in each.shared.arrays:
            owner = id(extent_of(array).owner)
            leaders[leader(number)] = leader(memory_of.setdefault(owner, number))
    found: dict[int, list[Bound]] = {}
    for number, each in enumerate(many):
        found.setdefault(leader(number), []).append(each)
    return [group for key, group in found.items() if len(group) > 1 or key == leader(notebook) or _has_views(group)]


def _has_views(group: list[Bound]) -> bool:
    return bool(shared_views(array for each in group for array in each.shared.arrays))


class ObjectGraph:
    """Values and changes that refer to one another and to objects of the notebook, packed in one pickle."""

    def __init__(
        self,
        side: CellEnd,
        captured: CapturedObjects,
        bound: Sequence[Bound],
        changed: Sequence[Changed],
        namespace: Mapping[str, Any],
    ) -> None:
        self._side = side
        self._captured = captured
        self._bound = bound
        self._changed = {each.number: each for each in changed}
        self._namespace = namespace
        self._detached: list[Shared] = []
        self._live: set[int] = set()
        for each in bound:
            self._live |= each.objects.keys()
        for change in changed:
            self._live |= change.objects.keys()
        self._memory = {id(extent_of(array).owner) for each in bound for array in each.shared.arrays}
        for change in changed:
            self._memory |= {id(extent_of(array).owner) for array in change.now.arrays}
        for change in changed:
            self._take_detached(self._captured.parts[change.number])
        self._differences = {each.number: Differences(each, captured.parts[each.number], side) for each in changed}
        self._places: dict[int, tuple[int, int]] = {}
        self._decided: dict[int, bool] = {}
        self._changes: dict[int, tuple[Any, tuple[Change, ...]]] = {}
        self._given_up: dict[int, tuple[Any, Location]] = {}

    def _take_detached(self, objects: PartObjects) -> None:
        """Include objects that no captured value refers to any more: the notebook may refer to them elsewhere."""
        detached = [
            each
            for each in objects.numbered.values()
            if id(each) not in self._live and type(each) not in _STEPS and not is_fixed(each)
        ]
        if not detached:
            return
        try:
            shared = pack_shared(detached, self._side, "a detached object")
        except NotPicklableError:
            return
        self._detached.append(shared)  # keeps the objects in `_live` alive
        self._live |= shared.objects().keys()

    def packed(self) -> PackedGraph | None:
        """Return the pickle; None if there are no values and no changes.

        Raises:
            NotPicklableError: the values cannot be pickled together, although each of them can be pickled alone.
        """
        self._find_changes()
        for part in range(len(self._captured.parts)):
            if part not in self._changed:
                for number, each in self._in_use(self._captured.parts[part]):
                    self._places.setdefault(id(each), (part, number))
        values = {each.name: each.value for each in self._bound}
        while True:
            self._decided.clear()
            self._give_up_holders()
            if self._give_up_absent():
                continue
            replaced = dict(self._replaced())
            changes = list(self._changes.values())
            if not (values or replaced or changes):
                return None
            replacements = [value for value, _ in self._given_up.values()]
            content = values | replaced, changes, replacements
            views = self._views()
            try:
                seeds = objects_used(content, self._side, "the values", self._is_in_notebook, views=views)
            except NotPicklableError:
                if not self._give_up_unpicklable():
                    raise
                continue
            numbers = {id(seed): number for number, seed in enumerate(seeds)}
            numbered = [(numbers[id(value)], found) for value, found in changes]
            packed = pack_shared(
                (values | replaced, numbered, replacements), self._side, "the values", views=views, seeds=seeds
            ).packed
            places = tuple(place for seed in seeds if (place := self._place_of(id(seed))) is not None)
            return PackedGraph(packed, (*values, *replaced), places, tuple(replaced), tuple(self._originals()))

    def _place_of(self, key: int) -> tuple[int, int] | None:
        """Return the part number and memo number of the object with this id; None if it is not the notebook's."""
        for part, differences in self._differences.items():
            number = differences.numbers.get(key)
            if number is not None and not self._is_class_of_other_part(self._captured.parts[part], number):
                return part, number
        return self._places.get(key)

    @staticmethod
    def _is_class_of_other_part(objects: PartObjects, number: int) -> bool:
        """Return whether an object is a class that belongs to another part."""
        value = objects.numbered[number]
        return isinstance(value, type) and id(value) not in objects.classes

    def _find_changes(self) -> None:
        for part, differences in self._differences.items():
            found = list(differences.found(self._live))
            for number, value, changes in found or differences.uncertain(self._live):
                if changes is None:
                    self._given_up[id(value)] = value, Location(part, number)
                else:
                    self._changes[id(value)] = value, changes
            changed = self._changes.keys() | self._given_up.keys()
            for number, value in differences.stale_keys(self._live, changed):
                self._changes[id(value)] = value, differences.whole(number, value) or ()

    def _give_up_holders(self) -> None:
        """Mark objects that contain a given-up object as changed; give up those that cannot be updated in place."""
        is_new = bool(self._given_up)
        while is_new:
            is_new = False
            for part, differences in self._differences.items():
                for number, value in differences.holders(self._live, self._given_up):
                    key = id(value)
                    if key in self._given_up or (key in self._changes and self._changes[key][1][0].form == "whole"):
                        continue
                    found = differences.whole(number, value)
                    if found is not None:
                        self._changes[key] = value, found
                    else:
                        self._changes.pop(key, None)
                        self._given_up[key] = value, Location(part, number)
                        is_new = True

    def _give_up_absent(self) -> bool:
        """Give up changed objects that are still packed in the notebook; return whether there were any."""
        absent = [(key, value) for key, (value, _) in self._changes.items() if not self._is_in_notebook(value)]
        for key, value in absent:
            del self._changes[key]
            if (place := self._place_of(key)) is not None:
                self._given_up[key] = value, Location(*place)
        return bool(absent)

    def _give_up_unpicklable(self) -> bool:
        """Give up objects whose contents cannot be pickled alone; return whether there were any."""
        found = False
        for key, (value, changes) in list(self._changes.items()):
            try:
                objects_used(changes, self._side, "the contents", self._is_in_notebook)
            except NotPicklableError:
                del self._changes[key]
                if (place := self._place_of(key)) is not None:
                    self._given_up[key] = value, Location(*place)
                found = True
        return found

    def _originals(self) -> Iterator[tuple[Location, Opaque]]:
        for _, place in self._given_up.values():
            yield place, self._differences[place.part].given_up(place.number)

    def _replaced(self) -> Iterator[tuple[str, Any]]:
        """Yield captured names whose objects cannot be updated in place, with their values."""
        for change in self._changed.values():
            for root, value in zip(change.part.roots, change.part.values, strict=True):
                if not isinstance(value, type) and not is_fixed(value) and not self._keeps_itself(value):
                    for name in root.names:
                        if self._namespace.get(name, _MISSING) is value:
                            yield name, value

    def _is_in_notebook(self, value: Any) -> bool:
        """Return whether the notebook has an object that a reference to `value` can resolve to."""
        key = id(value)
        place = self._place_of(key)
        if place is None:
            return False
        if key not in self._decided:
            self._decided[key] = self._can_stay(value, place[0])
        return self._decided[key]

    def _can_stay(self, value: Any, part: int) -> bool:
        objects = self._captured.parts[part]
        if is_plain(value) or id(value) in objects.private or stand_in(value) is not None:
            return False
        if type(value) not in CONTAINERS and is_fixed(value):
            return False
        if isinstance(value, type) and id(value) not in objects.classes:
            return False  # captured in another part
        return part not in self._changed or self._keeps_itself(value)

    def _in_use(self, objects: PartObjects) -> Iterable[tuple[int, Any]]:
        """Return the objects of an unchanged part that returned values refer to."""
        found = objects.among(self._live) if objects.ids & self._live else []
        viewed = [
            (number, array) for number, array in (objects.arrays if self._memory else ()) if self._is_viewed(array)
        ]
        return [*found, *viewed]

    def _is_viewed(self, value: Any) -> bool:
        """Return whether new arrays may be views of an array of the notebook."""
        return id(extent_of(value).owner) in self._memory

    def _keeps_itself(self, value: Any) -> bool:
        """Return whether the notebook's object equals `value` once the changes are applied in place."""
        if id(value) in self._side.packed_in_notebook:
            return False
        if not (self._given_up or self._side.packed_in_notebook) or stand_in(value) is not None:
            return True
        if id(value) in self._given_up:
            return False
        parts = None if type(value) in CONTAINERS or is_fixed(value) else parts_of(value)
        return parts is None or all(map(self._keeps_itself, parts))

    def _views(self) -> dict[int, ArrayView]:
        """Return, by id, the arrays that are views of the notebook's arrays or of one another."""
        arrays = {id(array): array for each in self._bound for array in each.shared.arrays}
        for change in self._changed.values():
            arrays |= {id(array): array for array in change.now.arrays}
        new = [array for array in arrays.values() if not self._is_in_notebook(array)]
        if not new:
            return {}
        owners = [
            each
            for objects in self._captured.parts
            for _, each in objects.arrays
            if self._is_in_notebook(each) and each.flags.c_contiguous and id(each) not in self._side.other_layout
        ]
        found: dict[int, ArrayView] = {}
        for array in new:
            view = view_in(array, owners)
            if view is not None:
                found[id(array)] = view
        for group in shared_views(array for array in new if id(array) not in found):
            found |= group
        return found
