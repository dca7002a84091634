"""Standard output and error of a node: what is written goes to the client at once, with the task that wrote it.

Python code writes to a `TaskStream`. What writes to the descriptors themselves (a subprocess, a C library) is read from
a pipe and goes to the one task that runs there, or to the node where there are several or none. Each process of the
process executor has pipes of its own, read by its parent, so that its last words are heard too.
"""

import array
import codecs
import fcntl
import io
import os
import select
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import Literal

from skyward.output import muted
from skyward.wire.messages import Output
from skyward.worker.context import running

__all__ = ["NoKeyboard", "Pump", "TaskStream", "capture_descriptors", "replace_streams"]

type Emit = Callable[[Output], None]
type StreamName = Literal["stdout", "stderr"]

_DRAIN = 0.5
"""Seconds that a task's end waits at most for what its subprocesses have written."""


class TaskStream(io.TextIOBase):
    """A text stream whose every write is an event of the task that makes it."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, name: StreamName, emit: Emit, alone: Callable[[], int]) -> None:
        self._name: StreamName = name
        self._emit = emit
        self._alone = alone

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if self._name == "stdout" else 2

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text and self._name not in muted.get():
            context = running.get()
            self._emit(Output(self._alone() if context is None else context.task, self._name, text))
        return len(text)


class NoKeyboard(io.TextIOBase):
    """Standard input of a node: reading from it fails at once, instead of waiting for what never comes."""

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def read(self, size: int | None = -1, /) -> str:
        raise EOFError(
            "A node has no keyboard, so nothing can be read from standard input there. "
            "Ask here, and hand the answer over in a variable."
        )

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # the base class has it for bytes too
        return self.read()


def replace_streams(emit: Emit, alone: Callable[[], int]) -> None:
    """Send `sys.stdout` and `sys.stderr` of this process through `emit`; nothing can be read from `sys.stdin`.

    Args:
        emit: takes each piece of output.
        alone: the one task that runs, or 0; for writes from threads that the task did not hand its context to.
    """
    sys.stdin = NoKeyboard()
    sys.stdout = TaskStream("stdout", emit, alone)
    sys.stderr = TaskStream("stderr", emit, alone)


def capture_descriptors(emit: Emit, alone: Callable[[], int]) -> Callable[[], None]:
    """Send what is written to descriptors 1 and 2 through `emit`, from a thread that reads the other ends of pipes.

    Gives what waits, a moment at most, until all that was written so far has been sent.
    """
    pump = Pump(emit, alone)
    for descriptor, writer in zip((1, 2), pump.writers, strict=True):
        os.dup2(writer, descriptor)
    pump.start()
    return pump.drain


class Pump:
    """Two pipes for the standard streams of processes, and the thread that reads them.

    Args:
        emit: takes each piece of output.
        alone: the task whose output it is, or 0.

    Attributes:
        writers: the ends for stdout and stderr. They are to be handed on before `start`, which closes them here.
    """

    def __init__(self, emit: Emit, alone: Callable[[], int]) -> None:
        self._emit = emit
        self._alone = alone
        names: tuple[StreamName, ...] = ("stdout", "stderr")
        pipes = [os.pipe() for _ in names]
        self._readers = {reader: name for (reader, _), name in zip(pipes, names, strict=True)}
        self.writers = tuple(writer for _, writer in pipes)
        self._lock = threading.Lock()
        self._sending = False

    def start(self) -> None:
        """Read until nobody can write any more."""
        for writer in self.writers:
            os.close(writer)
        threading.Thread(target=self._run, name="skyward-output", daemon=True).start()

    def drain(self) -> None:
        """Wait, a moment at most, until all that was written so far has been sent."""
        deadline = None
        while self._behind:
            deadline = time.monotonic() + _DRAIN if deadline is None else deadline
            if time.monotonic() > deadline:
                return
            time.sleep(0.0005)

    @property
    def _behind(self) -> bool:
        """Whether something was written that is not sent yet."""
        waiting = array.array("i", [0])
        with self._lock:  # so that no reader is closed meanwhile
            for reader in self._readers:
                fcntl.ioctl(reader, termios.FIONREAD, waiting)
                if waiting[0]:
                    return True
        return self._sending

    def _run(self) -> None:
        decoders = {reader: codecs.getincrementaldecoder("utf-8")("replace") for reader in self._readers}
        readable = select.poll()
        for reader in decoders:
            readable.register(reader, select.POLLIN)
        while self._readers:
            for reader, _ in readable.poll():
                self._sending = True  # before the pipe is emptied, so that it is never neither
                data = os.read(reader, 65536)
                if text := decoders[reader].decode(data, final=not data):
                    self._emit(Output(self._alone(), self._readers[reader], text))
                if not data:
                    readable.unregister(reader)
                    with self._lock:
                        del self._readers[reader]
                        os.close(reader)
                self._sending = False
