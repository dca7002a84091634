"""Elements of the members of a broadcast, as one stream."""

import threading
from concurrent.futures import Future
from typing import Any

from skyward.control.act.tasks.future import TaskFuture, wait_result, when_done
from skyward.control.act.tasks.streams import StreamBuffer
from skyward.process.blocked_threads import Blocked
from skyward.process.conditions import LockedCondition
from skyward.process.forked import refuse_forked
from skyward.process.thread_events import ThreadEvent

__all__ = ["MergedBuffer"]


class MergedBuffer:
    """The buffers of the members of a broadcast, which are read as one: pairs of a member's label and its element.

    Elements of one member are in order; those of several members are in the order of their arrival, roughly.

    Args:
        future: the result of the broadcast.
    """

    def __init__(self, future: TaskFuture[list[Any]]) -> None:
        self._future = future
        self._members: list[tuple[int, StreamBuffer]] = []
        self._changed = LockedCondition()
        self._bell = ThreadEvent()
        self._version = 0
        self._turn = 0
        self._is_closed = False
        when_done(future, self._on_change)

    def add(self, label: int) -> StreamBuffer:
        """Return the buffer of a new member."""
        buffer = StreamBuffer()
        buffer.on_change = self._on_change
        self._members.append((label, buffer))
        self._on_change()  # a reader has to wait for it, too
        return buffer

    @property
    def parts(self) -> tuple[StreamBuffer, ...]:
        """The buffers of the members."""
        return tuple(buffer for _, buffer in tuple(self._members))

    def _on_change(self, _: object = None) -> None:
        with self._changed.lock:
            self._version += 1
            self._changed.notify_all()
        self._bell.notify()

    def take(self) -> tuple[int, Any]:
        """Wait for the next element of any member; return it with the label of its member.

        Raises:
            StopIteration: all streams have ended; its value is the list of the generators' return values.
        """
        refuse_forked()
        reader = threading.current_thread()
        while True:
            with self._changed.lock:
                seen = self._version
            for buffer in self.parts:
                buffer.read_by(reader)
            if (ready := self._ready()) is not None:
                label, buffer = ready
                return label, buffer.take()
            if self._is_over():
                raise StopIteration(None if self._is_closed else wait_result(self._future))
            with self._changed.lock, Blocked(self.parts or self._future):
                while self._version == seen:
                    self._changed.wait()

    async def take_soon(self) -> tuple[int, Any]:
        """Wait for the next element of any member in a coroutine. If cancelled, no element is consumed.

        Raises:
            StopAsyncIteration: all streams have ended.
        """
        refuse_forked()
        while True:
            arriving = self._bell.next_notification()
            if (ready := self._ready()) is not None:
                label, buffer = ready
                return label, await buffer.take_soon()
            if self._is_over():
                if not self._is_closed:
                    wait_result(self._future)
                raise StopAsyncIteration
            await arriving

    def _ready(self) -> tuple[int, StreamBuffer] | None:
        """Return the next member in turn that has an element."""
        members = tuple(self._members)
        for offset in range(len(members)):
            place = (self._turn + offset) % len(members)
            if members[place][1].has_elements:
                self._turn = place + 1
                return members[place]
        return None

    def _is_over(self) -> bool:
        return self._is_closed or (self._future.done() and not any(buffer.has_elements for buffer in self.parts))

    def close(self) -> None:
        """Stop the broadcast, unless it has ended. Idempotent."""
        self._is_closed = True
        if not Future.done(self._future):
            self._future.cancel()
        for buffer in self.parts:
            buffer.close()
        self._on_change()
