"""Identity of the objects in pickles: equal pickles may have different objects, such as equal copies of some.

A pickle also contains intermediate objects, such as the states of others, which are made for it or read from it. Their
identity has no meaning. They are recognised by their references: nothing refers to them but the pickle's memo and other
intermediate objects.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skyward.wire.objects.mutability import PLAIN_KINDS, is_shared_visibly

__all__ = [
    "can_be_replaced",
    "count_references",
    "has_other_objects",
    "identifiable",
    "origins",
    "visible_objects",
]


def identifiable(objects: Mapping[int, Any]) -> dict[int, Any]:
    """Return the objects of a memo without those whose identity is irrelevant, such as strings: often most of them."""
    kinds = set(map(type, objects.values())) - PLAIN_KINDS
    return {number: each for number, each in objects.items() if type(each) in kinds}


def count_references(objects: Mapping[int, Any]) -> list[int]:
    """Return the number of references to each object of a memo, besides those of the memo and of `objects`."""
    memo = [object()]
    *counts, least = map(sys.getrefcount, [*objects.values(), memo[0]])
    return [count - least - 1 for count in counts]


def visible_objects(arrived: Mapping[int, Any], references: Sequence[int]) -> dict[int, Any]:
    """Return the objects that arrived without the intermediate ones.

    Args:
        arrived: the identifiable objects.
        references: the number of references to each when they had arrived.
    """
    steps = _intermediate(arrived, references)
    return {number: each for number, each in arrived.items() if number not in steps}


def can_be_replaced(visible: Iterable[Any], roots: Sequence[Any]) -> bool:
    """Return whether an equal object could be in the place of one of these: not of the roots, nor inside data frames.

    Without such an object, the objects of a pickle need not be listed, which takes longer than to pickle many strings.
    """
    own = set(map(id, roots))
    is_frame = all(_package(each) == "pandas" for each in roots)
    return any(
        id(each) not in own and is_shared_visibly(each) and not (is_frame and _is_of_frame(each)) for each in visible
    )


def has_other_objects(now: Mapping[int, Any], visible: Mapping[int, Any]) -> bool:
    """Return whether a pickle may have other objects than those that arrived with an equal pickle.

    Args:
        now: the identifiable objects in the pickle, by their memo numbers. No other variable refers to them.
        visible: the visible objects that arrived.
    """
    other = {number for number, each in visible.items() if now.get(number) is not each and is_shared_visibly(each)}
    return bool(other) and not _intermediate(now, count_references(now)).issuperset(other)


def origins(now: Mapping[int, Any], arrived: Mapping[int, Any]) -> dict[int, int | None]:
    """Return the memo numbers with which the identifiable objects in a pickle arrived, by their numbers in it."""
    numbers = {id(each): number for number, each in arrived.items()}
    return {number: numbers.get(id(each)) for number, each in now.items() if is_shared_visibly(each)}


def _intermediate(objects: Mapping[int, Any], references: Sequence[int]) -> set[int]:
    """Return the numbers of the intermediate objects."""
    counts = dict(zip(objects, references, strict=True))
    numbers = dict(zip(map(id, objects.values()), objects, strict=True))
    found = [number for number, count in counts.items() if not count]
    for number in found:  # grows meanwhile
        each = objects[number]
        kind = type(each)
        for part in each.values() if kind is dict else each if kind is tuple or kind is list else ():
            inside = numbers.get(id(part))
            if inside is not None:
                counts[inside] -= 1
                if not counts[inside]:
                    found.append(inside)
    return set(found)


def _is_of_frame(value: Any) -> bool:
    """Return whether a data frame may be made of `value`, rather than contain it."""
    package = _package(value)
    return package in ("numpy", "pandas") or package.startswith("_cython") or type(value) is tuple


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
