"""The changes of a cell to the objects of one captured part."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from skyward.kept.keep import stand_in
from skyward.wire.kinds.arrays import extent_of, is_array
from skyward.wire.objects.array_changes import array_change
from skyward.wire.objects.attributes import all_attributes, attributes_in
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.changes import Change, Opaque
from skyward.wire.objects.comparison import Comparison
from skyward.wire.objects.contents import contents_of
from skyward.wire.objects.merging import has_own_hash, number_to_compare
from skyward.wire.objects.mutability import is_fixed, is_plain, parts_of
from skyward.wire.objects.pickling import Shared, digest_of
from skyward.worker.cells.captured import Part
from skyward.worker.cells.captured_objects import PartObjects
from skyward.worker.cells.write_detection import address_of

__all__ = ["CONTAINERS", "Changed", "Differences"]


CONTAINERS = frozenset({list, dict, set})

_COMPARED = frozenset({list, dict})
"""Types with possibly very many objects, which are compared directly."""

_FIRM = frozenset({tuple, frozenset})


@dataclass(slots=True)
class Changed:
    """A captured part that the cell has changed."""

    number: int
    part: Part
    now: Shared
    nbytes: int
    objects: Mapping[int, tuple[int, Any]]


class Differences:
    """The changes of a cell to the objects of one part."""

    def __init__(self, changed: Changed, objects: PartObjects, side: CellEnd) -> None:
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
        self._names_before = _without(numbers_before, set() if fresh is None else PartObjects(fresh).private)
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
                kind not in CONTAINERS and (is_fixed(value) or not self._is_open(value))
            ):
                continue
            if isinstance(value, type) and key not in self._objects.classes:
                continue  # captured in another part
            changes = self._of(number, value)
            if changes and key in self._side.packed_in_notebook:
                changes = None
            if changes != ():
                yield number, value, changes

    def uncertain(self, live: Collection[int]) -> Iterator[tuple[int, Any, tuple[Change, ...]]]:
        """Yield the objects that can only be compared by their reduced form, as if all had changed.

        For a part that has changed although no object of it seems to have: no change may be lost.
        """
        for number, value in self._objects.numbered.items():
            key, kind = id(value), type(value)
            if kind in CONTAINERS or is_array(value) or attributes_in(value) is not None or isinstance(value, type):
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
            address = span.address if is_all and id(value) not in self._side.other_layout else None
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
            if kind not in CONTAINERS and is_fixed(value):
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
    parts = None if type(value) in CONTAINERS else parts_of(value)
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
