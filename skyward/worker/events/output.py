"""Output below Python: writes to descriptors 1 and 2 by a subprocess, a C library or `os.write`.

It is read from pipes, and belongs to the only running task, or to the node where there are several or none. Each
process of the process executor has pipes of its own, read by its parent, so that its last output is not lost. Text that
Python writes takes another path (`worker.events.streams`); both ends keep the order of the two.
"""

import codecs
import contextlib
import ctypes
import fcntl
import os
import select
import sys
import termios
from collections.abc import Callable, Iterable
from threading import Thread  # tasks may replace the attributes of the module

from skyward.events.output import StreamName
from skyward.process.clock import clock
from skyward.process.conditions import LockedCondition
from skyward.wire.protocol.messages import Output
from skyward.worker.events.streams import Emit

__all__ = ["Descriptors", "Pump", "capture_descriptors", "unread"]

_DRAIN = 2.0
"""Longest wait, in seconds, until output of subprocesses is sent."""

_READ_WITHIN = 1.0
"""Longest wait, in seconds, of a process until its parent has read its output from the descriptors."""

_POLL_EVERY = 0.0002
_ZERO = bytes(4)

_read = os.read  # tasks may replace it


_libc = ctypes.PyDLL(None) if sys.platform == "linux" else None
"""C functions, called with the GIL held: every `print` calls them, and `fcntl.ioctl` would yield to other threads each
time."""


def unread(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe or a socket; 0 where that cannot be known."""
    if _libc is not None:
        size = ctypes.c_int()
        failed = _libc.ioctl(descriptor, termios.FIONREAD, ctypes.byref(size))
        return 0 if failed else size.value
    try:
        waiting = fcntl.ioctl(descriptor, termios.FIONREAD, _ZERO)
    except OSError:
        return 0
    return 0 if waiting == _ZERO else int.from_bytes(waiting, "little")


class _Polled(ctypes.Structure):
    """Argument of `poll` for one descriptor."""

    _fields_ = (("descriptor", ctypes.c_int), ("events", ctypes.c_short), ("found", ctypes.c_short))


def _polled(readers: Iterable[int]) -> "ctypes.Array[_Polled]":
    each = [_Polled(reader, select.POLLIN, 0) for reader in readers]
    return (_Polled * len(each))(*each)


class Descriptors:
    """Descriptors 1 and 2 of this process, which are pipes, and duplicates of them for when a task closes them."""

    def __init__(self) -> None:
        self._spares = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}

    def restore(self) -> None:
        """Reopen descriptors that a task has closed, unless their numbers are in use again."""
        for descriptor, spare in self._spares.items():
            try:
                fcntl.fcntl(descriptor, fcntl.F_GETFD)
            except OSError:
                found = fcntl.fcntl(spare, fcntl.F_DUPFD, descriptor)
                if found != descriptor:  # the number was taken meanwhile
                    os.close(found)

    def wait_for_reader(self) -> None:
        """Wait briefly until the process that reads the pipes has emptied them."""
        deadline = None
        while any(map(unread, self._spares.values())):
            deadline = clock.monotonic() + _READ_WITHIN if deadline is None else deadline
            if clock.monotonic() > deadline:
                return
            clock.sleep(_POLL_EVERY)


def capture_descriptors(emit: Emit, alone: Callable[[], int]) -> tuple[Descriptors, Callable[[], None]]:
    """Send writes to descriptors 1 and 2 through `emit`, from a thread that reads the other ends of pipes.

    Returns:
        The descriptors, and a function that waits briefly until all output so far has been sent.
    """
    pump = Pump(emit, alone)
    for descriptor, writer in zip((1, 2), pump.writers, strict=True):
        os.dup2(writer, descriptor)
    descriptors = Descriptors()
    pump.start()
    return descriptors, pump.catch_up


class Pump:
    """Two pipes for the standard streams of processes, and the thread that reads them.

    Args:
        emit: takes each piece of output.
        alone: returns the task to which the output belongs, or 0.
        before: called before each read; waits for text that was sent on another path before the output was written.

    Attributes:
        writers: the ends for stdout and stderr, to be passed on before `start`, which closes them here.
    """

    def __init__(self, emit: Emit, alone: Callable[[], int], before: Callable[[], None] = lambda: None) -> None:
        self._emit = emit
        self._alone = alone
        self._before = before
        names: tuple[StreamName, ...] = ("stdout", "stderr")
        pipes = [os.pipe() for _ in names]
        self._readers = {reader: name for (reader, _), name in zip(pipes, names, strict=True)}
        self.writers = tuple(writer for _, writer in pipes)
        self._pipes = _polled(self._readers)
        self._changed = LockedCondition()
        self._taken = dict.fromkeys(self._readers, 0)
        self._sent = dict.fromkeys(self._readers, 0)
        self._reading = False

    def start(self) -> None:
        """Start to read, until all writers are closed."""
        for writer in self.writers:
            os.close(writer)
        Thread(target=self._run, name="skyward-output", daemon=True).start()

    def catch_up(self, *, read: bool = False) -> None:
        """Wait briefly until all output so far has been sent; with `read`, only output that was read already."""
        if (read or not self._waiting()) and not self._reading:  # the order of these checks matters
            return
        with self._changed.lock:  # so that no reader is closed meanwhile
            wanted = {reader: self._taken[reader] + (0 if read else unread(reader)) for reader in self._readers}

            def done() -> bool:
                return all(self._sent[reader] >= size for reader, size in wanted.items() if reader in self._readers)

            self._changed.wait_for(done, _DRAIN)

    def _emit_text(self, name: StreamName, text: str) -> None:
        """Send a piece of output, or else a line with the reason. Never raises: the writers would block forever."""
        task = self._alone()
        try:
            self._emit(Output(task, name, text))
        except Exception as error:
            line = f"\n[Skyward could not send {len(text):,} characters of output: {type(error).__name__}: {error}]\n"
            with contextlib.suppress(Exception):  # the connection to the client itself failed
                self._emit(Output(task, "stderr", line))

    def _waiting(self) -> bool:
        """Return whether a pipe has data or is at end of file. One C call: every `print` makes it."""
        if _libc is not None:
            return bool(_libc.poll(self._pipes, len(self._pipes), 0))
        return any(unread(pipe.descriptor) for pipe in self._pipes)

    def _run(self) -> None:
        decoders = {reader: codecs.getincrementaldecoder("utf-8")("replace") for reader in self._readers}
        readable = select.poll()
        for reader in decoders:
            readable.register(reader, select.POLLIN)
        while self._readers:
            for reader, _ in readable.poll():
                self._before()
                self._reading = True  # before the pipe is emptied, so that output is always in one of the two
                with self._changed.lock:
                    data = _read(reader, 65536)  # does not block: there is data, or the end of file
                    self._taken[reader] += len(data)
                text = decoders[reader].decode(data, final=not data)
                if text:
                    self._emit_text(self._readers[reader], text)
                with self._changed.lock:
                    self._sent[reader] += len(data)
                    if not data:
                        readable.unregister(reader)
                        del self._readers[reader]
                        self._pipes = _polled(self._readers)
                        os.close(reader)
                    self._reading = False
                    self._changed.notify_all()
