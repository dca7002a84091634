"""A channel and the agent that it talks to, in one process and in virtual time, over a link that does as it is told."""

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
from skyward.wire.protocol.messages import Cancel, Command, Commands, Event, Exchange, Started
from skyward.wire.transport.trust import Credentials
from skyward.worker.events.backlog import Backlog
from skyward.worker.runtime import replies
from skyward.worker.runtime.agent import Agent

__all__ = ["NOBODYS", "FarEnd", "Link", "Near", "run"]

NOBODYS = Credentials(b"", b"", b"")
"""Credentials for a link whose engine looks at none."""


class _JumpingSelector(selectors.SelectSelector):
    """Goes on to the time that the loop would sleep until."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen any more"
        self.now += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(monkeypatch: pytest.MonkeyPatch, talk: Callable[["Link"], Coroutine[Any, Any, None]]) -> None:
    """Run `talk` in virtual time, with a link of its own."""
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
    """The agent of a node without slots, which notes the commands that it would obey."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, 0, 0, Backlog(0, None), processes=False)
        self.obeyed: list[int] = []

    def _obey(self, command: Command) -> None:
        assert isinstance(command, Cancel)
        self.obeyed.append(command.task)

    def say(self, number: int) -> None:
        """Send event `number`."""
        self.replies.put(Started(number))


class Link:
    """What lies between the ends; it loses, doubles and delays as much as its attributes say.

    Attributes:
        up: whether anything gets through at all.
        loss, twice: how much of what is sent is lost, or comes twice.
        delay: seconds that a message takes at most; more than 0, and they overtake each other.
        broken: how many of the questions end with an error at once.
        messages: what was sent towards the node.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.up = True
        self.loss = self.twice = self.delay = self.broken = 0.0
        self.random = Random(0)
        self.messages: list[Commands | Exchange] = []
        self.far = FarEnd(loop)
        self.refuses = False
        self._loop = loop

    def client(self, **_: object) -> "Link":
        """In the place of the engine's client."""
        return self

    async def __aenter__(self) -> "Link":
        if self.refuses:
            raise ConnectionError("nobody listens")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.up = False

    def carry(self, deliver: Callable[[], None]) -> None:
        """Let a message through, or not."""
        copies = 0 if self.random.random() < self.loss else 2 if self.random.random() < self.twice else 1
        for _ in range(copies):
            self._loop.call_later(self.random.uniform(0, self.delay), lambda: deliver() if self.up else None)

    def tell(self, message: Commands) -> None:
        """In the place of the engine's reference."""
        self.messages.append(message)
        self.carry(lambda: self.far.receive(message))

    async def ask(self, question: Exchange) -> Any:
        """The same."""
        if self.random.random() < self.broken:
            raise ConnectionError("broken")
        answer: asyncio.Future[Any] = self._loop.create_future()

        def arrive(batch: Any) -> None:
            if not answer.done():
                answer.set_result(batch)

        back: Any = SimpleNamespace(tell=lambda batch: self.carry(lambda: arrive(batch)))
        asked = dataclasses.replace(question, reply_to=back)
        self.messages.append(asked)
        self.carry(lambda: self.far.receive(asked))
        return await answer


class Near:
    """The client's end."""

    def __init__(self, grace: float = 10_000.0) -> None:
        self.heard: list[int] = []
        self.lost: list[str] = []
        self.channel = Channel("node:1", NOBODYS, grace, self._hear, self.lost.append)

    def _hear(self, event: Event) -> None:
        assert isinstance(event, Started)
        self.heard.append(event.task)

    def say(self, number: int) -> None:
        """Send command `number`."""
        self.channel.send(Cancel(number))
