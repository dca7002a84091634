"""The state that a cell returns to the notebook: values, in-place changes, and why some of them cannot be returned.

A value that shares no objects with the notebook is packed on its own. All others are packed in one pickle: the changes
of the notebook's objects, and new values that refer to these objects, with references in the place of the originals.
"""

import gc
import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Literal

from skyward.errors import NotPicklableError
from skyward.formatting import size_text
from skyward.kept.keep import CONTAINERS, stand_in
from skyward.wire.kinds.arrays import extent_of, is_array
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.mutability import is_plain, is_shared_visibly
from skyward.wire.objects.pickling import pack_shared
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.captured import Captured, Part
from skyward.worker.cells.captured_objects import CapturedObjects
from skyward.worker.cells.differences import Changed
from skyward.worker.cells.object_graph import Bound, ObjectGraph, PackedGraph, groups
from skyward.worker.code.local_modules import ReimportedModules
from skyward.worker.code.program import PROVIDED, SHOW, STREAM, VALUE

__all__ = ["Obstacle", "ReturnedState", "Unreturned", "collect_state"]

_MISSING = object()
_NOTHING_KEPT: Mapping[str, Any] = {}
_NOTHING_HELD: Mapping[str, frozenset[int]] = {}

_ANNOTATIONS = {"__annotations__", "__annotate__", "__conditional_annotations__"}
_HIDDEN = PROVIDED | _ANNOTATIONS | {SHOW, STREAM, VALUE, "__warningregistry__"}

_VALUE_LIMIT = 16 << 20
"""Most bytes of an unnamed last expression that are returned. It has been displayed anyway."""


type Obstacle = Literal["size", "unbound", "nothing to keep", "other"]
"""Kinds of reasons, which have different fixes: the value is over a limit; the cell did not bind a name that is to be
returned, or to be kept."""


@dataclass(frozen=True, slots=True)
class Unreturned:
    """The reason why a value, or its change, was not returned.

    Attributes:
        reason: a clause for messages.
        obstacle: the kind of the reason.
    """

    reason: str
    obstacle: Obstacle = "other"


@dataclass(frozen=True, slots=True)
class ReturnedState:
    """The names that a cell bound, changed and deleted, ready to be returned to the notebook.

    Attributes:
        values: by name, values that the cell bound, each packed on its own.
        graph: values that refer to objects of the notebook or to one another, and the changes of these objects.
        changed: captured names whose values the cell changed in place.
        needs: by name of a value, the names that its functions use.
        classes: by name of a value, ids of the classes of the notebook that it refers to.
        supports: by name, values that functions among them use, for names that the notebook does not have.
        modules: by name, the modules that the cell imported.
        failed: by name, why a value cannot be returned.
        stale: by captured name, why the change of its value cannot be returned.
        deleted: names that the cell unbound.
        copied: by name of a returned or captured value, the name of a kept value that it shares objects with: the
            notebook gets, or has, a copy of these.
        side_effects: side effects beyond variables, which stay on the node.
        reimported: local modules that the node had imported from sources that differ from those sent with the cell.
        value: the name under which the value of the last expression is returned: a name bound to it, or `VALUE`, which
            is then in `values` or `failed`; empty if there is no value.
    """

    values: dict[str, Packed] = field(default_factory=dict)
    graph: PackedGraph | None = None
    changed: tuple[str, ...] = ()
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    supports: dict[str, Packed] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    failed: dict[str, Unreturned] = field(default_factory=dict)
    stale: dict[str, Unreturned] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    value: str = ""
    side_effects: tuple[str, ...] = ()
    copied: dict[str, str] = field(default_factory=dict)
    reimported: ReimportedModules = field(default_factory=ReimportedModules)


def collect_state(
    side: CellEnd,
    captured: Captured,
    initial: Mapping[str, Any],
    *,
    assigned: Collection[str] = (),
    only: Collection[str] | None = None,
    deletes: Collection[str] = (),
    incidental: Collection[str] = (),
    limit: int = 1 << 30,
    in_place: bool = True,
    kept: Mapping[str, Any] = _NOTHING_KEPT,
    held: Mapping[str, frozenset[int]] = _NOTHING_HELD,
) -> ReturnedState:
    """Collect the state to return from the cell that ran in the namespace of `side`.

    Args:
        side: the node's side of the cell.
        captured: the values of the notebook.
        initial: the namespace before the cell.
        assigned: names that the cell seems to bind; without `in_place`, they are always returned.
        only: the only names to return; None for all that were bound.
        deletes: names to report as unbound if they are.
        incidental: names bound in passing; a failure to return one is not reported.
        limit: most bytes to return; the largest values are left out first.
        in_place: apply changes to the objects of the notebook; otherwise each value is a copy.
        kept: by name, the stand-in for a value that the node keeps from now on, which is returned instead.
        held: by name of a value that the node keeps, the ids of the objects in it.
    """
    collector = _Collector(side, captured, initial, limit, in_place, kept, held)
    return collector.of(assigned, only, deletes, incidental)


class _Collector:
    def __init__(
        self,
        side: CellEnd,
        captured: Captured,
        initial: Mapping[str, Any],
        limit: int,
        in_place: bool,
        kept: Mapping[str, Any],
        held: Mapping[str, frozenset[int]],
    ) -> None:
        self._side = side
        self._namespace = side.namespace
        self._captured = captured
        self._initial = initial
        self._limit = limit
        self._in_place = in_place
        self._kept = kept
        self._held = held
        self.found = ReturnedState()

    def of(
        self,
        assigned: Collection[str],
        only: Collection[str] | None,
        deletes: Collection[str],
        incidental: Collection[str],
    ) -> ReturnedState:
        found = self.found
        names = list(only) if only is not None else self._bound(assigned)
        names += (name for name in self._kept if name not in names)
        value = self._name_of_value(names)
        if value == VALUE:
            names.append(VALUE)
        bound = [each for each in map(self._packed, names) if each is not None]
        changed = list(self._changes(only))
        if self._side.packed_in_notebook and self._in_place:
            changed += self._sharing_packed_values(bound, {each.number for each in changed})
        if self._held and self._in_place:
            self._note_copies([each for each in bound if each.name not in (VALUE, *incidental)])
        changed_names = tuple(name for each in changed for name in each.part.names)
        self._drop_over_limit(bound, changed)
        graph = self._packed_graph(bound, changed if self._in_place else [])
        self._suppress_finalizers(bound, changed)
        self._support()
        for name in incidental:
            found.failed.pop(name, None)
        gone = [name for name in {*self._initial, *deletes} if name not in self._namespace]
        return ReturnedState(
            found.values,
            graph,
            changed_names,
            found.needs,
            found.classes,
            found.supports,
            found.modules,
            found.failed,
            found.stale,
            tuple(sorted(name for name in gone if name not in _HIDDEN and (only is None or name in only))),
            value,
            copied=found.copied,
        )

    def _note_copies(self, bound: Collection[Bound]) -> None:
        """Record the values that share objects with kept values: in the notebook they become copies."""
        for each in bound:
            owners = {id(extent_of(array).owner) for array in each.shared.arrays}
            self._note_copy(each.name, each.objects.values(), owners)
        for part in self._captured.parts:
            objects = [(number, value) for number, value in part.objects().items()] if part.memo is not None else []
            ids = set().union(*self._held.values()) & {id(value) for _, value in objects}
            for root, value in zip(part.roots, part.values, strict=True):
                names = [name for name in root.names if self._namespace.get(name) is value]
                if names and ids:
                    shared_objects = objects if len(part.roots) == 1 else [(0, value)]
                    self._note_copy(names[0], shared_objects, ())

    def _note_copy(self, name: str, objects: Iterable[tuple[int, Any]], owners: Collection[int]) -> None:
        for kept, held in self._held.items():
            common = (value for _, value in objects if id(value) in held)
            if name != kept and (
                not held.isdisjoint(owners) or any(is_shared_visibly(value) and _is_noticed(value) for value in common)
            ):
                self.found.copied.setdefault(name, kept)

    def _name_of_value(self, names: Collection[str]) -> str:
        """Return the name under which the notebook gets, or has, the value of the last expression; empty if None."""
        value = self._namespace.get(VALUE)
        if value is None:
            return ""
        for name, other in self._namespace.items():
            if other is value and (name in names or (self._in_place and self._initial.get(name) is value)):
                return name
        return VALUE

    def _bound(self, assigned: Collection[str]) -> list[str]:
        """Return the names that were bound to new objects; if values are copied, also names that seem assigned."""
        bound = []
        for name, value in self._namespace.items():
            if self._initial.get(name, _MISSING) is value:
                if not self._in_place and name in assigned and name not in _HIDDEN:
                    bound.append(name)
            elif name not in _HIDDEN:
                bound.append(name)
        return bound

    def _packed(self, name: str) -> Bound | None:
        """Pack the value of `name`; None if there is nothing to pack, or pickling failed."""
        found = self.found
        if name not in self._namespace:
            found.failed[name] = Unreturned("the cell did not bind it", "unbound")
            return None
        value = self._namespace[name]
        if self._in_place and self._initial.get(name, _MISSING) is value and name not in self._kept:
            return None  # requested by name, but the notebook has the object
        if (here := self._kept.get(name) or stand_in(value)) is not None:
            value = here
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            found.modules[name] = value.__name__
            return None
        try:
            shared = pack_shared(value, self._side, name)
        except NotPicklableError as error:
            if getattr(value, "closed", False) is not True:  # a closed file is useless anyway
                found.failed[name] = Unreturned(error.reason)
            return None
        return Bound(name, value, shared, {} if is_plain(value) else shared.objects())

    def _changes(self, only: Collection[str] | None) -> Iterator[Changed]:
        """Yield the captured parts that have changed, those of `only` or all."""
        for number, part in enumerate(self._captured.parts):
            if only is not None and set(only).isdisjoint(part.names):
                continue
            if part.names and self._kept.keys() >= set(part.names):
                continue
            try:
                now = part.changed(self._side)
            except NotPicklableError as error:
                self._note_unreturned(part, Unreturned(error.reason))
                continue
            if now is not None:
                yield Changed(number, part, now, now.packed.nbytes, now.objects())

    def _sharing_packed_values(self, bound: Collection[Bound], known: Collection[int]) -> Iterator[Changed]:
        """Yield the other captured parts with a value that is packed in the notebook and shares objects with new ones.

        They are returned as if they had changed: in one pickle, for the next cell.
        """
        packed_values = self._side.packed_in_notebook
        new: dict[int, Any] = {}
        for each in bound:  # the objects it refers to, but not through a packed value
            if id(each.value) not in packed_values:
                apart = pack_shared(each.value, self._side, each.name, seeds=list(packed_values.values()))
                new |= {key: value for key, (_, value) in apart.objects().items()}
        for number, part in enumerate(self._captured.parts):
            if number in known or packed_values.keys().isdisjoint(map(id, part.values)):
                continue
            now = part.pack(self._side)
            objects = now.objects()
            if any(is_shared_visibly(new[key]) for key in new.keys() & objects.keys() - packed_values.keys()):
                yield Changed(number, part, now, now.packed.nbytes, objects)

    def _note_unreturned(self, part: Part, reason: Unreturned) -> None:
        for name in part.names:
            self.found.stale[name] = reason

    def _drop_over_limit(self, bound: list[Bound], changed: list[Changed]) -> None:
        """Leave out the largest values until the rest is within the limit."""
        sized: list[Bound | Changed] = sorted([*bound, *changed], key=lambda each: -_nbytes(each))
        total = sum(map(_nbytes, sized))
        for each in sized:
            if total <= self._limit:
                return
            size = _nbytes(each)
            total -= size
            reason = f"{size_text(size)} are over the limit of {size_text(self._limit)} for returned values"
            if isinstance(each, Bound):
                bound.remove(each)
                self.found.failed[each.name] = Unreturned(f"its {reason}", "size")
            else:
                changed.remove(each)
                self._note_unreturned(each.part, Unreturned(f"the {reason}", "size"))

    def _packed_graph(self, bound: list[Bound], changed: list[Changed]) -> PackedGraph | None:
        """Pack the values that share objects with the notebook or with one another; the rest stays packed alone."""
        captured = CapturedObjects(self._captured if self._in_place else None)
        joint = [each for group in groups(bound, captured, changed) for each in group]
        apart = {id(each) for each in joint}
        for each in bound:
            if each.name == VALUE and id(each) not in apart and each.shared.packed.nbytes > _VALUE_LIMIT:
                size = size_text(each.shared.packed.nbytes)
                self.found.failed[VALUE] = Unreturned(f"its {size} are returned only under a name", "size")
                continue
            self._note(each)
            if id(each) not in apart:
                self.found.values[each.name] = each.shared.packed
        if not joint and not changed:
            return None
        try:
            return ObjectGraph(self._side, captured, joint, changed, self._namespace).packed()
        except NotPicklableError as error:  # report every value that is left out
            for each in joint:
                self.found.failed[each.name] = Unreturned(error.reason)
            for change in changed:
                self._note_unreturned(change.part, Unreturned(error.reason))
            return None

    def _suppress_finalizers(self, bound: list[Bound], changed: list[Changed]) -> None:
        """Register the returned objects, so that they are not finalized here."""
        going = [each.objects for each in bound if each.name not in self.found.failed]
        going += (change.objects for change in changed)
        self._captured.finalizers.add(self._side, lambda: (each for objects in going for _, each in objects.values()))

    def _note(self, each: Bound) -> None:
        if each.shared.needs:
            self.found.needs[each.name] = each.shared.needs
        if each.shared.classes:
            self.found.classes[each.name] = tuple(each.shared.classes)

    def _support(self) -> None:
        """Pack values that returned functions use and that the notebook may not have."""
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
                self._suppress_finalizers([each], [])
                waiting += each.shared.needs


def _is_noticed(value: Any) -> bool:
    """Return whether a second copy of a value matters: it is mutable, and not unique in its process."""
    if isinstance(value, (FunctionType, logging.Logger)):
        return False
    return type(value) in CONTAINERS or is_array(value) or gc.is_tracked(value)


def _nbytes(each: Bound | Changed) -> int:
    return each.shared.packed.nbytes if isinstance(each, Bound) else each.nbytes
