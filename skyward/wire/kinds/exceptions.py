"""Pickling of exceptions: rebuilt from their content, without a call of their `__init__`.

Pickle rebuilds an exception by calling its class with `args`, which fails where `__init__` takes anything else. Here
the class makes an empty one, its built-in base class sets its own fields (`errno`, `filename`), and the attributes and
slots follow. A class with its own `__reduce__` is left to that.
"""

import contextlib
import copyreg
from types import MemberDescriptorType
from typing import Any

__all__ = [
    "Parts",
    "copy_exception",
    "parts_of_exception",
    "rebuild_from_parts",
    "reduce_exception",
    "refill_exception",
    "restore_exception",
]

type Parts = tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]
"""Arguments of an exception, and by name its attributes and its slots."""


def reduce_exception(error: BaseException) -> Any:
    """Return how to rebuild `error`, or NotImplemented if pickle handles it correctly."""
    kind = type(error)
    native = _native(kind)
    if kind is native or kind in copyreg.dispatch_table:
        return NotImplemented
    if any(getattr(kind, name, None) is not getattr(native, name, None) for name in _OWN_WAYS):
        with contextlib.suppress(Exception):
            return error.__reduce_ex__(5)
    return rebuild_from_parts(kind, parts_of_exception(error))


_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")


def parts_of_exception(error: BaseException) -> Parts:
    """Return the content of `error`."""
    native: Any = _native(type(error))
    _, args, *rest = native.__reduce__(error)
    if isinstance(error, BaseExceptionGroup):
        args = (error.message, list(error.exceptions))  # its `args` are those of the call, which may differ
    return args, dict(rest[0]) if rest and rest[0] else {}, _slots(error)


def copy_exception(error: BaseException) -> BaseException:
    """Return a copy of an exception without its traceback; its notes are copied, too."""
    args, attributes, slots = parts_of_exception(error)
    if "__notes__" in attributes:
        attributes["__notes__"] = [*attributes["__notes__"]]
    copy = make_exception(type(error), args)
    restore_exception(copy, (attributes, slots))
    BaseException.args.__set__(copy, error.args)  # type: ignore[attr-defined]  # see `make_exception`
    for name in ("__context__", "__cause__", "__suppress_context__"):
        BaseException.__dict__[name].__set__(copy, getattr(error, name))
    return copy


def rebuild_from_parts(kind: type[BaseException], parts: Parts) -> tuple[Any, ...]:
    """Return how to rebuild an exception of type `kind` from `parts`, as pickle's `__reduce__` does."""
    args, attributes, slots = parts
    return make_exception, (kind, args), (attributes, slots), None, None, restore_exception


def _native(kind: type[BaseException]) -> type[BaseException]:
    """Return the built-in class that `kind` derives from."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException))


def _slots(error: BaseException) -> dict[str, Any]:
    found = {}
    for base in type(error).__mro__:
        if base.__module__ != "builtins":
            for name, value in vars(base).items():
                if isinstance(value, MemberDescriptorType):
                    with contextlib.suppress(AttributeError):  # an empty slot
                        found[name] = value.__get__(error)
    return found


def make_exception(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Make an exception with `args`. Called by pickles."""
    error: BaseException = _native(kind).__new__(kind, *args)
    refill_exception(error, args)
    return error


def refill_exception(error: BaseException, args: tuple[Any, ...]) -> None:
    """Set the `args` of `error`, and the fields that the built-in class derives from them."""
    native: Any = _native(type(error))
    if native.__init__ is not BaseException.__init__:
        with contextlib.suppress(Exception):  # arguments that the built-in class refuses are kept in `args`
            native.__init__(error, *args)
    BaseException.args.__set__(error, args)  # type: ignore[attr-defined]  # a descriptor, which typeshed does not declare


def restore_exception(error: BaseException, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Set attributes and slots. Called by pickles. The class's own `__setattr__` is bypassed: it may refuse."""
    attributes, slots = state
    for name, value in {**attributes, **slots}.items():
        descriptor = next((vars(base)[name] for base in type(error).__mro__ if name in vars(base)), None)
        if isinstance(descriptor, MemberDescriptorType):  # a slot, or a field of a built-in class
            descriptor.__set__(error, value)
        else:
            error.__dict__[name] = value
