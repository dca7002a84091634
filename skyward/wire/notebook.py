"""Values of a notebook as they travel: its functions and classes by value, all sharing one namespace.

cloudpickle alone gives every pickled function a private copy of the globals that it uses. A cell would then not see
what its functions change, nor they what the cell changes, and a large array would travel once for each function that
names it. So a function of the notebook travels without its globals and is rebuilt on the namespace of the other
`Side`; the names that it needs are reported, to be sent once each. A class that goes out and comes home is the same
class, and stays as it is.

Values of installed and local modules go by reference: the sources of local modules are sent along
(`skyward.wire.sources`), so that a class is one and the same for a captured object and for the cell's own import.
"""

import importlib
import io
import pickle
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.kept import noting
from skyward.wire.blame import not_picklable
from skyward.wire.modules import local_modules
from skyward.wire.payload import Packed
from skyward.wire.pickler import Pickler

__all__ = ["Shared", "Side", "open_nested", "pack_shared", "unpack_shared"]


@dataclass(slots=True)
class Side:
    """One end of a cell.

    Attributes:
        namespace: the globals of the functions that live here.
        is_home: the notebook itself, whose classes are the originals, rather than a node.
        classes: by id, the classes known here, kept alive so that ids stay theirs.
        ids: the id of each class made here, by its identity.
        unfinished: identities of classes that were made and wait for their contents.
        salt: names this run of the cell; it makes the ids of the classes defined in it the same on all nodes.
        refresh: whether classes known here take over what changed in them on the other side.
    """

    namespace: dict[str, Any]
    is_home: bool = False
    classes: dict[str, type] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    salt: str = ""
    refresh: bool = False

    def id_of(self, kind: type, tracked: str) -> str:
        """The id under which `kind` travels; at home the one that cloudpickle gave it."""
        if self.is_home:
            return tracked
        key = self.ids.get(id(kind))
        if key is None:
            key = f"{self.salt}:{kind.__qualname__}"
            if not self.salt or "<locals>" in key or key in self.classes:
                key = uuid.uuid4().hex
            self.remember(key, kind)
        return key

    def remember(self, key: str, kind: type) -> None:
        """Note that `kind` is the class of id `key`."""
        self.classes[key] = kind
        self.ids[id(kind)] = key

    def find(self, key: str) -> type | None:
        """The class of id `key`, if it is known here."""
        known = self.classes.get(key)
        if known is None and self.is_home:
            known = inner._DYNAMIC_CLASS_TRACKER_BY_ID.get(key)
        return known


@dataclass(frozen=True, slots=True)
class Shared:
    """A packed value, and what it needs beside itself.

    Attributes:
        packed: the value.
        needs: names of the namespace that its functions use.
        modules: local modules that it refers to.
    """

    packed: Packed
    needs: frozenset[str]
    modules: frozenset[str]


def pack_shared(value: object, side: Side, name: str) -> Shared:
    """`value`, pickled on its own, its functions without their globals.

    Raises:
        NotPicklableError: it cannot be pickled. The message names `name` and the path inside the value.
    """
    buffers: list[pickle.PickleBuffer] = []
    sink = io.BytesIO()
    pickler = _Pickler(sink, side, buffers.append)
    try:
        with noting() as kept:
            pickler.dump(value)
    except Exception as error:
        raise not_picklable(value, name, error, "to a node" if side.is_home else "back from the node") from error
    packed = Packed(sink.getvalue(), tuple(buffer.raw() for buffer in buffers), tuple(kept.values()))
    return Shared(packed, frozenset(pickler.needs), frozenset(pickler.modules))


def unpack_shared(packed: Packed, side: Side) -> Any:
    """The value of `packed`, its functions on the namespace of `side`."""
    with _at(side):
        return packed.unpack()


def open_nested(packed: Packed) -> Any:
    """What a packed value inside another one becomes when that one is unpacked."""
    return packed.unpack()


_side: ContextVar[Side] = ContextVar("skyward_side")


@contextmanager
def _at(side: Side) -> Iterator[None]:
    token = _side.set(side)
    try:
        yield
    finally:
        _side.reset(token)


class _Pickler(Pickler):
    keeps_caches = False  # its functions see what the cell binds, which is another thing in each cell

    def __init__(self, sink: io.BytesIO, side: Side, collect: Callable[[pickle.PickleBuffer], object]) -> None:
        super().__init__(sink, collect)
        self._side = side
        self._local = {module.__name__ for module in local_modules()}
        self.needs: set[str] = set()
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            return self._module(obj)
        by_name = isinstance(obj, (FunctionType, type))
        module = getattr(obj, "__module__", None)
        if module in self._local and (not by_name or _is_importable(obj)):
            self.modules.add(module)
            if by_name:
                return NotImplemented  # by reference
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and isinstance(reduced, tuple):
            return self._function(obj, reduced)
        return reduced

    def _module(self, module: ModuleType) -> Any:
        name = module.__name__
        if sys.modules.get(name) is not module:
            return NotImplemented
        if name in self._local:
            self.modules.add(name)
        return importlib.import_module, (name,)

    def _function(self, function: FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        if function.__globals__ is not self._side.namespace:
            return reduced
        _, arguments, (attributes, slots), *rest, _ = reduced
        self.needs |= slots["__globals__"].keys()
        self.needs |= _class_body_names(function.__code__) & self._side.namespace.keys()
        slots = {**slots, "__globals__": {}}
        return _make_function, (function.__code__, arguments[4]), (attributes, slots), *rest, _restore_function

    def reduce_class(self, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return how to rebuild a class on the other side."""
        make, (*arguments, tracked, extra), state, *rest, _ = reduced
        key = self._side.id_of(kind, tracked)
        return _make_class, (make, tuple(arguments), key, extra), state, *rest, _restore_class


def _is_importable(obj: FunctionType | type) -> bool:
    """Whether the module of `obj` gives it under its own name; otherwise it can only travel by value."""
    found: Any = sys.modules.get(obj.__module__)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


def _class_body_names(code: CodeType) -> set[str]:
    """Names that the bodies of classes inside `code` may read from the globals."""
    names: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if not constant.co_flags & 0x1:  # not optimised: the body of a class
                names |= set(constant.co_names)
            names |= _class_body_names(constant)
    return names


def _make_function(code: CodeType, closure: tuple[Any, ...] | None) -> FunctionType:
    return FunctionType(code, _side.get().namespace, None, None, closure)


def _restore_function(function: FunctionType, state: Any) -> None:
    builtins = function.__globals__.get("__builtins__")
    inner._function_setstate(function, state)
    function.__globals__["__builtins__"] = builtins


def _make_class(make: Callable[..., type], arguments: tuple[Any, ...], key: str, extra: Any) -> type:
    side = _side.get()
    known = side.find(key)
    if known is None:
        known = make(*arguments, key if side.is_home else None, extra)
        side.remember(key, known)
        side.unfinished.add(id(known))
    return known


def _restore_class(kind: type, state: Any) -> None:
    side = _side.get()
    if id(kind) in side.unfinished:
        side.unfinished.discard(id(kind))
        inner._class_setstate(kind, state)
    elif side.refresh:
        for name, value in state[0].items():
            if not name.startswith("__") and not _same_code(value, kind.__dict__.get(name)):
                setattr(kind, name, value)


def _same_code(one: object, other: object) -> bool:
    """Whether both are one function, or a method made of it: a copy of what is there needs no second place."""
    codes = [getattr(getattr(value, "__func__", value), "__code__", None) for value in (one, other)]
    return codes[0] is not None and codes[0] == codes[1]
