"""Functions and classes that a call cannot change, so that calls may share one copy of them.

A function of a script is sent with everything it refers to, and each call must see that as it was sent. A node may
decode it once for many calls only if no call can change it: it refers to constants, to modules and imports by name, and
to functions and classes of the same kind; and none of their code assigns to a global, to a captured variable, or to an
attribute that could be one of theirs. In doubt the answer is no, at the cost of decoding for each call.
"""

import dis
import re
import typing
from collections import namedtuple
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    NoneType,
    NotImplementedType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

from cloudpickle import cloudpickle as inner

__all__ = ["CACHED", "OF_CLASSES", "survey"]

CACHED = type(lru_cache(maxsize=None)(len))
"""The type of functions decorated with `functools.lru_cache` or `functools.cache`."""

_ATOMS = frozenset(
    {int, float, complex, bool, str, bytes, NoneType, EllipsisType, NotImplementedType, range, CodeType, re.Pattern}
)
_FIXED = (
    *(MemberDescriptorType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType),
    *(GenericAlias, UnionType, typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple, typing.TypeAliasType),
    type(namedtuple("_Pair", "one other").one),  # type: ignore[attr-defined]  # on the class, it is a descriptor
)
_WRAPPERS = (staticmethod, classmethod, property, cached_property)

_REFLECTIVE = frozenset({"globals", "exec", "eval", "__import__"})
"""Built-ins by which code reaches any global."""

_INSIDES = frozenset(
    {"__globals__", "__closure__", "__defaults__", "__kwdefaults__", "_getframe", "currentframe", "__main__"}
)
"""Names by which code reaches the internals of a function, or the module `__main__`, which all calls share."""

_SETTERS = frozenset({"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"})
"""Names by which code may set attributes of any object."""

_OBJECT = frozenset({"object", "__dataclass_builtins_object__"})
"""Names of `object` in code: frozen dataclasses set their fields by `object.__setattr__(self, ...)`."""

_CLASS_FIRST = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})
"""Methods whose first argument is the class, without a decorator that says so."""

OF_CLASSES = frozenset(
    {"__annotations__", "__annotations_cache__", "__annotate_func__", "__dataclass_fields__", "__dataclass_params__"}
    | {"__orig_bases__", "__parameters__", "__type_params__", "__abstractmethods__", "_abc_impl", "__slots__"}
    | {"__dict__", "__weakref__", "_field_defaults", "__static_attributes__", "__firstlineno__", "__required_keys__"}
    | {"__optional_keys__", "__slotnames__", "__readonly_keys__", "__mutable_keys__", "__total__", "__orig_class__"}
)
"""Class attributes that Python itself sets and only reads."""


@dataclass(frozen=True, slots=True)
class _Effects:
    """The effects of a function's code, and of the code inside it, on objects that outlive the call.

    Attributes:
        reaches_globals: True if it assigns to globals, or could.
        sets_attributes: True if it sets attributes of anything but its first argument.
        sets_first: True if it sets attributes of its first argument.
        rebinds: captured variables that it assigns to.
        names: names that it may look up in its globals.
    """

    reaches_globals: bool
    sets_attributes: bool
    sets_first: bool
    rebinds: frozenset[str]
    names: tuple[str, ...]


def survey(value: object) -> tuple[object, ...] | None:
    """Return all objects that a function or class refers to, including itself; None if a call may change any.

    `value` is unchanged as long as another survey returns the same objects.
    """
    found = _Survey(value)
    if not found.is_fixed(value) or (found.sets_attributes and found.has_targets):
        return None
    return tuple(found.objects)


class _Survey:
    """A traversal of the objects that a function or class refers to.

    Attributes:
        objects: the objects found so far.
        sets_attributes: True if code among them sets attributes of unknown objects.
        has_targets: True if those could be functions or classes among them.
    """

    def __init__(self, root: object) -> None:
        self.objects: list[object] = []
        self.sets_attributes = False
        self.has_targets = False
        self._root = root
        self._seen: set[int] = set()

    def is_fixed(self, value: Any) -> bool:
        """Record `value` and what it refers to; return whether none of it can change."""
        kind = type(value)
        if kind in _ATOMS:
            self.objects.append(value)
            return True
        if self._is_known(value):
            self.has_targets = self.has_targets or value is self._root
            return True
        if isinstance(value, _FIXED) or kind.__module__ in ("typing", "dataclasses"):
            return True
        if kind is tuple or kind is frozenset or kind is partial or kind is CACHED or isinstance(value, _WRAPPERS):
            return self._all_fixed(_inside(value))
        match value:
            case FunctionType():
                self.has_targets = self.has_targets or value is not self._root
                return inner._should_pickle_by_reference(value) or self._function(value)
            case BuiltinFunctionType():
                return isinstance(value.__self__, (ModuleType, NoneType, type))
            case ModuleType():
                return bool(inner._should_pickle_by_reference(value))
            case type():
                return _is_imported(value) or self._class(value)
            case Enum():
                return self.is_fixed(kind)
        return bool(getattr(kind, "__sky_function__", False)) and self.is_fixed(value.fn)

    def _is_known(self, value: object) -> bool:
        """Return whether `value` was found before; record it if not."""
        if id(value) in self._seen:
            return True
        self._seen.add(id(value))
        self.objects.append(value)
        return False

    def _all_fixed(self, values: Iterable[object]) -> bool:
        return all(self.is_fixed(value) for value in values)

    def _function(self, function: FunctionType, *, is_method: bool = False) -> bool:
        code = function.__code__
        if code.co_name == "wrapper" and "recursive_repr" in code.co_qualname:  # what it holds is its own
            return self.is_fixed(function.__dict__["__wrapped__"])
        effects = _effects_of(code)
        if effects.reaches_globals or not effects.rebinds.isdisjoint(code.co_freevars):
            return False
        if effects.sets_attributes or (effects.sets_first and not is_method):
            self.sets_attributes = True
        names = (name for name in effects.names if name in function.__globals__)
        return (
            self._all_fixed(function.__defaults__ or ())
            and self._all_fixed((function.__kwdefaults__ or {}).values())
            and self._all_fixed(_contents(function))
            and self._all_fixed(function.__globals__[name] for name in names)
            and self._all_fixed(function.__dict__.values())
        )

    def _class(self, kind: type) -> bool:
        self.has_targets = True
        if issubclass(kind, type) or not (_is_imported(type(kind)) and self._all_fixed(kind.__bases__)):
            return False
        own = {name: value for name, value in kind.__dict__.items() if name not in OF_CLASSES}
        if issubclass(kind, Enum):
            members = kind.__members__.values()
            if not self._all_fixed(value for member in members for value in vars(member).values() if value is not kind):
                return False
            own = {
                name: value for name, value in own.items() if not (name in kind.__members__ or _is_of_enum(name, value))
            }
        return all(self._attribute(name, value) for name, value in own.items())

    def _attribute(self, name: str, value: object) -> bool:
        """Record an attribute of a class; return whether it cannot change."""
        if isinstance(value, FunctionType):
            by_name = self._is_known(value) or inner._should_pickle_by_reference(value)
            return by_name or self._function(value, is_method=name not in _CLASS_FIRST)
        return self.is_fixed(value)


def _inside(value: Any) -> Iterable[object]:
    """Return the items of a container of an immutable type."""
    match value:
        case staticmethod() | classmethod():
            return (value.__func__,)
        case property():
            return (value.fget, value.fset, value.fdel)
        case cached_property():
            return (value.func,)
        case partial():
            return (value.func, *value.args, *value.keywords.values())
        case tuple() | frozenset():
            return value
        case _:
            own = [
                each for name, each in vars(value).items() if not name.startswith("__") and name != "cache_parameters"
            ]
            return (value.__wrapped__, *value.cache_parameters().values(), *own)


def _is_imported(value: Any) -> bool:
    """Return whether the node finds `value` by its name in a module."""
    if isinstance(value, type) and value in inner._BUILTIN_TYPE_NAMES:
        return True
    found = inner._lookup_module_and_qualname(value)
    return found is not None and not inner._is_registered_pickle_by_value(found[0])


def _is_of_enum(name: str, value: object) -> bool:
    """Return whether an attribute of an enum is one of its internal tables."""
    return name.startswith("_") and name.endswith("_") and isinstance(value, (list, dict))


def _contents(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable is not bound yet
            yield cell


@lru_cache(maxsize=4096)
def _effects_of(code: CodeType) -> _Effects:
    first = code.co_varnames[0] if code.co_argcount else None
    reaches = sets_any = sets_first = False
    rebinds: set[str] = set()
    names = dict.fromkeys(code.co_names)
    before: list[dis.Instruction] = []
    instructions = list(dis.get_instructions(code))
    for place, instruction in enumerate(instructions):
        match instruction.opname:
            case "STORE_GLOBAL" | "DELETE_GLOBAL":
                reaches = True
            case "STORE_DEREF" | "DELETE_DEREF":
                rebinds.add(instruction.argval)
                first = None if instruction.argval == first else first
            case "STORE_ATTR" | "DELETE_ATTR":
                if first is not None and _is_of_first(before, instruction, first):
                    sets_first = True
                else:
                    sets_any = True
            case name if name.startswith(("STORE_FAST", "DELETE_FAST")) and _mentions(instruction, first):
                sets_any = True  # the first argument is rebound
            case "LOAD_GLOBAL" | "LOAD_NAME" if instruction.argval in _REFLECTIVE:
                reaches = True
        if instruction.argval in _INSIDES:
            reaches = True
        elif first is not None and _calls_setter_of_first(instructions, place, first):
            sets_first = True
        elif instruction.argval in _SETTERS:
            sets_any = True
        before.append(instruction)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            within = _effects_of(constant)
            reaches = reaches or within.reaches_globals
            sets_any = sets_any or within.sets_attributes or within.sets_first
            rebinds |= within.rebinds
            names |= dict.fromkeys(within.names)
    return _Effects(reaches, sets_any, sets_first, frozenset(rebinds), tuple(names))


def _mentions(instruction: dis.Instruction, name: str | None) -> bool:
    given = instruction.argval
    return name is not None and (name in given if isinstance(given, tuple) else name == given)


def _is_of_first(before: list[dis.Instruction], store: dis.Instruction, first: str) -> bool:
    """Return whether a store is to an attribute of the variable `first`: `self.a = x` or `self.a += x`."""
    if _loads_last(before[-1:], first):
        return True
    for place in range(len(before) - 2, 0, -1):  # back to where an augmented assignment duplicated its target
        if before[place].opname == "COPY":
            following = before[place + 1]
            taken = following.opname == "LOAD_ATTR" and following.argval == store.argval
            return taken and before[-1].opname == "SWAP" and _loads_last(before[place - 1 : place], first)
    return False


def _calls_setter_of_first(instructions: list[dis.Instruction], place: int, first: str) -> bool:
    """Return whether attributes of `first` are set by `object.__setattr__(first, ...)`, or by that of `super()`."""
    setter = instructions[place]
    if setter.argval not in ("__setattr__", "__delattr__"):
        return False
    if setter.opname == "LOAD_SUPER_ATTR":
        return _loads_last(instructions[place - 1 : place], first)
    owner, following = instructions[place - 1 : place], instructions[place + 1 : place + 2]
    if setter.opname != "LOAD_ATTR" or not owner or owner[0].argval not in _OBJECT or not following:
        return False
    given = following[0].argval
    return following[0].opname.startswith("LOAD_FAST") and (given[0] if isinstance(given, tuple) else given) == first


def _loads_last(before: list[dis.Instruction], name: str) -> bool:
    if not before or not before[0].opname.startswith("LOAD_FAST"):
        return False
    given = before[0].argval
    return bool((given[-1] if isinstance(given, tuple) else given) == name)
