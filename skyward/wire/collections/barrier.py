"""A barrier: one actor. Those who wait say so again every few seconds, so that it outlives the node it is on."""

import asyncio
from dataclasses import dataclass

from casty import Askable, Context, Ref, actor

from skyward.process.clock import clock
from skyward.wire.collections.ask import REASK, Address, fresh_id

__all__ = ["Barrier", "Meeting", "barrier"]

_GONE = 4 * REASK
"""Seconds after which one who has not said again that he waits is gone."""

_REMEMBERED = 64


@dataclass(frozen=True)
class Arrive(Askable[str]):
    """Wait for `parties` in all: "" when they are there, or why not."""

    id: bytes
    parties: int


@dataclass(frozen=True)
class Withdraw(Askable[int]):
    """Wait no longer: how many wait, or 0 when all were there already."""

    id: bytes


@dataclass(frozen=True)
class Break(Askable[None]):
    """Send away all who wait."""


@dataclass(frozen=True)
class Barrier:
    """Who went through last. Who waits is not kept: each of them will say so again."""

    passed: tuple[bytes, ...] = ()


@dataclass(slots=True)
class _Party:
    reply: Ref[str]
    seen: float


@actor(initial=Barrier(), write="majority")
async def barrier(ctx: Context[Barrier, Arrive | Withdraw | Break]) -> None:
    """A barrier that is used again and again."""
    waiting: dict[bytes, _Party] = {}
    parties = 0
    async for message in ctx.inbox:
        now = clock.monotonic()
        match message:
            case Arrive(id, wanted):
                if id in ctx.state.value.passed:
                    message.reply_to.tell("")
                    continue
                waiting = {key: party for key, party in waiting.items() if now - party.seen < _GONE or key == id}
                if waiting.keys() - {id} and wanted != parties:
                    message.reply_to.tell(f"it is for {wanted} parties here, and those who wait are of {parties}")
                    continue
                parties = wanted
                waiting[id] = _Party(message.reply_to, now)
                if len(waiting) == parties:
                    keep = max(_REMEMBERED, 4 * parties)
                    await ctx.state.set(Barrier((*ctx.state.value.passed, *waiting)[-keep:]))
                    for party in waiting.values():
                        party.reply.tell("")
                    waiting = {}
            case Withdraw(id):
                present = len(waiting)
                waiting.pop(id, None)
                message.reply_to.tell(0 if id in ctx.state.value.passed else max(1, present))
            case Break():
                for party in waiting.values():
                    party.reply.tell("it was reset")
                waiting = {}
                message.reply_to.tell(None)


class Meeting:
    """A barrier, from a process in the cluster."""

    def __init__(self, address: "Address[Arrive | Withdraw | Break]") -> None:
        self._address = address

    async def wait(self, parties: int, within: float | None) -> tuple[str, int]:
        """Wait until so many are there, at most `within` seconds.

        Returns:
            "" or why not, such as "late"; and then how many were there.
        """
        id = fresh_id()
        try:
            async with asyncio.timeout(within):
                return await self._address.wait(Arrive(id, parties)), 0
        except TimeoutError:
            there = await self._address.ask(Withdraw(id))
            return ("late", there) if there else ("", 0)
        except asyncio.CancelledError:
            await self._address.take_back(Withdraw(id))
            raise

    async def reset(self) -> None:
        """Send away all who wait."""
        await self._address.ask(Break())
