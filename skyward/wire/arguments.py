"""Iterator arguments: a marker travels in their place, and becomes an iterator again where the call is decoded."""

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

__all__ = ["StreamMarker", "arriving"]

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
