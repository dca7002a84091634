"""Tasks of a former process that still have state on the nodes of a pool, as found by the process that attaches."""

import threading
import warnings
from typing import TYPE_CHECKING, Any, Literal

from skyward.control.act.tasks.future import TaskFuture, unpacked
from skyward.control.act.tasks.run import Runner, follow
from skyward.control.act.tasks.settle import error_of
from skyward.control.act.tasks.streams import Stream, StreamBuffer
from skyward.control.act.tasks.task import Work
from skyward.control.observe.origin import CELL_FUNCTIONS, Origin
from skyward.errors import InputLostError, OperatorError, TaskError, UsageError
from skyward.process.scratch import ScratchFile
from skyward.wire.failures.failure import Failure, capture_failure
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.outcomes import SeriesOutcomes
from skyward.wire.payloads.payload import Outgoing, Packed, encode
from skyward.wire.protocol.messages import Feed, KnownTask, Payload

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node
    from skyward.control.act.recovered_cells import CellFuture

__all__ = ["RecoveredTask", "end_inputs", "recover"]

_IN_MEMORY = 1024 * 1024
"""Characters of a task's output that are kept in memory; the rest is in a file."""

_NO_ROOM = "\n[Skyward left out {:,} characters here: the disk of this machine was full.]\n"


class _Printed:
    """Sink that keeps the whole output of a task; `characters` is its length."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: ScratchFile | None = None
        self._texts: list[str] = []
        self._length = 0
        self._omitted = 0
        self.characters = 0

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Store printed text."""
        with self._lock:
            self._texts.append(text)
            self._length += len(text)
            self.characters += len(text)
            if self._length > _IN_MEMORY:
                self._spill()

    def _spill(self) -> None:
        """Append the text in memory to the file; drop it if the disk is full."""
        text = "".join(self._texts)
        gap = _NO_ROOM.format(self._omitted) if self._omitted else ""
        try:
            if self._file is None:
                self._file = ScratchFile()
            self._file.append((gap + text).encode("utf-8", "surrogatepass"))
        except OSError:
            self._omitted += self._length
        else:
            self._omitted = 0
        self._texts.clear()
        self._length = 0

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Store the text form of rich output."""
        self.output(node, "stdout", f"{data.get('text/plain', '')}\n")

    def task_ended(self, node: int) -> None:
        """Do nothing: unfinished lines are kept as they are."""

    @property
    def text(self) -> str:
        """The whole output."""
        with self._lock:
            before = b"" if self._file is None else self._file.read(0, self._file.size)
            gap = _NO_ROOM.format(self._omitted) if self._omitted else ""
            return "".join((before.decode("utf-8", "surrogatepass"), gap, *self._texts))


class _RecoveredFuture(TaskFuture[Any]):
    """Future of a recovered task. Of one that ran several calls of a map, the result is the list of theirs."""

    _is_lendable = False  # a task that takes the result needs that list, not the encoded outcomes

    def _decode(self, arrived: object, *, own: bool = False) -> None:
        super()._decode(arrived, own=own)
        if self._error is not None or not isinstance(self._value, SeriesOutcomes):
            return
        outcomes, self._value = self._value, None
        try:
            self._value = self._results(outcomes)
        except Exception as error:
            self._error = error

    def _results(self, outcomes: SeriesOutcomes) -> list[Any]:
        """Return the results of the calls that ran; raise what the first of them raised."""
        if outcomes.unrun:
            every = len(outcomes) + outcomes.unrun
            warnings.warn(
                f"{self.name} was called {every} times in one task of a map, and the last {outcomes.unrun} calls did "
                "not run: send these again.",
                RuntimeWarning,
                stacklevel=2,
            )
        results: list[Any] = []
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Failure):
                error = error_of(outcome)
                BaseException.add_note(error, f"It was raised by call {place} of the {len(outcomes)} in its task.")
                raise error
            results.append(unpacked(outcome) if isinstance(outcome, Packed) else outcome)
        return results


class RecoveredTask:
    """A task that a former process sent, and whose result it did not receive, or whose elements it did not consume.

    It is not retried if its node is lost.

    Attributes:
        name: name of its function.
        number: number of the task in its pool.
        origin: the cell that sent it; None if it was not sent by a cell.
        future: its result, as `result()` returns it.

    Example:
        with sky.attach("training") as pool:
            results = [task.result() for task in pool.recovered]
    """

    def __init__(
        self, known: KnownTask, work: Work, printed: _Printed, runner: Runner, cell: "CellFuture | None"
    ) -> None:
        self.name, self.number, self.origin = known.name, known.task, work.origin
        self._printed = printed
        self._run = follow(runner, work)
        self.future: TaskFuture[Any] = work.future
        self._cell = cell

    def result(self, timeout: float | None = None) -> Any:
        """Return the task's result, or raise what it raised. Waits for at most `timeout` seconds.

        A generator function has its result at the end of its elements. A task of several calls of a map has the list of
        their results, with a warning if not all of them have run.

        In a notebook with the extension, the variables of a cell are bound, and the result is the value of its last
        expression. Elsewhere, and for one of several runs of a cell, the result is `variables()`. Objects of the former
        process that the cell changed in place are gone: a notice names them.
        """
        __tracebackhide__ = True
        try:
            return self.future.result(timeout)
        except TaskError as error:
            from skyward.control.act.recovered_cells import add_note

            if self._cell is not None and self._cell.was_stopped and self._run.has_state:
                add_note(error, ".variables() has what the cell had assigned when it was stopped.")
            raise

    def variables(self, timeout: float | None = None) -> dict[str, Any]:
        """Return what a cell assigned, by name, and under `_` the value of its last expression, if it has one.

        Binds nothing. A cell that raised or was stopped has the names that it had assigned by then. Waits for at most
        `timeout` seconds.

        Raises:
            UsageError: the task is not a cell.
            TaskError: the cell was stopped, or its node was lost, and nothing of it was returned.
        """
        __tracebackhide__ = True
        if self._cell is None:
            raise UsageError(f"{self.name}() is a function, not a cell: `.result()` has what it returned.")
        from skyward.control.act.recovered_cells import CellOutcome

        try:
            return self._cell.outcome(timeout).variables()
        except TaskError:
            (outcome,) = self._run.remains()
            if outcome.value is None:
                raise
            return CellOutcome(outcome.value).variables()

    def items(self) -> Stream[Any]:
        """Return an iterator over the elements of a generator function that its former client has not consumed.

        Elements that it consumed last, up to 1,023 in its last 50 ms of reading, may be given again. Those of a
        generator that it had closed or cancelled are not. At the end of a cell's elements its variables are bound, and
        its exception is raised, as by `result()`.

        Raises:
            OperatorError: the function is not a generator function, or the cell yields nothing.
        """
        if not self._run.is_stream:
            what = "This cell" if self._cell is not None else f"{self.name}()"
            raise OperatorError(f"{what} yields no elements: take the result with `.result()`.")
        if self._cell is None:
            return self._run.items()
        from skyward.control.act.recovered_cells import CellElements

        return CellElements(self._run.items(), self._cell)

    def cancel(self) -> bool:
        """Stop the task; False if it has ended already."""
        return self._run.cancel()

    @property
    def node(self) -> int:
        """Rank of the task's node."""
        return self._run.nodes[-1]

    @property
    def state(self) -> Literal["queued", "running", "done", "failed", "cancelled"]:
        """State of the task."""
        return self._run.state

    @property
    def done(self) -> bool:
        """True once the task has ended."""
        return self.future.done()

    @property
    def output(self) -> str:
        """Output that the former client has not received, standard output and error together."""
        return self._printed.text

    @property
    def printed(self) -> int:
        """Length of `output` in characters."""
        return self._printed.characters

    def __repr__(self) -> str:
        what = f"{self.name}(...)"
        if self._cell is not None:
            what = "of a cell" if self.origin is None else f"of cell {self.origin.number}"
        return f"<RecoveredTask {what} on node {self.node}: {self.state}>"


def _cell_future() -> "CellFuture":
    """Return a future for a cell. The code of cells is loaded on first use."""
    from skyward.control.act.recovered_cells import CellFuture

    return CellFuture()


def recover(known: KnownTask, runner: Runner) -> tuple[RecoveredTask, Work]:
    """Return a task that a node has from a former process, and its work in this one."""
    printed, nothing = _Printed(), Outgoing(Payload(b""), {})
    cell = _cell_future() if known.name in CELL_FUNCTIONS else None
    future = _RecoveredFuture() if cell is None else cell
    if cell is None:
        future.name = f"{known.name}()"
    work = Work(PreparedCode(b"", nothing, known.name), nothing, future, printed)
    work.task, work.running = known.task, True
    work.origin = Origin.of_former(known.label)
    if known.stream:
        work.stream = StreamBuffer(granted=None)
    return RecoveredTask(known, work, printed, runner, cell), work


def end_inputs(node: "Node", known: KnownTask) -> None:
    """End the input streams that the task's former client fed with `InputLostError`.

    The task has the elements that arrived before: these may be enough, or it may want to save its progress.
    """
    for index in known.fed:
        lost = InputLostError(
            f"{known.name}() was fed by an iterator of the process that sent it, which is gone: the task got the "
            "elements that had arrived, and the rest is lost. Send it again from this process."
        )
        node.tell(Feed(known.task, index, (), last=True, failure=encode(capture_failure(lost)).payload))
