"""Unpickling of notebook values at one end of a cell: `skyward.wire.objects.pickling` describes their pickles."""

import io
import itertools
import pickle
import pickletools
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.wire.kinds.caches import watch_clearing
from skyward.wire.kinds.enums import restore_members
from skyward.wire.kinds.identities import nan_of
from skyward.wire.objects.attributes import of_user
from skyward.wire.objects.cell_end import CellEnd, at_end, current_end
from skyward.wire.objects.contents import Contents, put_contents, rebuilt
from skyward.wire.objects.mutability import is_fixed
from skyward.wire.objects.process_wide import object_named
from skyward.wire.payloads.payload import Packed

__all__ = [
    "NestedPickle",
    "array_like",
    "class_of_id",
    "fill_cell",
    "make_cached",
    "make_cell",
    "make_class",
    "make_function",
    "process_wide_object",
    "restore_class",
    "restore_function",
    "seeds_used",
    "unpack_shared",
    "unpack_tracked",
    "with_cause",
]


def unpack_shared(packed: Packed, side: CellEnd, seeds: Sequence[object] = ()) -> Any:
    """Return the value of `packed`, its functions on the namespace of `side`; `seeds`: see `pack_shared`."""
    return unpack_tracked(packed, side, seeds)[0]


def unpack_tracked(packed: Packed, side: CellEnd, seeds: Sequence[object] = ()) -> tuple[Any, Any]:
    """Return the value of `packed` and the memo of its pickle, whose `copy()` gives the objects by their numbers."""
    # Each seed takes the first free place of the memo: the next "buffer", memoize, pop.
    data = _SEED * len(seeds) + bytes(packed.data) if seeds else packed.data
    unpickler = _Unpickler(io.BytesIO(data), buffers=itertools.chain(seeds, packed.buffers))
    with at_end(side):
        return unpickler.load(), unpickler.memo


_SEED = pickle.NEXT_BUFFER + pickle.MEMOIZE + pickle.POP


class NestedPickle:
    """A value from a node that the notebook cannot unpickle. It is sent to other cells as it is.

    Attributes:
        packed: the value.
        needs: names of the notebook that functions inside it use.
        classes: ids of the classes of the notebook that it refers to.
        name: its name among the values of `packed`, if that has several.
        seeds: objects of the notebook that it refers to, in their places; None for others.
    """

    __slots__ = ()

    packed: Packed
    needs: frozenset[str]
    classes: tuple[str, ...]
    name: str | None
    seeds: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_nested, (self.packed, self.name, self.seeds)


def open_nested(packed: Packed, name: str | None = None, seeds: Sequence[object] = ()) -> Any:
    """Return the value for a packed one that is unpickled inside another; `name` selects one of several.

    A cell opens it only once, for all references to it.
    """
    side = current_end.get()
    if id(packed) not in side.nested:
        side.nested[id(packed)] = packed, unpack_shared(packed, side, seeds)
    value = side.nested[id(packed)][1]
    found = value if name is None else value[0][name]
    if not is_fixed(found):
        side.packed_in_notebook[id(found)] = found
    return found


def seeds_used(packed: Packed, seeds: Sequence[object]) -> tuple[object, ...]:
    """Return `seeds` with None in the place of each that `packed` does not refer to."""
    gets = (argument for code, argument, _ in pickletools.genops(bytes(packed.data)) if "GET" in code.name)
    used = {argument for argument in gets if isinstance(argument, int)}
    return tuple(seed if number in used else None for number, seed in enumerate(seeds))


class _Unpickler(pickle.Unpickler):
    """An unpickler that restores the identities of NaN."""

    def persistent_load(self, pid: Any) -> Any:
        return nan_of(pid) if isinstance(pid, str) else pid


def make_function(code: CodeType, closure: tuple[Any, ...] | None) -> FunctionType:
    """Return a function on the namespace of this end."""
    return FunctionType(code, current_end.get().namespace, None, None, closure)


def restore_function(function: FunctionType, state: Any) -> None:
    """Set the attributes of a function. Its namespace keeps its own builtins."""
    builtins = function.__globals__.get("__builtins__")
    inner._function_setstate(function, state)
    if builtins is not None:
        function.__globals__["__builtins__"] = builtins


def with_cause(error: BaseException, cause: BaseException, is_context: bool) -> BaseException:
    """Set the cause of an exception, which may also be its context."""
    error.__cause__ = cause
    if is_context:
        error.__context__ = cause
    return error


def process_wide_object(name: str) -> Any:
    """Return the process-wide object of this name; on a trial, a new one of its type."""
    found = object_named(name)
    return type(found)() if current_end.get().is_trial else found


def make_cached(wrapped: Callable[..., Any], parameters: dict[str, Any], _: str, __: bool) -> Any:
    """Return a function with an empty cache."""
    function = lru_cache(**parameters)(wrapped)
    if not current_end.get().is_notebook:
        watch_clearing(function)
    return function


def make_cell() -> CellType:
    """Return an empty variable of a closure."""
    return CellType()


def fill_cell(cell: CellType, held: tuple[Any, ...]) -> None:
    """Set the variable of a closure; without a value, it stays unset."""
    for value in held:
        cell.cell_contents = value


def class_of_id(key: str) -> type:
    """Return the class of this id.

    Raises:
        UnpicklingError: it is not known here.
    """
    side = current_end.get()
    known = side.find(key)
    if known is None and key in side.pending_classes:
        side.pending_classes[key]()
        known = side.find(key)
    if known is None:
        raise pickle.UnpicklingError("a class that it needs was not sent with it, or no longer exists")
    return known


def make_class(make: Callable[..., type], arguments: tuple[Any, ...], key: str, extra: Any) -> type:
    """Return the class of this id; make it first, without its content, if it is not known here."""
    side = current_end.get()
    known = side.find(key)
    if known is None:
        known = _made_without_hooks(make, arguments, key if side.is_notebook else None, extra)
        side.remember(key, known)
        side.unfinished.add(id(known))
    return known


def _made_without_hooks(make: Callable[..., type], arguments: tuple[Any, ...], tracked: str | None, extra: Any) -> type:
    """Make a class without running `__init_subclass__` of the notebook's classes, which have run already."""
    metaclass, *named = arguments
    bases = named[1] if make is inner._make_skeleton_class else ()
    hooks = [
        (base, vars(base)[_HOOK])
        for base in dict.fromkeys(each for base in bases if isinstance(base, type) for each in base.__mro__)
        if _HOOK in vars(base) and not inner._should_pickle_by_reference(base)
    ]
    for base, _ in hooks:
        setattr(base, _HOOK, classmethod(_no_hook))  # until the class is made
    try:
        if bases and all(isinstance(base, type) for base in bases) and not inner._should_pickle_by_reference(metaclass):
            native: Any = next(base for base in metaclass.__mro__ if inner._should_pickle_by_reference(base))
            made: type = native.__new__(metaclass, named[0], bases, dict(named[2]))
            return inner._lookup_class_or_track(tracked, made)  # type: ignore[no-any-return]  # untyped
        return make(*arguments, tracked, extra)
    finally:
        for base, hook in hooks:
            setattr(base, _HOOK, hook)


_HOOK = "__init_subclass__"


def _no_hook(_: type[Any], /, **__: object) -> None:
    """Replace an `__init_subclass__`."""


def restore_class(kind: type, state: Any) -> None:
    """Set the content of a class that was just made, or that takes over its current state in the notebook."""
    side = current_end.get()
    if id(kind) in side.unfinished:
        side.unfinished.discard(id(kind))
        inner._class_setstate(kind, state)
        restore_members(kind, state[1])
    elif id(kind) in side.outdated:
        side.outdated.discard(id(kind))
        if issubclass(kind, Enum):  # its members stay the same objects
            inner._class_setstate(kind, state)
            restore_members(kind, state[1])
            return
        put_contents(kind, Contents("class", of_user(state[0])))


def array_like(reduced: tuple[Any, ...], is_writable: bool, is_contiguous: bool) -> Any:
    """Return an array with the flags it has on the other side, where it may be read-only."""
    array = rebuilt(reduced)
    if not is_writable:
        array.flags.writeable = False
    if not is_contiguous:
        current_end.get().other_layout.add(id(array))
    return array
