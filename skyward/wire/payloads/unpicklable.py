"""Diagnosis of values that cannot be pickled: the path from the value to the part that refuses."""

import io
from collections.abc import Iterator, Mapping
from types import CellType, FunctionType
from typing import Any, Literal

from skyward.errors import NotPicklableError
from skyward.wire.payloads.pickler import Pickler

__all__ = ["Direction", "not_picklable"]

type Direction = Literal["to a node", "back from the node"]

_DEPTH = 12
_BREADTH = 200
"""Parts checked on each level, so that a large container cannot make an error slow."""


_KNOWN = {
    "skyward.pool.compute.Compute": (
        "A pool stays with the client: call it there, and pass the results that the task needs",
        "A task has no pool to return",
    ),
    "skyward.control.act.tasks.streams.RemoteIterator": (
        "Annotate the parameter as Iterator[T] to stream it in, or pass list(...) of it",
        "Return a list of it",
    ),
    "concurrent.futures._base.Future": (
        "Pass its result(), or the future itself as an argument or in a list, tuple or dict, which sends its value",
        "Return its result: future.result()",
    ),
    "_asyncio.Future": ("Await it and pass its result", "Await it in the task and return its result"),
    "builtins.generator": (
        "Annotate the parameter as Iterator[T] to stream it in, or pass a list",
        "Return a list, or use `yield` in the function itself, which makes it a stream",
    ),
    "builtins.async_generator": ("Collect its elements and pass a list", "Collect its elements and return a list"),
    "builtins.coroutine": (
        "Await it and pass its result",
        "Run it in the task with asyncio.run() and return its result",
    ),
    "io.IOBase": ("Pass its path or its content, or open it in the task", "Return its path or its content"),
    "_io._IOBase": ("Pass its path or its content, or open it in the task", "Return its path or its content"),
    "_socket.socket": ("Open it in the task", "Return the data read from it"),
    "threading.Thread": ("Start it in the task", "Return what it computed"),
}
"""Advice for objects of these types, or of derived types: first on the way to a node, then back."""


def not_picklable(value: object, name: str, error: Exception, direction: Direction = "to a node") -> NotPicklableError:
    """Return the error for `value`. It has `name`, the path inside it, the type of the culprit, and advice."""
    path, culprit, reason = name, value, error
    seen: set[int] = set()
    for _ in range(_DEPTH):
        if _advice(culprit) is not None:
            break
        seen.add(id(culprit))
        found = next(((step, part, why) for step, part, why in _refusing(culprit) if id(part) not in seen), None)
        if found is None:
            break
        step, culprit, reason = found
        path += step
    kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}".removeprefix("builtins.")
    why = f"{'it' if path == name else path} is of type {kind}, which cannot be pickled"
    known = _advice(culprit)
    if known is None:
        known = "Make it on the node, or leave it out", "Return plain data, or leave it out"
        lines = str(reason).strip().splitlines()
        why += f" ({lines[0] if lines else type(reason).__name__})"
    advice = known[0 if direction == "to a node" else 1]
    return NotPicklableError(f"{name} cannot be sent {direction}: {why}. {advice}.", why)


def _advice(value: object) -> tuple[str, str] | None:
    names = (f"{base.__module__}.{base.__qualname__}" for base in type(value).__mro__)
    return next((_KNOWN[name] for name in names if name in _KNOWN), None)


def _refusing(value: object) -> Iterator[tuple[str, object, Exception]]:
    for count, (step, part) in enumerate(_parts(value)):
        if count >= _BREADTH:
            return
        try:
            Pickler(io.BytesIO(), _ignore).dump(part)
        except Exception as error:
            yield step, part, error


def _ignore(_: object) -> None:
    """Ignore a buffer: buffers can always be pickled."""


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
