"""Tasks of a former process that still have state on the nodes of a pool, as found by the process that attaches."""

import threading
from typing import TYPE_CHECKING, Any, Literal

from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.run import Runner, follow
from skyward.control.act.tasks.streams import Stream, StreamBuffer
from skyward.control.act.tasks.task import Work
from skyward.control.observe.origin import Origin
from skyward.errors import InputLostError
from skyward.process.scratch import ScratchFile
from skyward.wire.failures.failure import capture_failure
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing, encode
from skyward.wire.protocol.messages import Feed, KnownTask, Payload

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node

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


class RecoveredTask:
    """A task that a former process sent, and whose result it did not receive, or whose elements it did not consume.

    It is not retried if its node is lost.

    Attributes:
        name: name of its function.
        number: number of the task in its pool.
        origin: the cell that sent it; None if it was not sent by a cell.
        future: its result; for a generator function the return value, at the end of the stream.

    Example:
        with sky.attach("training") as pool:
            results = [task.result() for task in pool.recovered]
    """

    def __init__(self, known: KnownTask, work: Work, printed: _Printed, runner: Runner) -> None:
        self.name, self.number, self.origin = known.name, known.task, work.origin
        self._printed = printed
        self._run = follow(runner, work)
        self.future: TaskFuture[Any] = work.future

    def result(self, timeout: float | None = None) -> Any:
        """Return the task's result, or raise what it raised. Waits for at most `timeout` seconds."""
        return self.future.result(timeout)

    def items(self) -> Stream[Any]:
        """Return an iterator over the elements of a generator function that its former client has not consumed.

        Elements that it consumed last, up to 1,023 in its last 50 ms of reading, may be given again. Those of a
        generator that it had closed or cancelled are not.

        Raises:
            OperatorError: the function is not a generator function.
        """
        return self._run.items()

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
        return f"<RecoveredTask {self.name}(...) on node {self.node}: {self.state}>"


def recover(known: KnownTask, runner: Runner) -> tuple[RecoveredTask, Work]:
    """Return a task that a node has from a former process, and its work in this one."""
    printed, nothing = _Printed(), Outgoing(Payload(b""), {})
    work = Work(PreparedCode(b"", nothing, known.name), nothing, TaskFuture(), printed)
    work.task, work.running = known.task, True
    work.origin = Origin.of_former(known.label)
    if known.stream:
        work.stream = StreamBuffer(granted=None)
    return RecoveredTask(known, work, printed, runner), work


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
