"""Why a value cannot be pickled: the path from the value to the part that refuses."""

from collections.abc import Iterator, Mapping
from types import CellType, FunctionType
from typing import Any

import cloudpickle

__all__ = ["blame"]

_DEPTH = 12
_BREADTH = 200
"""Parts looked at on each level, so that a large container cannot make an error slow."""


def blame(value: object, name: str, error: Exception) -> str:
    """One sentence naming `name`, the path inside it and the culprit's type, and how to mend it."""
    path, culprit, reason = name, value, error
    seen: set[int] = set()
    for _ in range(_DEPTH):
        seen.add(id(culprit))
        found = next(((step, part, why) for step, part, why in _refusing(culprit) if id(part) not in seen), None)
        if found is None:
            break
        step, culprit, reason = found
        path += step
    kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}".removeprefix("builtins.")
    if path == name:
        where = f"{name} cannot be sent to a node: it is of type {kind}, which cannot be pickled"
    else:
        where = f"{name} cannot be sent to a node: {path} is of type {kind}, which cannot be pickled"
    detail = str(reason).strip().splitlines()
    return f"{where} ({detail[0] if detail else type(reason).__name__}). Make it on the node, or leave it out."


def _refusing(value: object) -> Iterator[tuple[str, object, Exception]]:
    for count, (step, part) in enumerate(_parts(value)):
        if count >= _BREADTH:
            return
        try:
            cloudpickle.dumps(part, protocol=5, buffer_callback=_ignore)
        except Exception as error:
            yield step, part, error


def _ignore(_: object) -> None:
    """Buffers pickle by themselves; only what refuses is of interest."""


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield f"[{key!r}]", part
            yield f" key {key!r}", key
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    elif isinstance(value, FunctionType):
        yield from _function_parts(value)
    else:
        for key, part in getattr(value, "__dict__", {}).items():
            yield f".{key}", part


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f" (global {name})", function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f" (closure variable {name})", _contents(cell)
    for index, default in enumerate(function.__defaults__ or ()):
        yield f" (default {index})", default


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not bound yet
        return None
