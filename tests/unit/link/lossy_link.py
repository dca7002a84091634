"""A channel and its agent, in one process and in virtual time, over a link with configurable faults."""

import asyncio
import dataclasses
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from skyward.link import channel as channels
from skyward.link.channel import Channel
from skyward.wire.protocol.messages import Cancel, Commands, Exchange, NodeCommand, Started, WorkerEvent
from skyward.wire.transport.trust import Credentials
from skyward.worker.events.backlog import Backlog
from skyward.worker.runtime import replies
from skyward.worker.runtime.agent import Agent

__all__ = ["NO_CREDENTIALS", "FarEnd", "Link", "Near", "run"]

NO_CREDENTIALS = Credentials(b"", b"", b"")
"""Credentials for a link whose engine does not check them."""


class _JumpingSelector(selectors.SelectSelector):
    """Selector that advances to the time until which the loop would sleep."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "the loop would block forever"
        self.now += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def stall(self, seconds: float) -> None:
        """Let time pass without a turn of the loop."""
        self._jumping.now += seconds


def run(monkeypatch: pytest.MonkeyPatch, talk: Callable[["Link"], Coroutine[Any, Any, None]]) -> None:
    """Run `talk` in virtual time, with a new link."""
    loop = _VirtualLoop()
    link = Link(loop)
    monkeypatch.setattr(channels, "Client", link.client)
    monkeypatch.setattr(channels, "engine_runtime", lambda: None)
    monkeypatch.setattr(channels, "reference", lambda *_: link)
    monkeypatch.setattr(replies, "clock", SimpleNamespace(monotonic=loop.time))
    try:
        loop.run_until_complete(talk(link))
    finally:
        loop.close()


class FarEnd(Agent):
    """Agent of a node without slots, which records its commands."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, 0, 0, Backlog(0, None), processes=False)
        self.applied: list[int] = []

    def _apply(self, command: NodeCommand) -> None:
        assert isinstance(command, Cancel)
        self.applied.append(command.task)

    def say(self, number: int) -> None:
        """Send event `number`."""
        self.replies.put(Started(number))


class Link:
    """Link between the two ends, which loses, duplicates and delays messages.

    Attributes:
        up: True if messages get through at all.
        loss, twice: fractions of messages that are lost, or arrive twice.
        delay: longest delay of a message, in seconds; if it is positive, messages overtake each other.
        broken: fraction of exchanges that fail at once.
        messages: messages that were sent towards the node.
    """

    def __init__(self, loop: "_VirtualLoop") -> None:
        self.up = True
        self.loss = self.twice = self.delay = self.broken = 0.0
        self.random = Random(0)
        self.messages: list[Commands | Exchange] = []
        self.far = FarEnd(loop)
        self.refuses = False
        self._loop = loop

    def client(self, **_: object) -> "Link":
        """Stand in for the engine's client."""
        return self

    async def __aenter__(self) -> "Link":
        if self.refuses:
            raise ConnectionError("connection refused")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.up = False

    def stall(self, seconds: float) -> None:
        """Let time pass without a turn of the loop, as while the process of the near end is suspended."""
        self._loop.stall(seconds)

    def carry(self, deliver: Callable[[], None]) -> None:
        """Deliver a message never, once or twice."""
        copies = 0 if self.random.random() < self.loss else 2 if self.random.random() < self.twice else 1
        for _ in range(copies):
            self._loop.call_later(self.random.uniform(0, self.delay), lambda: deliver() if self.up else None)

    def tell(self, message: Commands) -> None:
        """Stand in for `tell` of the engine's reference."""
        self.messages.append(message)
        self.carry(lambda: self.far.receive(message))

    async def ask(self, exchange: Exchange) -> Any:
        """Stand in for `ask` of the engine's reference."""
        if self.random.random() < self.broken:
            raise ConnectionError("broken")
        answer: asyncio.Future[Any] = self._loop.create_future()

        def arrive(batch: Any) -> None:
            if not answer.done():
                answer.set_result(batch)

        back: Any = SimpleNamespace(tell=lambda batch: self.carry(lambda: arrive(batch)))
        sent = dataclasses.replace(exchange, reply_to=back)
        self.messages.append(sent)
        self.carry(lambda: self.far.receive(sent))
        return await answer


class Near:
    """The client's end."""

    def __init__(self, grace: float = 10_000.0) -> None:
        self.received: list[int] = []
        self.lost: list[str] = []
        self.channel = Channel("node:1", NO_CREDENTIALS, grace, self._receive, self.lost.append)

    def _receive(self, event: WorkerEvent) -> None:
        assert isinstance(event, Started)
        self.received.append(event.task)

    def say(self, number: int) -> None:
        """Send command `number`."""
        self.channel.send(Cancel(number))
