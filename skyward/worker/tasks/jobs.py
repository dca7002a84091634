"""A task on its node: what was sent, what it may still send, and the streams that feed it."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Condition, Lock  # tasks may replace the attributes of the module
from typing import Any, Literal

from skyward.wire.protocol.flow import WINDOW, cost
from skyward.wire.protocol.messages import Code, Credit, Feed, Need, Payload, Submit
from skyward.worker.tasks.forked import ForkedProcessError, is_forked, leave_if_forked

__all__ = ["InputStream", "Job", "Stopped"]


class Stopped(BaseException):
    """The job was told to stop while it waited for the client."""


class Job:
    """One submitted task: its call, its code, and the flow of its streams. Used by its slot and by the agent.

    Attributes:
        stopped: why it was told to stop.
        leaving: whether it was stopped and what it leaves is being packed.
    """

    def __init__(self, submit: Submit, code: Code) -> None:
        self.submit = submit
        self.code = code
        self.withdrawn = False
        self._changed = Condition()
        self._credit = self._credited = submit.credit
        self._stopped = False
        self.stopped: Literal["cancelled", "timeout"] | None = None
        self.leaving = False
        self._handing = Lock()
        self._hand: Callable[[Credit | Feed], None] | None = None
        self._early: list[Credit | Feed] = []
        self.inputs: list[InputStream] = []

    def deliver(self, command: Credit | Feed) -> None:
        """A command for this job arrived. Kept until it is known where the job runs."""
        with self._handing:
            if self._hand is None:
                self._early.append(command)
            else:
                self._hand(command)

    def run_here(self) -> None:
        """The job runs in this process: commands act on it."""
        self.run_elsewhere(self._act)

    def run_elsewhere(self, hand: Callable[[Credit | Feed], None]) -> None:
        """The job runs in another process: commands go to `hand`, those that came before first."""
        with self._handing:
            self._hand = hand
            for command in self._early:
                hand(command)
            self._early.clear()

    def _act(self, command: Credit | Feed) -> None:
        if isinstance(command, Feed):
            self.inputs[command.index].arrive(command)
            return
        with self._changed:
            self._credit += command.count
            self._credited += command.count
            self._changed.notify_all()

    def stop(self, reason: Literal["cancelled", "timeout"]) -> None:
        """End every wait of the job for the client with `Stopped`."""
        with self._changed:
            self.stopped, self._stopped = reason, True
            self._changed.notify_all()
        for stream in self.inputs:
            stream.stop()

    def take_credit(self, units: int, pause: Callable[[int], None]) -> None:
        """Wait until the client has room for an element that costs `units`.

        `pause` is called before each wait, once for the same credit, with all the credit that was given so far.

        Raises:
            Stopped: the job was told to stop.
        """
        leave_if_forked()
        told = -1
        while True:
            with self._changed:
                while not self._has_room(units) and self._credited == told and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    raise Stopped
                if self._has_room(units):
                    self._credit -= units
                    return
                told = self._credited
            pause(told)  # without the lock: it may wait for the client, whose credit takes the lock

    def has_credit(self, units: int) -> bool:
        """Whether `take_credit` would not wait, nor raise."""
        with self._changed:
            return self._has_room(units) and not self._stopped

    def _has_room(self, units: int) -> bool:
        return self._credit >= units or self._credit >= WINDOW


@dataclass
class InputStream:
    """An iterator over what the client feeds. Elements are decoded when they are taken.

    Attributes:
        decode: turns an element, or the failure that ended the stream, into a value.
        need: tells the client how much more may come.
    """

    task: int
    index: int
    decode: Callable[[Payload], Any]
    need: Callable[[Need], None]
    _items: deque[Payload] = field(default_factory=deque)
    _changed: Condition = field(default_factory=Condition)
    _ended: bool = False
    _stopped: bool = False
    _failure: Payload | None = None
    _consumed: int = 0

    def arrive(self, feed: Feed) -> None:
        """Queue what the client sent."""
        with self._changed:
            self._items.extend(feed.items)
            self._ended = self._ended or feed.last
            self._failure = feed.failure or self._failure
            self._changed.notify_all()

    def stop(self) -> None:
        """End a wait with `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if is_forked():
            raise ForkedProcessError("the input stream of the task")
        with self._changed:
            while not self._items and not self._ended and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise Stopped
            if not self._items:
                if self._failure is not None:
                    raise self.decode(self._failure).rebuild()
                raise StopIteration
            payload = self._items.popleft()
        value = self.decode(payload)  # first: what was consumed may be dropped
        self._consumed += cost(payload)
        if self._consumed >= WINDOW // 4 or not self._items:
            self.need(Need(self.task, self.index, self._consumed))
            self._consumed = 0
        return value
