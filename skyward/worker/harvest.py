"""What a cell left behind, packed to go home.

A value that has nothing to do with the objects of the notebook is packed on its own. All others travel together: what
those objects contain now, and new values that refer to them, with references to the originals in their places.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from skyward.errors import NotPicklableError
from skyward.shelf import stand_in
from skyward.wire.contents import is_plain
from skyward.wire.notebook import Side, pack_shared
from skyward.wire.payload import Packed
from skyward.worker.captured import Captured, Part
from skyward.worker.joint import Bound, Changed, Homes, Joint, Together, groups
from skyward.worker.program import PROVIDED, SHOW, STREAM, VALUE

__all__ = ["Harvest", "harvest"]

_MISSING = object()
_NOTHING_KEPT: Mapping[str, Any] = {}

_ANNOTATIONS = {"__annotations__", "__annotate__", "__conditional_annotations__"}
_HIDDEN = PROVIDED | _ANNOTATIONS | {SHOW, STREAM, VALUE, "__warningregistry__"}

_VALUE_LIMIT = 16 << 20
"""Bytes up to which the value of the last expression comes back, if no name stands for it. It was displayed anyhow."""


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
        surroundings: what it changed beside its variables, which stays on the node.
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
    surroundings: tuple[str, ...] = ()


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
    kept: Mapping[str, Any] = _NOTHING_KEPT,
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
        kept: by name, what stands for a value that the node keeps from now on: it comes back in its place.
    """
    return _Gathering(side, captured, initial, limit, in_place, kept).of(assigned, only, deletes, incidental)


class _Gathering:
    def __init__(
        self,
        side: Side,
        captured: Captured,
        initial: Mapping[str, Any],
        limit: int,
        in_place: bool,
        kept: Mapping[str, Any],
    ) -> None:
        self._side = side
        self._namespace = side.namespace
        self._captured = captured
        self._initial = initial
        self._limit = limit
        self._in_place = in_place
        self._kept = kept
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
        names += (name for name in self._kept if name not in names)
        value = self._name_of_value(names)
        if value == VALUE:
            names.append(VALUE)
        bound = [each for each in map(self._packed, names) if each is not None]
        changed = list(self._changes(only))
        changed_names = tuple(name for each in changed for name in each.part.names)
        self._keep_within(bound, changed)
        together = self._together(bound, changed if self._in_place else [])
        self._depart(bound, changed)
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
        if value is None:
            return ""
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

    def _packed(self, name: str) -> Bound | None:
        """The value of `name`, packed; None if there is nothing to pack, or it cannot be."""
        found = self.found
        if name not in self._namespace:
            found.failed[name] = "the cell did not bind it"
            return None
        value = self._namespace[name]
        if self._in_place and self._initial.get(name, _MISSING) is value and name not in self._kept:
            return None  # asked for by name; the notebook has the object
        if (here := self._kept.get(name) or stand_in(value)) is not None:
            value = here
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            found.modules[name] = value.__name__
            return None
        try:
            shared = pack_shared(value, self._side, name)
        except NotPicklableError as error:
            if getattr(value, "closed", False) is not True:  # a closed file is of no more use
                found.failed[name] = error.reason
            return None
        return Bound(name, value, shared, {} if is_plain(value) else shared.objects())

    def _changes(self, only: Collection[str] | None) -> Iterator[Changed]:
        """The captured parts that have changed, those of `only` or all."""
        for number, part in enumerate(self._captured.parts):
            if only is not None and set(only).isdisjoint(part.names):
                continue
            if part.names and self._kept.keys() >= set(part.names):
                continue
            try:
                now = part.changed(self._side)
            except NotPicklableError as error:
                self._leave(part, f"{error.reason}")
                continue
            if now is not None:
                yield Changed(number, part, now, now.packed.nbytes, now.objects())

    def _leave(self, part: Part, reason: str) -> None:
        for name in part.names:
            self.found.stale[name] = reason

    def _keep_within(self, bound: list[Bound], changed: list[Changed]) -> None:
        """Leave the largest values where they are until the rest is within the limit."""
        sized: list[Bound | Changed] = sorted([*bound, *changed], key=lambda each: -_nbytes(each))
        total = sum(map(_nbytes, sized))
        for each in sized:
            if total <= self._limit:
                return
            size = _nbytes(each)
            total -= size
            limit = f"the limit of {self._limit / 2**20:,.0f} MiB for what comes back"
            reason = f"{size / 2**20:,.0f} MiB are over {limit}"
            if isinstance(each, Bound):
                bound.remove(each)
                self.found.failed[each.name] = f"its {reason}"
            else:
                changed.remove(each)
                self._leave(each.part, f"the {reason}")

    def _together(self, bound: list[Bound], changed: list[Changed]) -> Together | None:
        """Pack what refers to objects of the notebook, or to one another; the rest stays packed on its own."""
        homes = Homes(self._captured if self._in_place else None)
        joint = [each for group in groups(bound, homes, changed) for each in group]
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
            return Joint(self._side, homes, joint, changed, self._namespace).packed()
        except NotPicklableError as error:  # no object is left out without a word
            for each in joint:
                self.found.failed[each.name] = error.reason
            for change in changed:
                self._leave(change.part, error.reason)
            return None

    def _depart(self, bound: list[Bound], changed: list[Changed]) -> None:
        """Note the objects that go home, which are not finalized here."""
        going = [each.objects for each in bound if each.name not in self.found.failed]
        going += (change.objects for change in changed)
        self._captured.departing.add(self._side, lambda: (each for objects in going for _, each in objects.values()))

    def _note(self, each: Bound) -> None:
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
                self._depart([each], [])
                waiting += each.shared.needs


def _nbytes(each: Bound | Changed) -> int:
    return each.shared.packed.nbytes if isinstance(each, Bound) else each.nbytes
