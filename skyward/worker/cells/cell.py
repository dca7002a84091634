"""A notebook cell on a node: an ordinary task whose arguments are the captured values of the notebook.

The cell runs in its own namespace, as if it ran in the notebook. The names that it binds, changes and unbinds are
returned to the notebook, also when it fails half-way.
"""

import asyncio
import builtins
import importlib
import inspect
import linecache
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock  # tasks may replace the attributes of the module
from typing import TYPE_CHECKING, Any, cast

from skyward.errors import MissingModuleError
from skyward.files.request import FilesRequest, FilesResult
from skyward.kept.keep import KEEP_FOR, KeptInfo
from skyward.wire.failures.failure import Failure, capture_failure
from skyward.wire.failures.frames import FrameRecorder
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.pickling import pack_shared
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.captured import Captured, Root
from skyward.worker.cells.files import CellFiles
from skyward.worker.cells.kept import (
    KeepingCell,
    after_open,
    inspect_kept,
    keep_names,
    note_classes,
    registered_cell,
    release_namespace,
    share_classes,
)
from skyward.worker.cells.returned_state import ReturnedState, collect_state
from skyward.worker.code.local_modules import ReimportedModules, install
from skyward.worker.code.main_module import as_main
from skyward.worker.code.program import SHOW, STREAM, VALUE, Program, build
from skyward.worker.code.shell import NodeShell
from skyward.worker.code.side_effects import ProcessSnapshot
from skyward.worker.display import figures
from skyward.worker.display.ipython import redirect_displays
from skyward.worker.display.publishing import display, publish
from skyward.worker.events.context import current_task
from skyward.worker.tasks.exceptions import as_ordinary_error
from skyward.worker.tasks.forked import leave_if_forked
from skyward.worker.tasks.guard import Interrupted
from skyward.worker.tasks.kept import StoredValue, keeping_for, noting_uses
from skyward.worker.tasks.missing_modules import missing_module

__all__ = ["CellRequest", "CellResult", "Root", "recorder_for", "run_cell", "stream_cell"]

if TYPE_CHECKING:
    from types import FunctionType

_ENDINGS = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
"""Exceptions that end a cell; the names bound until then are still returned."""

_INSTEAD_OF_EXIT = "Put code that should not run below an `if`, or into a function that returns early"

_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})

_RECORDED_FAILURES = 8
"""Failures of one cell to record. Thousands of elements of a `--map` may fail; users debug one."""

_COUNTED_CELLS = 64
"""Most recent cells whose failures are counted."""

_failures: Counter[str] = Counter()
_failures_lock = Lock()


@dataclass(frozen=True, slots=True)
class CellRequest:
    """A cell to run on a node, with everything that it needs.

    Attributes:
        source: the cell as plain Python.
        filename: the file name in its tracebacks.
        roots: for each pickle, the values in it.
        assigned: names that the cell seems to bind.
        only: the only names to return; None for all that the cell bound.
        deletes: names to unbind in the notebook if the cell leaves them unbound.
        incidental: names bound in passing, such as loop variables: a failure to return one is not reported.
        modules: modules imported in the notebook, by their names in the cell.
        sources: the packed sources of local modules, a mapping of `ModuleSource` by name.
        limit: most bytes to return.
        run: id of this run of the cell, the same on all its nodes.
        definitions: names bound by an import, a function or a class.
        in_place: apply changes to the objects of the notebook; only possible for a cell that runs once.
        shows: display the last expression.
        files: the cell's folder, and the files to send and fetch; None to run in the node's working directory.
        returns_value: the notebook displays the last expression itself.
        keep: names whose values the node keeps, see `skyward.worker.cells.kept`.
        shared_elsewhere: names in `keep` with objects that the notebook can also reach through other values.
        keep_for: seconds after the last use of a kept value for which scaling down spares the node.
        texts: sources of functions that are sent, by the file names in their code.
    """

    source: str
    filename: str = "<sky cell>"
    roots: tuple[tuple[Root, ...], ...] = ()
    assigned: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    deletes: tuple[str, ...] = ()
    incidental: tuple[str, ...] = ()
    modules: Mapping[str, str] | None = None
    sources: Packed | None = None
    limit: int = 1 << 30
    run: str = ""
    definitions: tuple[str, ...] = ()
    in_place: bool = True
    shows: bool = True
    files: FilesRequest | None = None
    returns_value: bool = False
    keep: tuple[str, ...] = ()
    shared_elsewhere: tuple[str, ...] = ()
    keep_for: float = KEEP_FOR
    texts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    """The outcome of a cell.

    Attributes:
        state: the names that the cell bound, changed and unbound.
        failure: the exception that ended the cell, if one did.
        node: rank of the node that ran it.
        definitions: names bound by an import, a function or a class.
        files: the files of the cell after its end.
        kept: names whose objects the node keeps from now on and that the cell did not rebind.
        copied: names in `kept` with objects that the notebook can also reach through other values: those are copies.
        updated_kept: new metadata of values kept earlier that now refer to other names or classes.
        in_place: False for one of several runs of a cell, whose values become elements of lists.
    """

    state: ReturnedState
    failure: Failure | None = None
    node: int = 0
    definitions: tuple[str, ...] = ()
    files: FilesResult | None = None
    kept: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    updated_kept: tuple[KeptInfo, ...] = ()
    in_place: bool = True


def run_cell(request: CellRequest, captured: Sequence[Packed] = ()) -> CellResult:
    """Run the cell of `request` with the values in `captured`, and return its outcome.

    An exception of the cell is part of the result, because names bound before it are returned too.
    """
    cell = _Cell(request, captured)
    with cell.stoppable():
        with cell.running():
            try:
                program = cell.prepare()
                cell.execute(program)
            except _ENDINGS as error:
                cell.raise_if_stopped(error)
                leave_if_forked(error)
                return cell.result(error)
        return cell.result()


def stream_cell(request: CellRequest, captured: Sequence[Packed] = ()) -> Generator[Any, None, CellResult]:
    """Run a cell that yields: yield its elements, packed unless they are plain data, and return its outcome."""
    cell = _Cell(request, captured)
    with cell.stoppable():
        with cell.running():
            try:
                program = cell.prepare()
                yield from cell.elements(program)
            except _ENDINGS as error:
                cell.raise_if_stopped(error)
                leave_if_forked(error)
                return cell.result(error)
        return cell.result()


class _Cell:
    """One run of a cell."""

    def __init__(self, request: CellRequest, captured: Sequence[Packed]) -> None:
        self.request = request
        self._captured = Captured(request.roots, captured)
        self._task = current_task()
        self.node = 0 if self._task is None else self._task.node
        self.namespace: dict[str, Any] = {"__name__": "__main__", "__doc__": None, "__builtins__": builtins}
        shell = NodeShell(self.namespace)
        self.namespace["get_ipython"] = lambda: shell
        self.namespace["display"] = display
        self.side = CellEnd(self.namespace, salt=request.run)
        self.files = CellFiles(request.files, request.run, self.node)
        self._initial = dict(self.namespace)
        self._figures: frozenset[int] = frozenset()
        self._last: Any = None
        self._snapshot: ProcessSnapshot | None = None
        self._is_prepared = False
        self._used: list[StoredValue] = []
        self._reimported = ReimportedModules()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Set up `__main__`, displays, figures and the working directory for the cell's code."""
        redirect_displays()
        figures.use_backend()
        self._figures = figures.open_figures()
        with as_main(self.namespace), keeping_for(lambda: KeepingCell(self.side)):
            try:
                yield
            finally:
                self.files.leave()
                figures.close_figures(self._figures)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Attach the outcome so far to `Interrupted` if the cell is cancelled."""
        leaves = False
        try:
            with registered_cell(self.side, keeps=bool(self.request.keep)):
                try:
                    yield
                except Interrupted as stop:
                    leaves = self._task is not None and self._task.leaves
                    if leaves:
                        stop.left = self._left
                    raise
        finally:
            if not leaves:
                self._captured.finalizers.release()

    def raise_if_stopped(self, error: BaseException) -> None:
        """Raise `Interrupted` if `error` comes from the cancellation of the cell."""
        if isinstance(error, KeyboardInterrupt) and self._task is not None and self._task.is_stopped:
            raise error if isinstance(error, Interrupted) else Interrupted() from None

    def _left(self) -> CellResult:
        try:
            with as_main(self.namespace):
                return self.result()
        finally:
            self._captured.finalizers.release()

    def prepare(self) -> Program:
        """Compile the cell and fill its namespace."""
        request = self.request
        self.files.enter()
        for file, text in {**(request.texts or {}), request.filename: request.source}.items():
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        program = build(request.source, request.filename)
        bundle = None if request.sources is None else request.sources.unpack()
        if bundle is not None:
            self._reimported = install(bundle)
        for name, module in (request.modules or {}).items():
            self.namespace[name] = importlib.import_module(module)
        share_classes(self.side, self._captured.parts)
        with noting_uses() as used:
            self._captured.open(self.side, self.node)
        self._used = list(used.values())
        after_open(self.side, self._used)
        self._initial = dict(self.namespace)
        self._snapshot = ProcessSnapshot(request.source, bundle or {}, self.namespace, self._captured.titles)
        self._is_prepared = True
        if self._task is not None:
            self._task.leaves = True
        return program

    def execute(self, program: Program) -> None:
        """Run the cell, and display its last expression and its figures."""
        if program.is_async:
            asyncio.run(self._awaited(program))
        else:
            exec(program.body, self.namespace)
            if program.last is not None:
                self._conclude(eval(program.last, self.namespace))
        figures.show_figures(self._figures, self._last)

    async def _awaited(self, program: Program) -> None:
        for code in (program.body, program.last):
            if code is not None:
                value = eval(code, self.namespace)
                if code.co_flags & inspect.CO_COROUTINE:
                    value = await value
                if code is program.last:
                    self._conclude(value)

    def elements(self, program: Program) -> Iterator[Any]:
        """Yield the elements of the cell."""
        self.namespace[SHOW] = self._show
        try:
            exec(program.body, self.namespace)
            function = cast("FunctionType", self.namespace.pop(STREAM))
            function.__code__ = function.__code__.replace(co_name="<module>", co_qualname="<module>")
            for element in _elements_of(function()) if program.is_async else function():
                yield self._element(element)
        finally:
            self.namespace.pop(SHOW, None)
        figures.show_figures(self._figures, self._last)

    def _element(self, element: Any) -> Any:
        """Return an element as it is sent: packed like every value of a cell, unless it is plain data."""
        if type(element) in _PLAIN:
            return element
        return self._pack(element, "the element")

    def _pack(self, value: Any, name: str) -> Packed:
        shared = pack_shared(value, self.side, name)
        self._captured.finalizers.add(self.side, lambda: (each for _, each in shared.objects().values()))
        return shared.packed

    def result(self, error: BaseException | None = None) -> CellResult:
        """Return the outcome of the cell."""
        request = self.request
        kept, unkept = keep_names(request.keep if self._is_prepared else (), request.keep_for, self.side)
        updated_kept, held = inspect_kept(self._used, self.side)
        found = (
            self._collect_state(kept, held) if self._is_prepared else ReturnedState()
        )  # the cell's code has not started
        found.failed.update(unkept)
        note_classes(self.side)
        changed = () if self._snapshot is None else tuple(self._snapshot.changed())
        found = replace(found, side_effects=changed, reimported=self._reimported)
        if error is None:
            return self._ended(found, None, self._moved(kept), updated_kept)
        error = as_ordinary_error(self._explained(error), "The cell", self.node, _INSTEAD_OF_EXIT)
        failure = capture_failure(
            error,
            self.node,
            lambda value: self._pack(value, "the exception"),
            recorder_for(request.run, self.namespace, self.node, request.filename),
        )
        if self._task is not None:
            self._task.raised, self._task.reason = failure.type_name, failure.reason
            self._task.error = error if isinstance(error, Exception) else None
        return self._ended(found, failure, self._moved(kept), updated_kept)

    def _collect_state(self, kept: Mapping[str, Any], held: Mapping[str, frozenset[int]]) -> ReturnedState:
        request = self.request
        return collect_state(
            self.side,
            self._captured,
            self._initial,
            assigned=request.assigned,
            only=request.only,
            deletes=request.deletes,
            incidental=request.incidental,
            limit=request.limit,
            in_place=request.in_place,
            kept=kept,
            held=held,
        )

    def _ended(
        self,
        found: ReturnedState,
        failure: Failure | None,
        moved: tuple[str, ...],
        updated_kept: tuple[KeptInfo, ...],
    ) -> CellResult:
        files = self.files.collect(self.namespace)
        release_namespace(self.side)
        request = self.request
        copied = tuple(name for name in moved if name in request.shared_elsewhere)
        return CellResult(
            found, failure, self.node, request.definitions, files, moved, copied, updated_kept, request.in_place
        )

    def _moved(self, kept: Iterable[str]) -> tuple[str, ...]:
        """Return the names that are still bound to the same object as before the cell."""
        return tuple(name for name in kept if name in self._initial and self._initial[name] is self.namespace[name])

    def _conclude(self, value: Any) -> None:
        """Handle the value of the last expression."""
        if value is not None:
            self.namespace[VALUE] = value
        if self.request.shows:
            self._show(value)
        elif self.request.returns_value:
            self._last = value  # so that a figure is not shown twice

    def _show(self, value: Any) -> None:
        if value is not None:
            self._last = value
            publish(value)

    def _explained(self, error: BaseException) -> BaseException:
        """Return `error` with its traceback cut to the cell; for a missing module, an error with the fix."""
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_code.co_filename != self.request.filename:
            frame = frame.tb_next
        if frame is not None:
            error = error.with_traceback(frame)
        if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingModuleError):
            top = (error.name or "").partition(".")[0]
            if top and top not in sys.modules:
                return missing_module(error, self.node)
        return error


def _elements_of(stream: AsyncGenerator[Any, None]) -> Generator[Any]:
    """Yield the elements of an asynchronous generator, run on its own event loop."""
    end = object()

    async def step() -> Any:
        return await anext(stream, end)

    with asyncio.Runner() as runner:
        try:
            while (element := runner.run(step())) is not end:
                yield element
        finally:
            runner.run(_closed(stream))


async def _closed(stream: AsyncGenerator[Any, None]) -> None:
    await stream.aclose()


def recorder_for(run: str, namespace: Mapping[str, Any], node: int, known: str) -> FrameRecorder | None:
    """Return a recorder for the next failure of the cell `run`; None if the limit is reached."""
    with _failures_lock:
        _failures[run] += 1
        if len(_failures) > _COUNTED_CELLS:
            del _failures[next(iter(_failures))]
        return FrameRecorder(namespace, node, known) if _failures[run] <= _RECORDED_FAILURES else None
