"""Functions that the workers run, ours and those of the peers. Plain functions; `remote` wraps them for the library."""

from collections.abc import Iterator
from typing import Any

from skyward.functions.decorator import function

__all__ = ["count", "double", "make", "noop", "noop_of", "put_all", "read", "remote", "size", "total"]


def noop() -> None:
    """Do nothing."""


def noop_of(_: int) -> None:
    """Do nothing with an argument."""


def size(array: Any) -> int:
    """Return the bytes of an array, without reading it."""
    return int(array.nbytes)


def read(array: Any) -> int:
    """Return the sum of an array: every byte is read."""
    return int(array.view("u8").sum(dtype="u8"))


def make(nbytes: int) -> Any:
    """Return an array of so many bytes."""
    import numpy as np

    return np.ones(nbytes, dtype=np.uint8)


def count(number: int) -> Iterator[int]:
    """Yield the integers up to `number`."""
    yield from range(number)


def total(items: Iterator[int]) -> int:
    """Return the sum of a stream."""
    return sum(items)


def double(items: Iterator[int]) -> Iterator[int]:
    """Yield each element of a stream, doubled."""
    for item in items:
        yield 2 * item


def put_all(name: str, number: int) -> None:
    """Put integers into a queue of dask, one by one."""
    import distributed

    queue = distributed.Queue(name)
    for item in range(number):
        queue.put(item)


class remote:
    """The same functions, wrapped for the library."""

    noop = staticmethod(function(noop))
    noop_of = staticmethod(function(noop_of))
    size = staticmethod(function(size))
    read = staticmethod(function(read))
    make = staticmethod(function(make))
    count = staticmethod(function(count))
    total = staticmethod(function(total))
    double = staticmethod(function(double))
