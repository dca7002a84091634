"""A task on its node: the call, the flow control of its results, and its input streams."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock  # tasks may replace the attributes of the module
from typing import Any, Literal

from skyward.process.clock import clock
from skyward.process.conditions import LockedCondition
from skyward.wire.protocol.flow import WINDOW, cost
from skyward.wire.protocol.messages import Code, Credit, Feed, Meet, Need, Payload, Submit
from skyward.worker.tasks.forked import ForkedProcessError, is_forked, leave_if_forked

__all__ = ["ForJob", "InputStream", "Job", "Stopped"]

type ForJob = Credit | Feed | Meet
"""Commands for a running job."""


class Stopped(BaseException):
    """Raised where a stopped job waits for the client."""


class Job:
    """One submitted task: its call, its code, and the flow of its streams. Used by its slot and by the agent.

    Attributes:
        stopped: reason of the stop; None while the job is not stopped.
        leaving: True while the partial result of a stopped job is being packed.
    """

    def __init__(self, submit: Submit, code: Code) -> None:
        self.submit = submit
        self.code = code
        self.withdrawn = False
        self._changed = LockedCondition()
        self._credit = self._credited = submit.credit
        self._stopped = False
        self.stopped: Literal["cancelled", "timeout"] | None = None
        self.leaving = False
        self._handing = Lock()
        self._deliver_to: Callable[[ForJob], None] | None = None
        self._buffered: list[ForJob] = []
        self._meeting = ""
        self.inputs: list[InputStream] = []

    def deliver(self, command: ForJob) -> None:
        """Deliver a command to this job; buffer it until the job has a place to run."""
        with self._handing:
            if self._deliver_to is None:
                self._buffered.append(command)
            else:
                self._deliver_to(command)

    def run_here(self) -> None:
        """Run in this process: deliver commands to this object."""
        self.run_elsewhere(self._act)

    def run_elsewhere(self, deliver: Callable[[ForJob], None]) -> None:
        """Run in another process: deliver commands to `deliver`, the buffered ones first."""
        with self._handing:
            self._deliver_to = deliver
            for command in self._buffered:
                deliver(command)
            self._buffered.clear()

    def _act(self, command: ForJob) -> None:
        if isinstance(command, Feed):
            self.inputs[command.index].arrive(command)
            return
        with self._changed.lock:
            if isinstance(command, Meet):
                self._meeting = command.address
                self._changed.notify_all()
                return
            self._credit += command.count
            self._credited += command.count
            self._changed.notify_all()

    def wait_for_meeting(self, within: float) -> str:
        """Return where the members of the job's collective meet, once all are ready.

        Raises:
            Stopped: the job was stopped.
            TimeoutError: they were not ready in time.
        """
        deadline = clock.monotonic() + within
        with self._changed.lock:
            while not self._meeting:
                if self._stopped:
                    raise Stopped
                if not self._changed.wait(max(0.0, deadline - clock.monotonic())) and clock.monotonic() >= deadline:
                    raise TimeoutError
            return self._meeting

    def stop(self, reason: Literal["cancelled", "timeout"]) -> None:
        """Make every wait of the job for the client raise `Stopped`."""
        with self._changed.lock:
            self.stopped, self._stopped = reason, True
            self._changed.notify_all()
        for stream in self.inputs:
            stream.stop()

    def take_credit(self, units: int, pause: Callable[[int], None]) -> None:
        """Wait until the client has room for an element that costs `units`.

        `pause` is called before each wait, once for the same credit, with the total credit granted so far.

        Raises:
            Stopped: the job was stopped.
        """
        leave_if_forked()
        reported = -1
        while True:
            with self._changed.lock:
                while not self._has_room(units) and self._credited == reported and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    raise Stopped
                if self._has_room(units):
                    self._credit -= units
                    return
                reported = self._credited
            pause(reported)  # without the lock: it may wait for the client, whose credit needs the lock

    def has_credit(self, units: int) -> bool:
        """Return whether `take_credit` would neither wait nor raise."""
        with self._changed.lock:
            return self._has_room(units) and not self._stopped

    def _has_room(self, units: int) -> bool:
        return self._credit >= units or self._credit >= WINDOW


@dataclass
class InputStream:
    """An iterator over elements that the client feeds. Elements are decoded when they are taken.

    Attributes:
        decode: turns an element, or the failure that ended the stream, into a value.
        need: tells the client how much room there is for further elements.
    """

    task: int
    index: int
    decode: Callable[[Payload], Any]
    need: Callable[[Need], None]
    _items: deque[Payload] = field(default_factory=deque)
    _changed: LockedCondition = field(default_factory=LockedCondition)
    _ended: bool = False
    _stopped: bool = False
    _failure: Payload | None = None
    _consumed: int = 0

    def arrive(self, feed: Feed) -> None:
        """Queue elements of the client."""
        with self._changed.lock:
            self._items.extend(feed.items)
            self._ended = self._ended or feed.last
            self._failure = feed.failure or self._failure
            self._changed.notify_all()

    def stop(self) -> None:
        """Make a waiting reader raise `Stopped`."""
        with self._changed.lock:
            self._stopped = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if is_forked():
            raise ForkedProcessError("the input stream of the task")
        with self._changed.lock:
            while not self._items and not self._ended and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise Stopped
            if not self._items:
                if self._failure is not None:
                    raise self.decode(self._failure).rebuild()
                raise StopIteration
            payload = self._items.popleft()
        value = self.decode(payload)  # before `need`: blobs of consumed elements may be dropped
        self._consumed += cost(payload)
        if self._consumed >= WINDOW // 4 or not self._items:
            self.need(Need(self.task, self.index, self._consumed))
            self._consumed = 0
        return value
