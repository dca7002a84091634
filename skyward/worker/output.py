"""Standard output and error of a node: what is written goes to the client at once, with the task that wrote it.

Python code writes to a `TaskStream`. What writes to the descriptors themselves (a subprocess, a C library) is read from
a pipe and goes to the one task that runs, or to the node where there are several or none.
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

__all__ = ["NoKeyboard", "TaskStream", "capture_descriptors", "replace_streams"]

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
    """Send what is written to descriptors 1 and 2 through `emit`, from threads that read the other ends of pipes.

    Gives what waits, a moment at most, until all that was written so far has been sent.
    """
    pumps: list[_Pump] = []
    names: tuple[tuple[int, StreamName], ...] = ((1, "stdout"), (2, "stderr"))
    for descriptor, name in names:
        reader, writer = os.pipe()
        os.dup2(writer, descriptor)
        os.close(writer)
        pumps.append(pump := _Pump(reader, name, emit, alone))
        threading.Thread(target=pump.run, name=f"skyward-{name}", daemon=True).start()

    def drain() -> None:
        deadline = None
        while any(pump.behind for pump in pumps):
            deadline = time.monotonic() + _DRAIN if deadline is None else deadline
            if time.monotonic() > deadline:
                return
            time.sleep(0.0005)

    return drain


class _Pump:
    """Reads one pipe, and sends what comes out of it."""

    def __init__(self, reader: int, name: StreamName, emit: Emit, alone: Callable[[], int]) -> None:
        self._reader = reader
        self._name: StreamName = name
        self._emit = emit
        self._alone = alone
        self._sending = False

    @property
    def behind(self) -> bool:
        """Whether something was written that is not sent yet."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._reader, termios.FIONREAD, waiting)
        return bool(waiting[0]) or self._sending

    def run(self) -> None:
        """Until the pipe ends."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        readable = select.poll()
        readable.register(self._reader, select.POLLIN)
        while True:
            readable.poll()
            self._sending = True  # before the pipe is emptied, so that it is never neither
            data = os.read(self._reader, 65536)
            if not data:
                return
            if text := decoder.decode(data):
                self._emit(Output(self._alone(), self._name, text))
            self._sending = False
