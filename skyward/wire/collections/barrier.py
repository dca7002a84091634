"""A barrier: one actor. Waiting parties repeat their request every few seconds, so it outlives the actor's node."""

import asyncio
import contextlib
from dataclasses import dataclass

from casty import Askable, Context, Ref, actor

from skyward.process.clock import clock
from skyward.wire.collections.ask import REASK, Address, fresh_id
from skyward.wire.collections.requests import BarrierOutcome

__all__ = ["BarrierClient", "BarrierState", "barrier"]

_GONE = 4 * REASK
"""Seconds after which a waiting party that has not repeated its request counts as lost."""

_REMEMBERED = 64


@dataclass(frozen=True)
class Arrive(Askable[tuple[BarrierOutcome, int]]):
    """Wait for `parties` in all. The answer is the outcome, for a mismatch with the number that the others expect.

    Without `wait`, the party no longer waits unless it is the last one to arrive; the answer to one that comes too late
    has the number of parties that had arrived, including this one.
    """

    id: bytes
    parties: int
    wait: bool = True


@dataclass(frozen=True)
class BarrierWithdraw(Askable[None]):
    """Stop waiting."""

    id: bytes


@dataclass(frozen=True)
class Break(Askable[None]):
    """Send all waiting parties away."""


@dataclass(frozen=True)
class BarrierState:
    """The parties that passed last. Waiting parties are not stored: each repeats its request."""

    passed: tuple[bytes, ...] = ()


@dataclass(slots=True)
class _Party:
    reply: Ref[tuple[BarrierOutcome, int]]
    seen: float


@actor(initial=BarrierState(), write="majority")
async def barrier(ctx: Context[BarrierState, Arrive | BarrierWithdraw | Break]) -> None:
    """A reusable barrier."""
    waiting: dict[bytes, _Party] = {}
    parties = 0
    async for message in ctx.inbox:
        now = clock.monotonic()
        match message:
            case Arrive(id, wanted, wait):
                if id in ctx.state.value.passed:
                    message.reply_to.tell(("passed", 0))
                    continue
                waiting = {key: party for key, party in waiting.items() if now - party.seen < _GONE or key == id}
                if waiting.keys() - {id} and wanted != parties:
                    message.reply_to.tell(("mismatch", parties))
                    continue
                parties = wanted
                waiting[id] = _Party(message.reply_to, now)
                if len(waiting) == parties:
                    keep = max(_REMEMBERED, 4 * parties)
                    await ctx.state.set(BarrierState((*ctx.state.value.passed, *waiting)[-keep:]))
                    for party in waiting.values():
                        party.reply.tell(("passed", 0))
                    waiting = {}
                elif not wait:
                    message.reply_to.tell(("late", len(waiting)))
                    del waiting[id]
            case BarrierWithdraw(id):
                waiting.pop(id, None)
                message.reply_to.tell(None)
            case Break():
                for party in waiting.values():
                    party.reply.tell(("reset", 0))
                waiting = {}
                message.reply_to.tell(None)


class BarrierClient:
    """Client of a barrier, for one process in the cluster."""

    def __init__(self, address: "Address[Arrive | BarrierWithdraw | Break]") -> None:
        self._address = address

    async def wait(self, parties: int, within: float | None) -> tuple[BarrierOutcome, int]:
        """Wait until `parties` have arrived, at most `within` seconds.

        Returns:
            The outcome; if late, the number of parties that arrived; for a mismatch, that which the others expect.
        """
        id = fresh_id()
        try:
            if within is None or within > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(within):
                        return await self._address.wait(Arrive(id, parties))
            return await self._address.ask(Arrive(id, parties, wait=False))
        except asyncio.CancelledError:
            await self._address.withdraw(BarrierWithdraw(id))
            raise

    async def reset(self) -> None:
        """Send all waiting parties away."""
        await self._address.ask(Break())
