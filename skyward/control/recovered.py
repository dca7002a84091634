"""Tasks that a process has left behind with the nodes of its pool, as the one that attached to the pool finds them."""

import threading
from collections import deque
from typing import Any, Literal

from skyward.control.origin import Origin
from skyward.control.run import Runner, follow
from skyward.control.streams import RemoteIterator, StreamBuffer
from skyward.control.work import TaskFuture, Work
from skyward.wire.code import PreparedCode
from skyward.wire.messages import Known, Payload
from skyward.wire.payload import Outgoing

__all__ = ["RecoveredTask"]

_PRINTED = 1024 * 1024
"""Characters of what a task prints that are kept, the last ones."""


class _Printed:
    """Keeps what a task prints."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: deque[str] = deque()
        self._length = 0

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """The task printed."""
        with self._lock:
            self._texts.append(text)
            self._length += len(text)
            while self._length > _PRINTED and len(self._texts) > 1:
                self._length -= len(self._texts.popleft())

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """The task displayed something; its text form is kept."""
        self.output(node, "stdout", f"{data.get('text/plain', '')}\n")

    @property
    def text(self) -> str:
        """All of it."""
        with self._lock:
            return "".join(self._texts)


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
            self.work.stream = StreamBuffer()
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
        """What it printed that its former client has not seen, standard output and error together; at most 1 MiB."""
        return self._printed.text

    def __repr__(self) -> str:
        return f"<RecoveredTask {self.name}(...) on node {self.node}: {self.state}>"
