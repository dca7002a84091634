"""What a cell left in its namespace, packed to go home."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from skyward.errors import NotPicklableError, PayloadError
from skyward.wire.digest import content_address
from skyward.wire.notebook import Side, pack_shared, unpack_shared
from skyward.wire.payload import Packed
from skyward.worker.program import PROVIDED, SHOW, STREAM

__all__ = ["Harvest", "fingerprints_of", "harvest"]

_MISSING = object()

_CHECKED_UP_TO = 256 << 20
"""Bytes up to which a value that may have changed in place is packed again to see whether it did."""

_ANNOTATIONS = {"__annotations__", "__annotate__", "__conditional_annotations__"}
_HIDDEN = PROVIDED | _ANNOTATIONS | {SHOW, STREAM, "__warningregistry__"}


@dataclass(frozen=True, slots=True)
class Harvest:
    """The names that a cell left behind.

    Attributes:
        values: by name, the values it bound or changed.
        changed: those of them that it changed in place without an assignment.
        needs: by name of a value, the names that its functions use.
        supports: by name, values that functions among them use, for names that the notebook does not have.
        modules: by name, the modules it imported.
        aliases: names that stand for the same object as another one in `values`.
        in_place: names in `values` and `aliases` that stand for the object they were captured with: if it is another
            by now, it was changed in place.
        failed: by name, why a value cannot come back.
        deleted: names that it unbound.
    """

    values: dict[str, Packed] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    supports: dict[str, Packed] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    in_place: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()


def fingerprints_of(captured: Mapping[str, Packed], names: Collection[str]) -> dict[str, bytes]:
    """By which to tell, later, whether the values of `names` were changed in place. Very large ones are left out."""
    found = {name: captured[name] for name in names if name in captured}
    return {name: _fingerprint(packed) for name, packed in found.items() if packed.nbytes <= _CHECKED_UP_TO}


def harvest(
    side: Side,
    initial: Mapping[str, Any],
    captured: Mapping[str, Packed],
    fingerprints: Mapping[str, bytes],
    *,
    outputs: Collection[str] = (),
    touched: Collection[str] = (),
    only: Collection[str] | None = None,
    deletes: Collection[str] = (),
    limit: int = 1 << 30,
) -> Harvest:
    """What the cell that ran in the namespace of `side` left behind.

    Args:
        side: the node's end of the cell.
        initial: the namespace as it was before.
        captured: what had been packed of it.
        fingerprints: what `fingerprints_of` said of it then.
        outputs: names that come back in any case, if they are bound.
        touched: names that come back if their values have changed.
        only: the only names to bring back; None for all that were bound.
        deletes: names that are reported as unbound if they are.
        limit: bytes that may come back; the largest values stay until the rest is within it.
    """
    return _Gathering(side, initial, captured, fingerprints).of(outputs, touched, only, deletes, limit)


class _Gathering:
    def __init__(
        self, side: Side, initial: Mapping[str, Any], captured: Mapping[str, Packed], fingerprints: Mapping[str, bytes]
    ) -> None:
        self._side = side
        self._namespace = side.namespace
        self._initial = initial
        self._captured = captured
        self._fingerprints = fingerprints
        self._seen: dict[int, str] = {}
        self.found = Harvest()

    def of(
        self,
        outputs: Collection[str],
        touched: Collection[str],
        only: Collection[str] | None,
        deletes: Collection[str],
        limit: int,
    ) -> Harvest:
        found = self.found
        for name in only if only is not None else self._bound(outputs):
            self._take(name)
        changed = [name for name in touched if only is None and self._has_changed(name)]
        for name in changed:
            self._take(name)
        self._keep_within(limit)
        if only is None:
            self._follow()
        self._support()
        gone = [name for name in {*self._initial, *deletes} if name not in self._namespace]
        return Harvest(
            found.values,
            tuple(name for name in changed if name in found.values),
            found.needs,
            found.supports,
            found.modules,
            found.aliases,
            tuple(
                name
                for name in (*found.values, *found.aliases)
                if self._initial.get(name, _MISSING) is self._namespace[name]
            ),
            found.failed,
            tuple(sorted(name for name in gone if name not in _HIDDEN and (only is None or name in only))),
        )

    def _bound(self, outputs: Collection[str]) -> list[str]:
        """Names whose values are others than before, and those captured ones that come back anyhow."""
        bound = []
        for name, value in self._namespace.items():
            if self._initial.get(name, _MISSING) is value:
                if name in outputs and name in self._captured:
                    bound.append(name)
            elif name not in _HIDDEN or name in outputs:
                bound.append(name)
        return bound

    def _take(self, name: str) -> None:
        """Pack the value of `name`, or note why that cannot be."""
        found = self.found
        if name in found.values or name in found.modules:
            return
        if name not in self._namespace:
            found.failed[name] = "the cell did not bind it"
            return
        value = self._namespace[name]
        if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
            found.modules[name] = value.__name__
            return
        first = self._seen.setdefault(id(value), name)
        if first != name and first in found.values:
            found.aliases[name] = first
            return
        try:
            shared = pack_shared(value, self._side, name)
        except NotPicklableError as error:
            found.failed[name] = error.reason
            return
        found.values[name] = shared.packed
        if shared.needs:
            found.needs[name] = shared.needs

    def _has_changed(self, name: str) -> bool:
        """Whether a captured value was changed in place."""
        before, value = self._captured.get(name), self._namespace.get(name)
        fingerprint = self._fingerprints.get(name)
        if before is None or fingerprint is None or name in self.found.values or value is not self._initial.get(name):
            return False
        after = _packed(value, self._side, name)
        if after is None:
            return False
        if _fingerprint(after) != fingerprint:
            return True
        if bytes(after.data) == bytes(before.data):
            return False
        # a value may be pickled otherwise once it has travelled: compare with one that has travelled too
        again = Side({}, classes=self._side.classes, ids=self._side.ids)
        fresh = _packed(unpack_shared(before, again), again, name)
        return fresh is None or bytes(fresh.data) != bytes(after.data)

    def _keep_within(self, limit: int) -> None:
        values = self.found.values
        total = sum(packed.nbytes for packed in values.values())
        for name in sorted(values, key=lambda name: -values[name].nbytes):
            if total <= limit:
                return
            size = values.pop(name).nbytes
            total -= size
            self.found.failed[name] = (
                f"its {size / 2**20:,.0f} MiB are over the limit of {limit / 2**20:,.0f} MiB for what comes back"
            )

            for alias in [alias for alias, first in self.found.aliases.items() if first == name]:
                del self.found.aliases[alias]
                self.found.failed[alias] = self.found.failed[name]

    def _follow(self) -> None:
        """Names that still stand for an object that goes home shall stand for it there too."""
        found = self.found
        for name, value in self._initial.items():
            first = self._seen.get(id(value), "")
            if first in found.values and name not in found.values and self._namespace.get(name) is value:
                found.aliases[name] = first

    def _support(self) -> None:
        """Pack what functions that go home use, where the notebook may not have it."""
        found = self.found
        waiting = [need for needs in found.needs.values() for need in sorted(needs)]
        looked: set[str] = set()
        while waiting:
            name = waiting.pop()
            known = name in found.values or name in found.modules or name in found.aliases or name in found.failed
            if known or name in looked or name in self._initial or name not in self._namespace:
                continue
            looked.add(name)
            value = self._namespace[name]
            if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
                found.modules[name] = value.__name__
                continue
            try:
                shared = pack_shared(value, self._side, name)
            except NotPicklableError as error:
                found.failed[name] = error.reason
                continue
            found.supports[name] = shared.packed
            waiting += shared.needs


def _packed(value: object, side: Side, name: str) -> Packed | None:
    try:
        return pack_shared(value, side, name).packed
    except PayloadError:
        return None


def _fingerprint(packed: Packed) -> bytes:
    """Changes with the buffers of a packed value, which its arrays share; the pickle beside them never changes."""
    return b"".join(content_address(memoryview(part).cast("B")) for part in packed.buffers)
