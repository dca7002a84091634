"""Calls of a function with each item, several in one task, and errors that name their item."""

import inspect
import pickle
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import batched
from typing import Any

from skyward.errors import MissingModuleError, OperatorError, SpecError
from skyward.functions.decorator import PendingFunction, SkyFunction
from skyward.functions.signature import is_generator, stream_parameters
from skyward.kept.handles import recording_handles
from skyward.process.clock import clock
from skyward.values import limits
from skyward.values.validation import shown, whole
from skyward.wire.failures.failure import Failure, capture_failure
from skyward.wire.kinds.stateless import survey
from skyward.wire.payloads.modules import travelling_by_value
from skyward.wire.payloads.outcomes import SeriesOutcomes
from skyward.wire.payloads.payload import Packed, encode_result
from skyward.wire.payloads.pickler import has_own_classes
from skyward.wire.protocol.messages import INLINE_LIMIT

__all__ = ["PLAIN", "SERIES_LIMIT", "Chunk", "Series", "calls_of_map", "check_map", "is_serial", "note_items"]

PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Types whose pickles run no code, and look the same from any pickler."""

SERIES_LIMIT = 0.05
"""Seconds after which a series returns its remaining calls unrun."""

_CALLS_PER_SLOT = 50
"""Minimum number of calls of a map with series, for each slot of the pool."""

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


class Series:
    """Consecutive short calls of `fn` as one task, which returns an outcome of each.

    Args:
        name: name of its tasks in messages and views.
    """

    def __init__(self, fn: Callable[..., Any], name: str) -> None:
        self.fn = fn
        self.__name__ = self.__qualname__ = name

    def __call__(self, calls: Sequence[tuple[bytes, ...]]) -> SeriesOutcomes:
        """Run calls for `SERIES_LIMIT`, and return their outcomes.

        The first call that it does not run, or that must be a task of its own, ends the series. That is also one whose
        arguments have classes that calls may change: the next call must not see that.

        Args:
            calls: the pickled arguments of each call: the pickle and its buffers.
        """
        outcomes: list[object] = []
        end, nbytes = clock.perf_counter() + SERIES_LIMIT, 0
        for data, *buffers in calls:
            try:
                args, kwargs = pickle.loads(data, buffers=map(bytearray, buffers))
            except Exception:
                break
            if has_own_classes():
                break
            try:
                result = self.fn(*args, **kwargs)
                if isinstance(result, Coroutine):  # its task runs it on an event loop
                    result.close()
                    break
                outcomes.append(_packed(result, self.__name__))
            except (Exception, SystemExit, GeneratorExit) as error:
                outcomes.append(_failure(error, self.__name__))
            nbytes += _size(outcomes[-1])
            if clock.perf_counter() > end or nbytes > INLINE_LIMIT:
                break
        return SeriesOutcomes(outcomes, len(calls) - len(outcomes))


def _packed(result: object, name: str) -> object:
    """Return a result as it is now: a later call of the series may overwrite its memory."""
    if type(result) in PLAIN:
        return result
    with recording_handles() as handles:
        data, views = encode_result(result, f"the result of {name}()")
    packed = Packed(data, tuple(views), tuple(handles.values()))
    if packed.nbytes > INLINE_LIMIT:
        return packed  # it ends the series
    return Packed(data, tuple(map(bytearray, views)), packed.kept)


def _size(outcome: object) -> int:
    if isinstance(outcome, Packed):
        return outcome.nbytes
    return len(outcome) if isinstance(outcome, (str, bytes)) else 0


def _failure(error: BaseException, name: str) -> Failure:
    """Return what a call of a series raised; its task counts as failed."""
    from skyward.worker.events.context import running  # loaded on nodes only
    from skyward.worker.tasks.exceptions import as_ordinary_error
    from skyward.worker.tasks.missing_modules import missing_module

    task = running.get()
    node = 0 if task is None else task.node
    if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingModuleError):
        error = missing_module(error, node)
    failure = capture_failure(as_ordinary_error(error, f"{name}()", node), node)
    if task is not None and not task.raised:
        task.raised, task.reason = failure.type_name, failure.reason
    return failure


def is_serial(call: SkyFunction[..., Any], calls: int, slots: int) -> bool:
    """Return whether short calls of a map may run in series: there are many, and each needs no task of its own.

    Calls that wait for each other are not many: no more of them than there are slots make progress. A call of a
    function that can change itself, as by a global variable, needs a task of its own: the next one must not see that.
    """
    return calls >= _CALLS_PER_SLOT * slots and not (
        call.timeout is not None
        or call.retries.times
        or stream_parameters(call.fn)
        or inspect.iscoroutinefunction(call.fn)
        or inspect.iscoroutinefunction(getattr(call.fn, "__call__", None))  # noqa: B004 - an `async def __call__`
        or not _is_fixed(call.fn)
    )


def _is_fixed(fn: Callable[..., Any]) -> bool:
    """Return whether no call can change what `fn` refers to, in local modules too, as it is sent."""
    with travelling_by_value():
        return survey(fn) is not None


def check_map(call: SkyFunction[..., Any], size: int | None) -> None:
    """Check a function and the number of calls per task.

    Raises:
        OperatorError: `call` is a generator function.
        SpecError: `size` is not a number of items, or must be one because the function takes an iterator.
    """
    if size is not None:
        whole(size, "chunksize", least=1)
    if is_generator(call.fn):
        raise OperatorError(
            f"`pool.map` takes a function that returns its result, and `{call.__name__}` yields: stream each call with "
            f"`{call.__name__}(item) >> pool`, or return a list."
        )
    if size is not None and size > 1 and stream_parameters(call.fn):
        raise SpecError(f"`{call.__name__}` takes an iterator, which streams to one call: leave `chunksize=` out.")


def calls_of_map(
    call: SkyFunction[..., Any], items: Iterable[tuple[Any, ...]], size: int, default: float
) -> Iterator[PendingFunction[Any]]:
    """Return the calls of a map: one for each item, or one for each `size` items, whose result is a list.

    Args:
        items: arguments of each call.
        default: seconds that a call may run if the function has no timeout.

    Raises:
        OperatorError, SpecError: see `check_map`.
    """
    check_map(call, size)
    return (call(*item) for item in items) if size == 1 else _chunks(call, items, size, default)


def _chunks(
    call: SkyFunction[..., Any], items: Iterable[tuple[Any, ...]], size: int, default: float
) -> Iterator[PendingFunction[Any]]:
    limit = default if call.timeout is None else call.timeout
    chunk: Chunk | None = None  # one object for all tasks, which is pickled once
    for number, some in enumerate(batched(items, size)):
        chunk = chunk or Chunk(call.fn, call.__name__, len(some[0]))
        timeout = min(limit * len(some), limits.SECONDS)
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
