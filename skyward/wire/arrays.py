"""NumPy arrays that share memory, and go on sharing it where they travel to. NumPy itself need not be installed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any
from weakref import WeakKeyDictionary

__all__ = [
    *("Extent", "Memory", "View", "arrays_owned_by", "attributes_of_array", "extent_of", "is_array"),
    *("is_derived_array", "is_inside_frame", "shared_views", "view_in"),
]


def is_array(value: object) -> bool:
    """Return whether `value` is an `ndarray`, and not of a class derived from it."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy"


def is_derived_array(value: object) -> bool:
    """Return whether `value` is an array of a class derived from `ndarray`."""
    kind = type(value)
    if kind not in _derived:
        _derived[kind] = any(base.__name__ == "ndarray" and base.__module__ == "numpy" for base in kind.__mro__[1:])
    return _derived[kind]


_derived: "WeakKeyDictionary[type, bool]" = WeakKeyDictionary()


def attributes_of_array(value: Any) -> dict[str, Any]:
    """Return the attributes of an array of a derived class, which NumPy leaves behind; none if the class takes them."""
    kind = type(value)
    array = next(base for base in kind.__mro__ if base.__name__ == "ndarray" and base.__module__ == "numpy")
    has_own = any(getattr(kind, name) is not getattr(array, name) for name in ("__reduce__", "__reduce_ex__"))
    return {} if has_own else dict(getattr(value, "__dict__", {}))


def arrays_owned_by(value: Any) -> Iterator[Any]:
    """Yield the arrays inside a frame or a series of pandas, which shares them with others until one is written to."""
    if is_inside_frame(type(value)):
        for block in getattr(value, "blocks", (value,)):
            values = getattr(block, "values", None)
            for array in (values, getattr(values, "_ndarray", None)):
                if is_array(array):
                    yield array


def is_inside_frame(kind: type) -> bool:
    """Return whether objects of `kind` are what a frame or a series of pandas is made of."""
    return kind.__module__.startswith(_INSIDE_FRAMES)


_INSIDE_FRAMES = ("pandas._libs.internals", "pandas.core.internals", "pandas.core.arrays")


@dataclass(frozen=True, slots=True)
class Extent:
    """Where the elements of an array lie.

    Attributes:
        owner: the array at the end of the chain of bases, which all views of its memory have in common.
        start: address of the first byte.
        end: address after the last one.
    """

    owner: Any
    start: int
    end: int


def extent_of(array: Any) -> Extent:
    """Return where the elements of `array` lie."""
    owner = array
    while is_array(owner.base):
        owner = owner.base
    start = end = array.__array_interface__["data"][0]
    for count, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            start += (count - 1) * stride
        else:
            end += (count - 1) * stride
    return Extent(owner, start, end + array.itemsize if array.size else start)


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Memory that several arrays share."""

    buffer: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return Memory, (PickleBuffer(self.buffer),)


@dataclass(frozen=True, slots=True)
class View:
    """An array as a view of memory that it shares.

    Attributes:
        memory: the memory, or an array that spans it.
        start: address of the first byte of it.
        array: the array.
    """

    memory: Any
    start: int
    array: Any

    def reduced(self) -> tuple[Any, ...]:
        """Return how to rebuild the array, once the memory is there."""
        array = self.array
        offset = array.__array_interface__["data"][0] - self.start
        return _view, (self.memory, array.dtype, array.shape, array.strides, offset, array.flags.writeable)


def shared_views(arrays: Iterable[Any]) -> list[dict[int, View]]:
    """Return the groups of arrays that share memory: by the identity of each of its arrays, how to see it as a view."""
    by_owner: dict[int, list[tuple[Extent, Any]]] = {}
    for array in {id(array): array for array in arrays}.values():
        extent = extent_of(array)
        if extent.end > extent.start:
            by_owner.setdefault(id(extent.owner), []).append((extent, array))
    found = []
    for extents in by_owner.values():
        owner = extents[0][0].owner
        if len(extents) == 1 or not (owner.flags.c_contiguous or owner.flags.f_contiguous):
            continue
        found += [_group(owner, members) for members in _overlapping(sorted(extents, key=lambda each: each[0].start))]
    return [group for group in found if group]


def _overlapping(extents: list[tuple[Extent, Any]]) -> Iterator[list[tuple[Extent, Any]]]:
    group: list[tuple[Extent, Any]] = []
    end = 0
    for extent, array in extents:
        if group and extent.start >= end:
            yield group
            group = []
        group.append((extent, array))
        end = max(end, extent.end)
    yield group


def _group(owner: Any, members: list[tuple[Extent, Any]]) -> dict[int, View]:
    if len(members) == 1:
        return {}
    start = members[0][0].start
    flat = (owner if owner.flags.c_contiguous else owner.T).reshape(-1).view("uint8")
    front = flat.__array_interface__["data"][0]
    memory = Memory(flat[start - front : max(extent.end for extent, _ in members) - front])
    return {id(array): View(memory, start, array) for _, array in members}


def view_in(array: Any, others: Iterable[Any]) -> View | None:
    """Return `array` as a view of the first of `others`, contiguous arrays, that spans it; None if none does."""
    extent = extent_of(array)
    for other in others:
        spanned = extent_of(other)
        if spanned.owner is extent.owner and spanned.start <= extent.start < extent.end <= spanned.end:
            return View(other, spanned.start, array)
    return None


def _view(memory: Any, dtype: Any, shape: Any, strides: Any, offset: int, is_writable: bool) -> Any:
    from numpy import ndarray

    buffer = memory.reshape(-1).view("uint8") if is_array(memory) else memory.buffer
    array: Any = ndarray(shape, dtype, buffer, offset, strides)
    if not is_writable:
        array.flags.writeable = False
    return array
