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

__all__ = ["Got", "Line", "Put", "Size", "Take", "Withdraw", "page", "queue"]

PAGE = 16 * 1024
"""Bytes of items at either end, all of which each operation writes again."""

UNHEARD = 30.0
"""Seconds after which an unacknowledged item goes to another taker."""

_GONE = 3 * REASK


@dataclass(frozen=True)
class Put(Askable[tuple[bool, ...]]):
    """Append items, once, and acknowledge items that have arrived."""

    client: bytes
    number: int
    items: tuple[bytes, ...]
    got: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Take(Askable[bytes | None]):
    """Take the next item; with `wait`, wait for one."""

    id: bytes
    wait: bool
    got: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Withdraw(Askable[bytes | None]):
    """Stop waiting. The answer is the item, if already handed over; with `back`, it goes to another taker."""

    id: bytes
    back: bool = False


@dataclass(frozen=True)
class Got(Askable[None]):
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
class Line:
    """The queue: `front`, the pages from `first` to before `last`, `back`, and the unacknowledged items."""

    front: tuple[bytes, ...] = ()
    back: tuple[bytes, ...] = ()
    first: int = 0
    last: int = 0
    between: int = 0
    seen: Mapping[bytes, int] = field(default_factory=dict[bytes, int])
    given: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])

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


class _Desk:
    """Transient state of the actor: its waiting takers, and since when each item has been unacknowledged."""

    def __init__(self, ctx: "Context[Line, Put | Take | Withdraw | Got | Size]") -> None:
        self._ctx = ctx
        self._waiting: dict[bytes, _Taker] = {}
        self._given: dict[bytes, float] = dict.fromkeys(ctx.state.value.given, clock.monotonic())

    async def handle(self, message: Put | Take | Withdraw | Got | Size) -> None:
        """Handle one message."""
        now = clock.monotonic()
        line = self._ctx.state.value
        match message:
            case Put(client, number, items, got):
                line = _without(line, got)
                if line.seen.get(client, 0) < number:
                    line = replace(line, back=(*line.back, *items), seen=remember(line.seen, client, number))
                await self._serve(line, now)
                message.reply_to.tell((True,) * len(items))
            case Take(id, wait, got):
                line = _without(line, got)
                if id in line.given:
                    self._given[id] = now
                    message.reply_to.tell(line.given[id])
                    return
                self._waiting[id] = _Taker(message.reply_to, now)
                await self._serve(line, now)
                if not wait and self._waiting.pop(id, None) is not None:
                    message.reply_to.tell(None)
            case Withdraw(id, back):
                self._waiting.pop(id, None)
                item = line.given.get(id)
                if item is not None and back:
                    await self._serve(replace(_without(line, (id,)), front=(item, *line.front)), now)
                message.reply_to.tell(None if back else item)
            case Got(ids):
                await self._serve(_without(line, ids), now)
                message.reply_to.tell(None)
            case Size():
                message.reply_to.tell(line.size)

    async def _serve(self, line: Line, now: float) -> None:
        """Hand items to waiting takers, write the changed state, and only then answer."""
        line = self._returned(line, now)
        served: list[tuple[Ref[bytes | None], bytes]] = []
        for id, taker in list(self._waiting.items()):
            if now - taker.seen > _GONE:
                del self._waiting[id]
            elif (line := await self._ready(line)).front:
                item, *rest = line.front
                line = replace(line, front=tuple(rest), given={**line.given, id: item})
                served.append((taker.reply, item))
                self._given[id] = now
                del self._waiting[id]
        if _bytes(line.back) > PAGE:
            await self._ctx.system.ref(page, f"{self._ctx.key}/{line.last}").ask(Write(line.back))
            line = replace(line, back=(), last=line.last + 1, between=line.between + len(line.back))
        before = self._ctx.state.value
        if line != before:
            await self._ctx.state.set(line)
            for number in range(before.first, line.first):
                self._ctx.system.ref(page, f"{self._ctx.key}/{number}").tell(Forget())
        for reply, item in served:
            reply.tell(item)

    def _returned(self, line: Line, now: float) -> Line:
        self._given = {id: since for id, since in self._given.items() if id in line.given}
        for id, since in list(self._given.items()):
            if now - since > UNHEARD:
                line = replace(_without(line, (id,)), front=(line.given[id], *line.front))
                del self._given[id]
        return line

    async def _ready(self, line: Line) -> Line:
        """Return `line` with an item at its front, if there is any."""
        while not line.front and line.first < line.last:
            items = await self._ctx.system.ref(page, f"{self._ctx.key}/{line.first}").ask(Load())
            line = replace(line, front=items, first=line.first + 1, between=line.between - len(items))
        return line if line.front else replace(line, front=line.back, back=())


def _without(line: Line, ids: tuple[bytes, ...]) -> Line:
    if not any(id in line.given for id in ids):
        return line
    return replace(line, given={id: item for id, item in line.given.items() if id not in ids})


def _bytes(items: tuple[bytes, ...]) -> int:
    return sum(map(len, items))


@actor(initial=Line(), write="majority")
async def queue(ctx: Context[Line, Put | Take | Withdraw | Got | Size]) -> None:
    """A first-in, first-out queue."""
    desk = _Desk(ctx)
    async for message in ctx.inbox:
        await desk.handle(message)
