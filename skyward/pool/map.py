"""`pool.map`: calls in chunks, and errors that name their item."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from skyward.errors import OperatorError, SpecError
from skyward.functions.decorator import PendingFunction, SkyFunction
from skyward.functions.signature import is_generator, stream_parameters
from skyward.values.validation import shown, whole

__all__ = ["Chunk", "calls_of_map", "note_items"]

_OF_ITEM = "It was raised for item"


class Chunk:
    """Consecutive calls of `fn` as one task."""

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.__name__ = self.__qualname__ = name

    def __call__(self, first: int, calls: Sequence[tuple[Any, ...]]) -> Any:
        """Return the list of results, or a coroutine of it; exceptions get a note with their item.

        Args:
            first: position of the first item in the map.
            calls: arguments of each call, with the item last.
        """
        results: list[Any] = []
        for position, args in enumerate(calls):
            try:
                result = self.fn(*args)
            except Exception as error:
                _note(error, first + position, args[-1])
                raise
            if isinstance(result, Coroutine):
                return self._continue(first + position, calls[position:], results, result)
            results.append(result)
        return results

    async def _continue(
        self, first: int, calls: Sequence[tuple[Any, ...]], results: list[Any], begun: Coroutine[Any, Any, Any] | None
    ) -> list[Any]:
        """Await the coroutine that the first of these calls returned, and run the others."""
        for index, args in enumerate(calls, first):
            try:
                result, begun = self.fn(*args) if begun is None else begun, None
                results.append(await result if isinstance(result, Coroutine) else result)
            except Exception as error:
                _note(error, index, args[-1])
                raise
        return results


def calls_of_map(call: SkyFunction[..., Any], items: Sequence[Any], size: int) -> list[PendingFunction[Any]]:
    """Return the calls of a map: one for each item, or one for each `size` items, whose result is a list.

    Raises:
        OperatorError: `call` is a generator function.
        SpecError: `size` is not a number of items, or must be one because the function takes an iterator.
    """
    whole(size, "chunksize", least=1)
    if is_generator(call.fn):
        raise OperatorError(
            f"`pool.map` takes a function that returns its result, and `{call.__name__}` yields: stream each call with "
            f"`{call.__name__}(item) >> pool`, or return a list."
        )
    pendings = [call(item) for item in items]
    if size == 1:
        return pendings
    if stream_parameters(call.fn):
        raise SpecError(f"`{call.__name__}` takes an iterator, which streams to one call: leave `chunksize=` out.")
    chunk = Chunk(call.fn, call.__name__)
    found = []
    for first in range(0, len(pendings), size):
        some = pendings[first : first + size]
        timeout = None if call.timeout is None else call.timeout * len(some)
        calls = [pending.args for pending in some]
        found.append(PendingFunction(chunk, (first, calls), {}, timeout, call.needs, call.retries))
    return found


def note_items(error: BaseException, first: int, items: Sequence[Any]) -> None:
    """Add a note with the items of a map to `error`, raised by their task, unless it has one."""
    if any(note.startswith(_OF_ITEM) for note in getattr(error, "__notes__", ())):
        return
    if len(items) == 1:
        _note(error, first, items[0])
    else:
        last = first + len(items) - 1
        BaseException.add_note(
            error, f"It was raised for one of the items {first} to {last} of pool.map, which ran in one task."
        )


def _note(error: BaseException, index: int, item: object) -> None:
    BaseException.add_note(error, f"{_OF_ITEM} {index} of pool.map: {shown(item)}.")
