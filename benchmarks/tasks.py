"""Functions that the workers run, ours and those of the peers. Plain functions; `remote` wraps them for the library."""

import time
from collections.abc import Iterator
from typing import Any

from skyward.functions.decorator import function

__all__ = [
    "all_reduce",
    "count",
    "double",
    "make",
    "noop",
    "noop_of",
    "put_all",
    "read",
    "remote",
    "size",
    "time_all_reduce",
    "total",
]


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


def all_reduce() -> float:
    """Return the sum of ones of all processes of a group of PyTorch."""
    import torch
    from torch import distributed

    number = torch.ones(1)
    distributed.all_reduce(number)
    return float(number)


def time_all_reduce() -> float:
    """Return the time at which such a sum is there."""
    all_reduce()
    return time.perf_counter()


class remote:
    """The same functions, wrapped for the library."""

    noop = staticmethod(function(noop))
    noop_of = staticmethod(function(noop_of))
    size = staticmethod(function(size))
    read = staticmethod(function(read))
    make = staticmethod(function(make))
    count = staticmethod(function(count))
    all_reduce = staticmethod(function(all_reduce))
    time_all_reduce = staticmethod(function(time_all_reduce))
    total = staticmethod(function(total))
    double = staticmethod(function(double))
