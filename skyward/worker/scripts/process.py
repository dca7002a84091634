"""The process of a script: its start, its output, and its end."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock
from skyward.wire.protocol.messages import Output
from skyward.worker.events.context import current_task
from skyward.worker.tasks.guard import Interrupted

__all__ = ["GRACE", "OutputPiece", "ScriptProcess"]

type OutputPiece = tuple[int, bytes]
"""Some bytes that a script wrote, and the descriptor that it wrote them to: 1 or 2."""

GRACE = 10.0
"""Seconds that a script has to end after SIGINT: the task has as many."""

_TERMINATED_AT = 7.0
_KILLED_AT = 9.0
"""Seconds after SIGINT at which a script gets SIGTERM, and SIGKILL."""

_PIECE = 64 * 1024
_RESIDUE = 2 * 1024 * 1024
"""Bytes of one read; bytes that are read after the end of the script: more than pipes hold is of other processes."""

_LOOK_EVERY = 0.05
"""Seconds of one wait: only a thread that runs Python can be interrupted."""


class ScriptProcess:
    """A running script, in a process group of its own.

    Args:
        command: the program and its arguments.
        environment: its variables.

    Raises:
        OSError: it cannot be started.

    Attributes:
        status: its exit status, negative for a signal, once it has ended.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.status = 0
        self.has_ended = False
        self._left: list[OutputPiece] = []
        self._process = _started(command, environment)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pipes = {self._process.stdout.fileno(): 1, self._process.stderr.fileno(): 2}
        self._readable = select.poll()
        for pipe in self._pipes:
            self._readable.register(pipe, select.POLLIN)
        self._after_end = 0

    def read(self) -> OutputPiece | None:
        """Return some output, with the descriptor it was written to; empty if there is none yet; None at the end.

        The end is that of the script itself, and not of processes that it leaves, once its output is read.
        """
        if self._left:
            return self._left.pop(0)
        ended = self._has_exited()  # before the pipes are looked at
        ready = self._readable.poll(0.0 if ended else _LOOK_EVERY * 1000)
        for pipe, _ in ready:
            if self._after_end < _RESIDUE and (data := os.read(pipe, _PIECE)):
                self._after_end += len(data) if ended else 0
                return self._pipes[pipe], data
            self._readable.unregister(pipe)
            del self._pipes[pipe]
        if not ended and not self._pipes:
            clock.sleep(_LOOK_EVERY)  # it has closed its output
        if ended and not ready:
            self.has_ended = True
            return None
        return 1, b""

    def _has_exited(self) -> bool:
        """Return whether the script has ended. On Linux it is not reaped, so that its number stays its own."""
        if self.has_ended:
            return True
        if sys.platform != "linux":
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def unread(self, piece: OutputPiece) -> None:
        """Let the next `read` return a piece again."""
        self._left.insert(0, piece)

    def stop(self, log: Callable[[bytes], object]) -> None:
        """Stop the script with SIGINT, later SIGTERM and SIGKILL, and send what it writes as output of the task.

        Args:
            log: called with what it writes, except for what `unread` has given back.
        """
        since = clock.monotonic()
        signals = [(_KILLED_AT, signal.SIGKILL), (_TERMINATED_AT, signal.SIGTERM), (0.0, signal.SIGINT)]
        while not self.has_ended:
            try:
                if signals and clock.monotonic() - since >= signals[-1][0]:
                    self._signal(signals.pop()[1])
                is_new = not self._left
                if (piece := self.read()) is not None:
                    if is_new and piece[1]:
                        log(piece[1])
                    _send(*piece)
            except Interrupted:  # a further one, for the same reason
                continue

    def close(self) -> None:
        """Kill what the script has left in its process group, and close its pipes. Idempotent."""
        if self._process.returncode is None:  # else its number may be that of another group
            self._signal(signal.SIGKILL)
        self.status = self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _send(descriptor: int, data: bytes) -> None:
    task = current_task()
    if task is not None and data:
        task.port.emit(Output(task.task, "stdout" if descriptor == 1 else "stderr", data.decode("utf-8", "replace")))


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process on another thread: an interrupt must not hit the middle, and leave an unknown process behind.

    Raises:
        OSError: it cannot be started.
    """
    started: Future[subprocess.Popen[bytes]] = Future()
    folder = os.getcwd()

    def start() -> None:
        try:
            started.set_result(
                subprocess.Popen(
                    command,
                    env=dict(environment),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    process_group=0,  # in the session of the worker, which ends with it
                )
            )
        except Exception as error:
            started.set_exception(error)

    try:
        Thread(target=start, name="skyward-script", daemon=True).start()
        return started.result()
    except BaseException:
        started.add_done_callback(_end)
        raise


def _end(started: "Future[subprocess.Popen[bytes]]") -> None:
    if started.exception() is None:
        process = started.result()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
