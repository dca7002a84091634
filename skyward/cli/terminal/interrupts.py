"""Signals of a command that has nodes: the first stops the work and gives the nodes back, the second leaves them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["Interrupts"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Handlers of SIGINT, SIGTERM and SIGHUP while a command has nodes. A context manager, for the main thread.

    Args:
        speaker: beginning of the lines that are written.
        leaving: returns a sentence about the nodes that are left when a second signal arrives.
        stays: True if the command does not give the nodes back: they are of a pool that stays.

    Attributes:
        signal: the first signal; 0 for none.
    """

    def __init__(self, speaker: str, leaving: Callable[[], str], *, stays: bool = False) -> None:
        self.signal = 0
        self._speaker = speaker
        self._leaving = leaving
        self._stays = stays
        self._is_closing = False
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
        """Return a context that a first signal does not interrupt: the nodes are being given back already."""
        self._is_closing = True
        try:
            yield
        finally:
            self._is_closing = False

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.signal:
            self._write(self._leaving())
            os._exit(128 + number)
        self.signal = number
        if self._is_closing:
            self._write("giving the nodes back; Ctrl-C again leaves them to their lease")
            return
        gives = "" if self._stays else ", and giving the nodes back; Ctrl-C again leaves them to their lease"
        self._write(f"stopping{gives}")
        raise KeyboardInterrupt

    def _write(self, sentence: str) -> None:
        """Write a line to standard error, also in the middle of another write."""
        with suppress(OSError):
            os.write(2, f"\n{self._speaker}: {sentence}\n".encode())
