"""Pickling of NumPy arrays that share memory, so that their copies share memory too. NumPy need not be installed."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any
from weakref import WeakKeyDictionary

__all__ = [
    *(
        "LostMemory",
        "Extent",
        "ArrayMemory",
        "ArrayView",
        "arrays_in_index",
        "arrays_owned_by",
        "attributes_of_array",
        "extent_of",
        "extent_of_bytes",
        "is_array",
    ),
    *("is_derived_array", "is_inside_frame", "shared_views", "view_in", "view_in_bytes"),
]


def is_array(value: object) -> bool:
    """Return whether `value` is an `ndarray`, and not of a subclass."""
    kind = type(value)
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy"


def is_derived_array(value: object) -> bool:
    """Return whether `value` is of a subclass of `ndarray`."""
    kind = type(value)
    if kind not in _derived:
        _derived[kind] = any(base.__name__ == "ndarray" and base.__module__ == "numpy" for base in kind.__mro__[1:])
    return _derived[kind]


_derived: "WeakKeyDictionary[type, bool]" = WeakKeyDictionary()


def attributes_of_array(value: Any) -> dict[str, Any]:
    """Return the attributes of an array of a subclass, which NumPy does not pickle; empty if the class pickles them."""
    kind = type(value)
    array = next(base for base in kind.__mro__ if base.__name__ == "ndarray" and base.__module__ == "numpy")
    has_own = any(getattr(kind, name) is not getattr(array, name) for name in ("__reduce__", "__reduce_ex__"))
    return {} if has_own else dict(getattr(value, "__dict__", {}))


def arrays_owned_by(value: Any) -> Iterator[Any]:
    """Yield the arrays inside a pandas frame or series, which shares them with others until one is written to."""
    if is_inside_frame(type(value)):
        for block in getattr(value, "blocks", (value,)):
            values = getattr(block, "values", None)
            for array in (values, getattr(values, "_ndarray", None), getattr(block, "_ndarray", None)):
                if is_array(array):
                    yield array


def arrays_in_index(value: Any) -> Iterator[Any]:
    """Yield the array of objects inside a pandas index, which nothing writes to."""
    kind = type(value)
    if kind.__module__.startswith("pandas") and any(base.__name__ == "Index" for base in kind.__mro__):
        data = vars(value).get("_data")
        inside: tuple[Any, ...] = (data, getattr(data, "_ndarray", None))
        yield from (array for array in inside if is_array(array) and array.dtype.hasobject)


def is_inside_frame(kind: type) -> bool:
    """Return whether a pandas frame or series is made of objects of `kind`."""
    return kind.__module__.startswith(_INSIDE_FRAMES)


_INSIDE_FRAMES = ("pandas._libs.internals", "pandas.core.internals", "pandas.core.arrays")


@dataclass(frozen=True, slots=True)
class Extent:
    """The memory range of an array's elements.

    Attributes:
        owner: the end of the chain of bases: an array, or another object that lends its memory, such as a `bytearray`.
            Arrays that share memory usually have the same owner, but memory that NumPy does not know of is not in the
            chain; only addresses are certain.
        start: address of the first byte.
        end: address after the last byte.
    """

    owner: Any
    start: int
    end: int


def extent_of(array: Any) -> Extent:
    """Return the memory range of the elements of `array`."""
    owner = array
    while (base := _base_of(owner)) is not None:
        owner = base
    start = end = array.__array_interface__["data"][0]
    for count, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            start += (count - 1) * stride
        else:
            end += (count - 1) * stride
    return Extent(owner, start, end + array.itemsize if array.size else start)


def _base_of(value: Any) -> Any:
    """Return the object that `value` has its memory from; None if it owns its memory."""
    kind = type(value)
    if kind is memoryview:
        return value.obj
    if is_array(value) or is_derived_array(value) or (kind.__name__ == "DummyArray" and kind.__module__[:5] == "numpy"):
        return value.base
    return value.memory if kind is _Span else None


def extent_of_bytes(memory: bytearray) -> Extent:
    """Return the memory range of the content of `memory`. NumPy must be loaded."""
    start = sys.modules["numpy"].frombuffer(memory, "uint8").__array_interface__["data"][0] if memory else 0
    return Extent(memory, start, start + len(memory))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMemory:
    """Memory that several arrays share."""

    buffer: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayMemory, (PickleBuffer(self.buffer),)


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An array as a view of the memory that it shares.

    Attributes:
        memory: the memory, or an array or a `bytearray` that spans it.
        start: address of its first byte.
        array: the array.
    """

    memory: Any
    start: int
    array: Any

    def reduced(self) -> tuple[Any, ...]:
        """Return how to rebuild the array, once the memory exists."""
        array = self.array
        offset = array.__array_interface__["data"][0] - self.start
        return _view, (self.memory, array.dtype, array.shape, array.strides, offset, array.flags.writeable)


class LostMemory:
    """Base class of placeholders of objects that do not exist here: a view of one is the placeholder itself."""

    __slots__ = ()


def shared_views(arrays: Iterable[Any]) -> list[dict[int, ArrayView]]:
    """Return the groups of arrays that share memory: for each, the views by identity of the array.

    An array whose own elements share memory is a group, too.
    """
    extents = [(extent_of(array), array) for array in {id(array): array for array in arrays}.values()]
    extents = sorted((each for each in extents if each[0].end > each[0].start), key=lambda each: each[0].start)
    return [
        _group(members)
        for members in _overlapping(extents)
        if len(members) > 1 or (members and _may_overlap_itself(members[0][1]))
    ]


def _may_overlap_itself(array: Any) -> bool:
    """Return whether elements of `array` could share memory with one another."""
    if array.flags.forc:
        return False
    reach = array.itemsize
    for stride, count in sorted((abs(stride), count) for stride, count in zip(array.strides, array.shape, strict=True)):
        if count > 1:
            if stride < reach:
                return True
            reach += (count - 1) * stride
    return False


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


@dataclass(frozen=True, slots=True)
class _Span:
    """The address range spanned by arrays, in a form that NumPy reads as one array.

    Attributes:
        start: the first address.
        nbytes: its length.
        memory: the owner of the memory, which is kept alive.
    """

    start: int
    nbytes: int
    memory: Any

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": "|u1", "shape": (self.nbytes,), "data": (self.start, False)}


def _group(members: list[tuple[Extent, Any]]) -> dict[int, ArrayView]:
    start = members[0][0].start
    nbytes = max(extent.end for extent, _ in members) - start
    memory = ArrayMemory(sys.modules["numpy"].asarray(_Span(start, nbytes, members[0][0].owner)))
    return {id(array): ArrayView(memory, start, array) for _, array in members}


def view_in(array: Any, others: Iterable[Any]) -> ArrayView | None:
    """Return `array` as a view of the first of `others`, contiguous arrays, that spans it; None if none does."""
    extent = extent_of(array)
    for other in others:
        spanned = extent_of(other)
        if spanned.start <= extent.start < extent.end <= spanned.end:
            return ArrayView(other, spanned.start, array)
    return None


def view_in_bytes(array: Any, memory: bytearray) -> ArrayView:
    """Return `array`, a view of `memory`, as a `ArrayView`."""
    return ArrayView(memory, extent_of_bytes(memory).start, array)


def _view(memory: Any, dtype: Any, shape: Any, strides: Any, offset: int, is_writable: bool) -> Any:
    from numpy import ndarray

    buffer = memory.buffer if isinstance(memory, ArrayMemory) else memory
    if isinstance(buffer, LostMemory):
        return buffer
    if is_array(buffer):
        buffer = buffer.reshape(-1).view("uint8")
    array: Any = ndarray(shape, dtype, buffer, offset, strides)
    if not is_writable:
        array.flags.writeable = False
    return array
