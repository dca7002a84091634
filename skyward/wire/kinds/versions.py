"""Versions of functions and classes that a call cannot change: equal where one copy may replace another."""

import uuid
import weakref
from dataclasses import dataclass
from typing import Any

from skyward.wire.kinds.stateless import survey

__all__ = ["note_version", "version_of"]


@dataclass(frozen=True, slots=True)
class _Version:
    name: str
    parts: tuple[object, ...] | None
    """The objects of which the object consists, as weak references where possible; None until they are computed."""


_versions: weakref.WeakKeyDictionary[Any, _Version] = weakref.WeakKeyDictionary()


def version_of(value: object) -> str | None:
    """Return the version of a function or class; None if a call could change it or what it refers to.

    A value has another version once it, or anything that it refers to, is replaced by another object.
    """
    found = survey(value)
    if found is None:
        return None
    known = _versions.get(value)
    if known is not None and (known.parts is None or _are_same(known.parts, found)):
        if known.parts is None:
            _versions[value] = _Version(known.name, _weakly(found))
        return known.name
    version = _Version(uuid.uuid4().hex, _weakly(found))
    _versions[value] = version
    return version.name


def note_version(value: object, name: str) -> None:
    """Record the version of a received copy, so that it keeps this version when it is sent on."""
    _versions[value] = _Version(name, None)


def _weakly(parts: tuple[object, ...]) -> tuple[object, ...]:
    kept: list[object] = []
    for part in parts:
        try:
            kept.append(weakref.ref(part))
        except TypeError:  # a constant, or the context of a function that is part of itself
            kept.append(part)
    return tuple(kept)


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(
        (old() if isinstance(old, weakref.ref) else old) is new for old, new in zip(before, now, strict=True)
    )
