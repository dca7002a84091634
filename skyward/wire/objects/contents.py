"""The content of an object: read on one side, and put into the same object on the other.

A cell that changes an object of the notebook changes a copy on the node. The copy's content is then put into the
original, so that every reference to it sees the change, as if the cell had run in the notebook.
"""

import array
import collections
import copyreg
import enum
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle

from skyward.wire.kinds.arrays import attributes_of_array, is_array, is_derived_array, is_inside_frame
from skyward.wire.kinds.caches import attributes_of_cached, clear_cache, restore_cached, was_cleared
from skyward.wire.kinds.containers import CONTAINERS, Filling, filling_of, is_own_dict, refill
from skyward.wire.kinds.dynamic_attributes import reduced_of
from skyward.wire.kinds.enums import attributes_of_members, is_machinery, restore_members
from skyward.wire.kinds.exceptions import Parts, parts_of_exception, refill_exception, restore_exception
from skyward.wire.kinds.stateless import CACHED
from skyward.wire.objects.attributes import (
    HEAP_TYPE,
    OF_FUNCTIONS,
    WEAK,
    of_user,
    registered_with,
    set_attributes,
    slots_of,
)
from skyward.wire.objects.process_wide import name_of, set_state, state_of

__all__ = ["STRUCTURE", "Contents", "contents_of", "has_keys", "put_contents", "rebuilt", "unlock"]


_NEW = frozenset({copyreg.__newobj__, copyreg.__newobj_ex__})  # type: ignore[attr-defined]  # missing in typeshed

_OF_ALL_CLASSES = frozenset({"__doc__", "__module__"})
"""Attributes of a class that can be set, but not deleted."""

_MISSING = object()

_BASES, _REGISTERED, _NAMES = "__bases__", "register()", "__name__"
"""Keys among the attributes of a class that are not attributes."""

_never_finalized: list[object] = []
"""Objects whose `__del__` must not run, because other objects have taken over their content."""


class Layout(NamedTuple):
    """The layout of an array over its memory.

    Attributes:
        shape: the length of each dimension.
        dtype: the type of its elements.
        is_writable: True if it can be written to; None if unknown.
    """

    shape: tuple[int, ...]
    dtype: Any
    is_writable: bool | None


class Contents(NamedTuple):
    """The content of an object.

    Attributes:
        form: how it is put into the object.
        parts: the content.
    """

    form: str
    parts: Any


def contents_of(value: Any) -> Contents | None:
    """Return the content of `value` as a new object; None if it cannot be put into another object of its type.

    For objects for which neither `is_fixed` nor `parts_of` has an answer. Calls `__reduce_ex__` of objects.
    """
    kind = type(value)
    if name_of(value):
        return Contents("process", state_of(value))
    if kind is list:
        return Contents("list", list(value))
    if kind is dict:
        return Contents("dict", (list(value), list(value.values())))
    if kind is set:
        return Contents("set", list(value))
    if kind is bytearray:
        return Contents("bytearray", bytes(value))
    if kind is array.array:
        return Contents("numbers", (value.typecode, value.tobytes()))
    if is_array(value):
        is_writable = None if value.dtype.hasobject else value.flags.writeable
        return Contents("array", (_layout_of(value, is_writable), value.__reduce_ex__(5), {}))
    if kind.__name__ == "MaskedArray" and is_derived_array(value):
        return Contents("masked", (value.data.copy(), value.mask, value.fill_value))
    if is_derived_array(value) and (attributes := attributes_of_array(value)):
        return Contents("array", (_layout_of(value, None), value.__reduce_ex__(5), attributes))
    if kind is types.CellType:
        try:
            return Contents("cell", (value.cell_contents,))
        except ValueError:
            return Contents("cell", ())
    if kind is types.FunctionType:
        settings = {name: getattr(value, name) for name in OF_FUNCTIONS}
        return Contents("function", (settings, dict(value.__annotations__), dict(value.__dict__)))
    if kind is CACHED:
        return Contents("cached", (attributes_of_cached(value), was_cleared(value)))
    if kind in WEAK:
        return Contents("weak", list(value if kind is weakref.WeakSet else value.items()))
    if kind is types.ModuleType:
        return Contents("module", _variables_of(value))
    if isinstance(value, type):
        if issubclass(value, enum.Enum):
            return Contents("enum", (_attributes_of(value), attributes_of_members(value)))
        return Contents("class", _attributes_of(value) | _structure_of(value))
    if isinstance(value, BaseException):
        return Contents("exception", parts_of_exception(value))
    if is_inside_frame(kind) or kind in cloudpickle.Pickler.dispatch_table:
        return None
    if isinstance(value, (set, collections.deque)) and _keeps_nothing_else(kind):
        return Contents("deque" if isinstance(value, collections.deque) else "set", list(value))
    return _state_of(value)


def _keeps_nothing_else(kind: type) -> bool:
    return kind.__dictoffset__ == 0


def _state_of(value: Any) -> Contents | None:
    """Return the state from which `value` would be rebuilt, if that needs no new object."""
    if _is_tensor(value):
        return Contents("tensor", (value.data, value.grad))
    if isinstance(value, CONTAINERS) and (filling := filling_of(value)) is not None:
        return Contents("filled", (_class_of(value), filling))
    reduced = reduced_of(value)
    if isinstance(reduced, str):
        return None
    make, _, *rest = reduced
    state, items, pairs, setter = (*rest, None, None, None, None)[:4]
    if type(state) is dict or type(state) is list:
        state = state.copy()  # it may be the object's own
    is_new = make in _NEW or isinstance(value, (list, dict, frozenset))
    if not is_new and (state is None or not hasattr(type(value), "__setstate__")):
        is_python = all(
            base is object or ("__module__" in vars(base) and base.__dictoffset__) for base in type(value).__mro__
        )
        return Contents("remade", reduced) if is_python and len(reduced) <= 3 else None
    found = list(value.items() if isinstance(value, collections.Counter) else pairs or ())
    keys_and_values = [key for key, _ in found], [part for _, part in found]
    return Contents("state", (_class_of(value), is_new, state, list(items or ()), keys_and_values, setter))


def _class_of(value: object) -> type | None:
    """Return the class of `value` if it can be reassigned."""
    kind = type(value)
    return kind if kind.__flags__ & HEAP_TYPE and "__module__" in vars(kind) else None


def _is_tensor(value: object) -> bool:
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(value).__mro__)


def _variables_of(module: types.ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def _attributes_of(kind: type) -> dict[str, Any]:
    """Return the attributes of a class that the user has set."""
    found = of_user(vars(kind))
    if issubclass(kind, enum.Enum):
        return {name: value for name, value in found.items() if not is_machinery(kind, name)}
    return found


STRUCTURE = frozenset({_BASES, _REGISTERED, _NAMES})
"""Keys in the content of a class that are not attributes."""


def _structure_of(kind: type) -> dict[str, Any]:
    return {_BASES: kind.__bases__, _REGISTERED: registered_with(kind), _NAMES: (kind.__name__, kind.__qualname__)}


def _layout_of(array: Any, is_writable: bool | None) -> "Layout":
    return Layout(array.shape, array.dtype, is_writable)


def put_contents(value: Any, contents: Contents) -> None:
    """Replace the content of `value` with that of an object of its type.

    Raises:
        Exception: the object's own error, if it refuses the content.
    """
    _FORMS[contents.form].put(value, contents.parts)


def has_keys(contents: Contents) -> bool:
    """Return whether the content has keys or members, which are inserted by their hashes."""
    return _FORMS[contents.form].has_keys or (contents.form == "state" and bool(contents.parts[4][0]))


def _put_list(value: list[Any], parts: list[Any]) -> None:
    value[:] = parts


def _put_dict(value: dict[Any, Any], parts: tuple[list[Any], list[Any]]) -> None:
    base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    pairs = dict(zip(*parts, strict=True))  # into a new dict: a key may refuse to be hashed
    base.clear(value)
    for key, part in pairs.items():
        base.__setitem__(value, key, part)


def _put_set(value: set[Any], parts: list[Any]) -> None:
    members = set(parts)
    set.clear(value)
    set.update(value, members)


def _put_deque(value: collections.deque[Any], parts: list[Any]) -> None:
    value.clear()
    value.extend(parts)


def _put_bytearray(value: bytearray, parts: bytes) -> None:
    value[:] = parts


def _put_array(value: Any, parts: tuple[Layout, tuple[Any, ...] | None, dict[str, Any]]) -> None:
    layout, reduced, attributes = parts
    if attributes:
        set_attributes(value, attributes)
    new = None if reduced is None else rebuilt(reduced)
    if (value.dtype, value.shape) != (layout.dtype, layout.shape):
        _lay_out(value, layout)
    was_writable = value.flags.writeable
    if new is not None and (was_writable or value.tobytes() != new.tobytes()):
        # Otherwise another view of its memory may have applied the change already.
        if not was_writable:
            unlock(value)
        value[...] = new
        if not was_writable:
            value.flags.writeable = False
    if layout.is_writable is not None and layout.is_writable != was_writable:
        value.flags.writeable = layout.is_writable


def unlock(array: Any) -> None:
    """Make `array` writable.

    Raises:
        ValueError: its memory is read-only.
    """
    try:
        array.flags.writeable = True
    except ValueError:
        raise ValueError("it is read-only here") from None


def _lay_out(array: Any, layout: Layout) -> None:
    """Change how `array` is laid over its memory, or the size of the memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the cell has set them in the same way
        if array.dtype != layout.dtype:
            array.dtype = layout.dtype
        if array.shape != layout.shape:
            try:
                array.shape = layout.shape
            except ValueError:
                array.resize(layout.shape, refcheck=False)


def _put_masked(value: Any, parts: tuple[Any, Any, Any]) -> None:
    data, mask, value.fill_value = parts
    value.data[...] = data
    value.mask = mask


def _put_cell(value: types.CellType, parts: tuple[Any, ...]) -> None:
    if parts:
        (value.cell_contents,) = parts
    else:
        del value.cell_contents


def _put_numbers(value: "array.array[Any]", parts: tuple[str, bytes]) -> None:
    value[:] = array.array(*parts)


def _put_exception(value: BaseException, parts: Parts) -> None:
    args, attributes, slots = parts
    value.__dict__.clear()
    refill_exception(value, args)
    restore_exception(value, (attributes, slots))


def _put_function(value: types.FunctionType, parts: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    settings, annotations, attributes = parts
    for name, part in settings.items():
        if getattr(value, name) is not part and (name != "__code__" or getattr(value, name) != part):
            setattr(value, name, part)
    if value.__annotations__ != annotations:
        value.__annotations__ = annotations
    value.__dict__.clear()
    value.__dict__.update(attributes)


def _put_cached(value: Any, parts: tuple[dict[str, Any], bool]) -> None:
    """Replace attributes; keep the cache as it is, unless the other one's was cleared."""
    attributes, cleared = parts
    for name in attributes_of_cached(value).keys() - attributes.keys():
        delattr(value, name)
    restore_cached(value, attributes)
    if cleared:
        clear_cache(value)


def _put_weak(value: Any, parts: list[Any]) -> None:
    value.clear()
    value.update(parts)


def _put_class(value: type, parts: dict[str, Any]) -> None:
    bases, registered = parts.pop(_BASES, value.__bases__), parts.pop(_REGISTERED, ())
    if value.__bases__ != bases:
        value.__bases__ = bases
    names = parts.pop(_NAMES, None)
    if names is not None and names != (value.__name__, value.__qualname__):
        value.__name__, value.__qualname__ = names
    _put_class_attributes(value, parts)
    for each in registered:
        if each not in registered_with(value):
            value.register(each)  # type: ignore[attr-defined]  # an abstract class


def _put_enum(value: Any, parts: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    attributes, members = parts
    _put_class_attributes(value, attributes)
    restore_members(value, members)


def _put_class_attributes(value: type, parts: dict[str, Any]) -> None:
    for name in _attributes_of(value).keys() - parts.keys() - _OF_ALL_CLASSES:
        delattr(value, name)
    for name, part in parts.items():
        if value.__dict__.get(name, _MISSING) is not part:
            setattr(value, name, part)


def _put_module(value: types.ModuleType, parts: dict[str, Any]) -> None:
    for name in _variables_of(value):
        del vars(value)[name]
    vars(value).update(parts)


def _put_tensor(value: Any, parts: tuple[Any, Any]) -> None:
    value.data, value.grad = parts


def _put_remade(value: Any, reduced: tuple[Any, ...]) -> None:
    """Replace the attributes of `value` with those of a newly built object."""
    new = rebuilt(reduced)
    if hasattr(new, "__del__"):
        _never_finalized.append(new)
    value.__dict__.clear()
    value.__dict__.update(vars(new))


def _put_state(value: Any, parts: tuple[type | None, bool, Any, list[Any], tuple[list[Any], list[Any]], Any]) -> None:
    kind, is_new, state, items, pairs, setter = parts
    if kind is not None and type(value) is not kind:
        value.__class__ = kind
    kind = type(value)
    if setter is not None:
        setter(value, state)
    elif hasattr(type(value), "__setstate__"):
        _restate(value, state, is_blank=is_new)
    else:
        _put_attributes(value, state, is_all=getattr(kind, "__getstate__", None) is object.__getstate__)
    if isinstance(value, list):
        list.clear(value)
        list.extend(value, items)
    if isinstance(value, dict):
        _put_dict(value, pairs)


def _put_filled(value: Any, parts: tuple[type | None, Filling]) -> None:
    kind, (items, factory, state, is_own) = parts
    if kind is not None and type(value) is not kind:
        value.__class__ = kind
    if is_own or is_own_dict(value):
        value.__dict__ = value if is_own else {}
    refill(value, items, factory)
    if hasattr(type(value), "__setstate__"):
        _restate(value, state, is_blank=True)
    elif not is_own:
        _put_attributes(value, state, is_all=getattr(type(value), "__getstate__", None) is object.__getstate__)


def _restate(value: Any, state: Any, *, is_blank: bool) -> None:
    """Call `__setstate__` as unpickling does: on an object without attributes, if unpickling would create a new one.

    Attributes that the class's `__getstate__` leaves out stay as they are here; except for those of pandas, which cache
    results of the others.
    """
    attributes = getattr(value, "__dict__", None) if is_blank else None
    before = None if attributes is None else dict(attributes)
    travelling = value.__getstate__() if is_blank and not _is_of_frames(type(value)) else None
    if attributes is not None:
        attributes.clear()
    try:
        if state is not None:
            value.__setstate__(state)
        if attributes is not None and before is not None and isinstance(travelling, dict):
            attributes.update((name, part) for name, part in before.items() if name not in travelling)
    except BaseException:
        if attributes is not None and before is not None:
            attributes.clear()
            attributes.update(before)
        raise


def _is_of_frames(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] == "pandas" for base in kind.__mro__)


def _put_attributes(value: Any, state: Any, *, is_all: bool) -> None:
    in_slots: dict[str, Any] | None = None
    if isinstance(state, tuple) and len(state) == 2:
        state, in_slots = state
    if type(value).__dictoffset__:
        if is_all:
            value.__dict__.clear()
        value.__dict__.update(state or {})
    for name in slots_of(type(value)) if is_all else ():
        if name not in (in_slots or {}) and hasattr(value, name):
            object.__delattr__(value, name)
    for name, part in (in_slots or {}).items():
        object.__setattr__(value, name, part)


def rebuilt(reduced: tuple[Any, ...]) -> Any:
    """Return the object that `__reduce_ex__` has described, if that has no items."""
    make, arguments, *rest = reduced
    value = make(*arguments)
    if rest and rest[0] is not None:
        value.__setstate__(rest[0])
    return value


class _Form(NamedTuple):
    """A form of contents.

    Attributes:
        put: puts parts into an object.
        has_keys: True if they are keys or members, which are inserted by their hashes.
    """

    put: Callable[[Any, Any], None]
    has_keys: bool = False


_FORMS = {
    "process": _Form(set_state),
    "list": _Form(_put_list),
    "dict": _Form(_put_dict, has_keys=True),
    "set": _Form(_put_set, has_keys=True),
    "deque": _Form(_put_deque),
    "bytearray": _Form(_put_bytearray),
    "numbers": _Form(_put_numbers),
    "exception": _Form(_put_exception),
    "array": _Form(_put_array),
    "masked": _Form(_put_masked),
    "cell": _Form(_put_cell),
    "function": _Form(_put_function),
    "cached": _Form(_put_cached),
    "weak": _Form(_put_weak, has_keys=True),
    "class": _Form(_put_class),
    "enum": _Form(_put_enum),
    "module": _Form(_put_module),
    "remade": _Form(_put_remade),
    "tensor": _Form(_put_tensor),
    "state": _Form(_put_state),
    "filled": _Form(_put_filled, has_keys=True),
}
"""The forms of `Contents`."""
