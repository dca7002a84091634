"""Serialized functions, and a cache of those that need not be pickled again.

A function's pickle includes what it refers to, which may have changed since the last time. It cannot have changed if
the function refers only to modules and built-ins, or is pickled by name; then the pickle is cached with the function.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from skyward.wire.payloads.digest import content_address
from skyward.wire.payloads.modules import is_local
from skyward.wire.payloads.payload import Outgoing, encode
from skyward.wire.protocol.messages import Blob
from skyward.wire.protocol.text import encodable

__all__ = ["PreparedCode", "looked_up", "prepare_code"]


@dataclass(frozen=True, slots=True)
class PreparedCode:
    """A function, ready to send; `digest` is its content address."""

    digest: bytes
    outgoing: Outgoing
    name: str


@dataclass(frozen=True, slots=True)
class _Known:
    code: PreparedCode
    body: object
    refers_to: tuple[tuple[str, object], ...]


_known: WeakKeyDictionary[Callable[..., Any], _Known] = WeakKeyDictionary()


def prepare_code(function: Callable[..., Any], *, as_is: bool = False) -> PreparedCode:
    """Serialize `function`; `as_is`: see `encode`.

    Raises:
        NotPicklableError: it refers to something that cannot be pickled.
    """
    known = _known.get(function) if isinstance(function, (FunctionType, BuiltinFunctionType)) else None
    if known is not None and _is_unchanged(function, known):
        return known.code
    name = encodable(getattr(function, "__qualname__", None) or type(function).__qualname__)
    outgoing = encode(function, f"function {name}", as_is=as_is)
    code = PreparedCode(_address(outgoing), outgoing, name.rpartition(".")[2])
    refers_to = _constant_references(function)
    if refers_to is not None:
        _known[function] = _Known(code, getattr(function, "__code__", None), refers_to)
    return code


def _is_unchanged(function: Any, known: _Known) -> bool:
    if getattr(function, "__code__", None) is not known.body or _has_state(function):
        return False
    namespace = getattr(function, "__globals__", {})
    return all(namespace.get(name) is value for name, value in known.refers_to)


def _address(outgoing: Outgoing) -> bytes:
    payload = outgoing.payload
    parts = [part.key if isinstance(part, Blob) else part for part in (payload.data, *payload.buffers)]
    return content_address(memoryview(b"".join(parts)))


def _constant_references(function: Any) -> tuple[tuple[str, object], ...] | None:
    """Return the function's references by global name, if none of them can change; otherwise None."""
    if _travels_by_name(function):
        return ()
    if not isinstance(function, FunctionType):
        return None
    if function.__closure__ or _has_state(function):
        return None
    references = tuple((name, function.__globals__.get(name)) for name in looked_up(function.__code__))
    constant = all(value is None or _is_module(value) or _travels_by_name(value) for _, value in references)
    return references if constant else None


def _has_state(function: Any) -> bool:
    """Return whether a function pickled by value has defaults or attributes, whose values may change."""
    if not isinstance(function, FunctionType) or _travels_by_name(function):
        return False
    return bool(function.__defaults__ or function.__kwdefaults__ or function.__dict__)


def _is_module(value: object) -> bool:
    return isinstance(value, ModuleType) and not is_local(value)


def _travels_by_name(value: Any) -> bool:
    """Return whether `value` is a function or class of an installed module, which the node has under the same name."""
    if not isinstance(value, (FunctionType, BuiltinFunctionType, type)):
        return False
    module = sys.modules.get(value.__module__ or "")
    if module is None or value.__module__ == "__main__" or is_local(module):
        return False
    return getattr(module, value.__qualname__, None) is value


def looked_up(code: CodeType) -> set[str]:
    """Return every name that the code, and the code inside it, may look up in its globals."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(looked_up, inner))
