"""The part of a pool's face that tells what happens: `pool.events()`."""

from typing import TYPE_CHECKING, Any, overload

from skyward.errors import UsageError
from skyward.events import BaseEvent, Event, EventStream

if TYPE_CHECKING:
    from skyward.events.bus import EventBus

__all__ = ["EventSource"]


class EventSource:
    """Lets the events of a pool be read."""

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
        """Return an iterator over what happens to the pool, for `for` and `async for`, until it is closed.

        Subscribe before `open()` to see the pool start. A reader that is slower than 10,000 events gets an
        `EventsDropped` in place of the oldest; it never slows the pool.

        Args:
            kinds: only events of these classes, such as `sky.events.NodeLost` or the base class `sky.events.TaskEvent`.
            replay: begin with the latest events there were, up to 2,000 of tasks and 2,000 others; also after the pool
                was closed.

        Raises:
            UsageError: a kind is no class of event.

        Example:
            >>> pool = sky.Compute(nodes=2)
            >>> stream = pool.events(sky.events.NodeReady)
            >>> with pool:
            ...     print(next(stream).node)
        """
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, BaseEvent)):
                raise UsageError(f"{kind!r} is no kind of event; take classes of `sky.events`, such as NodeReady.")
        bus = self._bus
        return EventStream(bus.subscribe(*(kinds or (BaseEvent,)), replay=replay), bus.unsubscribe)
