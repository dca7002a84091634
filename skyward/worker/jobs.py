"""A task on its node: what was sent, what it may still send, and the streams that feed it."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from skyward.wire.flow import WINDOW, cost
from skyward.wire.messages import Code, Credit, Feed, Need, Payload, Submit

__all__ = ["InputStream", "Job", "Stopped"]


class Stopped(BaseException):
    """The job was told to stop while it waited for the client."""


class Job:
    """One submitted task: its call, its code, and the flow of its streams. Used by its slot and by the agent."""

    def __init__(self, submit: Submit, code: Code) -> None:
        self.submit = submit
        self.code = code
        self.withdrawn = False
        self._changed = threading.Condition()
        self._credit = submit.credit
        self._stopped = False
        self._handing = threading.Lock()
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
            self._changed.notify_all()

    def stop(self) -> None:
        """End every wait of the job for the client with `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for stream in self.inputs:
            stream.stop()

    def take_credit(self, units: int) -> None:
        """Wait until the client has room for an element that costs `units`.

        Raises:
            Stopped: the job was told to stop.
        """
        with self._changed:
            while self._credit < units and self._credit < WINDOW and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise Stopped
            self._credit -= units


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
    _changed: threading.Condition = field(default_factory=threading.Condition)
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
