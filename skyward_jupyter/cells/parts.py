"""Captured values in parts: values that share objects or memory are packed in one pickle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from skyward.errors import NotPicklableError
from skyward.frontends.calls import Kept
from skyward.frontends.cells import (
    ArrayView,
    CellEnd,
    Extent,
    Packed,
    Root,
    Shared,
    extent_of,
    is_plain,
    is_shared_visibly,
    pack_shared,
    shared_views,
    view_in_bytes,
)
from skyward.frontends.views import joined
from skyward_jupyter.cells.manifest import ManifestEntry
from skyward_jupyter.cells.placeholders import PackedValue

__all__ = ["NOTHING", "CapturedPart", "CapturedValue", "pack_parts", "sharing_memory"]


_REMEMBERED = 1 << 20
"""Most bytes of arrays that are copied, to detect changes by the notebook while a cell runs."""


@dataclass(slots=True)
class CapturedValue:
    """A captured value, packed on its own at first.

    Attributes:
        names: its names.
        value: the value.
        shared: its pickle.
        reason: the reason for its capture, unless the cell simply reads it.
        key: id of a class of the notebook; empty for any other value.
    """

    names: list[str]
    value: object
    shared: Shared
    reason: str = ""
    key: str = ""

    @property
    def root(self) -> Root:
        """The description of the value for the node."""
        return Root(tuple(self.names), self.key)


@dataclass(frozen=True, slots=True)
class CapturedPart:
    """Values that are packed in one pickle.

    Attributes:
        values: the values.
        shared: the pickle.
        pack: pickles the current values again.
        memory: the bytes of arrays as they were sent; None if they exceed `_REMEMBERED`.
    """

    values: tuple[CapturedValue, ...]
    shared: Shared
    pack: "Callable[[tuple[CapturedValue, ...]], Shared]"
    memory: tuple[bytes, ...] | None

    def is_as_sent(self) -> bool:
        """Return whether the values are still as they were sent; False if unknown."""
        if self.memory is None:
            return False
        try:
            now = self.pack(self.values).packed
        except NotPicklableError:
            return False
        return now.data == self.shared.packed.data and _bytes_of(now) == self.memory

    @property
    def is_named(self) -> bool:
        """True unless it only has process-wide state, such as settings of libraries."""
        return any(each.names or each.key for each in self.values)

    @property
    def roots(self) -> tuple[Root, ...]:
        return tuple(each.root for each in self.values)

    @property
    def entry(self) -> ManifestEntry:
        """The line of the manifest for this part."""
        names = [", ".join(each.names) or getattr(each.value, "__qualname__", "") for each in self.values]
        kinds = dict.fromkeys(_kind(each.value) for each in self.values)
        reason = next((each.reason for each in self.values if each.reason), "") if len(self.values) == 1 else ""
        where = joined(each.value.where for each in self.values if isinstance(each.value, Kept))
        return ManifestEntry(", ".join(names), ", ".join(kinds), (self.shared.packed,), reason, where)


def _pack_values(values: Sequence[CapturedValue], side: CellEnd, views: Mapping[int, ArrayView]) -> Shared:
    value = values[0].value if len(values) == 1 else [each.value for each in values]
    name = next((name for each in values for name in each.names), "the value")
    return pack_shared(value, side, name, whole={each.key for each in values if each.key}, views=views)


def _bytes_of(packed: Packed) -> tuple[bytes, ...]:
    return tuple(map(bytes, packed.buffers))


NOTHING = Packed(b"")


class _Form(Enum):
    """The list of a value that an array is in: `arrays`, `apart` or `inside`."""

    ARRAYS = auto()
    APART = auto()
    INSIDE = auto()


def pack_parts(values: Sequence[CapturedValue], side: CellEnd) -> list[CapturedPart]:
    """Pack values; those that refer to the same objects or share memory go into one pickle."""
    groups, views = _group(values)
    parts = []
    pack = partial(_pack_values, side=side, views=views)
    for group in map(tuple, groups):
        is_apart = len(group) == 1 and not any(id(array) in views for array in group[0].shared.arrays)
        shared = group[0].shared if is_apart else pack(group)
        few = sum(memoryview(buffer).nbytes for buffer in shared.packed.buffers) <= _REMEMBERED
        parts.append(CapturedPart(group, shared, pack, _bytes_of(shared.packed) if few else None))
    return parts


def sharing_memory(values: Sequence[CapturedValue]) -> list[tuple[str, str]]:
    """Return pairs of names whose values share memory here, but not on the node; one name twice for one value."""
    if not any(each.shared.apart or each.shared.inside for each in values):
        return []
    known = [
        (extent_of(array), id(array), each, form)
        for each in values
        for form, arrays in zip(_Form, (each.shared.arrays, each.shared.apart, each.shared.inside), strict=True)
        for array in arrays
    ]
    found: set[tuple[str, str]] = set()
    reaching: list[tuple[Extent, int, CapturedValue, _Form]] = []
    for extent, key, each, form in sorted(known, key=lambda one: one[0].start):
        reaching = [one for one in reaching if one[0].end > extent.start]
        for _, other_key, other, other_form in reaching:
            is_reported = key != other_key and (_Form.APART in (form, other_form) or form != other_form)
            if each is other and _Form.INSIDE in (form, other_form):
                is_reported = False  # pandas handles this
            if is_reported and extent.end > extent.start and each.names and other.names:
                one, two = sorted([other.names[0], each.names[0]])
                found.add((one, two))
        reaching.append((extent, key, each, form))
    return sorted(found)


def _group(values: Sequence[CapturedValue]) -> tuple[list[list[CapturedValue]], dict[int, ArrayView]]:
    """Return groups of values that share objects or memory, and the arrays that are views of shared memory."""
    leaders = list(range(len(values)))

    def leader(number: int) -> int:
        while leaders[number] != number:
            number = leaders[number]
        return number

    owner_of: dict[int, int] = {}
    known = [(number, each) for number, each in enumerate(values) if not is_plain(each.value)]
    known.sort(key=lambda pair: pair[1].shared.packed.nbytes)
    for number, each in known if len(known) > 1 else ():
        mine = each.shared.objects()
        for key in mine.keys() & owner_of.keys():
            if leader(owner_of[key]) != leader(number) and is_shared_visibly(mine[key][1]):
                leaders[leader(number)] = leader(owner_of[key])
        if number != known[-1][0]:
            owner_of.update(dict.fromkeys(mine, number))
    views: dict[int, ArrayView] = {}
    arrays = {id(array): (number, array) for number, each in enumerate(values) for array in each.shared.arrays}
    for group in shared_views(array for _, array in arrays.values()):
        views |= group
        first, *others = (arrays[key][0] for key in group)
        for other in others:
            leaders[leader(other)] = leader(first)
    lent = [(*each, extent_of(each[1]).owner) for each in arrays.values()]
    lent = [each for each in lent if isinstance(each[2], bytearray)]
    lenders = {id(owner) for _, _, owner in lent}
    holders = {
        key: other for other, each in enumerate(values) if lent for key in lenders & each.shared.objects().keys()
    }
    for number, array, owner in lent:
        if id(owner) in holders:
            views[id(array)] = view_in_bytes(array, owner)
            leaders[leader(holders[id(owner)])] = leader(number)
    groups: dict[int, list[CapturedValue]] = {}
    for number, each in enumerate(values):
        groups.setdefault(leader(number), []).append(each)
    return list(groups.values()), views


def _kind(value: object) -> str:
    kind = type(value)
    if isinstance(value, PackedValue):
        return "value of a node"
    if isinstance(value, Kept):
        return value.kind
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module} {kind.__qualname__}"
