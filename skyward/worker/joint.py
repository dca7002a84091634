"""Values that refer to objects of the notebook, or to one another, in one pickle.

It has what the cell bound, and of each object of the notebook that it changed what that contains now. In the place of
the objects themselves it has references: the notebook puts its own there.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from skyward.errors import NotPicklableError
from skyward.shelf import stand_in
from skyward.wire.arrays import View, arrays_owned_by, extent_of, is_array, is_inside_frame, shared_views, view_in
from skyward.wire.contents import Contents, contents_of, is_fixed, is_plain, is_shared_visibly, parts_of
from skyward.wire.notebook import Shared, Side, pack_shared
from skyward.wire.payload import Packed
from skyward.worker.captured import Captured, Part

__all__ = ["Bound", "Changed", "Homes", "Joint", "Together", "groups"]

_MISSING = object()
_CONTAINERS = frozenset({list, dict, set})
_STEPS = frozenset({dict, tuple})
"""Types of which objects may have been steps on the way to others: the state of an object, the arguments of a call."""


@dataclass(frozen=True, slots=True)
class Together:
    """Values that refer to objects of the notebook, or to one another.

    Attributes:
        packed: by name the values that the cell bound; and of each object that it changed, the number among `seeds`
            and the contents.
        names: the names.
        seeds: the objects that the pickle refers to: the number of a captured part, and that of an object in it.
        replaced: captured names whose objects cannot take over what changed in them: they stand for new ones.
    """

    packed: Packed
    names: tuple[str, ...] = ()
    seeds: tuple[tuple[int, int], ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(slots=True)
class Bound:
    """A value that goes home, packed on its own."""

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
    """The objects of the notebook that are on this node, part by part; none if the cell has only copies of them."""

    def __init__(self, captured: Captured | None) -> None:
        self.parts = [] if captured is None else list(map(Objects, captured.parts))


class Objects:
    """The objects of one part. There may be very many: most of them are only looked at where something changed."""

    def __init__(self, part: Part) -> None:
        self.part = part

    @cached_property
    def numbered(self) -> dict[int, Any]:
        """The objects by their numbers."""
        return self.part.objects()

    @cached_property
    def ids(self) -> set[int]:
        """Their identities."""
        return set(map(id, self.numbered.values()))

    @cached_property
    def arrays(self) -> list[tuple[int, Any]]:
        """The arrays among them, with their numbers; not those that belong to others, as the arrays of a frame do."""
        kinds = set(map(type, self.numbered.values()))
        if not any(kind.__name__ == "ndarray" for kind in kinds):
            return []
        found = [(number, each) for number, each in self.numbered.items() if is_array(each)]
        private = self.private
        return [(number, each) for number, each in found if id(each) not in private]

    @cached_property
    def private(self) -> set[int]:
        """The identities of arrays that belong to others."""
        kinds = {kind for kind in set(map(type, self.numbered.values())) if is_inside_frame(kind)}
        if not kinds:
            return set()
        inside = [each for each in self.numbered.values() if type(each) in kinds]
        owners = {id(extent_of(array).owner) for each in inside for array in arrays_owned_by(each)}
        arrays = [each for each in self.numbered.values() if is_array(each)]
        return {id(each) for each in arrays if id(extent_of(each).owner) in owners}

    def among(self, ids: Collection[int]) -> list[tuple[int, Any]]:
        """The objects with these identities, with their numbers."""
        return [(number, each) for number, each in self.numbered.items() if id(each) in ids]


def groups(bound: Sequence[Bound], homes: Homes, changed: Sequence[Changed]) -> list[list[Bound]]:
    """Return the values that share objects, with one another or with those of the notebook."""
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


class Joint:
    """One pickle of values and changes that refer to one another, and to objects of the notebook."""

    def __init__(
        self,
        side: Side,
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
        self._keeps: dict[int, bool] = {}
        self._contents: dict[int, Contents | None] = {}
        for change in changed:
            self._take_detached(self._homes.parts[change.number])

    def _take_detached(self, objects: Objects) -> None:
        """Take the objects as well that no captured value leads to any more: the notebook may have them elsewhere."""
        detached = [
            each
            for each in objects.numbered.values()
            if id(each) not in self._live and type(each) not in _STEPS and not is_fixed(each)
        ]
        if not detached:
            return
        try:
            shared = pack_shared(detached, self._side, "what is left of a value")
        except NotPicklableError:
            return
        self._detached.append(shared)  # keeps alive what `_live` names
        self._live |= shared.objects().keys()

    def packed(self) -> Together:
        """The pickle.

        Raises:
            NotPicklableError: that cannot be. Each value and each part can be pickled, so it is not for what they are.
        """
        while True:
            seeds, places, changes = self._seeds()
            kept = {id(seed) for seed in seeds}
            values = {each.name: each.value for each in self._bound}
            replaced = dict(self._replaced(kept))
            try:
                shared = pack_shared(
                    (values | replaced, changes), self._side, "the values", views=self._views(seeds, kept), seeds=seeds
                )
            except NotPicklableError:
                if not self._replace_unpicklable(seeds, changes):
                    raise
            else:
                return Together(shared.packed, (*values, *replaced), tuple(places), tuple(replaced))

    def _replaced(self, kept: Collection[int]) -> Iterator[tuple[str, Any]]:
        """Captured names whose objects cannot take over what changed in them."""
        for change in self._changed.values():
            for root, value in zip(change.part.roots, change.part.values, strict=True):
                if id(value) not in kept and not isinstance(value, type) and not is_fixed(value):
                    for name in root.names:
                        if self._namespace.get(name, _MISSING) is value:
                            yield name, value

    def _replace_unpicklable(self, seeds: Sequence[Any], changes: Sequence[tuple[int, Contents]]) -> bool:
        """Take objects whose contents cannot be pickled by themselves as new ones; whether there are any."""
        found = False
        for number, contents in changes:
            try:
                pack_shared(contents, self._side, "the contents", seeds=seeds)
            except NotPicklableError:
                self._contents[id(seeds[number])] = None
                found = True
        self._keeps.clear()
        return found

    def _seeds(self) -> tuple[list[Any], list[tuple[int, int]], list[tuple[int, Contents]]]:
        """The objects to refer to, their places, and what those contain that have changed."""
        seeds: dict[int, Any] = {}
        places: list[tuple[int, int]] = []
        changes: list[tuple[int, Contents]] = []
        for part, objects in enumerate(self._homes.parts):
            change = self._changed.get(part)
            clean = None if change is None else change.part.clean()
            classes = {id(value) for value in objects.part.values if isinstance(value, type)}
            for number, each in self._wanted(objects, change):
                key, kind = id(each), type(each)
                if is_plain(each) or key in seeds or key in objects.private:
                    continue
                if (kind not in _CONTAINERS and is_fixed(each)) or stand_in(each) is not None:
                    continue
                if isinstance(each, type) and key not in classes:
                    continue  # it came in another part
                if change is not None:
                    if key not in self._live:
                        continue
                    if not self._keeps_itself(each):
                        continue
                    contents = self._contents_of(each)
                    if contents is not None and clean is not None and is_array(each) and clean.has(each):
                        contents = Contents("array", (contents.parts[0], None, {}))
                    if contents is not None:
                        changes.append((len(seeds), contents))
                seeds[key] = each
                places.append((part, number))
        return list(seeds.values()), places, changes

    def _wanted(self, objects: Objects, change: Changed | None) -> Iterable[tuple[int, Any]]:
        """The objects of a part that may be referred to: of one that has not changed, those in use elsewhere."""
        if change is not None:
            return objects.numbered.items()
        found = objects.among(self._live) if objects.ids & self._live else []
        viewed = [
            (number, array) for number, array in (objects.arrays if self._memory else ()) if self._is_viewed(array)
        ]
        return [*found, *viewed]

    def _is_viewed(self, value: Any) -> bool:
        """Whether new arrays may be views of an array of the notebook."""
        return id(extent_of(value).owner) in self._memory

    def _contents_of(self, value: Any) -> Contents | None:
        """What a changed object contains now; None if it cannot be put into another one, or cannot change."""
        key = id(value)
        if key not in self._contents:
            is_open = type(value) in _CONTAINERS or not (is_fixed(value) or parts_of(value) is not None)
            self._contents[key] = contents_of(value) if is_open else None
        return self._contents[key]

    def _keeps_itself(self, value: Any) -> bool:
        """Whether the notebook's object can take over what changed in `value`, so that it can be referred to."""
        if id(value) in self._side.unopened_at_home:
            return False
        if (type(value) not in _CONTAINERS and is_fixed(value)) or stand_in(value) is not None:
            return True
        key = id(value)
        if key not in self._keeps:
            self._keeps[key] = True  # for one that contains itself
            parts = None if type(value) in _CONTAINERS else parts_of(value)
            self._keeps[key] = (
                self._contents_of(value) is not None if parts is None else all(map(self._keeps_itself, parts))
            )
        return self._keeps[key]

    def _views(self, seeds: Iterable[Any], kept: Collection[int]) -> dict[int, View]:
        """By identity, the arrays that are views: of arrays of the notebook, or of one another."""
        arrays = {id(array): array for each in self._bound for array in each.shared.arrays}
        for change in self._changed.values():
            arrays |= {id(array): array for array in change.now.arrays}
        new = [array for key, array in arrays.items() if key not in kept]
        if not new:
            return {}
        owners = [
            each for each in seeds if is_array(each) and each.flags.c_contiguous and id(each) not in self._side.loose
        ]
        found: dict[int, View] = {}
        for array in new:
            view = view_in(array, owners)
            if view is not None:
                found[id(array)] = view
        for group in shared_views(array for array in new if id(array) not in found):
            found |= group
        return found
