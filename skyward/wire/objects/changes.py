"""The smallest change that a cell made to one object, and its application to the notebook's object.

The node compares an object with the state in which it arrived. Differences are returned together with the previous
content, because the notebook's object may have changed meanwhile. Changes of both sides in different places are merged.
Where both changed the same place, the cell's change wins, and the notebook reports it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from blake3 import blake3

from skyward.wire.kinds.arrays import is_array
from skyward.wire.objects.contents import (
    STRUCTURE,
    Contents,
    all_attributes,
    attributes_in,
    contents_of,
    is_fixed,
    is_plain,
    put_contents,
    remove_attribute,
    set_attribute,
    unlock,
)
from skyward.wire.objects.process_wide import state_of

__all__ = [
    "Change",
    "Comparison",
    "Digests",
    "Location",
    "Opaque",
    "StandInComparison",
    "array_change",
    "has_own_hash",
    "is_applied_last",
    "is_array_overwritten",
    "is_whole_different",
    "number_to_compare",
    "put_change",
    "renew_hashes",
]

_BY_VALUE = frozenset({int, str, bytes, bool, type(None)})
_NUMBERS = frozenset({float, complex})
_COPIED = frozenset({list, tuple, dict})
_LATE = frozenset({"pairs", "members"})
_LATE_CONTENTS = frozenset({"dict", "set", "weak", "filled"})


@dataclass(frozen=True, slots=True)
class Location:
    """Stand-in for an object of the notebook: the number of a captured part, and that of the object in it."""

    part: int
    number: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stand-in for a value that is only compared: its digest, or None without one."""

    digest: bytes | None


@dataclass(frozen=True, slots=True)
class _Absent:
    """Stand-in for an absent value."""


class Change(NamedTuple):
    """One change of an object.

    Attributes:
        form: how it is applied to the object.
        now: the new content.
        before: the previous content, with a `Location` for each object of the notebook.
    """

    form: str
    now: Any
    before: Any


class Digests(Protocol):
    """Digests of values: equal for equal values; None if there is none."""

    def now(self, value: Any) -> bytes | None:
        """Return the digest of a value as it is."""

    def before(self, value: Any) -> bytes | None:
        """Return the digest of a value as it arrived, to compare with one of `now`."""

    def as_sent(self, value: Any) -> bytes | None:
        """Return the digest of a value as it arrived, to compare with one in the notebook."""


class Comparison:
    """The objects of a part as they are and as they arrived.

    Args:
        part: the number of the part.
        numbers: numbers of the current objects, by identity.
        before: numbers of the objects as they arrived, by identity.
        prints: digests of values that are compared in no other way.
    """

    def __init__(
        self,
        part: int,
        numbers: Mapping[int, int],
        before: Mapping[int, int],
        prints: Digests,
    ) -> None:
        self._part = part
        self._numbers = numbers
        self._before = before
        self._prints = prints

    def same(self, one: Any, other: Any) -> bool:
        """Return whether `one` is in the place of `other`."""
        if one is other:
            return True
        kind = type(one)
        if kind in _BY_VALUE:
            return kind is type(other) and bool(one == other)
        if kind in _NUMBERS:
            return kind is type(other) and _is_same_number(one, other)
        number = self._numbers.get(id(one))
        if number is not None or id(other) in self._before:
            return number == self._before.get(id(other))
        if kind is not type(other):
            return False
        if kind is tuple or kind is list:
            return self._same_items(one, other)
        if kind is dict:
            return self._same_pairs(one, other)
        return self._is_alike(one, other)

    def is_same(self, now: Any, before: Any) -> bool:
        """Return whether an object contains what it contained on arrival."""
        kind = type(now)
        if kind is list:
            return type(before) is list and self._same_items(now, before)
        if kind is dict:
            return self._same_pairs(now, before)
        if not self.same(kind, type(before)):
            return False
        attributes = attributes_in(now)
        if attributes is not None:
            return self._same_pairs(attributes, attributes_in(before) or {})
        one, other = contents_of(now), contents_of(before)
        if one is None or other is None:
            return one is other and self._is_alike(now, before)
        if one.form == "process":
            return self.same(one.parts, state_of(before))
        if one.form != other.form:
            return False
        if one.form == "set":
            return self._same_members(one.parts, other.parts)
        return self.same(one.parts, other.parts)

    def between(self, now: Any, before: Any) -> tuple[Change, ...] | None:
        """Return the changes of an object; None if they cannot be applied to another object."""
        if type(now) is list:
            return (self._items(now, before),)
        if type(now) is dict and _are_plain(now) and _are_plain(before):
            return (self._pairs("pairs", now, before),)
        if (attributes := attributes_in(now)) is not None and self.same(type(now), type(before)):
            return (self._pairs("attributes", attributes, attributes_in(before) or {}),)
        one, other = contents_of(now), contents_of(before)
        if one is None:
            return None
        if other is not None and one.form == other.form:
            if one.form == "set" and all(map(is_plain, one.parts)) and all(map(is_plain, other.parts)):
                current, previous = set(one.parts), set(other.parts)
                return (Change("members", ([*(current - previous)], [*(previous - current)]), None),)
            if one.form == "module" or (one.form == "class" and self._same_structure(one.parts, other.parts)):
                new, old = (
                    {name: part for name, part in each.parts.items() if name not in STRUCTURE} for each in (one, other)
                )
                return (self._pairs("attributes", new, old),)
            if one.form == "state" and (found := self._of_state(now, one.parts, other.parts)) is not None:
                return found
        return (Change("whole", one, Opaque(None) if other is None else self.stand_in_of([other.parts])),)

    def whole(self, now: Any, before: Any) -> tuple[Change, ...] | None:
        """Return the whole content of an object as its changes; None if they cannot be applied to another object."""
        one, other = contents_of(now), contents_of(before)
        if one is None:
            return None
        return (Change("whole", one, Opaque(None) if other is None else self.stand_in_of([other.parts])),)

    def stand_in_of(self, value: Any) -> Any:
        """Return the stand-in of a value as it arrived, for the notebook to compare with its own."""
        kind = type(value)
        if kind in _BY_VALUE or kind in _NUMBERS:
            return value
        number = self._before.get(id(value))
        if number is not None:
            return Location(self._part, number)
        if kind is tuple or kind is list:
            return kind(map(self.stand_in_of, value))
        if kind is dict:
            return [list(map(self.stand_in_of, value)), list(map(self.stand_in_of, value.values()))]
        return self.opaque(value)

    def opaque(self, before: Any) -> Opaque:
        """Return the stand-in of a value as it arrived that is only compared as a whole."""
        return Opaque(self._prints.as_sent(before))

    def _is_alike(self, one: Any, other: Any) -> bool:
        digest = self._prints.now(one)
        return digest is not None and digest == self._prints.before(other)

    def _same_pairs(self, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
        if len(one) != len(other):
            return False
        same, numbers, before = self.same, self._numbers, self._before
        for (key, value), (key2, value2) in zip(one.items(), other.items(), strict=True):
            if key is not key2 and not same(key, key2):
                return False
            if value is not value2:
                number = numbers.get(id(value))
                if (number is None or number != before.get(id(value2))) and not same(value, value2):
                    return False
        return True

    def _same_items(self, one: Sequence[Any], other: Sequence[Any]) -> bool:
        if len(one) != len(other):
            return False
        same, numbers, before = self.same, self._numbers, self._before
        for value, value2 in zip(one, other, strict=True):
            number = numbers.get(id(value))
            if (number is None or number != before.get(id(value2))) and not same(value, value2):
                return False
        return True

    def _same_members(self, one: Sequence[Any], other: Sequence[Any]) -> bool:
        if len(one) != len(other):
            return False
        first = [(type(each), each) if is_plain(each) else self._numbers.get(id(each)) for each in one]
        second = [(type(each), each) if is_plain(each) else self._before.get(id(each)) for each in other]
        if None not in first and None not in second:
            return set(first) == set(second)
        left = list(other)
        for each in one:
            found = next((place for place, member in enumerate(left) if self.same(each, member)), None)
            if found is None:
                return False
            del left[found]
        return True

    def _items(self, now: list[Any], before: list[Any]) -> Change:
        if len(now) == len(before):
            places = [
                number for number, (one, other) in enumerate(zip(now, before, strict=True)) if not self.same(one, other)
            ]
            old = [self.stand_in_of(before[number]) for number in places]
            return Change("elements", (places, [now[number] for number in places]), old)
        shorter = min(len(now), len(before))
        start = 0
        while start < shorter and self.same(now[start], before[start]):
            start += 1
        end = 0
        while end < shorter - start and self.same(now[-1 - end], before[-1 - end]):
            end += 1
        removed = before[start : len(before) - end]
        inserted = now[start : len(now) - end]
        return Change("splice", (start, inserted, len(before)), [self.stand_in_of(each) for each in removed])

    def _pairs(self, form: str, now: Mapping[Any, Any], before: Mapping[Any, Any], *, removes: bool = True) -> Change:
        """Return the changed keys; and the order of all keys, if setting and removing those does not reproduce it."""
        changed = [key for key in now if key not in before or not self.same(now[key], before[key])]
        removed = [key for key in before if key not in now] if removes else []
        left = [key for key in before if key in now] + [key for key in now if key not in before]
        order = None if form == "attributes" or left == list(now) else list(now)
        old = [self.stand_in_of(before[key]) if key in before else _Absent() for key in (*removed, *changed)]
        return Change(form, (removed, changed, [now[key] for key in changed], order), old)

    def _same_structure(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return all(self.same(one.get(name), other.get(name)) for name in STRUCTURE)

    def _of_state(self, now: Any, one: Any, other: Any) -> tuple[Change, ...] | None:
        """Return the changes of an object that is rebuilt from attributes, items and pairs; None for any other."""
        kind, _, state, items, pairs, setter = one
        kind_before, _, state_before, items_before, pairs_before, _ = other
        if setter is not None or hasattr(type(now), "__setstate__") or not self.same(kind, kind_before):
            return None
        found = []
        attributes, old = _attributes(state), _attributes(state_before)
        if attributes is None or old is None:
            return None
        if not self._same_pairs(attributes, old):
            is_all = getattr(type(now), "__getstate__", None) is object.__getstate__
            found.append(self._pairs("attributes", attributes, old, removes=is_all))
        if not self.same(items, items_before):
            if not isinstance(now, list):
                return None
            found.append(self._items(items, items_before))
        if not self.same(pairs, pairs_before):
            current, previous = (dict(zip(*each, strict=True)) for each in (pairs, pairs_before))
            if not isinstance(now, dict) or not (_are_plain(current) and _are_plain(previous)):
                return None
            found.append(self._pairs("pairs", current, previous))
        return tuple(found)


class StandInComparison:
    """Compares values of the notebook with the stand-ins of values as they were sent.

    Args:
        original: returns the object at a location.
        print_of: returns a digest of a value, or None.
    """

    def __init__(self, original: Callable[[Location], Any], print_of: Callable[[Any], bytes | None]) -> None:
        self._original = original
        self._print_of = print_of

    def is_steady(self, one: Contents, other: Contents | None) -> bool:
        """Return whether an object's content is the same each time it is read: some objects count the reads."""
        found = self._print_of([one.parts])
        return other is not None and found is not None and found == self._print_of([other.parts])

    def same(self, here: Any, before: Any) -> bool:
        """Return whether `before` is a stand-in of `here`; True if that cannot be decided."""
        kind = type(before)
        if kind is Location:
            return self._original(before) is here
        if kind is Opaque:
            return before.digest is None or self._print_of(here) in (None, before.digest)
        if type(here) is dict:
            return kind is list and self._same_pairs(here, *before)
        if type(here) is not kind:
            return False
        if kind in _NUMBERS:
            return _is_same_number(here, before)
        if kind is tuple or kind is list:
            return len(here) == len(before) and all(map(self.same, here, before))
        return bool(here == before)

    def _same_pairs(self, here: dict[Any, Any], keys: list[Any], values: list[Any]) -> bool:
        if all(type(key) is str for key in keys):  # attributes, whose order is irrelevant
            before = dict(zip(keys, values, strict=True))
            return here.keys() == before.keys() and all(self.same(here[key], before[key]) for key in keys)
        return self.same([*here], keys) and self.same([*here.values()], values)


def number_to_compare(numbers: Mapping[int, int], value: Any) -> int | None:
    """Return the number that replaces `value` in the digest of an object that refers to it; None to include the value.

    A constructor may have copied a list that it was given: then only one end has the number. An array may belong to the
    object that refers to it.
    """
    return None if type(value) in _COPIED or is_array(value) or is_fixed(value) else numbers.get(id(value))


def put_change(value: Any, change: Change, likeness: StandInComparison) -> bool:
    """Apply a change to an object of the notebook.

    Returns:
        True if the notebook had changed the same place meanwhile.

    Raises:
        Exception: the object's own error, if it refuses the change.
    """
    return _PUT[change.form](value, change.now, change.before, likeness.same)


def is_array_overwritten(value: Any, change: Change) -> bool:
    """Return whether the notebook has changed array elements that a change covers.

    Call it before any change is applied: arrays may share memory.
    """
    if change.form == "array":
        shape, packed, new = change.now
        if value.shape != shape or value.dtype != new.dtype:
            return False  # the change cannot be applied
        current = value[_mask(packed, value)]
        return bool(current.tobytes() != new.tobytes() and _digest(current) != change.before)
    if type(change.before) is Opaque and change.before.digest is not None and is_array(value):
        return _digest(value) != change.before.digest
    return False


def is_whole_different(value: Any, change: Change, likeness: StandInComparison) -> bool:
    """Return whether an object of the notebook that is replaced as a whole differs from what was sent.

    Call it before any change is applied: the object may contain others that change. An object with code of its own,
    such as a `__getstate__`, may have other content on the node from the beginning.
    """
    if change.form != "whole" or change.now.form == "process" or type(change.before) is Opaque:
        return False
    here = contents_of(value)
    if here is None or _same_contents(here, change.now.form, change.before, likeness.same):
        return False
    return likeness.is_steady(here, contents_of(value))


def is_applied_last(value: Any, change: Change) -> bool:
    """Return whether a change is applied after others: keys may change too, and with them their hashes.

    A read-only view is late as well: it shows what was put into the array that it is a view of.
    """
    if change.form == "whole":
        contents: Contents = change.now
        return contents.form in _LATE_CONTENTS or (contents.form == "state" and bool(contents.parts[4][0]))
    return change.form in _LATE or (is_array(value) and not value.flags.writeable)


def has_own_hash(kind: type) -> bool:
    """Return whether the hash of objects of `kind` may depend on their content."""
    return kind.__hash__ is not None and kind.__hash__ is not _OF_IDENTITY


_OF_IDENTITY: Any = object.__hash__


def renew_hashes(made: Iterable[Any], changed: Iterable[Any]) -> None:
    """Refill dicts and sets that were filled before the hashes of their members changed."""
    if not any(has_own_hash(type(each)) for each in changed):
        return
    for each in made:
        with suppress(Exception):  # user code
            if isinstance(each, dict) and not all(map(is_plain, each)):
                base: Any = OrderedDict if isinstance(each, OrderedDict) else dict
                found = list(each.items())
                base.clear(each)
                for key, value in found:
                    base.__setitem__(each, key, value)
            elif isinstance(each, set) and not all(map(is_plain, each)):
                members = list(each)
                set.clear(each)
                set.update(each, members)


type _Same = Callable[[Any, Any], bool]


def _put_whole(value: Any, contents: Contents, before: Any, same: _Same) -> bool:
    put_contents(value, contents)
    return False


def _same_contents(here: Contents, form: str, before: Any, same: _Same) -> bool:
    if here.form == form == "set":
        (left,) = map(list, before)
        for each in here.parts:
            found = next((place for place, member in enumerate(left) if same(each, member)), None)
            if found is None:
                return False
            del left[found]
        return not left
    return here.form == form and same([here.parts], before)


def _put_elements(value: list[Any], now: tuple[list[int], list[Any]], before: list[Any], same: _Same) -> bool:
    is_changed = False
    for place, new, old in zip(*now, before, strict=True):
        if place < len(value):
            is_changed |= not same(value[place], old)
            list.__setitem__(value, place, new)
        else:
            is_changed = True
            list.append(value, new)
    return is_changed


def _put_splice(value: list[Any], now: tuple[int, list[Any], int], before: list[Any], same: _Same) -> bool:
    start, inserted, length = now
    if start == length:  # appended: elements that the notebook has appended meanwhile come first
        list.extend(value, inserted)
        return False
    end = start + len(before)
    is_changed = len(value) < end or not all(map(same, value[start:end], before))
    list.__setitem__(value, slice(start, end), inserted)
    return is_changed


def _put_pairs(value: dict[Any, Any], now: Any, before: list[Any], same: _Same) -> bool:
    removed, keys, values, order = now
    base = OrderedDict if isinstance(value, OrderedDict) else dict
    is_changed = False
    for key, old in zip((*removed, *keys), before, strict=True):
        here = dict.get(value, key, _Absent())
        is_changed |= not same(here, old)
    for key in removed:
        if key in value:
            base.__delitem__(value, key)
    for key, new in zip(keys, values, strict=True):
        base.__setitem__(value, key, new)
    if order is not None:
        current = dict(value)
        base.clear(value)
        for key in (*(key for key in order if key in current), *(key for key in current if key not in set(order))):
            base.__setitem__(value, key, current[key])
    return is_changed


def _put_attributes(value: Any, now: Any, before: list[Any], same: _Same) -> bool:
    removed, names, values, _ = now
    is_changed = False
    here = all_attributes(value)
    for name, old in zip((*removed, *names), before, strict=True):
        is_changed |= not same(here.get(name, _Absent()), old)
    for name in removed:
        remove_attribute(value, name)
    for name, new in zip(names, values, strict=True):
        set_attribute(value, name, new)
    return is_changed


def _put_members(value: set[Any], now: tuple[list[Any], list[Any]], before: Any, same: _Same) -> bool:
    added, removed = now
    set.difference_update(value, removed)
    set.update(value, added)
    return False


def array_change(array: Any, memory: Any, start: int) -> Change | None:
    """Return the changed elements of an array as a change; None if there are none.

    Args:
        array: the array.
        memory: its bytes on arrival.
        start: current address of the first of them.
    """
    import numpy as np

    offset = array.__array_interface__["data"][0] - start
    before = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
    differs = _elements(array) != _elements(before)
    if differs.ndim == 2:
        differs = differs.any(axis=1)
    if not differs.any():
        return None
    mask = differs.reshape(array.shape)
    return Change("array", (array.shape, np.packbits(differs), array[mask]), _digest(before[mask]))


def _elements(array: Any) -> Any:
    """Return the elements of an array as numbers, or as rows of bytes, so that they can be compared."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    if array.itemsize in (1, 2, 4, 8):
        return flat.view(f"u{array.itemsize}")
    return flat.view("u1").reshape(flat.size, array.itemsize)


def _mask(packed: Any, array: Any) -> Any:
    import numpy as np

    return np.unpackbits(packed, count=array.size).astype(bool).reshape(array.shape)


def _digest(array: Any) -> bytes:
    return blake3(array.tobytes()).digest()


def _put_array(value: Any, now: Any, before: bytes, same: _Same) -> bool:
    shape, packed, new = now
    if value.shape != shape or value.dtype != new.dtype:
        raise ValueError("its shape or element type has changed here")
    mask = _mask(packed, value)
    if value[mask].tobytes() == new.tobytes():  # written already, for example through another view of the memory
        return False
    was_writable = value.flags.writeable
    if not was_writable:
        unlock(value)
    value[mask] = new
    if not was_writable:
        value.flags.writeable = False
    return False


_PUT: dict[str, Callable[[Any, Any, Any, _Same], bool]] = {
    "whole": _put_whole,
    "elements": _put_elements,
    "splice": _put_splice,
    "pairs": _put_pairs,
    "attributes": _put_attributes,
    "members": _put_members,
    "array": _put_array,
}


def _is_same_number(one: Any, other: Any) -> bool:
    return bool(one == other and one) or repr(one) == repr(other)


def _are_plain(keys: Iterable[Any]) -> bool:
    return all(map(is_plain, keys))


def _attributes(state: Any) -> dict[str, Any] | None:
    """Return the attributes in a state from `object.__getstate__`, including slots; None for any other state."""
    if state is None:
        return {}
    if isinstance(state, tuple) and len(state) == 2:
        first, slots = state
        if isinstance(first, dict | None) and isinstance(slots, dict | None):
            return {**(first or {}), **(slots or {})}
        return None
    return state if isinstance(state, dict) else None
