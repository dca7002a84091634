"""Pickling of type variables, type aliases and `NewType`: by value, unless a module has them by name."""

import keyword
import sys
from typing import Any, NewType, ParamSpec, TypeAliasType, TypeVar, TypeVarTuple

from cloudpickle import cloudpickle as inner

__all__ = ["TYPING", "reduce_typing"]

TYPING = (TypeVar, ParamSpec, TypeVarTuple, TypeAliasType, NewType)


def reduce_typing(value: Any, begun: set[int]) -> Any:
    """Return how to rebuild `value`, an object of `TYPING`; NotImplemented if it is pickled by name.

    Args:
        value: the object.
        begun: identities of the aliases that this pickle has reached; `value` is added.

    Raises:
        TypeError: a generic alias refers to itself.
    """
    found = inner._lookup_module_and_qualname(value, name=value.__name__)
    if found is not None and not inner._is_registered_pickle_by_value(found[0]):
        return NotImplemented
    name, module = value.__name__, value.__module__
    if isinstance(value, TypeAliasType):
        return _reduce_alias(value, begun)
    key = inner._get_or_create_tracker_id(value)
    if isinstance(value, NewType):
        return _make_new_type, (name, vars(value)["__qualname__"], module, value.__supertype__, key)
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    if isinstance(value, TypeVar):
        arguments = value.__constraints__
    if isinstance(value, (TypeVar, ParamSpec)):
        options = {"bound": value.__bound__, "covariant": value.__covariant__, "contravariant": value.__contravariant__}
        if getattr(value, "__infer_variance__", False):
            options["infer_variance"] = True
    if sys.version_info >= (3, 13) and value.has_default():
        options["default"] = value.__default__
    return _make_variable, (type(value), name, module, arguments, options, key)


def _reduce_alias(alias: TypeAliasType, begun: set[int]) -> Any:
    name, module = alias.__name__, str(alias.__module__)
    if alias.__type_params__ or not name.isidentifier() or keyword.iskeyword(name):
        if id(alias) in begun:  # later references use pickle's memo
            raise TypeError("a generic type alias that refers to itself cannot be pickled")
        begun.add(id(alias))
        return _make_alias, (name, module, alias.__value__, alias.__type_params__)
    held: list[Any] = []
    return _make_lazy_alias, (name, module, held), (held, alias.__value__), None, None, _fill_alias


def _make_variable(
    kind: Any, name: str, module: str, arguments: tuple[Any, ...], options: dict[str, Any], key: str
) -> Any:
    made = kind(name, *arguments, **options)
    made.__module__ = module
    return inner._lookup_class_or_track(key, made)


def _make_new_type(name: str, qualname: str, module: str, supertype: Any, key: str) -> Any:
    made = NewType(name, supertype)  # type: ignore[misc]  # type checkers see the definition in the notebook
    made.__qualname__, made.__module__ = qualname, module
    return inner._lookup_class_or_track(key, made)


def _make_alias(name: str, module: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    given = {"__name__": module, "kind": TypeAliasType, "name": name, "value": value, "parameters": parameters}
    return eval("kind(name, value, type_params=parameters)", given)  # its module is that of the calling code


def _make_lazy_alias(name: str, module: str, held: list[Any]) -> Any:
    """Return an alias whose value is put into `held` afterwards, because it may refer to the alias."""
    namespace: dict[str, Any] = {"__name__": module, "__held": held}
    exec(f"type {name} = __held[0]", namespace)
    return namespace[name]


def _fill_alias(_: Any, state: tuple[list[Any], Any]) -> None:
    held, value = state
    held.append(value)
