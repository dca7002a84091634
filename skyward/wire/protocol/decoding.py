"""Decoding of JSON from outside, against declared types: worker adapters, and the panel of a notebook.

`reader_of` compiles a type to a reader: a function of a value and its name that returns the decoded value, or raises
`Malformed` with a sentence that names the field. A field whose type does not say enough is annotated with a reader of
its own, as in `Annotated[str, named]`.

Written by hand, because texts and lists need limits, some names must be safe as arguments of a program, and an error is
one sentence for a user: msgspec would leave these checks to us, and be one more package to install on every node.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeAliasType, Union, get_args, get_origin, get_type_hints

from skyward.values.validation import FrozenMap

__all__ = [
    "LONGEST",
    "Malformed",
    "Reader",
    "amount",
    "host",
    "named",
    "one_line",
    "reader_of",
    "record",
    "sentence",
    "whole",
    "wrong",
]

type Reader[T] = Callable[[object, str], T]
"""Function that decodes a value; its second argument names the value in errors."""

LONGEST = 10_000
"""Characters of the longest text that has no limit of its own."""

_LONGEST_LINE = 1024
_LONGEST_SENTENCE = 4096
_MOST = 1000
_LARGEST = 2**53 - 1  # the largest integer that JavaScript represents exactly


class Malformed(ValueError):
    """Input is invalid. The message is a sentence with the reason."""


def wrong(name: str, what: str) -> NoReturn:
    """Raise `Malformed`."""
    raise Malformed(f"{name} is not {what}.")


# Readers that a field can be annotated with.


def one_line(value: object, name: str) -> str:
    """Return a one-line text."""
    if not isinstance(value, str) or len(value) > _LONGEST_LINE or not value.isprintable():
        wrong(name, f"a text of at most {_LONGEST_LINE} printable characters")
    return value


def named(value: object, name: str) -> str:
    """Return a one-line text that is not empty."""
    return one_line(value, name) or wrong(name, "a name: it is empty")


def sentence(value: object, name: str) -> str:
    """Return a text that may have several lines."""
    if not isinstance(value, str) or len(value) > _LONGEST_SENTENCE or not value.replace("\n", "").isprintable():
        wrong(name, f"a text of at most {_LONGEST_SENTENCE} characters")
    return value


def amount(value: object, name: str) -> float:
    """Return a number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15 or not isfinite(value):
        wrong(name, "a number of at least 0")
    return float(value)


def whole(least: int, most: int = 2**31 - 1) -> Reader[int]:
    """Return a reader for whole numbers within bounds."""

    def read(value: object, name: str) -> int:
        if type(value) is not int or not least <= value <= most:
            wrong(name, f"a whole number from {least} to {most}")
        return value

    return read


def host(value: object, name: str) -> str:
    """Return a host or user name: nothing that a program could parse as an option."""
    found = named(value, name)
    if found.startswith("-") or any(each.isspace() for each in found):
        wrong(name, "a name without spaces that does not start with '-'")
    return found


# Readers of types.


@cache
def reader_of(kind: Any) -> Reader[Any]:
    """Return the reader of a type: a dataclass, a literal, or an optional value, list, set or mapping of such.

    Text is limited to `LONGEST` characters, a list or mapping to 1000 entries, and an integer to those that JavaScript
    represents exactly.

    Raises:
        TypeError: values of this type are not decoded.
    """
    if isinstance(kind, TypeAliasType):
        return reader_of(kind.__value__)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if is_dataclass(kind) and isinstance(kind, type):
        return record(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        own: Reader[Any] = arguments[1]
        return own
    if origin is Literal:
        return _one_of(arguments)
    if origin in (UnionType, Union) and arguments[1:] == (NoneType,):
        return _optional(reader_of(arguments[0]))
    if origin is tuple and arguments[1:] == (...,):
        return _several(reader_of(arguments[0]), tuple)
    if origin is frozenset:
        return _several(reader_of(arguments[0]), frozenset)
    if origin in (Mapping, FrozenMap):
        key, item = map(reader_of, arguments)
        return _mapping(key, item, FrozenMap if origin is FrozenMap else dict)
    raise TypeError(f"{kind} is not decoded: annotate it with a reader.")


def record[T](kind: type[T], *, exact: bool = True, omit: Collection[str] = (), **readers: Reader[Any]) -> Reader[T]:
    """Return a reader for JSON objects with the fields of a dataclass.

    Args:
        exact: whether an object must have exactly these fields. Otherwise, fields that have a default may be missing,
            and unknown ones are ignored.
        omit: fields that an object cannot set.
        readers: readers of fields, in place of those of their types.
    """
    hints = get_type_hints(kind, include_extras=True)
    every: tuple[Field[Any], ...] = fields(kind)  # type: ignore[arg-type]  # a dataclass, which `type` cannot say
    declared = [field for field in every if field.init and field.name not in omit]
    each = [
        (field.name, f"{kind.__name__}.{field.name}", readers.get(field.name) or reader_of(hints[field.name]))
        for field in declared
    ]
    names = frozenset(name for name, _, _ in each)
    required = names if exact else {field.name for field in declared if _is_required(field)}

    def read(value: object, name: str) -> T:
        if not isinstance(value, dict):
            wrong(name, "a JSON object")
        if not required <= value.keys():
            raise Malformed(f"{kind.__name__} lacks field {_first(required - value.keys())}.")
        if exact and len(value) > len(names):
            raise Malformed(f"{kind.__name__} has no field {_first(value.keys() - names)}.")
        return kind(**{field: read(value[field], label) for field, label, read in each if field in value})

    return read


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _first(names: Set[str]) -> str:
    """Return the first of some names, as text for a sentence."""
    return repr(min(names)[:40])


def _any_text(value: object, name: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        wrong(name, f"a text of at most {LONGEST} characters")
    return value


def _boolean(value: object, name: str) -> bool:
    return value if isinstance(value, bool) else wrong(name, "true or false")


def _one_of(allowed: tuple[Any, ...]) -> Reader[Any]:
    texts = frozenset(allowed)

    def read(value: object, name: str) -> Any:
        return value if isinstance(value, str) and value in texts else wrong(name, f"one of {', '.join(allowed)}")

    return read


def _optional[T](read: Reader[T]) -> Reader[T | None]:
    return lambda value, name: None if value is None else read(value, name)


def _several[T, C](read: Reader[T], collect: Callable[[Iterable[T]], C]) -> Reader[C]:
    def each(value: object, name: str) -> C:
        if not isinstance(value, list) or len(value) > _MOST:
            wrong(name, f"a list of at most {_MOST}")
        entry = f"an entry of {name}"
        return collect([read(item, entry) for item in value])

    return each


def _mapping[K, V, C](read_key: Reader[K], read_item: Reader[V], collect: Callable[[dict[K, V]], C]) -> Reader[C]:
    def each(value: object, name: str) -> C:
        if not isinstance(value, dict) or len(value) > _MOST:
            wrong(name, f"an object of at most {_MOST} entries")
        key_name, item_name = f"a name in {name}", f"a value in {name}"
        return collect({read_key(key, key_name): read_item(item, item_name) for key, item in value.items()})

    return each


_PLAIN: Mapping[Any, Reader[Any]] = {
    bool: _boolean,
    int: whole(-_LARGEST, _LARGEST),
    str: _any_text,
}
