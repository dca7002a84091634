"""What a cell left behind, packed to go home.

A value that has nothing to do with the objects of the notebook is packed on its own. All others travel together: what
those objects contain now, and new values that refer to them, with references to the originals in their places.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from skyward.errors import NotPicklableError
from skyward.wire.arrays import View, arrays_owned_by, extent_of, is_array, shared_views, view_in
from skyward.wire.contents import Contents, contents_of, is_fixed, is_plain, is_shared_visibly, parts_of
from skyward.wire.notebook import Shared, Side, pack_shared
from skyward.wire.payload import Packed
from skyward.worker.captured import Captured, Part
from skyward.worker.program import PROVIDED, SHOW, STREAM, VALUE

__all__ = ["Harvest", "Together", "harvest"]

_MISSING = object()

_ANNOTATIONS = {"__annotations__", "__annotate__", "__conditional_annotations__"}
_HIDDEN = PROVIDED | _ANNOTATIONS | {SHOW, STREAM, VALUE, "__warningregistry__"}

_VALUE_LIMIT = 16 << 20
"""Bytes up to which the value of the last expression comes back, if no name stands for it. It was displayed anyhow."""


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


@dataclass(frozen=True, slots=True)
class Harvest:
    """The names that a cell left behind.

    Attributes:
        values: by name, values that it bound, each packed on its own.
        together: those that refer to objects of the notebook or to one another, and what changed in these objects.
        changed: captured names whose values it changed in place.
        needs: by name of a value, the names that its functions use.
        classes: by name of a value, ids of the classes of the notebook that it refers to.
        supports: by name, values that functions among them use, for names that the notebook does not have.
        modules: by name, the modules it imported.
        failed: by name, why a value cannot come back.
        stale: by captured name, why what changed in its value cannot come back.
        deleted: names that it unbound.
        value: how the value of the last expression comes home: under a name that has it; otherwise, where there is
            one, as one of the values, or of those that failed.
    """

    values: dict[str, Packed] = field(default_factory=dict)
    together: Together | None = None
    changed: tuple[str, ...] = ()
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    supports: dict[str, Packed] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stale: dict[str, str] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    value: str = ""


def harvest(
    side: Side,
    captured: Captured,
    initial: Mapping[str, Any],
    *,
    assigned: Collection[str] = (),
    only: Collection[str] | None = None,
    deletes: Collection[str] = (),
    incidental: Collection[str] = (),
    limit: int = 1 << 30,
    in_place: bool = True,
) -> Harvest:
    """What the cell that ran in the namespace of `side` left behind.

    Args:
        side: the node's end of the cell.
        captured: the values of the notebook.
        initial: the namespace as it was before.
        assigned: names that the cell seems to bind; without `in_place`, they come back whether or not it did.
        only: the only names to bring back; None for all that were bound.
        deletes: names that are reported as unbound if they are.
        incidental: names that the cell bound by the way; nothing is said of those that cannot come back.
        limit: bytes that may come back; the largest values stay until the rest is within it.
        in_place: whether the objects of the notebook take over what changed in them; otherwise each value is a copy.
    """
    return _Gathering(side, captured, initial, limit, in_place).of(assigned, only, deletes, incidental)


@dataclass(slots=True)
class _Bound:
    """A value that goes home, packed on its own."""

    name: str
    value: Any
    shared: Shared
    objects: Mapping[int, tuple[int, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class _Changed:
    """A captured part that the cell has changed."""

    number: int
    part: Part
    now: Shared
    nbytes: int


class _Gathering:
    def __init__(self, side: Side, captured: Captured, initial: Mapping[str, Any], limit: int, in_place: bool) -> None:
        self._side = side
        self._namespace = side.namespace
        self._captured = captured
        self._initial = initial
        self._limit = limit
        self._in_place = in_place
        self.found = Harvest()

    def of(
        self,
        assigned: Collection[str],
        only: Collection[str] | None,
        deletes: Collection[str],
        incidental: Collection[str],
    ) -> Harvest:
        found = self.found
        names = list(only) if only is not None else self._bound(assigned)
        value = self._name_of_value(names)
        if value == VALUE:
            names.append(VALUE)
        bound = [each for each in map(self._packed, names) if each is not None]
        changed = list(self._changes(only))
        changed_names = tuple(name for each in changed for name in each.part.names)
        self._keep_within(bound, changed)
        together = self._together(bound, changed if self._in_place else [])
        self._support()
        for name in incidental:
            found.failed.pop(name, None)
        gone = [name for name in {*self._initial, *deletes} if name not in self._namespace]
        return Harvest(
            found.values,
            together,
            changed_names,
            found.needs,
            found.classes,
            found.supports,
            found.modules,
            found.failed,
            found.stale,
            tuple(sorted(name for name in gone if name not in _HIDDEN and (only is None or name in only))),
            value,
        )

    def _name_of_value(self, names: Collection[str]) -> str:
        """The name under which the value of the last expression goes home, or is there; empty if there is no value."""
        value = self._namespace.get(VALUE)
        if value is None or is_plain(value):
            return "" if value is None else VALUE
        for name, other in self._namespace.items():
            if other is value and (name in names or (self._in_place and self._initial.get(name) is value)):
                return name
        return VALUE

    def _bound(self, assigned: Collection[str]) -> list[str]:
        """Names whose values are others than before; if values are copied, those too that seem to be assigned."""
        bound = []
        for name, value in self._namespace.items():
            if self._initial.get(name, _MISSING) is value:
                if not self._in_place and name in assigned and name not in _HIDDEN:
                    bound.append(name)
            elif name not in _HIDDEN:
                bound.append(name)
        return bound

    def _packed(self, name: str) -> _Bound | None:
        """The value of `name`, packed; None if there is nothing to pack, or it cannot be."""
        found = self.found
        if name not in self._namespace:
            found.failed[name] = "the cell did not bind it"
            return None
        value = self._namespace[name]
        if self._in_place and self._initial.get(name, _MISSING) is value:
            return None  # asked for by name; the notebook has the object
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            found.modules[name] = value.__name__
            return None
        try:
            shared = pack_shared(value, self._side, name)
        except NotPicklableError as error:
            if getattr(value, "closed", False) is not True:  # a closed file is of no more use
                found.failed[name] = error.reason
            return None
        return _Bound(name, value, shared, {} if is_plain(value) else shared.objects())

    def _changes(self, only: Collection[str] | None) -> Iterator[_Changed]:
        """The captured parts that have changed, those of `only` or all."""
        for number, part in enumerate(self._captured.parts):
            if only is not None and set(only).isdisjoint(part.names):
                continue
            try:
                now = part.changed(self._side)
            except NotPicklableError as error:
                self._leave(part, f"{error.reason}")
                continue
            if now is not None:
                yield _Changed(number, part, now, now.packed.nbytes)

    def _leave(self, part: Part, reason: str) -> None:
        for name in part.names:
            self.found.stale[name] = reason

    def _keep_within(self, bound: list[_Bound], changed: list[_Changed]) -> None:
        """Leave the largest values where they are until the rest is within the limit."""
        sized: list[_Bound | _Changed] = sorted([*bound, *changed], key=lambda each: -_nbytes(each))
        total = sum(map(_nbytes, sized))
        for each in sized:
            if total <= self._limit:
                return
            size = _nbytes(each)
            total -= size
            limit = f"the limit of {self._limit / 2**20:,.0f} MiB for what comes back"
            reason = f"{size / 2**20:,.0f} MiB are over {limit}"
            if isinstance(each, _Bound):
                bound.remove(each)
                self.found.failed[each.name] = f"its {reason}"
            else:
                changed.remove(each)
                self._leave(each.part, f"the {reason}")

    def _together(self, bound: list[_Bound], changed: list[_Changed]) -> Together | None:
        """Pack what refers to objects of the notebook, or to one another; the rest stays packed on its own."""
        homes = _Homes(self._captured if self._in_place else None)
        groups = _groups(bound, homes, changed)
        joint = [each for group in groups for each in group]
        apart = {id(each) for each in joint}
        for each in bound:
            if each.name == VALUE and id(each) not in apart and each.shared.packed.nbytes > _VALUE_LIMIT:
                size = each.shared.packed.nbytes / 2**20
                self.found.failed[VALUE] = f"its {size:,.0f} MiB come back only under a name"
                continue
            self._note(each)
            if id(each) not in apart:
                self.found.values[each.name] = each.shared.packed
        if not joint and not changed:
            return None
        try:
            return _Joint(self._side, homes, joint, changed, self._namespace).packed()
        except NotPicklableError as error:  # no object is left out without a word
            for each in joint:
                self.found.failed[each.name] = error.reason
            for change in changed:
                self._leave(change.part, error.reason)
            return None

    def _note(self, each: _Bound) -> None:
        if each.shared.needs:
            self.found.needs[each.name] = each.shared.needs
        if each.shared.classes:
            self.found.classes[each.name] = tuple(each.shared.classes)

    def _support(self) -> None:
        """Pack what functions that go home use, where the notebook may not have it."""
        found = self.found
        waiting = [need for needs in found.needs.values() for need in sorted(needs)]
        looked: set[str] = set()
        while waiting:
            name = waiting.pop()
            known = name in found.values or name in found.modules or name in found.failed
            if known or name in looked or name in self._initial or name not in self._namespace:
                continue
            looked.add(name)
            each = self._packed(name)
            if each is not None:
                found.supports[name] = each.shared.packed
                waiting += each.shared.needs


def _nbytes(each: _Bound | _Changed) -> int:
    return each.shared.packed.nbytes if isinstance(each, _Bound) else each.nbytes


class _Homes:
    """The objects of the notebook that are on this node, by their identity."""

    def __init__(self, captured: Captured | None) -> None:
        self.parts = [] if captured is None else captured.parts
        self._objects: dict[int, dict[int, Any]] = {}
        self._where: dict[int, tuple[int, int]] | None = None

    def objects(self, part: int) -> dict[int, Any]:
        """The objects of a part by their numbers."""
        if part not in self._objects:
            self._objects[part] = self.parts[part].objects()
        return self._objects[part]

    def where(self) -> dict[int, tuple[int, int]]:
        """By identity, the part in which an object came, and its number there."""
        if self._where is None:
            self._where = {}
            for part in range(len(self.parts)):
                for number, each in self.objects(part).items():
                    self._where.setdefault(id(each), (part, number))
        return self._where

    def arrays(self) -> list[Any]:
        """The arrays among them that other arrays may be views of."""
        found = []
        for part in range(len(self.parts)):
            objects = self.objects(part).values()
            private = _private(objects)
            found += [
                each for each in objects if is_array(each) and each.flags.c_contiguous and id(each) not in private
            ]
        return found


def _private(objects: Collection[Any]) -> set[int]:
    """The identities of arrays that belong to others, as those of a frame do, and are not taken by themselves."""
    owners = {id(extent_of(array).owner) for each in objects for array in arrays_owned_by(each)}
    return {id(each) for each in objects if is_array(each) and id(extent_of(each).owner) in owners} if owners else set()


def _groups(bound: Sequence[_Bound], homes: _Homes, changed: Sequence[_Changed]) -> list[list[_Bound]]:
    """The values that share objects, with one another or with those of the notebook."""
    leaders: dict[int, int] = {}

    def leader(each: int) -> int:
        while leaders.setdefault(each, each) != each:
            each = leaders[each]
        return each

    many = [each for each in bound if each.objects]
    if not many:
        return []
    home = -1
    owner_of: dict[int, int] = {}
    memory_of: dict[int, int] = {}
    where = homes.where()
    new_at_home: dict[int, Any] = {}
    for change in changed:
        new_at_home.update((key, each) for key, (_, each) in change.now.objects().items())
    for array in homes.arrays() if any(each.shared.arrays for each in many) else ():
        memory_of[id(extent_of(array).owner)] = home
    for number, each in enumerate(many):
        ids = each.objects.keys()
        for key in ids & (where.keys() | new_at_home.keys()):
            if is_shared_visibly(each.objects[key][1]):
                leaders[leader(number)] = leader(home)
                break
        for key in ids & owner_of.keys():
            if is_shared_visibly(each.objects[key][1]):
                leaders[leader(number)] = leader(owner_of[key])
        owner_of.update(dict.fromkeys(ids, number))
        for array in each.shared.arrays:
            owner = id(extent_of(array).owner)
            leaders[leader(number)] = leader(memory_of.setdefault(owner, number))
    found: dict[int, list[_Bound]] = {}
    for number, each in enumerate(many):
        found.setdefault(leader(number), []).append(each)
    return [group for key, group in found.items() if len(group) > 1 or key == leader(home) or _has_views(group)]


def _has_views(group: list[_Bound]) -> bool:
    return bool(shared_views(array for each in group for array in each.shared.arrays))


class _Joint:
    """One pickle of values and changes that refer to one another, and to objects of the notebook."""

    def __init__(
        self,
        side: Side,
        homes: _Homes,
        bound: Sequence[_Bound],
        changed: Sequence[_Changed],
        namespace: Mapping[str, Any],
    ) -> None:
        self._side = side
        self._homes = homes
        self._bound = bound
        self._changed = {each.number: each for each in changed}
        self._namespace = namespace
        self._live: set[int] = set()
        for each in bound:
            self._live |= each.objects.keys()
        for change in changed:
            self._live |= change.now.objects().keys()
        self._memory = {id(extent_of(array).owner) for each in bound for array in each.shared.arrays}
        for change in changed:
            self._memory |= {id(extent_of(array).owner) for array in change.now.arrays}
        self._keeps: dict[int, bool] = {}
        self._contents: dict[int, Contents | None] = {}

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
        seeds: list[Any] = []
        seen: set[int] = set()
        places: list[tuple[int, int]] = []
        changes: list[tuple[int, Contents]] = []
        for part in range(len(self._homes.parts)):
            change = self._changed.get(part)
            clean = None if change is None else change.part.clean()
            objects = self._homes.objects(part)
            private = _private(objects.values())
            for number, each in objects.items():
                if id(each) in private or id(each) in seen or is_fixed(each):
                    continue
                if change is not None and not self._keeps_itself(each):
                    continue
                if change is None and id(each) not in self._live and not self._is_viewed(each):
                    continue
                contents = None if change is None or parts_of(each) is not None else self._contents_of(each)
                is_live = id(each) in self._live
                if not is_live and type(each) in (list, dict, set, tuple):
                    continue  # it may only have been a step on the way to another object
                if contents is not None and clean is not None and is_array(each) and clean.has(each):
                    contents = Contents("array", (each.shape, None))
                if contents is not None:
                    changes.append((len(seeds), contents))
                seen.add(id(each))
                seeds.append(each)
                places.append((part, number))
        return seeds, places, changes

    def _is_viewed(self, value: Any) -> bool:
        """Whether new arrays may be views of an array of the notebook."""
        return is_array(value) and id(extent_of(value).owner) in self._memory

    def _contents_of(self, value: Any) -> Contents | None:
        key = id(value)
        if key not in self._contents:
            self._contents[key] = contents_of(value)
        return self._contents[key]

    def _keeps_itself(self, value: Any) -> bool:
        """Whether the notebook's object can take over what changed in `value`, so that it can be referred to."""
        if is_fixed(value):
            return True
        key = id(value)
        if key not in self._keeps:
            self._keeps[key] = True  # for one that contains itself
            parts = parts_of(value)
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
