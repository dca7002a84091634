"""A queue: one actor with both ends of it, and an actor for each page of what lies between.

An item that was given to a taker is kept until the taker says that it has it. So none is lost with the node of the
actor, and one whose taker died before it arrived goes to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from casty import Askable, Context, Ref, actor

from skyward.process.clock import clock
from skyward.wire.collections.ask import REASK
from skyward.wire.collections.counter import remember

__all__ = ["Got", "Line", "Put", "Size", "Take", "Withdraw", "page", "queue"]

PAGE = 16 * 1024
"""Bytes of items at either end: what every operation writes again."""

UNHEARD = 30.0
"""Seconds after which an item whose taker has not said that it has it goes to another."""

_GONE = 3 * REASK


@dataclass(frozen=True)
class Put(Askable[tuple[bool, ...]]):
    """Append items, once, and hear of items that have arrived."""

    client: bytes
    number: int
    items: tuple[bytes, ...]
    got: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Take(Askable[bytes | None]):
    """Have the next item; with `wait`, when there is one."""

    id: bytes
    wait: bool
    got: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Withdraw(Askable[bytes | None]):
    """Wait no longer: the item, if it was given meanwhile; with `back`, it is to go to another."""

    id: bytes
    back: bool = False


@dataclass(frozen=True)
class Got(Askable[None]):
    """These have arrived."""

    ids: tuple[bytes, ...]


@dataclass(frozen=True)
class Size(Askable[int]):
    """How many items there are."""


@dataclass(frozen=True)
class Page:
    """Items of a queue that are neither at its front nor at its back."""

    items: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Write(Askable[None]):
    """Keep the items of a page."""

    items: tuple[bytes, ...]


@dataclass(frozen=True)
class Load(Askable[tuple[bytes, ...]]):
    """The items of a page."""


@dataclass(frozen=True)
class Forget:
    """The page is not needed any more."""


@dataclass(frozen=True)
class Line:
    """The queue: `front`, the pages from `first` to before `last`, `back`; and the items on their way to takers."""

    front: tuple[bytes, ...] = ()
    back: tuple[bytes, ...] = ()
    first: int = 0
    last: int = 0
    between: int = 0
    seen: Mapping[bytes, int] = field(default_factory=dict[bytes, int])
    given: Mapping[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    @property
    def size(self) -> int:
        """Items that nobody was given."""
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
    """What the actor knows besides its state: who waits, and since when items are on their way."""

    def __init__(self, ctx: "Context[Line, Put | Take | Withdraw | Got | Size]") -> None:
        self._ctx = ctx
        self._waiting: dict[bytes, _Taker] = {}
        self._given: dict[bytes, float] = dict.fromkeys(ctx.state.value.given, clock.monotonic())

    async def handle(self, message: Put | Take | Withdraw | Got | Size) -> None:
        """Take one message."""
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
        """Give items to those who wait, write what changed, and only then answer."""
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
        """`line` with an item at its front, if there is one at all."""
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
    """A queue: first in, first out."""
    desk = _Desk(ctx)
    async for message in ctx.inbox:
        await desk.handle(message)
