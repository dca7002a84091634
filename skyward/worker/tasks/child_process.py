"""The parent's end of a slot's child process: start, messages, watch, and end.

The end of the process counts, and not that of its connection: a process that it forked may hold the other end of the
connection indefinitely.
"""

import contextlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread  # tasks may replace the attributes of the module
from typing import Any, Self

from skyward.process.clock import clock
from skyward.worker.events.output import unread

__all__ = ["ChildProcess"]

_READ_WITHIN = 1.0
"""Seconds that the last messages of a process may wait to be read before the connection is shut down."""


class ChildProcess:
    """A process that runs `skyward.worker.tasks.child`, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], connected: socket.socket) -> None:
        self._process = process
        self._socket = connected
        self._connection: Connection[Any, Any] = Connection(os.dup(connected.fileno()))
        self._readable = select.poll()
        self._readable.register(self._connection, select.POLLIN)
        self._outgoing: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._ended = Event()
        self._killing = Lock()
        self._reaped = False
        Thread(target=self._send_all, name="skyward-send", daemon=True).start()
        self._watching = Thread(target=self._watch, name="skyward-watch", daemon=True)
        self._watching.start()

    @classmethod
    def start(cls, node: int, worker: int, variables: Mapping[str, str], out: int, err: int) -> Self:
        """Start a child process with these variables too. `out` and `err` become its standard streams.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "skyward.worker.tasks.child", str(theirs.fileno()), str(node), str(worker)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env={**os.environ, **variables},  # a copy: another thread may grow the one that it would read
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        return cls(process, ours)

    @property
    def lives(self) -> bool:
        """True if the process has not ended."""
        return not self._ended.is_set()

    def send(self, message: object) -> None:
        """Queue a message. Never blocks, though the process may not read for long."""
        self._outgoing.put(message)

    def _send_all(self) -> None:
        with contextlib.suppress(OSError):  # the process is gone, which its slot sees as it reads
            while (message := self._outgoing.get()) is not None:
                self._connection.send(message)

    def wait(self) -> None:
        """Wait until `receive` can return or raise."""
        self._readable.poll()

    @property
    def unread(self) -> int:
        """Bytes of messages that were not received yet.

        Raises:
            OSError: the connection is closed.
        """
        return unread(self._socket.fileno())

    def receive(self) -> Any:
        """Return the next message of the process.

        Raises:
            EOFError, OSError: the process has ended.
        """
        return self._connection.recv()

    def says(self, within: float) -> bool:
        """Return whether `receive` would not block, now or `within` so many seconds."""
        return self._connection.poll(within)

    def _watch(self) -> None:
        """Wait for the end of the process, then shut the connection down once its messages are read."""
        if sys.platform == "linux":
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._ended.set()
        deadline = clock.monotonic() + _READ_WITHIN
        with contextlib.suppress(OSError):
            while sys.platform != "linux" and self.unread and clock.monotonic() < deadline:
                clock.sleep(0.001)  # elsewhere, unread messages are lost as the connection is shut down
            self._socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Kill the process and its descendants, except those that have left its session."""
        with self._killing:
            if not self._reaped:  # its number cannot belong to another process yet
                _kill_session(self._process.pid)
                if self.lives:
                    os.kill(self._process.pid, signal.SIGKILL)  # `Popen.kill` would reap it

    def end(self) -> None:
        """Kill the process, and close its connection. Nothing can be received any more."""
        self.kill()
        self._watching.join()
        with self._killing:
            self._process.wait()
            self._reaped = True
        self._outgoing.put(None)
        self._connection.close()
        self._socket.close()


def _kill_session(leader: int) -> None:
    """Kill the processes of a session except its leader, which is not reaped yet, so that its number is its own.

    On other systems than Linux, where they cannot be listed, kill those of its process group.
    """
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        return
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry)) == leader:
                    os.kill(int(entry), signal.SIGKILL)
