"""Registry of the threads of this process that wait for a task or a stream without a timeout."""

import itertools
import threading
from dataclasses import dataclass

__all__ = ["Blocked", "Wait", "waits"]

_numbers = itertools.count(1)
_waits: "dict[threading.Thread, Wait]" = {}


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of a thread.

    Attributes:
        number: unique among the waits of this process.
        on: a future, the buffer of a stream, or a tuple of futures, any of which ends the wait.
    """

    number: int
    on: object


class Blocked:
    """Context manager: registers that the calling thread waits on `on`."""

    __slots__ = ("_before", "_wait")

    def __init__(self, on: object) -> None:
        self._wait = Wait(next(_numbers), on)
        self._before: Wait | None = None

    def __enter__(self) -> None:
        thread = threading.current_thread()
        self._before = _waits.get(thread)  # the wait that a signal handler interrupts
        _waits[thread] = self._wait

    def __exit__(self, *_: object) -> None:
        thread = threading.current_thread()
        if self._before is None:
            _waits.pop(thread, None)
        else:
            _waits[thread] = self._before


def waits() -> dict[threading.Thread, Wait]:
    """Return the current waits by thread. Keys are thread objects, because thread identifiers are reused."""
    return dict(_waits)
