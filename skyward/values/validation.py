"""Base class and checks of the frozen values; each error names the problem and the fix.

JSON from outside is decoded elsewhere (`wire.protocol.decoding`). These check arguments of users: any Python values,
with errors that show the value and a correct call.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite
from typing import Any, Self, get_args

from skyward.errors import SpecError
from skyward.values import limits

__all__ = [
    "FrozenMap",
    "Secret",
    "Value",
    "choice",
    "closest",
    "listed",
    "number",
    "of_type",
    "seconds",
    "shown",
    "strings",
    "text_map",
    "whole",
]


class FrozenMap[K, V](Mapping[K, V]):
    """Immutable mapping, which can be hashed and shared."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._items = dict(items)
        self._hash: int | None = None

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (self._items,)


class Secret(str):
    """String whose `repr` is three stars, so that the `repr` of a container does not reveal it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr("***")


class Value:
    """Base of the frozen values: an unknown keyword is a `SpecError` that names the closest known one."""

    __slots__ = ()

    def __new__(cls, *args: Any, **given: Any) -> Self:
        fields = getattr(cls, "__dataclass_fields__", {})
        known = {name: field for name, field in fields.items() if field.init}
        if args and len(args) > sum(not field.kw_only for field in known.values()):
            raise SpecError(f"{cls.__name__} got too many values by position; name its fields: {', '.join(known)}.")
        for name in given:
            if name not in known:
                raise SpecError(f"{cls.__name__} has no field {name!r}; {closest(name, known)}")
        return super().__new__(cls)

    def _set(self, **values: Any) -> None:
        """Set fields of this frozen value during construction."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def closest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: the known names close to `name`, or all known names, if any."""
    import difflib  # only for an error

    names = sorted(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.65)
    if close:
        return f"did you mean {' or '.join(repr(by_lower[match]) for match in close)}?"
    return f"it has {', '.join(names)}." if names else "there are none."


def shown(value: object) -> str:
    """Return `repr(value)` for a sentence, truncated; a `repr` that raises is replaced by the type."""
    try:
        text = repr(value)
    except Exception:  # a `repr` of the user, or of an integer with too many digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


_LONGEST_SHOWN = 200


def whole(value: object, name: str, *, least: int, most: int = limits.ATTEMPTS) -> None:
    """Check that `value` is an integer from `least` to `most`.

    Raises:
        SpecError: the value is not allowed.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SpecError(f"{name} must be a whole number of at least {least}, but got {shown(value)}.")
    if value > most:
        raise SpecError(f"{name} must be at most {most:,}, but got {shown(value)}: lower it.")


def number(
    value: object,
    name: str,
    *,
    zero: bool = False,
    optional: bool = False,
    least: float = 0,
    most: float = limits.AMOUNT,
) -> None:
    """Check that `value` is a positive number from `least` to `most`; `zero` allows 0, `optional` allows None.

    Raises:
        SpecError: the value is not allowed.
    """
    if value is None and optional:
        return
    kind = "number of at least 0" if zero else "positive number"
    kind = f"a finite {kind}" if isinstance(value, float) and not isfinite(value) else f"a {kind}"
    wrong = SpecError(f"{name} must be {kind}{', or None' if optional else ''}, but got {shown(value)}.")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong
    if not (0 < value < inf or (zero and value == 0)):
        raise wrong
    if value > most:
        raise SpecError(f"{name} must be at most {most:,}, but got {shown(value)}: lower it.")
    if value < least:
        raise SpecError(f"{name} must be at least {least:,}, but got {shown(value)}: raise it.")


def seconds(value: object, name: str, *, zero: bool = False, optional: bool = False, least: float = 0) -> None:
    """Check that `value` is a number of seconds, at most ten years; see `number`.

    Raises:
        SpecError: the value is not allowed.
    """
    number(value, name, zero=zero, optional=optional, least=least, most=limits.SECONDS)


def choice(value: object, name: str, alias: Any, *, optional: bool = False) -> None:
    """Check that `value` is one of the values of the literal type `alias`.

    Raises:
        SpecError: the value is not allowed.
    """
    allowed = get_args(getattr(alias, "__value__", alias))
    if not (value is None and optional) and not any(type(value) is type(item) and value == item for item in allowed):
        listed = ", ".join(repr(item) for item in allowed)
        raise SpecError(f"{name} must be one of {listed}{' or None' if optional else ''}, but got {shown(value)}.")


def of_type(value: object, name: str, kind: type[Any] | tuple[type[Any], ...], example: str) -> None:
    """Check that `value` is an instance of `kind`.

    Raises:
        SpecError: it is not; the message shows `example`.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        listed_kinds = " or ".join(each.__name__ for each in kinds)
        raise SpecError(f"{name} must be {listed_kinds}, as in `{example}`, but got {shown(value)}.")


def strings(value: object, name: str, example: str) -> tuple[str, ...]:
    """Return `value` as a tuple of strings, none of them empty.

    Raises:
        SpecError: it is a single string, or has an element that is not a string.
    """
    if isinstance(value, str):
        raise SpecError(f"{name} must be a list, but got the string {value!r}; write `{name}=[{value!r}]`.")
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise SpecError(f"{name} must be a list of strings, as in `{name}={example}`, but got {shown(value)}.")
    items = tuple(value)
    for item in items:
        if not isinstance(item, str) or not item.strip():
            raise SpecError(f"{name} must be a list of strings, as in `{name}={example}`, but it has {shown(item)}.")
    return items


def listed(value: object, name: str, example: str, single: type[Any] | tuple[type[Any], ...] = ()) -> tuple[Any, ...]:
    """Return `value` as a tuple; a single value of type `single` becomes a tuple of one.

    Raises:
        SpecError: it is not a list.
    """
    if isinstance(value, single):
        return (value,)
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise SpecError(f"{name} must be a list, as in `{name}=[{example}]`, but got {shown(value)}.")
    return tuple(value)


def text_map(value: object, name: str, example: str) -> FrozenMap[str, str]:
    """Return `value` as a mapping of environment variables to strings.

    Raises:
        SpecError: it is not a mapping, a name is not a valid shell variable, or a value is not a string.
    """
    if not isinstance(value, Mapping):
        raise SpecError(f"{name} must be a dict, as in `{name}={example}`, but got {shown(value)}.")
    for key, item in value.items():
        if not isinstance(key, str) or not key.isascii() or not key.isidentifier():
            raise SpecError(
                f"{name} must have names of shell variables (letters, digits and _), but it has {shown(key)}."
            )
        # The value is not shown: it may be a secret.
        if isinstance(item, str) and any(each == "\0" or "\ud800" <= each <= "\udfff" for each in item):
            raise SpecError(f"{name} sets {key} to a string with a NUL or a lone surrogate: remove it.")
        if not isinstance(item, str):
            raise SpecError(f"{name} must set {key} to a string, but it is {type(item).__name__}; write {key}='...'.")
    return FrozenMap(value)
