"""A counter: one actor, with the state it needs to recognise a repeated message."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from casty import Askable, Context, actor

from skyward.wire.collections.batches import Batches

if TYPE_CHECKING:
    from skyward.wire.collections.ask import Address

__all__ = ["Count", "CounterClient", "counter_eventual", "counter_strong", "remember"]

CLIENTS = 1024
"""Processes whose last message an actor remembers."""


@dataclass(frozen=True)
class Step:
    """Add `amount`, or with `reset` set the value to it. Decimal digits, because the engine's integers have 64 bits."""

    amount: str
    reset: bool


@dataclass(frozen=True)
class Apply(Askable[tuple[str, ...]]):
    """Apply these steps once. The answer is the value after each of them."""

    client: bytes
    number: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Read(Askable[str]):
    """Read the value."""


@dataclass(frozen=True)
class Count:
    """The value, and the number and answer of the last message of each process."""

    value: str = "0"
    seen: Mapping[bytes, tuple[int, tuple[str, ...]]] = field(default_factory=dict[bytes, tuple[int, tuple[str, ...]]])


def remember[T](seen: Mapping[bytes, T], client: bytes, what: T) -> dict[bytes, T]:
    """Return `seen` with the last message of `client` added and the oldest entries dropped."""
    kept = {key: value for key, value in seen.items() if key != client}
    while len(kept) >= CLIENTS:
        del kept[next(iter(kept))]
    return {**kept, client: what}


def applied(count: Count, message: Apply) -> Count:
    """Return `count` after `message`, which must be new to it."""
    value, answers = int(count.value), []
    for step in message.steps:
        value = int(step.amount) if step.reset else value + int(step.amount)
        answers.append(str(value))
    return Count(str(value), remember(count.seen, message.client, (message.number, tuple(answers))))


async def _serve(ctx: Context[Count, Apply | Read]) -> None:
    async for message in ctx.inbox:
        match message:
            case Apply(client, number, steps):
                if ctx.state.value.seen.get(client, (0, ()))[0] < number:
                    await ctx.state.set(applied(ctx.state.value, message))
                last, answers = ctx.state.value.seen[client]
                message.reply_to.tell(answers if last == number else ("0",) * len(steps))
            case Read():
                message.reply_to.tell(ctx.state.value.value)


@actor(initial=Count(), write="majority")
async def counter_strong(ctx: Context[Count, Apply | Read]) -> None:
    """A counter whose writes are confirmed by a quorum of its copies."""
    await _serve(ctx)


@actor(initial=Count(), write="one")
async def counter_eventual(ctx: Context[Count, Apply | Read]) -> None:
    """A counter whose writes are confirmed by one copy."""
    await _serve(ctx)


class CounterClient:
    """Client of a counter, for one process in the cluster."""

    def __init__(self, address: "Address[Apply | Read]", client: bytes) -> None:
        self._address = address
        self._steps: Batches[Step, str] = Batches(lambda number, steps: address.ask(Apply(client, number, steps)))

    async def value(self) -> int:
        """Return the current value."""
        value: str = await self._address.ask(Read())
        return int(value)

    async def add(self, amount: int) -> int:
        """Add `amount`. Return the new value."""
        return int(await self._steps.add(Step(str(amount), reset=False)))

    async def reset(self, value: int) -> int:
        """Set the value."""
        return int(await self._steps.add(Step(str(value), reset=True)))
