"""One pickle of values that refer to objects of the notebook, or to one another.

The pickle contains the values that the cell bound and, of each object of the notebook that it changed, the differences.
The objects themselves are replaced with references, which the notebook resolves to its own objects. Objects that the
cell did not change stay as they are in the notebook, whatever else it changed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from skyward.errors import NotPicklableError
from skyward.kept.keep import stand_in
from skyward.wire.kinds.arrays import View, arrays_owned_by, extent_of, is_array, is_inside_frame, shared_views, view_in
from skyward.wire.objects.changes import (
    Change,
    Comparison,
    Location,
    Opaque,
    array_change,
    has_own_hash,
    number_to_compare,
)
from skyward.wire.objects.contents import (
    all_attributes,
    attributes_in,
    contents_of,
    is_fixed,
    is_plain,
    is_shared_visibly,
    parts_of,
)
from skyward.wire.objects.notebook import CellEnd, Shared, digest_of, objects_used, pack_shared
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.captured import Captured, Part
from skyward.worker.cells.write_detection import address_of

__all__ = ["Bound", "Changed", "Homes", "ObjectGraph", "Together", "groups"]

_MISSING = object()
_CONTAINERS = frozenset({list, dict, set})
_COMPARED = frozenset({list, dict})
"""Types with possibly very many objects, which are compared directly."""
_FIRM = frozenset({tuple, frozenset})
_STEPS = frozenset({dict, tuple})
"""Types of intermediate objects in a pickle, such as the state of an object or the arguments of a call."""


@dataclass(frozen=True, slots=True)
class Together:
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


@dataclass(slots=True)
class Changed:
    """A captured part that the cell has changed."""

    number: int
    part: Part
    now: Shared
    nbytes: int
    objects: Mapping[int, tuple[int, Any]]


class Homes:
    """The notebook's objects on this node, by part; empty if the cell only has copies of them."""

    def __init__(self, captured: Captured | None) -> None:
        self.parts = [] if captured is None else list(map(Objects, captured.parts))


class Objects:
    """The objects of one part, enumerated lazily: there may be very many."""

    def __init__(self, part: Part) -> None:
        self.part = part

    @cached_property
    def numbered(self) -> dict[int, Any]:
        """The objects by their memo numbers."""
        return self.part.objects()

    @cached_property
    def ids(self) -> set[int]:
        """The ids of the objects."""
        return set(map(id, self.numbered.values()))

    @cached_property
    def classes(self) -> set[int]:
        """The ids of the classes that were captured in this part."""
        return {id(value) for value in self.part.values if isinstance(value, type)}

    @cached_property
    def arrays(self) -> list[tuple[int, Any]]:
        """The arrays with their numbers, without private ones, such as the arrays inside a data frame."""
        kinds = set(map(type, self.numbered.values()))
        if not any(kind.__name__ == "ndarray" for kind in kinds):
            return []
        found = [(number, each) for number, each in self.numbered.items() if is_array(each)]
        private = self.private
        return [(number, each) for number, each in found if id(each) not in private]

    @cached_property
    def private(self) -> set[int]:
        """The ids of arrays that belong to other objects, such as data frames."""
        kinds = {kind for kind in set(map(type, self.numbered.values())) if is_inside_frame(kind)}
        if not kinds:
            return set()
        inside = [each for each in self.numbered.values() if type(each) in kinds]
        owners = {id(extent_of(array).owner) for each in inside for array in arrays_owned_by(each)}
        arrays = [each for each in self.numbered.values() if is_array(each)]
        return {id(each) for each in arrays if id(extent_of(each).owner) in owners}

    def among(self, ids: Collection[int]) -> list[tuple[int, Any]]:
        """Return the objects with these ids, with their numbers."""
        return [(number, each) for number, each in self.numbered.items() if id(each) in ids]


def groups(bound: Sequence[Bound], homes: Homes, changed: Sequence[Changed]) -> list[list[Bound]]:
    """Return groups of values that share objects with one another or with the notebook."""
    leaders: dict[int, int] = {}

    def leader(each: int) -> int:
        while leaders.setdefault(each, each) != each:
            each = leaders[each]
        return each

    many = [each for each in bound if each.objects]
    home = -1
    owner_of: dict[int, int] = {}
    memory_of: dict[int, int] = {}
    if any(each.shared.arrays for each in many):
        memory_of = {id(extent_of(array).owner): home for part in homes.parts for _, array in part.arrays}
    for number, each in enumerate(many):
        ids = each.objects.keys()
        at_home = [ids & part.ids for part in homes.parts] + [ids & change.objects.keys() for change in changed]
        if any(is_shared_visibly(each.objects[key][1]) for keys in at_home for key in keys):
            leaders[leader(number)] = leader(home)
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
    return [group for key, group in found.items() if len(group) > 1 or key == leader(home) or _has_views(group)]


def _has_views(group: list[Bound]) -> bool:
    return bool(shared_views(array for each in group for array in each.shared.arrays))


class Differences:
    """The changes of a cell to the objects of one part."""

    def __init__(self, changed: Changed, objects: Objects, side: CellEnd) -> None:
        self._objects = objects
        self._side = side
        self._part = changed.number
        self._memory = changed.part.memory()
        fresh = changed.part.reopened(side)
        self._before: Mapping[int, Any] = {} if fresh is None else fresh.objects()
        self._other = side if fresh is None or fresh.other is None else fresh.other
        self.numbers = {id(each): number for number, each in objects.numbered.items()}
        self._names = _without(self.numbers, objects.private)
        numbers_before = {id(each): number for number, each in self._before.items()}
        self._names_before = _without(numbers_before, set() if fresh is None else Objects(fresh).private)
        self._comparison = Comparison(changed.number, self._names, self._names_before, self)

    def found(self, live: Collection[int]) -> Iterator[tuple[int, Any, tuple[Change, ...] | None]]:
        """Yield the changed objects with numbers and changes; None for changes that cannot be applied in place."""
        private, before, is_same = self._objects.private, self._before, self._comparison.is_same
        for number, value in self._objects.numbered.items():
            kind = type(value)
            if is_plain(value) or (kind in _COMPARED and number in before and is_same(value, before[number])):
                continue
            key = id(value)
            if key not in live or key in private or self.numbers[key] != number:
                continue
            if stand_in(value) is not None or (
                kind not in _CONTAINERS and (is_fixed(value) or not self._is_open(value))
            ):
                continue
            if isinstance(value, type) and key not in self._objects.classes:
                continue  # captured in another part
            changes = self._of(number, value)
            if changes and key in self._side.unopened_at_home:
                changes = None
            if changes != ():
                yield number, value, changes

    def uncertain(self, live: Collection[int]) -> Iterator[tuple[int, Any, tuple[Change, ...]]]:
        """Yield the objects that can only be compared by their reduced form, as if all had changed.

        For a part that has changed although no object of it seems to have: no change may be lost.
        """
        for number, value in self._objects.numbered.items():
            key, kind = id(value), type(value)
            if kind in _CONTAINERS or is_array(value) or attributes_in(value) is not None or isinstance(value, type):
                continue
            if key in live and not is_fixed(value) and self._is_open(value) and (changes := self.whole(number, value)):
                yield number, value, changes

    def _is_open(self, value: Any) -> bool:
        return parts_of(value) is None or bool(all_attributes(value))

    def _of(self, number: int, value: Any) -> tuple[Change, ...] | None:
        """Return the changes of an object; None if they cannot be applied in place."""
        if number not in self._before:
            contents = contents_of(value)
            return None if contents is None else (Change("whole", contents, Opaque(None)),)
        before = self._before[number]
        if is_array(value) and not value.dtype.hasobject:
            return self._of_array(value, before)
        if type(value) not in _COMPARED and self._comparison.is_same(value, before):
            return ()
        return self._comparison.between(value, before)

    def whole(self, number: int, value: Any) -> tuple[Change, ...] | None:
        """Return the whole contents of an object as one change; None if it cannot be applied in place."""
        if parts_of(value) is not None:
            return None
        return self._comparison.whole(value, self._before.get(number))

    def _of_array(self, value: Any, before: Any) -> tuple[Change, ...]:
        extent, address = extent_of(value), None
        is_as_it_was = _layout(value) == _layout(before)
        span = self._memory.at(extent.start, extent.end)
        if span is not None and is_as_it_was and extent.start == extent_of(before).start:
            if not span.is_written or not value.size:
                return ()
            memory = span.before()
            if memory is not None and value.itemsize:
                found = array_change(value, memory, span.start)
                return () if found is None else (found,)
            is_all = value.flags.c_contiguous and (extent.start, extent.end) == (span.start, span.end)
            address = span.address if is_all and id(value) not in self._side.relaid else None
        elif not value.size and is_as_it_was:
            return ()
        contents = contents_of(value)
        return () if contents is None else (Change("whole", contents, Opaque(address)),)

    def holders(self, live: Collection[int], given_up: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Yield the objects that contain one of `given_up` directly, or in a tuple."""
        for number, value in self._objects.numbered.items():
            kind = type(value)
            if is_plain(value) or id(value) not in live or id(value) in self._objects.private:
                continue
            if kind not in _CONTAINERS and is_fixed(value):
                continue
            if isinstance(value, type) and id(value) not in self._objects.classes:
                continue
            if id(value) not in given_up and _contains(_inside(value), given_up, self.numbers):
                yield number, value

    def stale_keys(self, live: Collection[int], changed: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Yield unchanged dicts and sets whose keys have new hashes, because they were removed and inserted again."""
        numbered = self._objects.numbered
        kinds = {key: type(numbered[self.numbers[key]]) for key in changed if key in self.numbers}
        hashed = {key for key, kind in kinds.items() if has_own_hash(kind)}
        for number, value in numbered.items() if hashed else ():
            if isinstance(value, (dict, set)) and id(value) in live and id(value) not in changed:
                keys = list(value)
                with suppress(Exception):  # user code
                    if _contains(keys, hashed, self.numbers) and all(key in value for key in keys):
                        yield number, value

    def given_up(self, number: int) -> Opaque:
        """Return a stand-in for the original state of an object that cannot be updated in place."""
        return self._comparison.opaque(self._before.get(number))

    def now(self, value: Any) -> bytes | None:
        """Return a digest of the current value."""
        return digest_of(value, self._side, partial(_number_in, self._names), self._name_of_bytes)

    def before(self, value: Any) -> bytes | None:
        """Return a digest of the original value, comparable with those from `now`."""
        return digest_of(value, self._other, partial(_number_in, self._names_before), self._name_of_bytes)

    def as_sent(self, value: Any) -> bytes | None:
        """Return a digest of the original value, comparable with one from the notebook."""
        return digest_of(value, self._other, partial(number_to_compare, self._names_before), self._bytes_before)

    def _name_of_bytes(self, view: memoryview) -> bytes | memoryview | None:
        """Return a key for the bytes of a buffer; None if they were written to."""
        start = address_of(view)
        span = self._memory.at(start, start + view.nbytes)
        if span is None:
            return view
        return None if span.is_written else f"{start} {view.nbytes}".encode()

    def _bytes_before(self, view: memoryview) -> bytes | memoryview | None:
        """Return the original bytes of a buffer; None if no copy exists."""
        start = address_of(view)
        span = self._memory.at(start, start + view.nbytes)
        if span is None or not span.is_written:
            return view
        before = span.before()
        return None if before is None else memoryview(before)[start - span.start :][: view.nbytes]


def _inside(value: Any) -> Any:
    """Return the objects that an object refers to in its pickle."""
    parts = None if type(value) in _CONTAINERS else parts_of(value)
    if parts is not None:
        return tuple(parts)
    contents = contents_of(value)
    return value.__reduce_ex__(5) if contents is None else contents.parts


def _layout(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.flags.writeable


def _without(numbers: Mapping[int, int], private: Collection[int]) -> Mapping[int, int]:
    return {key: number for key, number in numbers.items() if key not in private} if private else numbers


def _number_in(numbers: Mapping[int, int], value: Any) -> int | None:
    return None if is_fixed(value) else numbers.get(id(value))


def _contains(parts: Any, sought: Collection[int], known: Collection[int]) -> bool:
    """Return whether one of the ids `sought` is in `parts`, or in an immutable or unknown container in it."""
    if isinstance(parts, dict):
        return _contains([*parts, *parts.values()], sought, known)
    if not isinstance(parts, (tuple, list, frozenset)):
        return False
    return any(
        id(each) in sought or ((type(each) in _FIRM or id(each) not in known) and _contains(each, sought, known))
        for each in parts
    )


class ObjectGraph:
    """Values and changes that refer to one another and to objects of the notebook, packed in one pickle."""

    def __init__(
        self,
        side: CellEnd,
        homes: Homes,
        bound: Sequence[Bound],
        changed: Sequence[Changed],
        namespace: Mapping[str, Any],
    ) -> None:
        self._side = side
        self._homes = homes
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
            self._take_detached(self._homes.parts[change.number])
        self._differences = {each.number: Differences(each, homes.parts[each.number], side) for each in changed}
        self._homes_of: dict[int, tuple[int, int]] = {}
        self._decided: dict[int, bool] = {}
        self._changes: dict[int, tuple[Any, tuple[Change, ...]]] = {}
        self._given_up: dict[int, tuple[Any, Location]] = {}

    def _take_detached(self, objects: Objects) -> None:
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

    def packed(self) -> Together | None:
        """Return the pickle; None if there are no values and no changes.

        Raises:
            NotPicklableError: the values cannot be pickled together, although each of them can be pickled alone.
        """
        self._find_changes()
        for part in range(len(self._homes.parts)):
            if part not in self._changed:
                for number, each in self._in_use(self._homes.parts[part]):
                    self._homes_of.setdefault(id(each), (part, number))
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
                seeds = objects_used(content, self._side, "the values", self._is_at_home, views=views)
            except NotPicklableError:
                if not self._give_up_unpicklable():
                    raise
                continue
            numbers = {id(seed): number for number, seed in enumerate(seeds)}
            numbered = [(numbers[id(value)], found) for value, found in changes]
            packed = pack_shared(
                (values | replaced, numbered, replacements), self._side, "the values", views=views, seeds=seeds
            ).packed
            places = tuple(home for seed in seeds if (home := self._home_of(id(seed))) is not None)
            return Together(packed, (*values, *replaced), places, tuple(replaced), tuple(self._originals()))

    def _home_of(self, key: int) -> tuple[int, int] | None:
        """Return the part number and memo number of the object with this id; None if it is not the notebook's."""
        for part, differences in self._differences.items():
            number = differences.numbers.get(key)
            if number is not None and not self._came_elsewhere(self._homes.parts[part], number):
                return part, number
        return self._homes_of.get(key)

    @staticmethod
    def _came_elsewhere(objects: Objects, number: int) -> bool:
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
        absent = [(key, value) for key, (value, _) in self._changes.items() if not self._is_at_home(value)]
        for key, value in absent:
            del self._changes[key]
            if (home := self._home_of(key)) is not None:
                self._given_up[key] = value, Location(*home)
        return bool(absent)

    def _give_up_unpicklable(self) -> bool:
        """Give up objects whose contents cannot be pickled alone; return whether there were any."""
        found = False
        for key, (value, changes) in list(self._changes.items()):
            try:
                objects_used(changes, self._side, "the contents", self._is_at_home)
            except NotPicklableError:
                del self._changes[key]
                if (home := self._home_of(key)) is not None:
                    self._given_up[key] = value, Location(*home)
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

    def _is_at_home(self, value: Any) -> bool:
        """Return whether the notebook has an object that a reference to `value` can resolve to."""
        key = id(value)
        home = self._home_of(key)
        if home is None:
            return False
        if key not in self._decided:
            self._decided[key] = self._can_stay(value, home[0])
        return self._decided[key]

    def _can_stay(self, value: Any, part: int) -> bool:
        objects = self._homes.parts[part]
        if is_plain(value) or id(value) in objects.private or stand_in(value) is not None:
            return False
        if type(value) not in _CONTAINERS and is_fixed(value):
            return False
        if isinstance(value, type) and id(value) not in objects.classes:
            return False  # captured in another part
        return part not in self._changed or self._keeps_itself(value)

    def _in_use(self, objects: Objects) -> Iterable[tuple[int, Any]]:
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
        if id(value) in self._side.unopened_at_home:
            return False
        if not (self._given_up or self._side.unopened_at_home) or stand_in(value) is not None:
            return True
        if id(value) in self._given_up:
            return False
        parts = None if type(value) in _CONTAINERS or is_fixed(value) else parts_of(value)
        return parts is None or all(map(self._keeps_itself, parts))

    def _views(self) -> dict[int, View]:
        """Return, by id, the arrays that are views of the notebook's arrays or of one another."""
        arrays = {id(array): array for each in self._bound for array in each.shared.arrays}
        for change in self._changed.values():
            arrays |= {id(array): array for array in change.now.arrays}
        new = [array for array in arrays.values() if not self._is_at_home(array)]
        if not new:
            return {}
        owners = [
            each
            for objects in self._homes.parts
            for _, each in objects.arrays
            if self._is_at_home(each) and each.flags.c_contiguous and id(each) not in self._side.relaid
        ]
        found: dict[int, View] = {}
        for array in new:
            view = view_in(array, owners)
            if view is not None:
                found[id(array)] = view
        for group in shared_views(array for array in new if id(array) not in found):
            found |= group
        return found
