"""The channel to a node: over a link that loses, duplicates and reorders, messages arrive once and in order."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skyward.errors import NodeStartError
from skyward.link.channel import ANSWER_WITHIN
from skyward.wire.protocol.messages import BATCH_BYTES, Code, Commands, Exchange, Payload
from tests.unit.link.lossy_link import Link, Near, run

pytestmark = pytest.mark.unit

type Talk = Callable[[Callable[[Link], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Talk:
    return lambda scenario: run(monkeypatch, scenario)


async def connected(link: Link, **options: Any) -> Near:
    near = Near(**options)
    await near.channel.connect()
    link.far.replies.beat()
    return near


async def until(condition: Callable[[], bool], seconds: float = 1000.0) -> None:
    """Let virtual time pass until `condition` holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # virtual time needs no event
            await asyncio.sleep(0.05)


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    twice=st.sampled_from([0.0, 0.2]),
    delay=st.sampled_from([0.0, 0.01, 0.5]),
    broken=st.sampled_from([0.0, 0.1]),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_everything_arrives_once_and_in_order(
    talk: Talk, seed: int, loss: float, twice: float, delay: float, broken: float
) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        link.random.seed(seed)
        link.loss, link.twice, link.delay, link.broken = loss, twice, delay, broken
        commands = events = 0
        for _ in range(30):
            for _ in range(link.random.choice((0, 1, 5))):
                near.say(commands)
                commands += 1
            for _ in range(link.random.choice((0, 1, 5))):
                link.far.say(events)
                events += 1
            await asyncio.sleep(link.random.choice((0.0, 0.01, 0.3)))
        await until(lambda: len(link.far.applied) >= commands and len(near.received) >= events)
        await asyncio.sleep(10)  # duplicates do not arrive later
        assert link.far.applied == list(range(commands))
        assert near.received == list(range(events))
        assert near.lost == []
        await near.channel.close()

    talk(scenario)


def test_messages_sent_during_an_outage_arrive_after_it(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        await asyncio.sleep(2)
        link.up = False
        near.say(0)
        link.far.say(0)
        await asyncio.sleep(60)
        assert (near.received, link.far.applied, near.lost) == ([], [], [])
        link.up = True
        await until(lambda: near.received == [0] and link.far.applied == [0], ANSWER_WITHIN + 2)
        await near.channel.close()

    talk(scenario)


def test_events_of_a_lost_last_answer_are_sent_again(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        link.twice = 1.0
        near.say(0)  # the exchange arrives twice, so one of its answers is dropped
        await asyncio.sleep(0.01)
        link.twice = 0.0
        for number in range(2):
            link.far.say(number)
            await asyncio.sleep(0.01)
        await until(lambda: near.received == [0, 1], 10.0)
        await near.channel.close()

    talk(scenario)


def test_lost_command_is_sent_again_before_the_node_counts_as_silent(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        link.loss = 1.0
        near.say(0)
        await asyncio.sleep(0.01)
        link.loss = 0.0
        await until(lambda: link.far.applied == [0], ANSWER_WITHIN)
        await near.channel.close()

    talk(scenario)


def test_node_silent_for_longer_than_its_grace_is_lost_once(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        loop = asyncio.get_running_loop()
        near = await connected(link, grace=20.0)
        await asyncio.sleep(5)
        link.up = False
        since = loop.time()
        await until(lambda: bool(near.lost))
        assert 19.0 <= loop.time() - since <= 20.0 + 2 * ANSWER_WITHIN
        link.up = True
        link.far.say(1)
        await asyncio.sleep(60)
        assert near.received == []
        (reason,) = near.lost
        assert re.fullmatch(r"no answer for 2\d s", reason)
        await near.channel.close()

    talk(scenario)


def test_time_in_which_the_client_was_suspended_does_not_count_as_silence(talk: Talk) -> None:
    """Regression: after Ctrl-Z and `fg` all nodes were lost, and their tasks ran twice."""

    async def scenario(link: Link) -> None:
        loop = asyncio.get_running_loop()
        near = await connected(link, grace=20.0)
        await asyncio.sleep(5)
        link.broken = 1.0  # exchanges fail as soon as the client runs again
        near.say(0)
        link.stall(100.0)
        await asyncio.sleep(1)
        link.broken = 0.0
        await until(lambda: link.far.applied == [0], 10.0)
        assert near.lost == []
        link.up = False
        since = loop.time()
        await until(lambda: bool(near.lost))
        assert 19.0 <= loop.time() - since <= 20.0 + 2 * ANSWER_WITHIN
        await near.channel.close()

    talk(scenario)


def test_idle_node_exchanges_heartbeats_only(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link, grace=20.0)
        await asyncio.sleep(100)
        assert near.lost == []
        assert 60 <= len(link.messages) <= 210  # about one a second
        await near.channel.close()

    talk(scenario)


def test_commands_of_one_turn_are_sent_in_one_message(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        before = len(link.messages)
        for number in range(100):
            near.say(number)
        await asyncio.sleep(0)
        assert [len(message.items) for message in link.messages[before:]] == [100]
        await until(lambda: len(link.far.applied) == 100, 0.2)
        await near.channel.close()

    talk(scenario)


def test_messages_do_not_exceed_a_batch(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        before = len(link.messages)
        codes = [Code(bytes([number]), Payload(bytes(BATCH_BYTES // 3))) for number in range(8)]
        codes.append(Code(b"large", Payload(bytes(2 * BATCH_BYTES))))
        for code in codes:
            near.channel.send(code)
        near.channel.flush()
        sent = link.messages[before:]
        assert [item for message in sent for item in message.items] == codes
        assert [message.first for message in sent] == [1, 3, 5, 7, 9]
        sizes = [sum(BATCH_BYTES // 3 for item in message.items if item in codes[:8]) for message in sent]
        assert all(size <= BATCH_BYTES for size in sizes)
        assert all(isinstance(message, Commands) for message in sent[1:-1])
        assert isinstance(sent[-1], Exchange | Commands)
        near.channel._closed = True  # the far end expects no code
        link.up = False
        await near.channel.close()

    talk(scenario)


def test_close_sends_queued_commands_and_is_idempotent(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        near = await connected(link)
        near.say(0)
        await near.channel.close()
        assert link.messages[-1].items[0].task == 0  # type: ignore[union-attr]  # it is the command above
        count = len(link.messages)
        await near.channel.close()
        await asyncio.sleep(20)
        assert len(link.messages) == count
        assert near.lost == []

    talk(scenario)


def test_connecting_to_a_missing_node_fails(talk: Talk) -> None:
    async def scenario(link: Link) -> None:
        link.refuses = True
        with pytest.raises(NodeStartError, match=r"^the worker at node:1 cannot be reached: connection refused$"):
            await Near().channel.connect()

    talk(scenario)
