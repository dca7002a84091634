"""A cell that yields in the background. A thread prefetches its elements as they arrive."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from skyward.frontends.calls import ThreadEvent
from skyward.frontends.cells import CellEnd, CellResult, Packed
from skyward_jupyter.cells.placeholders import unpickle
from skyward_jupyter.display.elements import Elements, counted, weight
from skyward_jupyter.display.redraw import Redrawing
from skyward_jupyter.failures.presentation import interrupted, short_errors
from skyward_jupyter.running.handle import CellHandle

if TYPE_CHECKING:
    from skyward.frontends.pools import Run
    from skyward_jupyter.display.plotting import LivePlot
    from skyward_jupyter.running.status_line import StatusLine

__all__ = ["ReadAhead", "StreamHandle"]


class ReadAhead:
    """The run of a cell that yields, whose elements are read by a thread. Other attributes are those of the run.

    Args:
        run: the run.
        elements: stores the elements.
        user_ns: the names of the notebook.
        plot: draws the elements.

    Attributes:
        elements: the elements that have arrived.
        plot: draws the elements; None without `--plot`.
        line: shows their number; None if there is no status line.
        future: the result of the cell, as for one that does not yield; set once all elements have been read.
    """

    def __init__(
        self, run: "Run[Any]", elements: Elements, user_ns: dict[str, Any], plot: "LivePlot | None" = None
    ) -> None:
        self._run = run
        self.elements = elements
        self._user_ns = user_ns
        self.plot = plot
        self.line: StatusLine | None = None
        self.future: Future[CellResult] = Future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @property
    def state(self) -> str:
        """The state of the run; "running" until the last element has been read."""
        state = self._run.state
        return state if state == "queued" or self.future.done() else "running"

    def start(self) -> None:
        """Start the thread that reads the elements."""
        context = copy_context()
        Thread(target=context.run, args=(self._read,), name="skyward-read-ahead", daemon=True).start()

    def _redraw_line(self) -> None:
        if self.line is not None:
            self.line.redraw()

    def _read(self) -> None:
        try:
            try:
                result = self._take_all()
            finally:
                self.elements.finish()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def _take_all(self) -> CellResult:
        side, items = CellEnd(self._user_ns, is_notebook=True), self._run.items()
        with ExitStack() as drawn:
            plot = None if self.plot is None else drawn.enter_context(self.plot)
            redrawing = drawn.enter_context(Redrawing(self._redraw_line))
            while True:
                try:
                    item = next(items)
                except StopIteration as end:
                    result: CellResult = end.value
                    return result
                packed = item if isinstance(item, Packed) else None
                element = item if packed is None else unpickle(packed, side)
                self.elements.add(element, weight(element) if packed is None else packed.nbytes)
                if plot is not None:
                    plot.add(element)
                redrawing.changed()


class StreamHandle(CellHandle):
    """A cell that yields in the background. It can be iterated several times.

    `for element in handle` and `async for element in handle` yield the stored elements from the first one on, and wait
    for the next one. At the end they bind the variables of the cell and raise its error, like `result()`. Leaving or
    interrupting the loop does not stop the work.

    Args:
        arguments: the arguments of `CellHandle`.
        stream: reads the elements.
    """

    _waits = "iterate over it"

    def __init__(self, *arguments: Any, stream: ReadAhead) -> None:
        super().__init__(*arguments)
        self._elements = stream.elements
        self._plot = stream.plot

    @property
    def amount(self) -> str:
        """The number of elements so far, in words."""
        return counted(self._elements.count)

    def result(self, timeout: float | None = None) -> list[Any]:
        """Wait for the cell, bind its variables in the notebook, and return the stored elements.

        Interrupting it only stops the wait; `cancel()` stops the work.

        Raises:
            TimeoutError: the cell has not finished after `timeout` seconds. It keeps running.
            TaskError: the cell was stopped, or its node was lost.
            BaseException: the exception of the cell; the names that it had bound by then are bound here.
        """
        try:
            super().result(timeout)
        finally:
            if self._plot is not None and self.done():
                self._plot.confirm()
        return self._elements.kept()

    def __iter__(self) -> Iterator[Any]:
        position = 0
        while (found := self._wait(position)) is not None:
            self._notify_gap(position, found[0])
            position = found[0] + 1
            yield found[1]
        self.result()

    async def __aiter__(self) -> AsyncIterator[Any]:
        changed, position = ThreadEvent(), 0

        def is_available() -> bool:
            return self._elements.is_over or self._elements.get(position) is not None

        with self._elements.watched(changed.notify):
            while True:
                await changed.wait_for(is_available)
                if (found := self._elements.get(position)) is None:
                    break
                self._notify_gap(position, found[0])
                position = found[0] + 1
                yield found[1]
        await self

    def _wait(self, position: int) -> tuple[int, Any] | None:
        with short_errors():
            try:
                return self._elements.wait(position)
            except KeyboardInterrupt:
                raise interrupted("the cell keeps running in the background; .cancel() stops it.") from None

    def _notify_gap(self, position: int, found: int) -> None:
        if found > position:
            missing = counted(found - position)
            where = f"the first {missing}" if position == 0 else f"{missing} after the first {position:,}"
            self._sent.notify(f"Cell {self.number}: {where} were not kept; the loop continues after them.")
