"""Answering the client from several threads. The engine's loop is there, and does not run."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skyward.wire.protocol.messages import Batch, Code, Commands, Exchange, Finished, Payload, Reported, Started, Submit
from skyward.worker.events.backlog import Backlog
from skyward.worker.runtime.agent import Agent
from skyward.worker.runtime.replies import Replies

pytestmark = pytest.mark.unit


class Asker:
    """In the place of the engine's reference to who asked: has the batches in the order in which they were told."""

    def __init__(self) -> None:
        self.heard: list[Batch] = []

    def tell(self, batch: Batch) -> None:
        self.heard.append(batch)

    def question(self) -> Exchange:
        reply_to: Any = self
        return Exchange(first=1, reply_to=reply_to)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.usefixtures("hasty")
def test_answers_of_many_threads_leave_in_the_order_of_their_numbers(loop: asyncio.AbstractEventLoop) -> None:
    """Or the client takes the one that comes later to be lost, and has everything sent again."""
    replies = Replies(loop, Backlog(0, None), lambda: Reported((), (), 0))
    asker = Asker()
    threads, each = 4, 500

    def say() -> None:
        for number in range(each):
            replies.say(Started(number))

    saying = [threading.Thread(target=say) for _ in range(threads)]
    for thread in saying:
        thread.start()
    while any(thread.is_alive() for thread in saying) or replies.outbox.pending:
        replies.park(asker.question())
        replies.flush()
    next_number = 1
    for batch in asker.heard:
        assert batch.first == next_number
        next_number += len(batch.events)
    assert next_number == threads * each + 1


def test_the_end_of_the_last_task_waits_for_no_other_thread(loop: asyncio.AbstractEventLoop) -> None:
    """The thread that ran it answers; that of the engine may be waiting for another's turn with the interpreter."""
    agent = Agent(loop, 0, 1, Backlog(0, None), processes=False)
    asker = Asker()
    agent.receive(asker.question())
    agent._finished(Finished(1, "value", Payload(b""), 0.0))
    assert [event.task for batch in asker.heard for event in batch.events] == [1]


def test_the_ends_of_tasks_go_together_where_others_wait(loop: asyncio.AbstractEventLoop) -> None:
    """Each in a message of its own would cost the client more than they are worth."""
    agent = Agent(loop, 0, 1, Backlog(0, None), processes=False)
    asker = Asker()
    agent.receive(asker.question())
    code = Code(b"c", Payload(b""), "f")
    submitted = Submit(3, 0, b"c", Payload(b""))
    agent.receive(Commands(1, (code, submitted)))
    agent._finished(Finished(1, "value", Payload(b""), 0.0))
    agent._finished(Finished(2, "value", Payload(b""), 0.0))
    assert not asker.heard
    loop.call_soon(loop.stop)  # one turn, of what was to be done soon
    loop.run_forever()
    assert [[event.task for event in batch.events] for batch in asker.heard] == [[1, 2]]
