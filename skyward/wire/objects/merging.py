"""Application of a cell's changes to the notebook's objects, which may have changed in the meantime."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from skyward.wire.kinds.arrays import is_array
from skyward.wire.objects.array_changes import put_array_change
from skyward.wire.objects.attributes import all_attributes, remove_attribute, set_attribute
from skyward.wire.objects.changes import NUMBERS, Absent, Change, Location, Opaque, Same, is_same_number
from skyward.wire.objects.contents import Contents, contents_of, has_keys, put_contents
from skyward.wire.objects.mutability import is_fixed, is_plain

__all__ = [
    "StandInComparison",
    "has_own_hash",
    "is_applied_last",
    "is_whole_different",
    "number_to_compare",
    "put_change",
    "renew_hashes",
]


_COPIED = frozenset({list, tuple, dict})
"""Types that constructors often copy."""


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
        if kind in NUMBERS:
            return is_same_number(here, before)
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
    return _FORMS[change.form].put(value, change.now, change.before, likeness.same)


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
        return has_keys(change.now)
    return _FORMS[change.form].has_keys or (is_array(value) and not value.flags.writeable)


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


def _put_whole(value: Any, contents: Contents, before: Any, same: Same) -> bool:
    put_contents(value, contents)
    return False


def _same_contents(here: Contents, form: str, before: Any, same: Same) -> bool:
    if here.form == form == "set":
        (left,) = map(list, before)
        for each in here.parts:
            found = next((place for place, member in enumerate(left) if same(each, member)), None)
            if found is None:
                return False
            del left[found]
        return not left
    return here.form == form and same([here.parts], before)


def _put_elements(value: list[Any], now: tuple[list[int], list[Any]], before: list[Any], same: Same) -> bool:
    is_changed = False
    for place, new, old in zip(*now, before, strict=True):
        if place < len(value):
            is_changed |= not same(value[place], old)
            list.__setitem__(value, place, new)
        else:
            is_changed = True
            list.append(value, new)
    return is_changed


def _put_splice(value: list[Any], now: tuple[int, list[Any], int], before: list[Any], same: Same) -> bool:
    start, inserted, length = now
    if start == length:  # appended: elements that the notebook has appended meanwhile come first
        list.extend(value, inserted)
        return False
    end = start + len(before)
    is_changed = len(value) < end or not all(map(same, value[start:end], before))
    list.__setitem__(value, slice(start, end), inserted)
    return is_changed


def _put_pairs(value: dict[Any, Any], now: Any, before: list[Any], same: Same) -> bool:
    removed, keys, values, order = now
    base = OrderedDict if isinstance(value, OrderedDict) else dict
    is_changed = False
    for key, old in zip((*removed, *keys), before, strict=True):
        here = dict.get(value, key, Absent())
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


def _put_attributes(value: Any, now: Any, before: list[Any], same: Same) -> bool:
    removed, names, values, _ = now
    is_changed = False
    here = all_attributes(value)
    for name, old in zip((*removed, *names), before, strict=True):
        is_changed |= not same(here.get(name, Absent()), old)
    for name in removed:
        remove_attribute(value, name)
    for name, new in zip(names, values, strict=True):
        set_attribute(value, name, new)
    return is_changed


def _put_members(value: set[Any], now: tuple[list[Any], list[Any]], before: Any, same: Same) -> bool:
    added, removed = now
    set.difference_update(value, removed)
    set.update(value, added)
    return False


class _Form(NamedTuple):
    """A form of changes.

    Attributes:
        put: applies a change, and returns whether the notebook had changed the same place.
        has_keys: True if it inserts keys or members, by their hashes.
    """

    put: Callable[[Any, Any, Any, Same], bool]
    has_keys: bool = False


_FORMS = {
    "whole": _Form(_put_whole),
    "elements": _Form(_put_elements),
    "splice": _Form(_put_splice),
    "pairs": _Form(_put_pairs, has_keys=True),
    "attributes": _Form(_put_attributes),
    "members": _Form(_put_members, has_keys=True),
    "array": _Form(put_array_change),
}
"""The forms of a `Change`. Those of whole contents are in `skyward.wire.objects.contents`."""
