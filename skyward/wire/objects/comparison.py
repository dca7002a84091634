"""Comparison of objects on a node with the state in which they arrived, which gives their changes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from skyward.wire.objects.attributes import attributes_in
from skyward.wire.objects.changes import NUMBERS, Absent, Change, Location, Opaque, is_same_number
from skyward.wire.objects.contents import STRUCTURE, contents_of
from skyward.wire.objects.mutability import is_plain
from skyward.wire.objects.process_wide import state_of

__all__ = ["Comparison"]

_BY_VALUE = frozenset({int, str, bytes, bool, type(None)})


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
        """Return whether `one` corresponds to `other`."""
        if one is other:
            return True
        kind = type(one)
        if kind in _BY_VALUE:
            return kind is type(other) and bool(one == other)
        if kind in NUMBERS:
            return kind is type(other) and is_same_number(one, other)
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
            if one.form == "set" and _are_plain(one.parts) and _are_plain(other.parts):
                added, removed = self._not_among(one.parts, other.parts), self._not_among(other.parts, one.parts)
                return (Change("members", (added, removed), None),)
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
        if kind in _BY_VALUE or kind in NUMBERS:
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
        found_by_value = [each for each in one if is_plain(each)]
        if self._not_among(found_by_value, [each for each in other if is_plain(each)]):
            return False
        one, other = ([each for each in members if not is_plain(each)] for members in (one, other))
        if len(one) != len(other):
            return False
        first = [self._numbers.get(id(each)) for each in one]
        second = [self._before.get(id(each)) for each in other]
        if None not in first and None not in second:
            return set(first) == set(second)
        left = list(other)
        for each in one:
            found = next((place for place, member in enumerate(left) if self.same(each, member)), None)
            if found is None:
                return False
            del left[found]
        return True

    def _not_among(self, keys: Iterable[Any], others: Iterable[Any]) -> list[Any]:
        """Return the keys without those that are also among the others; equal ones of other types are not the same."""
        found = dict(zip(others, others, strict=True))
        return [key for key in keys if key not in found or not self.same(key, found[key])]

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
        new = set(self._not_among(now, before))
        changed = [key for key in now if key in new or not self.same(now[key], before[key])]
        removed = [key for key in before if key not in now or key in new] if removes else []
        left = [key for key in before if key in now and key not in new] + [key for key in now if key in new]
        order = None if form == "attributes" or left == list(now) else list(now)
        old = [self.stand_in_of(before[key]) if key in before else Absent() for key in (*removed, *changed)]
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


def _are_plain(keys: Iterable[Any]) -> bool:
    return all(map(is_plain, keys))
