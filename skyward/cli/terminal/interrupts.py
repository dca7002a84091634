"""Signals of a command that has nodes: the first stops the work and gives the nodes back, the second ends it now."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["Interrupts", "Signalled"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_ONE_REQUEST = 1.0
"""Seconds from the first signal in which further ones belong to it.

`timeout` signals its child and then its group, a terminal that closes sends SIGHUP and maybe SIGTERM, and keys bounce.
"""


@dataclass(frozen=True, slots=True)
class Signalled:
    """Sentences about what signals do to a command, and to the nodes that it has.

    Attributes:
        stopping: what the first one does.
        closing: what the command does when the first one finds it at its end.
        again: what a second one will do, if it comes later than within a second.
        left: what becomes of the nodes after that.
    """

    stopping: str
    closing: str
    again: str
    left: str


class Interrupts:
    """Handlers of SIGINT, SIGTERM and SIGHUP while a command has nodes. A context manager, for the main thread.

    Args:
        speaker: beginning of the lines that are written.
        signalled: returns what signals do now.

    Attributes:
        signal: the first signal; 0 for none.
    """

    def __init__(self, speaker: str, signalled: Callable[[], Signalled]) -> None:
        self.signal = 0
        self._since = 0.0
        self._speaker = speaker
        self._signalled = signalled
        self._is_closing = False
        self._held: list[str] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def status(self) -> int:
        """Exit status of the command after a signal."""
        return 128 + (self.signal or signal.SIGINT)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Return a context that a first signal does not interrupt: the nodes are being given back, or left, already."""
        self._is_closing = True
        try:
            yield
        finally:
            self._is_closing = False

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Return a context in which the sentence of a first signal waits until what is drawn there is complete."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for sentence in held:
                self._write(sentence, "")

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.signal and time.monotonic() - self._since < _ONE_REQUEST:
            return
        says = self._signalled()
        if self.signal:
            self._write(says.left)
            os._exit(128 + number)
        self.signal, self._since = number, time.monotonic()
        further = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
        sentence = f"{says.closing if self._is_closing else says.stopping}; {further} {says.again}"
        if self._held is None:
            self._write(sentence)
        else:
            self._held.append(sentence)
        if not self._is_closing:
            raise KeyboardInterrupt

    def _write(self, sentence: str, before: str = "\n") -> None:
        """Write a line to standard error, also in the middle of another write."""
        with suppress(OSError):
            os.write(2, f"{before}{self._speaker}: {sentence}\n".encode())
