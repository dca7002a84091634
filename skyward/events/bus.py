"""The event bus of one pool: delivers events to subscribers.

Most events have no subscriber, and there may be several for each task. So an event is stored as its constructor's
arguments, and is built only if a subscriber needs it.
"""

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Concatenate

from skyward.events.kinds import BaseEvent, TaskEvent
from skyward.events.stream import WAITING, EventBuffer

__all__ = ["EventBus"]

KEPT = 2000
"""Events that are kept for late subscribers: so many of tasks, and so many others."""

type _Listener = Callable[[BaseEvent], object]
type _Noted = tuple[int, float, Callable[..., BaseEvent], tuple[Any, ...]]

_logger = logging.getLogger(__name__)


class _State:
    """State of one kind of event: its count, its ring of kept events, and its listeners."""

    __slots__ = ("count", "listeners", "ring")

    def __init__(self, ring: deque[_Noted]) -> None:
        self.ring = ring
        self.count = 0
        self.listeners: tuple[_Listener, ...] = ()


class EventBus:
    """Event bus of one pool. Methods may be called from any thread.

    Attributes:
        ended: True if there will be no more events.
    """

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.ended = False
        self._number = 0
        self._of_tasks: deque[_Noted] = deque(maxlen=KEPT)
        self._others: deque[_Noted] = deque(maxlen=KEPT)
        self._listeners: dict[_Listener, tuple[type[BaseEvent], ...]] = {}
        self._buffers: dict[EventBuffer, _Listener] = {}
        self._states: dict[object, _State] = {}
        self._at_end: list[Callable[[], object]] = []
        self._lock = threading.RLock()

    def emit[**P](
        self, kind: Callable[Concatenate[str, int, float, P], BaseEvent], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Emit an event of this kind, with the values of its own fields."""
        assert not kwargs, "pass fields by position, which keeps storing them cheap"
        with self._lock:
            if self.ended:
                return
            state = self._states.get(kind)
            if state is None:
                state = self._state(kind)
            self._number = number = self._number + 1
            now = time.time()
            state.count += 1
            state.ring.append((number, now, kind, args))
            if state.listeners:
                make: Callable[..., BaseEvent] = kind
                event = make(self.pool, number, now, *args)
                for listener in state.listeners:
                    self._deliver(listener, event)

    def count(self, *kinds: type[BaseEvent]) -> int:
        """Return the number of events so far of exactly these kinds."""
        return sum(state.count for kind in kinds if (state := self._states.get(kind)) is not None)

    def _state(self, kind: object) -> "_State":
        state = self._states[kind] = _State(self._of_tasks if _is(kind, (TaskEvent,)) else self._others)
        state.listeners = self._listeners_to(kind)
        return state

    def _listeners_to(self, kind: object) -> tuple[_Listener, ...]:
        return tuple(listener for listener, kinds in list(self._listeners.items()) if _is(kind, kinds))

    def _changed(self) -> None:
        for kind, state in self._states.items():
            state.listeners = self._listeners_to(kind)

    def _deliver(self, listener: _Listener, event: BaseEvent) -> None:
        try:
            listener(event)
        except Exception:  # a failing subscriber must not stop the pool
            self.ignore(listener)
            _logger.exception("a subscriber to the events of pool %r raised; it is unsubscribed", self.pool)

    def listen(self, listener: _Listener, *kinds: type[BaseEvent]) -> None:
        """Call `listener` with each event of these kinds, on the thread that emits it. It must not block."""
        with self._lock:
            self._listeners[listener] = kinds
            self._changed()

    def ignore(self, listener: _Listener) -> None:
        """Stop calling `listener`. Idempotent."""
        with self._lock:
            self._listeners.pop(listener, None)
            self._changed()

    def subscribe(self, *kinds: type[BaseEvent], replay: bool = False, size: int = WAITING) -> EventBuffer:
        """Return a buffer that gets each event of these kinds; with `replay`, the kept ones first."""
        buffer = EventBuffer(size)
        with self._lock:
            if replay:
                for number, at, kind, args in heapq.merge(self._of_tasks, self._others, key=lambda noted: noted[0]):
                    if _is(kind, kinds):
                        buffer.offer(kind(self.pool, number, at, *args))
            if self.ended:
                buffer.end()
            else:
                self._buffers[buffer] = listener = buffer.offer
                self.listen(listener, *kinds)
        return buffer

    def unsubscribe(self, buffer: EventBuffer) -> None:
        """Unsubscribe `buffer`, and drop its pending events. Idempotent."""
        with self._lock:
            listener = self._buffers.pop(buffer, None)
            if listener is not None:
                self.ignore(listener)
        buffer.close()

    def on_end(self, call: Callable[[], object]) -> None:
        """Call `call` once, when there are no more events."""
        with self._lock:
            self._at_end.append(call)

    def end(self) -> None:
        """End the bus: every stream ends after its pending events. Idempotent."""
        with self._lock:
            self.ended = True
            calls, self._at_end = self._at_end, []
            buffers = tuple(self._buffers)
            self._buffers.clear()
            self._listeners.clear()
            self._changed()
        for buffer in buffers:
            buffer.end()
        for call in calls:
            call()


def _is(kind: object, kinds: tuple[type[BaseEvent], ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, kinds)
