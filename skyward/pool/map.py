"""Calls of a function with each item, in chunks, and errors that name their item."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import batched
from typing import Any

from skyward.errors import OperatorError, SpecError
from skyward.functions.decorator import PendingFunction, SkyFunction
from skyward.functions.signature import is_generator, stream_parameters
from skyward.values.validation import shown, whole

__all__ = ["Chunk", "calls_of_map", "note_items"]

_OF_ITEM = "It was raised for item"


class Chunk:
    """Consecutive calls of `fn` as one task.

    Args:
        size: number of arguments that an item has.
    """

    def __init__(self, fn: Callable[..., Any], name: str, size: int) -> None:
        self.fn = fn
        self.size = size
        self.__name__ = self.__qualname__ = name

    def __call__(self, first: int, calls: Sequence[tuple[Any, ...]]) -> Any:
        """Return the list of results, or a coroutine of it; exceptions get a note with their item.

        Args:
            first: position of the first item in the map.
            calls: arguments of each call, with those of the item last.
        """
        results: list[Any] = []
        for position, args in enumerate(calls):
            try:
                result = self.fn(*args)
            except Exception as error:
                _note(error, first + position, args[-self.size :])
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
                _note(error, index, args[-self.size :])
                raise
        return results


def calls_of_map(
    call: SkyFunction[..., Any], items: Iterable[tuple[Any, ...]], size: int
) -> Iterator[PendingFunction[Any]]:
    """Return the calls of a map: one for each item, or one for each `size` items, whose result is a list.

    Args:
        items: arguments of each call.

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
    if size > 1 and stream_parameters(call.fn):
        raise SpecError(f"`{call.__name__}` takes an iterator, which streams to one call: leave `chunksize=` out.")
    return (call(*item) for item in items) if size == 1 else _chunks(call, items, size)


def _chunks(call: SkyFunction[..., Any], items: Iterable[tuple[Any, ...]], size: int) -> Iterator[PendingFunction[Any]]:
    chunk: Chunk | None = None  # one object for all tasks, which is pickled once
    for number, some in enumerate(batched(items, size)):
        chunk = chunk or Chunk(call.fn, call.__name__, len(some[0]))
        timeout = None if call.timeout is None else call.timeout * len(some)
        calls = [call(*item).args for item in some]
        yield PendingFunction(chunk, (number * size, calls), {}, timeout, call.needs, call.retries)


def note_items(error: BaseException, first: int, items: Sequence[tuple[Any, ...]]) -> None:
    """Add a note with the items of a map to `error`, raised by their task, unless it has one."""
    if any(note.startswith(_OF_ITEM) for note in getattr(error, "__notes__", ())):
        return
    if len(items) == 1:
        _note(error, first, items[0])
    else:
        last = first + len(items) - 1
        BaseException.add_note(error, f"It was raised for one of the items {first} to {last}, which ran in one task.")


def _note(error: BaseException, index: int, item: tuple[Any, ...]) -> None:
    BaseException.add_note(error, f"{_OF_ITEM} {index}: {shown(item[0] if len(item) == 1 else item)}.")
