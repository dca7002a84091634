"""Interruption of user code on a thread: a `KeyboardInterrupt` that is raised inside the task and nowhere else.

On the main thread it is a signal, which also ends a sleep or a blocking read. On any other thread it is raised at the
next bytecode, so a blocking call ends first.
"""

import contextlib
import ctypes
import signal
from collections.abc import Callable, Iterator
from threading import Lock, current_thread, get_ident, main_thread  # tasks may replace the attributes of the module
from types import FrameType
from typing import Any, Literal, Protocol

from skyward.process.clock import clock
from skyward.worker.tasks.forked import is_forked, leave, leave_if_forked

__all__ = ["Guard", "Interrupted", "Reason", "ThreadGuard"]

type Reason = Literal["cancelled", "timeout"]


class Interrupted(KeyboardInterrupt):
    """Raised inside the user's code when the task is stopped. User code sees the familiar `KeyboardInterrupt`.

    Attributes:
        left: returns the partial result of the task; None if there is none. Called when no interrupt can land any more.
    """

    left: Callable[[], Any] | None = None

    def take(self) -> Any:
        """Return the partial result of the task, and drop the references to the task."""
        left, self.left, self.__traceback__ = self.left, None, None
        return None if left is None else left()


class Guard(Protocol):
    """The time in which a job may be interrupted, and the reason of the interrupt."""

    reason: Reason | None

    def run[T](self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which may be interrupted."""

    def cancelling(self, cancel: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the first interrupt calls `cancel` instead of raising."""


_INTERVAL = 0.05
"""Seconds between two interrupts: the guard may be closing because of the first, and tolerates one meanwhile."""


class ThreadGuard:
    """Guard of the thread that creates it."""

    def __init__(self) -> None:
        self.reason: Reason | None = None
        self._thread = get_ident()
        self._is_main = current_thread() is main_thread()
        self._lock = Lock()
        self._open = False
        self._shielded = False
        self._due = False
        self._last = 0.0
        self._cancel: Callable[[], None] | None = None
        self._cancelled = False
        if self._is_main:
            signal.signal(signal.SIGINT, self._on_signal)

    def run[T](self, call: Callable[[], T]) -> T:
        """Return the result of `call`. `interrupt` raises inside it, from its start to its end.

        A process that is forked by `call` and reaches its end, too, exits here.
        """
        self._last = 0.0
        self._due = False
        try:
            try:
                self._open = True
                result = call()
                leave_if_forked()
                return result
            except BaseException as error:
                if is_forked():
                    leave(error)
                raise
            finally:
                self._leave()
        except Interrupted:
            self._leave()  # the interrupt may have landed as the guard was about to close
            raise

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Defer interrupts of a block that must not stop half-way until its end. For the main thread."""
        if not self._is_main or get_ident() != self._thread or self._shielded:
            yield
            return
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._due and self._open:
            self._due = False
            raise Interrupted

    @contextlib.contextmanager
    def cancelling(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Make the first interrupt call `cancel`, from another thread, and raise nothing."""
        self._cancel, self._cancelled = cancel, False
        try:
            yield
        finally:
            self._cancel = None

    def interrupt(self, reason: Reason) -> None:
        """Raise `Interrupted` in the user's code, if any runs. Interrupts that follow too soon are dropped."""
        with self._lock:
            now = clock.monotonic()
            if not self._open or now - self._last < _INTERVAL:
                return
            self._last, self.reason = now, reason
            if (cancel := self._cancel) is not None:
                cancel()  # in any case, as it wakes the loop
                if not self._cancelled:
                    self._cancelled = True
                    return
            if self._is_main:
                signal.pthread_kill(self._thread, signal.SIGINT)
            else:
                _raise_in(self._thread, Interrupted)

    def _leave(self) -> None:
        """Close the guard. An interrupt that lands meanwhile is dropped: the work is over."""
        while True:
            try:
                with self._lock:
                    self._open = False
                    if not self._is_main:
                        _raise_in(self._thread, None)
                return
            except Interrupted:
                continue

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        if self._open and self.reason is not None:
            self._due = self._shielded
            if not self._shielded:
                raise Interrupted


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Set, or clear, the exception that `thread` raises at its next bytecode."""
    value = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
