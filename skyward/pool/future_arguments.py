"""Futures among the arguments of a call: each is replaced by a marker, and the marker by its value on the node.

Futures are found as arguments, and inside lists, tuples, named tuples and dicts.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any

from skyward.control.act.tasks.future import TaskFuture, lend, members_of
from skyward.control.act.tasks.streams import Stream
from skyward.errors import SpecError
from skyward.wire.payloads.arguments import ResultMarker

__all__ = ["Taken", "may_hold_futures"]

_DEPTH = 20
"""Levels of nested containers that are searched for futures."""

_GLANCE = 8
"""Elements of a container that the quick check looks at."""

_GLANCE_DEPTH = 3


def may_hold_futures(value: object, depth: int = _GLANCE_DEPTH) -> bool:
    """Return whether a quick check of `value` finds a future, in the first elements of containers, a few levels deep.

    A future that it misses cannot be pickled, which triggers a full search.
    """
    if isinstance(value, Future):
        return True
    if not depth or not isinstance(value, (list, tuple, dict)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return any(may_hold_futures(part, depth - 1) for part in islice(parts, _GLANCE))


class Taken:
    """Futures whose values a call takes as arguments.

    Attributes:
        futures: distinct futures, by the index of their markers.
    """

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []
        self._markers: dict[int, Any] = {}
        self._containers: dict[int, tuple[object, object]] = {}

    def replace(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with futures replaced by markers.

        Raises:
            SpecError: a future is that of a stream.
        """
        placed = tuple(self._replace(value, _DEPTH) for value in args)
        return placed, {name: self._replace(value, _DEPTH) for name, value in kwargs.items()}

    def _replace(self, value: Any, depth: int) -> Any:
        if isinstance(value, Future):
            if id(value) not in self._markers:
                self._markers[id(value)] = self._stand_in(value, depth)
            return self._markers[id(value)]
        kind = type(value)
        if not depth or not (kind in (list, tuple, dict) or hasattr(kind, "_make")):
            return value
        if id(value) not in self._containers:
            self._containers[id(value)] = value, self._within(value, kind, depth - 1)
        return self._containers[id(value)][1]

    def _within(self, value: Any, kind: Any, depth: int) -> Any:
        if kind is dict:
            new = {key: self._replace(part, depth) for key, part in value.items()}
            return new if any(new[key] is not part for key, part in value.items()) else value
        parts = [self._replace(part, depth) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return kind._make(parts) if hasattr(kind, "_make") else kind(parts)

    def _stand_in(self, future: Future[Any], depth: int) -> Any:
        """Return the replacement of a future: a marker, or its value if the client has it."""
        if isinstance(future, TaskFuture) and (members := members_of(future)) is not None:
            return tuple(self._replace(member, depth) for member in members)
        lent = isinstance(future, TaskFuture) and lend(future)
        if future.done() and not future.cancelled() and Future.exception(future) is None:
            if isinstance(Future.result(future), Stream):
                raise SpecError("A future of a stream has no value to pass: pass the stream, `f(...) >> pool`, itself.")
            if not lent:
                return future.result()
        self.futures.append(future)
        return ResultMarker(len(self.futures) - 1)
