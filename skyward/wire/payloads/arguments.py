"""Iterators and futures among arguments: a marker travels in their place, and where the call is decoded it becomes an
iterator again, or the value of the future.
"""

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

__all__ = ["ResultMarker", "StreamMarker", "arriving", "arriving_results"]

arriving: ContextVar[Sequence[Iterator[Any]]] = ContextVar("skyward_arriving_streams")
"""The input streams of the call being decoded, by index."""


class StreamMarker:
    """Stands for input stream `index` of a call."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.index,)


def _arrive(index: int) -> Iterator[Any]:
    return arriving.get()[index]


arriving_results: ContextVar[Sequence[Any]] = ContextVar("skyward_arriving_results")
"""The values of the futures of the call being decoded, by index."""


class ResultMarker:
    """Stands for the value of future `index` of a call."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return _result, (self.index,)


def _result(index: int) -> Any:
    return arriving_results.get()[index]
