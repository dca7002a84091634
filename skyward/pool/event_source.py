"""Mixin of a pool with its event stream: `pool.events()`."""

from typing import TYPE_CHECKING, Any, overload

from skyward.errors import UsageError
from skyward.events import BaseEvent, Event, EventStream

if TYPE_CHECKING:
    from skyward.events.bus import EventBus

__all__ = ["EventSource"]


class EventSource:
    """Mixin of a pool with its event stream."""

    _bus: "EventBus"

    @overload
    def events(self, *, replay: bool = False) -> "EventStream[Event]": ...
    @overload
    def events[A: BaseEvent](self, kind: type[A], /, *, replay: bool = False) -> EventStream[A]: ...
    @overload
    def events[A: BaseEvent, B: BaseEvent](
        self, kind: type[A], kind_2: type[B], /, *, replay: bool = False
    ) -> EventStream[A | B]: ...
    @overload
    def events[A: BaseEvent, B: BaseEvent, C: BaseEvent](
        self, kind: type[A], kind_2: type[B], kind_3: type[C], /, *, replay: bool = False
    ) -> EventStream[A | B | C]: ...
    @overload
    def events(self, *kinds: type[BaseEvent], replay: bool = False) -> "EventStream[Event]": ...
    def events(self, *kinds: type[BaseEvent], replay: bool = False) -> EventStream[Any]:
        """Return an iterator over the events of the pool, for `for` and `async for`, until it is closed.

        Subscribe before `open()` to see the pool start. A subscriber that falls 10,000 events behind gets an
        `EventsDropped` in place of the oldest; it never slows down the pool.

        Args:
            kinds: only events of these classes, such as `sky.events.NodeLost` or the base class `sky.events.TaskEvent`.
            replay: start with the latest past events, up to 2,000 of tasks and 2,000 others; also after the pool was
                closed.

        Raises:
            UsageError: a kind is not an event class.

        Example:
            >>> pool = sky.Compute(nodes=2)
            >>> stream = pool.events(sky.events.NodeReady)
            >>> with pool:
            ...     print(next(stream).node)
        """
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseEvent)):
                raise UsageError(f"{kind!r} is not an event class; use classes of `sky.events`, such as NodeReady.")
        bus = self._bus
        return EventStream(bus.subscribe(*(kinds or (BaseEvent,)), replay=replay), bus.unsubscribe)
