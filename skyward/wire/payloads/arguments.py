"""Iterators and futures as arguments: sent as markers, and decoded as iterators and the values of the futures."""

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

__all__ = ["ResultMarker", "StreamMarker", "arriving", "arriving_results"]

arriving: ContextVar[Sequence[Iterator[Any]]] = ContextVar("skyward_arriving_streams")
"""Input streams of the call being decoded, by index."""


class StreamMarker:
    """Marker for input stream `index` of a call."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.index,)


def _arrive(index: int) -> Iterator[Any]:
    return arriving.get()[index]


arriving_results: ContextVar[Sequence[Any]] = ContextVar("skyward_arriving_results")
"""Values of the futures of the call being decoded, by index."""


class ResultMarker:
    """Marker for the value of future `index` of a call."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return _result, (self.index,)


def _result(index: int) -> Any:
    return arriving_results.get()[index]
