"""Type aliases and type parameters as they travel: `type Vec = list[float]`, and `P` of `def f[**P](...)`.

cloudpickle sends those that a module has by their names, and of the others only `TypeVar` by value.
"""

import typing
from typing import Any

from cloudpickle import cloudpickle as inner

__all__ = ["TYPE_NAMES", "reduce_type_name"]

TYPE_NAMES = (typing.TypeAliasType, typing.ParamSpec, typing.TypeVarTuple)

_unfilled: dict[int, tuple[Any, list[Any]]] = {}
"""By identity, aliases that were made and wait for what they stand for."""


def reduce_type_name(obj: Any) -> Any:
    """Return how to rebuild one of `TYPE_NAMES`; NotImplemented where it is found by its name."""
    name = obj.__name__
    found = inner._lookup_module_and_qualname(obj, name=name)
    if found is not None and not inner._is_registered_pickle_by_value(found[0]):
        return NotImplemented
    if not isinstance(obj, typing.TypeAliasType):
        return _make_parameter, (type(obj), name, inner._get_or_create_tracker_id(obj))
    if obj.__type_params__:
        return _make_generic_alias, (name, obj.__value__, obj.__type_params__)
    return _make_alias, (name, obj.__module__), obj.__value__, None, None, _fill_alias


def _make_parameter(kind: type, name: str, key: str) -> Any:
    return inner._lookup_class_or_track(key, kind(name))


def _make_generic_alias(name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    make: Any = typing.TypeAliasType  # which type checkers want to see called with constants only
    return make(name, value, type_params=parameters)


def _make_alias(name: str, module: str | None) -> Any:
    """Return an alias whose value is looked up late, because it may contain the alias."""
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no name of a type alias")
    held: list[Any] = []
    names: dict[str, Any] = {"__name__": module}
    exec(f"def make(held):\n    type {name} = held[0]\n    return {name}", names)
    alias = names["make"](held)
    _unfilled[id(alias)] = alias, held
    return alias


def _fill_alias(alias: Any, value: Any) -> None:
    _, held = _unfilled.pop(id(alias))
    held.append(value)
