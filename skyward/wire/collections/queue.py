"""A queue: one actor for both of its ends, and one actor for each page between them.

An item handed to a taker is kept until the taker acknowledges it. So no item is lost with the actor's node, and an item
whose taker died before it arrived goes to the next taker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from casty import Askable, Context, Ref, actor

from skyward.process.clock import clock
from skyward.wire.collections.ask import REASK
from skyward.wire.collections.counter import remember

__all__ = ["Acknowledge", "QueuePut", "QueueState", "QueueTake", "QueueWithdraw", "Size", "page", "queue"]

PAGE = 16 * 1024
"""Bytes of items at either end, all of which each operation writes again."""

ACKNOWLEDGE_WITHIN = 30.0
"""Seconds after which an unacknowledged item goes to another taker."""

_GONE = 3 * REASK


@dataclass(frozen=True)
class QueuePut(Askable[tuple[bool, ...]]):
    """Append items, once, and acknowledge items that have arrived."""

    client: bytes
    number: int
    items: tuple[bytes, ...]
    acknowledged: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class QueueTake(Askable[bytes | None]):
    """Take the next item; with `wait`, wait for one."""

    id: bytes
    wait: bool
    acknowledged: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class QueueWithdraw(Askable[bytes | None]):
    """Stop waiting. The answer is the item, if already handed over; with `back`, it goes to another taker."""

    id: bytes
    back: bool = False


@dataclass(frozen=True)
class Acknowledge(Askable[None]):
    """Acknowledge items that have arrived."""

    ids: tuple[bytes, ...]


@dataclass(frozen=True)
class Size(Askable[int]):
    """Count the items."""


@dataclass(frozen=True)
class Page:
    """Items of a queue that are neither at its front nor at its back."""

    items: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Write(Askable[None]):
    """Store the items of a page."""

    items: tuple[bytes, ...]


@dataclass(frozen=True)
class Load(Askable[tuple[bytes, ...]]):
    """Read the items of a page."""


@dataclass(frozen=True)
class Forget:
    """Delete the page."""


@dataclass(frozen=True)
class QueueState:
    """The queue: `front`, the pages from `first` to before `last`, `back`, and the unacknowledged items."""

    front: tuple[bytes, ...] = ()
    back: tuple[bytes, ...] = ()
    first: int = 0
    last: int = 0
    between: int = 0
    seen: Mapping[bytes, int] = field(default_factory=dict[bytes, int])
    unacknowledged: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    @property
    def size(self) -> int:
        """Number of items not handed to a taker."""
        return len(self.front) + self.between + len(self.back)


@actor(initial=Page(), write="majority")
async def page(ctx: Context[Page, Write | Load | Forget]) -> None:
    """A page of a queue, or a large item."""
    async for message in ctx.inbox:
        match message:
            case Write(items):
                await ctx.state.set(Page(items))
                message.reply_to.tell(None)
            case Load():
                message.reply_to.tell(ctx.state.value.items)
            case Forget():
                await ctx.state.delete()


@dataclass(slots=True)
class _Taker:
    reply: Ref[bytes | None]
    seen: float


class _QueueActor:
    """Transient state of the actor: its waiting takers, and since when each item has been unacknowledged."""

    def __init__(self, ctx: "Context[QueueState, QueuePut | QueueTake | QueueWithdraw | Acknowledge | Size]") -> None:
        self._ctx = ctx
        self._waiting: dict[bytes, _Taker] = {}
        self._handed_over_at: dict[bytes, float] = dict.fromkeys(ctx.state.value.unacknowledged, clock.monotonic())

    async def handle(self, message: QueuePut | QueueTake | QueueWithdraw | Acknowledge | Size) -> None:
        """Handle one message."""
        now = clock.monotonic()
        state = self._ctx.state.value
        match message:
            case QueuePut(client, number, items, acknowledged):
                state = _without(state, acknowledged)
                if state.seen.get(client, 0) < number:
                    state = replace(state, back=(*state.back, *items), seen=remember(state.seen, client, number))
                await self._serve(state, now)
                message.reply_to.tell((True,) * len(items))
            case QueueTake(id, wait, acknowledged):
                state = _without(state, acknowledged)
                if id in state.unacknowledged:
                    self._handed_over_at[id] = now
                    message.reply_to.tell(state.unacknowledged[id])
                    return
                self._waiting[id] = _Taker(message.reply_to, now)
                await self._serve(state, now)
                if not wait and self._waiting.pop(id, None) is not None:
                    message.reply_to.tell(None)
            case QueueWithdraw(id, back):
                self._waiting.pop(id, None)
                item = state.unacknowledged.get(id)
                if item is not None and back:
                    await self._serve(replace(_without(state, (id,)), front=(item, *state.front)), now)
                message.reply_to.tell(None if back else item)
            case Acknowledge(ids):
                await self._serve(_without(state, ids), now)
                message.reply_to.tell(None)
            case Size():
                message.reply_to.tell(state.size)

    async def _serve(self, state: QueueState, now: float) -> None:
        """Hand items to waiting takers, write the changed state, and only then answer."""
        state = self._returned(state, now)
        served: list[tuple[Ref[bytes | None], bytes]] = []
        for id, taker in list(self._waiting.items()):
            if now - taker.seen > _GONE:
                del self._waiting[id]
            elif (state := await self._ready(state)).front:
                item, *rest = state.front
                state = replace(state, front=tuple(rest), unacknowledged={**state.unacknowledged, id: item})
                served.append((taker.reply, item))
                self._handed_over_at[id] = now
                del self._waiting[id]
        if _bytes(state.back) > PAGE:
            await self._ctx.system.ref(page, f"{self._ctx.key}/{state.last}").ask(Write(state.back))
            state = replace(state, back=(), last=state.last + 1, between=state.between + len(state.back))
        before = self._ctx.state.value
        if state != before:
            await self._ctx.state.set(state)
            for number in range(before.first, state.first):
                self._ctx.system.ref(page, f"{self._ctx.key}/{number}").tell(Forget())
        for reply, item in served:
            reply.tell(item)

    def _returned(self, state: QueueState, now: float) -> QueueState:
        self._handed_over_at = {id: since for id, since in self._handed_over_at.items() if id in state.unacknowledged}
        for id, since in list(self._handed_over_at.items()):
            if now - since > ACKNOWLEDGE_WITHIN:
                state = replace(_without(state, (id,)), front=(state.unacknowledged[id], *state.front))
                del self._handed_over_at[id]
        return state

    async def _ready(self, state: QueueState) -> QueueState:
        """Return `state` with an item at its front, if there is any."""
        while not state.front and state.first < state.last:
            items = await self._ctx.system.ref(page, f"{self._ctx.key}/{state.first}").ask(Load())
            state = replace(state, front=items, first=state.first + 1, between=state.between - len(items))
        return state if state.front else replace(state, front=state.back, back=())


def _without(state: QueueState, ids: tuple[bytes, ...]) -> QueueState:
    if not any(id in state.unacknowledged for id in ids):
        return state
    return replace(state, unacknowledged={id: item for id, item in state.unacknowledged.items() if id not in ids})


def _bytes(items: tuple[bytes, ...]) -> int:
    return sum(map(len, items))


@actor(initial=QueueState(), write="majority")
async def queue(ctx: Context[QueueState, QueuePut | QueueTake | QueueWithdraw | Acknowledge | Size]) -> None:
    """A first-in, first-out queue."""
    queue_actor = _QueueActor(ctx)
    async for message in ctx.inbox:
        await queue_actor.handle(message)
