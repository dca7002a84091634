"""Results of cells of a former process, without the objects that the cells had captured there.

In a notebook the variables of the cell are bound; elsewhere they are a mapping.
"""

import builtins
import importlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from skyward.control.act.tasks.future import TaskFuture, release_handles
from skyward.control.act.tasks.missing_modules import with_fix
from skyward.control.act.tasks.settle import note_unsaved, unsaved_error
from skyward.control.act.tasks.streams import Stream
from skyward.errors import NotPicklableError, TaskCancelledError, TaskError, UsageError
from skyward.formatting import joined, nodes_text
from skyward.kept.handles import renew
from skyward.reporting.screen import notify
from skyward.wire.kinds.arrays import LostMemory
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.pickling import pack_shared
from skyward.wire.objects.unpickling import unpack_shared
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.object_graph import PackedGraph
from skyward.worker.code.program import VALUE

__all__ = [
    "CellBinder",
    "CellElements",
    "CellFuture",
    "CellOutcome",
    "FormerObject",
    "add_note",
    "bind_with",
    "open_result",
]

_SUBJECT = "The cell"
"""Subject of the errors of its task."""

_LAST = "_"
"""Name of the value of the last expression among the variables of a cell, as in a notebook."""


class CellBinder(Protocol):
    """The notebook, in which the variables of a cell are bound."""

    def bind(self, result: CellResult) -> Any:
        """Bind the variables of a cell, and return the value of its last expression, or raise the cell's exception."""

    def open_element(self, packed: Packed) -> Any:
        """Return an element of a cell that yields."""


_binder: CellBinder | None = None


def bind_with(binder: CellBinder | None) -> None:
    """Set the notebook of this process; None for none."""
    global _binder
    _binder = binder


class FormerObject(LostMemory):
    """Placeholder of an object of the former process, which is gone with that process."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<an object of the former process, which is gone>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith(("__", "_repr_", "_ipython_")):  # looked up by Python or IPython, not by the user
            raise AttributeError(name)
        self._refuse()

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError("this object was in the memory of the former process, which is gone: create it again.")


@dataclass(slots=True)
class OpenedCell:
    """The unpickled result of a cell of a former process.

    Attributes:
        values: the variables that it assigned.
        value: the value of its last expression; None if there is none, or it cannot be opened.
        unopened: by name, why a variable cannot be unpickled here.
        notices: one sentence for each kind of change that is lost with the former process.
    """

    values: dict[str, Any] = field(default_factory=dict)
    value: Any = None
    unopened: dict[str, Exception] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def open_result(result: CellResult, namespace: dict[str, Any]) -> OpenedCell:
    """Unpickle the result of a cell. `FormerObject` stands for each object of the former process in it.

    Args:
        result: its result.
        namespace: the globals of its functions. What they use beyond its variables is added, unless it is there.
    """
    state, side, found = result.state, CellEnd(namespace, is_notebook=True), OpenedCell()
    renew(result.updated_kept)
    for name, packed in state.values.items():
        try:
            found.values[name] = unpack_shared(packed, side)
        except Exception as error:
            found.unopened[name] = error
    if state.graph is not None:
        _open_graph(state.graph, side, found)
    for name, packed in state.supports.items():
        if name not in namespace:
            with suppress(Exception):  # a function that uses it raises NameError, as any other
                namespace[name] = unpack_shared(packed, side)
    lost = [name for name in dict.fromkeys((*state.changed, *state.stale)) if name not in found.values]
    if lost:
        it, was = ("it", "was") if len(lost) == 1 else ("they", "were")
        found.notices.append(
            f"The cell changed {joined(lost)} in place. These changes are lost: {it} {was} in the memory of the "
            "former process, which is gone."
        )
    if state.value == VALUE:
        found.value = found.values.pop(VALUE, None)
    elif state.value and state.value not in found.unopened:
        found.value = found.values.get(state.value, FormerObject())
    return found


def _open_graph(graph: PackedGraph, side: CellEnd, found: OpenedCell) -> None:
    seeds = [FormerObject() for _ in graph.seeds]
    try:
        values, *_ = unpack_shared(graph.packed, side, seeds)
    except Exception as error:
        found.unopened |= dict.fromkeys(graph.names, error)
        return
    found.values |= values
    ids = set(map(id, seeds))
    partial = [name for name, value in values.items() if ids and _has_any(ids, value, side)]
    if partial:
        refer = "refers" if len(partial) == 1 else "refer"
        found.notices.append(
            f"{joined(map(_title, partial))} {refer} to objects of the "
            "former process, which are gone: placeholders are in their places."
        )


def _has_any(ids: set[int], value: Any, side: CellEnd) -> bool:
    """Return whether a value refers to one of the objects with these ids."""
    if id(value) in ids:
        return True
    try:
        return not ids.isdisjoint(pack_shared(value, side, "the value").objects())
    except NotPicklableError:
        return False


class CellOutcome:
    """The result of a cell of a former process, collected once.

    Args:
        result: its result.
        unsaved: the files of volumes that it has written and that could not be uploaded, as a sentence; "" for none.

    Attributes:
        is_collected: True once `collect` has ended.
    """

    def __init__(self, result: CellResult, unsaved: str = "") -> None:
        self._result = result
        self._unsaved = unsaved
        self._lock = threading.RLock()
        self._variables: dict[str, Any] | None = None
        self.is_collected = False
        self._value: Any = None
        self._error: BaseException | None = None

    def variables(self) -> dict[str, Any]:
        """Return the variables that the cell assigned, and under `_` the value of its last expression, if any."""
        with self._lock:
            if self._variables is None:
                self._variables = self._opened()
            return self._variables

    def collect(self) -> Any:
        """Bind the variables in the notebook, if this is one, and return the value of the cell's last expression.

        Otherwise, and for a run of several, whose values were elements of lists, return `variables()`.

        Raises:
            VolumeError: files that the cell wrote to a volume could not be uploaded.
            BaseException: the exception of the cell. In a notebook, the names it had bound are bound.
        """
        with self._lock:
            if not self.is_collected:
                try:
                    self._value = self._saved()
                except KeyboardInterrupt:
                    raise  # the next call binds the rest
                except BaseException as error:
                    self._error = error
                self.is_collected = True
            if self._error is not None:
                raise self._error
            return self._value

    def error(self) -> Exception | None:
        """Collect the outcome, and return the exception of the cell; None if it returned."""
        try:
            self.collect()
        except Exception as error:
            return error
        return None

    def _saved(self) -> Any:
        """Collect the outcome once, and raise or note what could not be uploaded."""
        if not self._unsaved:
            return self._collected()
        try:
            value = self._collected()
        except Exception as error:
            note_unsaved(error, self._unsaved)
            raise
        is_bound = _binder is not None and self._result.in_place
        returned = "The variables of the cell were returned." if is_bound else "`.variables()` has its variables."
        where = f" on node {self._result.node}"
        raise unsaved_error(_SUBJECT, where, self._unsaved, lambda: value, returned)

    def _collected(self) -> Any:
        result = self._result
        if _binder is not None and result.in_place:
            return _binder.bind(result)
        values = self.variables()
        if result.failure is None:
            return values
        side = CellEnd(_namespace(), is_notebook=True)
        error = with_fix(result.failure.rebuild(lambda packed: unpack_shared(packed, side)))
        if values:
            add_note(error, f".variables() has what the cell had assigned before: {joined(values)}.")
        raise error

    def _opened(self) -> dict[str, Any]:
        state, namespace = self._result.state, _namespace()
        found = open_result(self._result, namespace)
        if state.needs:
            for name, module in state.modules.items():
                with suppress(ImportError):
                    namespace[name] = importlib.import_module(module)
        namespace.update(found.values)
        for notice in (*found.notices, *self._unavailable(found)):
            notify(notice)
        return found.values if found.value is None else {**found.values, _LAST: found.value}

    def _unavailable(self, found: OpenedCell) -> Iterator[str]:
        """Yield a sentence for each variable that cannot be opened, or was not returned."""
        for name, error in found.unopened.items():
            yield f"{_title(name)} cannot be unpickled here: {type(error).__name__}: {error}."
        for name, why in self._result.state.failed.items():
            yield f"{_title(name)} was not returned from {nodes_text([self._result.node])}: {why.reason}."


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error that may be raised again, once."""
    if note not in getattr(error, "__notes__", ()):
        BaseException.add_note(error, note)  # its class may have a method of that name


def _title(name: str) -> str:
    return "the value of the last expression" if name == VALUE else name


def _namespace() -> dict[str, Any]:
    return {"__name__": "__main__", "__builtins__": builtins}


class CellFuture(TaskFuture[Any]):
    """Future of a recovered cell: of what the cell computed, see `CellOutcome.collect`."""

    _is_lendable = False

    @property
    def was_stopped(self) -> bool:
        """True if the task ended without a result of the cell."""
        return self.cancelled() or (self.done() and Future.exception(self) is not None)

    def outcome(self, timeout: float | None = None) -> CellOutcome:
        """Wait for the cell, and return its outcome.

        Raises:
            BaseException: the task had no result.
        """
        __tracebackhide__ = True
        error = super().exception(timeout)
        if error is not None:
            raise error
        if not isinstance(self._value, CellOutcome):
            raise UsageError(f"{self.name} is not a cell: `.result()` has what it returned.")
        return self._value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the cell raised; None if it returned."""
        error = super().exception(timeout)
        return self._value.error() if error is None and isinstance(self._value, CellOutcome) else error

    def set_exception(self, exception: BaseException | None) -> None:
        """End with an error, whose message is about a cell, not a function."""
        if isinstance(exception, TaskError) and exception.subject:
            rest = str(exception).removeprefix(exception.subject)
            exception.subject = _SUBJECT
            exception.args = (f"{_SUBJECT}{rest}", *exception.args[1:])
        super().set_exception(exception)

    def _cancelled_error(self) -> TaskCancelledError:
        return TaskCancelledError(self._cancelled_why, subject=_SUBJECT)

    def _decode(self, arrived: object, *, own: bool = False) -> None:
        super()._decode(arrived, own=own)
        with self._decoding:
            if isinstance(self._value, CellResult):
                self._value = CellOutcome(self._value, self.unsaved)

    def _give(self, arrived: object, *, own: bool = False) -> Any:
        __tracebackhide__ = True
        outcome = super()._give(arrived, own=own)
        if not isinstance(outcome, CellOutcome):
            return outcome  # a function of the user that has the name of ours
        try:
            return outcome.collect()
        finally:
            if outcome.is_collected:
                release_handles(self)


class CellElements(Stream[Any]):
    """The elements of a recovered cell that yields. At their end, its result is collected.

    Args:
        elements: the elements, packed unless they are plain data.
        future: the result of the cell.
    """

    def __init__(self, elements: Stream[Any], future: CellFuture) -> None:
        self._elements = elements
        self._future = future
        self._is_over = False
        self._end = CellEnd(_namespace(), is_notebook=True)

    def __next__(self) -> Any:
        with suppress(StopIteration):
            return self._open(next(self._elements))
        raise StopIteration(None if self._has_ended() else self._future.result())

    async def __anext__(self) -> Any:
        with suppress(StopAsyncIteration):
            return self._open(await anext(self._elements))
        if not self._has_ended():
            await self._future
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop the cell on its node. Idempotent."""
        self._elements.close()

    def _has_ended(self) -> bool:
        """Return whether the end was reached before, and record that it is."""
        before, self._is_over = self._is_over, True
        return before

    def _open(self, element: Any) -> Any:
        if not isinstance(element, Packed):
            return element
        return unpack_shared(element, self._end) if _binder is None else _binder.open_element(element)
