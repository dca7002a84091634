"""The threads of this process that wait for a task or a stream, without a limit of time."""

import itertools
import threading
from dataclasses import dataclass

__all__ = ["Blocked", "Wait", "waits"]

_numbers = itertools.count(1)
_waits: "dict[threading.Thread, Wait]" = {}


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait.

    Attributes:
        number: tells it from other waits, of any thread.
        on: a future, the buffer of a stream, or a tuple of futures, of which any ends the wait.
    """

    number: int
    on: object


class Blocked:
    """A context in which the calling thread waits on `on`."""

    __slots__ = ("_before", "_wait")

    def __init__(self, on: object) -> None:
        self._wait = Wait(next(_numbers), on)
        self._before: Wait | None = None

    def __enter__(self) -> None:
        me = threading.current_thread()
        self._before = _waits.get(me)  # of what a signal handler interrupts
        _waits[me] = self._wait

    def __exit__(self, *_: object) -> None:
        me = threading.current_thread()
        if self._before is None:
            _waits.pop(me, None)
        else:
            _waits[me] = self._before


def waits() -> dict[threading.Thread, Wait]:
    """Return the waits now, by thread. An identifier would not do: a new thread gets that of one that has ended."""
    return dict(_waits)
