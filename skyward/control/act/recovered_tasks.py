"""Tasks that a process has left behind with the nodes of its pool, as the one that attached to the pool finds them."""

import threading
from typing import TYPE_CHECKING, Any, Literal

from skyward.control.act.tasks.run import Runner, follow
from skyward.control.act.tasks.streams import RemoteIterator, StreamBuffer
from skyward.control.act.tasks.task import TaskFuture, Work
from skyward.control.observe.origin import Origin
from skyward.errors import InputLostError
from skyward.process.scratch import ScratchFile
from skyward.wire.failures.failure import capture_failure
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing, encode
from skyward.wire.protocol.messages import Feed, Known, Payload

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node

__all__ = ["RecoveredTask", "end_inputs"]

_IN_MEMORY = 1024 * 1024
"""Characters of what a task prints that are kept in memory; the rest is in a file."""

_NO_ROOM = "\n[Skyward left out {:,} characters here: there was no room for them on this disk.]\n"


class _Printed:
    """Keeps what a task prints, all of it: so many `characters`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: ScratchFile | None = None
        self._texts: list[str] = []
        self._length = 0
        self._omitted = 0
        self.characters = 0

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """The task printed."""
        with self._lock:
            self._texts.append(text)
            self._length += len(text)
            self.characters += len(text)
            if self._length > _IN_MEMORY:
                self._put_by()

    def _put_by(self) -> None:
        """Move what is in memory to the file, behind what is there; it is left out where there is no room."""
        text = "".join(self._texts)
        said = _NO_ROOM.format(self._omitted) if self._omitted else ""
        try:
            if self._file is None:
                self._file = ScratchFile()
            self._file.append((said + text).encode("utf-8", "surrogatepass"))
        except OSError:
            self._omitted += self._length
        else:
            self._omitted = 0
        self._texts.clear()
        self._length = 0

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """The task displayed something; its text form is kept."""
        self.output(node, "stdout", f"{data.get('text/plain', '')}\n")

    def task_ended(self, node: int) -> None:
        """All of it is kept as it came."""

    @property
    def text(self) -> str:
        """All of it."""
        with self._lock:
            before = b"" if self._file is None else self._file.read(0, self._file.size)
            said = _NO_ROOM.format(self._omitted) if self._omitted else ""
            return "".join((before.decode("utf-8", "surrogatepass"), said, *self._texts))


class RecoveredTask:
    """A task that another process sent, and whose end it did not hear of. It is not sent again if its node is lost.

    Attributes:
        name: of its function.
        number: of the task, in its pool.
        origin: the cell that sent it; None where none did.
        future: its result; for a generator function what that returned, at the end of the stream.
    """

    def __init__(self, known: Known, runner: Runner) -> None:
        self.name, self.number = known.name, known.task
        self._printed = _Printed()
        nothing = Outgoing(Payload(b""), {})
        self.work = Work(PreparedCode(b"", nothing, known.name), nothing, TaskFuture(), self._printed)
        self.work.task, self.work.running = known.task, True
        self.origin = self.work.origin = Origin.of_former(known.label)
        if known.stream:
            self.work.stream = StreamBuffer(granted=None)
        self._run = follow(runner, self.work)
        self.future: TaskFuture[Any] = self.work.future

    def result(self, timeout: float | None = None) -> Any:
        """What the task returned; raises what it raised. Waits for at most `timeout` seconds."""
        return self.future.result(timeout)

    def items(self) -> RemoteIterator:
        """The elements of a generator function that its former client has not taken.

        Raises:
            OperatorError: the function is no generator function.
        """
        return self._run.items()

    def cancel(self) -> bool:
        """Stop it; False if it is over."""
        return self._run.cancel()

    @property
    def node(self) -> int:
        """Rank of its node."""
        return self.work.nodes[-1]

    @property
    def state(self) -> Literal["queued", "running", "done", "failed", "cancelled"]:
        """How far it is."""
        return self._run.state

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.future.done()

    @property
    def output(self) -> str:
        """What it printed that its former client has not seen, standard output and error together."""
        return self._printed.text

    @property
    def printed(self) -> int:
        """Characters of `output`."""
        return self._printed.characters

    def __repr__(self) -> str:
        return f"<RecoveredTask {self.name}(...) on node {self.node}: {self.state}>"


def end_inputs(node: "Node", known: Known) -> None:
    """Have the inputs of a task end with an error that its former client has fed and nobody can go on with.

    The task has what had arrived of them before: it may need no more, or may want to keep what it has made of it.
    """
    for index in known.fed:
        lost = InputLostError(
            f"{known.name}() was fed by an iterator of the process that sent it, which is gone: it had what had arrived"
            " of that, and the rest is lost. Send it again from here."
        )
        node.tell(Feed(known.task, index, (), last=True, failure=encode(capture_failure(lost)).payload))
