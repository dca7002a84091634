"""The pickler for everything that is sent: cloudpickle, extended.

- Classes with `__slots__` keep them.
- Containers of classes with methods of their own are rebuilt as they are (`skyward.wire.kinds.containers`).
- Exceptions are rebuilt without a call of their `__init__` (`skyward.wire.kinds.exceptions`).
- Type aliases, type variables and `NewType` are pickled by value where other objects are
  (`skyward.wire.kinds.type_variables`).
- Functions of `functools.lru_cache` are pickled by value where other functions are (`skyward.wire.kinds.caches`).
- A local module that is pickled by value, and its functions, share one set of globals on the node, as they do here.
- A class that is returned is the class that was sent, unchanged. On a node each call has its own classes, except those
  that no call can change, which are shared (`skyward.wire.kinds.stateless`).
"""

import io
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pickle import PickleBuffer
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

import cloudpickle
from cloudpickle import cloudpickle as inner

from skyward.errors import PayloadError
from skyward.kept.keep import stand_in
from skyward.task.variables import TaskVar
from skyward.wire.kinds.caches import Caches, reduce_cached
from skyward.wire.kinds.containers import CONTAINERS, reduce_container
from skyward.wire.kinds.dynamic_attributes import reduce_dynamic
from skyward.wire.kinds.enums import reduce_enum, restore_members
from skyward.wire.kinds.exceptions import reduce_exception
from skyward.wire.kinds.identities import Sentinels, the_sentinel
from skyward.wire.kinds.stateless import CACHED
from skyward.wire.kinds.type_variables import TYPING, reduce_typing
from skyward.wire.kinds.versions import note_version, version_of
from skyward.wire.payloads.shared_classes import SharedClasses

__all__ = ["CallScope", "Pickler", "decoding_for", "has_own_classes", "track_classes_by_call"]


@dataclass(slots=True)
class CallScope:
    """The classes that the pickles of one call on a node share.

    Attributes:
        classes: classes found or made for the call, by id.
        has_own: True if some of them belong to this call alone.
    """

    classes: dict[str, type] = field(default_factory=dict)
    has_own: bool = False

    @property
    def is_intact(self) -> bool:
        """True if the shared classes among them are unchanged."""
        return all(map(_shared.is_intact, self.classes.values()))


_scope: TaskVar[CallScope | None] = TaskVar("skyward_call_scope", default=None)
_open: dict[int, CallScope] = {}
"""Scopes of the calls that run in this process, by identity."""
_shared = SharedClasses()
_caches = Caches()
_unfinished: weakref.WeakKeyDictionary[type, str | None] = weakref.WeakKeyDictionary()
"""Versions of classes that were made and wait for their content."""
_COMPLETE: Any = object()
_of_calls: weakref.WeakSet[type] = weakref.WeakSet()
"""Classes that were made for calls."""


@contextmanager
def decoding_for(scope: CallScope) -> Iterator[None]:
    """Rebuild the classes of pickles for one call, inside the context."""
    token = _scope.set(scope)
    _open[id(scope)] = scope
    try:
        yield
    finally:
        _open.pop(id(scope), None)
        _scope.reset(token)


def has_own_classes() -> bool:
    """Return whether a class among the objects that the running call got may be changed by it, and so is its own."""
    scope = _scope.get()
    return scope is not None and scope.has_own


def _current_scope() -> CallScope | None:
    """Return the scope of the calling code; on a thread not started by a task, that of the only running call."""
    scope = _scope.get()
    if scope is None and len(running := tuple(_open.values())) == 1:
        return running[0]
    return scope


def _known_anywhere(key: str) -> type | None:
    """Return the class `key` for code outside any call: on the client, or on a node where several calls run.

    Raises:
        PayloadError: these calls have different ones.
    """
    found = {kind for scope in tuple(_open.values()) if (kind := scope.classes.get(key)) is not None}
    if len(found) > 1:
        raise PayloadError(
            f"Cannot unpickle an object of {found.pop().__qualname__} here: running tasks each have their own version "
            "of the class, and this thread belongs to none of them. Unpickle it in the task, or on a thread that the "
            "task starts."
        )
    return found.pop() if found else inner._DYNAMIC_CLASS_TRACKER_BY_ID.get(key)


class _Tracked(weakref.WeakValueDictionary[str, type]):
    """cloudpickle's table of classes by id, on a node: code of a task finds the classes of its own call."""

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the class `key` for the calling code; `default`, if there is none."""
        scope = _current_scope()
        if scope is None:
            return _known_anywhere(key) or super().setdefault(key, default)
        known = scope.classes.get(key) or self.get(key)
        if default is not None and (known is None or (key not in scope.classes and known in _of_calls)):
            known = scope.classes.setdefault(key, default)
            _of_calls.add(known)
            self[key] = known
        return known


def track_classes_by_call() -> None:
    """Make `pickle.loads` in a task return objects of the task's own classes, for pickles made by cloudpickle there.

    Call it in a process that runs tasks.
    """
    inner._DYNAMIC_CLASS_TRACKER_BY_ID = _Tracked(inner._DYNAMIC_CLASS_TRACKER_BY_ID)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not typed
    """Pickles with protocol 5; buffers go to `collect`."""

    def __init__(self, sink: io.BytesIO, collect: Callable[[PickleBuffer], object] | None = None) -> None:
        super().__init__(sink, protocol=5, buffer_callback=collect)
        self._copies: dict[int, _Copy] = {}
        self._sentinels = Sentinels()
        self._aliases: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        """Return how to rebuild `obj`, or NotImplemented to leave it to pickle."""
        if (kept := stand_in(obj)) is not None:
            return kept.__reduce__()
        if isinstance(obj, BaseException):
            return reduce_exception(obj)
        if type(obj) is CACHED:
            return reduce_cached(obj, _make_cached, version_of(obj))
        if isinstance(obj, io.TextIOWrapper) and obj is not sys.stdout and obj is not sys.stderr:
            raise TypeError("cannot pickle an open file")  # cloudpickle would send a copy of its content
        if isinstance(obj, ModuleType):
            return self._reduce_module(obj)
        if isinstance(obj, FunctionType):
            self._share_globals(obj)
        if isinstance(obj, (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)):
            return type(obj), (dict(obj),)  # as cloudpickle does for a WeakSet; `singledispatch` has one
        if isinstance(obj, CONTAINERS) and (filled := reduce_container(obj)) is not None:
            return filled
        if (by_class := reduce_dynamic(obj)) is not None:
            return by_class
        if isinstance(obj, TYPING):
            return reduce_typing(obj, self._aliases)
        if (place := self._sentinels.place_of(obj)) is not None:
            return self.reduce_sentinel(*place)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            whole = reduce_enum(obj, reduced) if issubclass(obj, Enum) else _with_slots(obj, reduced)
            return self.reduce_class(obj, whole)
        return reduced

    def _reduce_module(self, module: ModuleType) -> Any:
        make, arguments = inner._module_reduce(module)
        if make is not inner.dynamic_subimport:  # by name
            return make, arguments
        _, state = arguments
        return _the_module, (self._copy_of(module),), state, None, None, _fill_module

    def _share_globals(self, function: FunctionType) -> None:
        """Make `function` use the globals of the copy of its module, if that is pickled by value."""
        module = sys.modules.get(function.__module__) if function.__module__ in inner._PICKLE_BY_VALUE_MODULES else None
        if module is not None and module.__dict__ is function.__globals__:
            self.globals_ref.setdefault(id(function.__globals__), _Globals(self._copy_of(module)))

    def _copy_of(self, module: ModuleType) -> "_Copy":
        names = ("__package__", "__path__", "__file__")
        found = {name: value for name, value in vars(module).items() if name in names}
        return self._copies.setdefault(id(module), _Copy(module.__name__, found))

    def reduce_sentinel(self, module: str, name: str) -> tuple[Any, ...]:
        """Return how to find a sentinel that is a variable of a module."""
        return the_sentinel, (module, name)

    def reduce_class(self, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return how to rebuild a class that is pickled by value, given how cloudpickle would."""
        make, (*arguments, tracked, extra), state, *rest, _ = reduced
        return _make_class, (make, tuple(arguments), tracked, version_of(kind), extra), state, *rest, _restore_class


@dataclass(slots=True, eq=False)
class _Copy:
    """Represents in a pickle the copy of a local module, which is created empty."""

    name: str
    attributes: dict[str, Any]

    def __reduce__(self) -> Any:
        return _make_module, (self.name, self.attributes)


@dataclass(slots=True, eq=False)
class _Globals:
    """Represents in a pickle the globals of the copy of a local module."""

    module: _Copy

    def __reduce__(self) -> Any:
        return vars, (self.module,)


def _make_module(name: str, attributes: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(attributes)
    return module


def _the_module(module: ModuleType) -> ModuleType:
    return module


def _fill_module(module: ModuleType, state: dict[str, Any]) -> None:
    vars(module).update(state)


def _with_slots(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add the slots of `kind`, which cloudpickle leaves out. They cannot be added to an existing class."""
    if "__slots__" not in kind.__dict__ or NamedTuple in getattr(kind, "__orig_bases__", ()):  # which makes its own
        return reduced
    make, (*arguments, keywords, tracked, extra), (attributes, more), *rest = reduced
    slots = [name for name, value in kind.__dict__.items() if _is_slot(kind, name, value)]
    attributes = {name: value for name, value in attributes.items() if not isinstance(value, MemberDescriptorType)}
    if not isinstance(kind.__dict__["__slots__"], (str, tuple, list, set, frozenset, dict)):
        attributes["__slots__"] = tuple(slots)  # an iterator, which is exhausted
    keywords = {**keywords, "__slots__": tuple(slots)}
    return make, (*arguments, keywords, tracked, extra), (attributes, more), *rest


def _is_slot(kind: type, name: str, value: object) -> bool:
    if isinstance(value, MemberDescriptorType):
        return value.__objclass__ is kind
    return name in ("__dict__", "__weakref__") and isinstance(value, GetSetDescriptorType)


def _make_class(
    make: Callable[..., type], arguments: tuple[Any, ...], key: str, version: str | None, extra: Any
) -> type:
    scope = _current_scope()
    known: type | None
    if scope is None:
        known = _known_anywhere(key)
    else:
        known = scope.classes.get(key) or (_shared.find(version) if version is not None else None)
    if known is None:
        known = make(*arguments, None, extra)
        _unfinished[known] = version
        if scope is not None:
            _of_calls.add(known)
        with inner._DYNAMIC_CLASS_TRACKER_LOCK:
            inner._DYNAMIC_CLASS_TRACKER_BY_ID[key] = known
            inner._DYNAMIC_CLASS_TRACKER_BY_CLASS[known] = key
    return known if scope is None else scope.classes.setdefault(key, known)  # another thread may have made it meanwhile


def _restore_class(kind: type, state: Any) -> None:
    version = _unfinished.get(kind, _COMPLETE)
    if version is _COMPLETE:
        return
    inner._class_setstate(kind, state)
    restore_members(kind, state[1])
    if version is not None:
        note_version(kind, version)
    _unfinished.pop(kind, None)  # last: until then, other threads that read the class complete it as well
    scope = _current_scope()
    if scope is not None and (version is None or not _shared.add(version, kind)):
        scope.has_own = True


def _make_cached(wrapped: Callable[..., Any], parameters: dict[str, Any], name: str, version: str | None) -> Any:
    function = lru_cache(**parameters)(wrapped)
    return function if version is None or _current_scope() is None else _caches.keep(name, version, function)
