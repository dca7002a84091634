"""Queues, barriers and locks of one process: the outcomes of `get`, `wait` and `acquire`."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from casty import ActorSystem

from skyward.errors import SpecError
from skyward.task.collections.barrier_lock import Barrier
from skyward.task.collections.factory import CollectionFactory
from skyward.wire.collections.hub import Hub
from skyward.wire.collections.requests import CollectionRequest
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


class LocalBackend:
    """The collections of a cluster of one, on a loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ended = asyncio.Event()
        self.hub: Future[Hub] = Future()
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._run()))
        self.thread.start()

    async def _run(self) -> None:
        async with ActorSystem() as system:
            hub = Hub(system, lambda _: None)
            self.hub.set_result(hub)
            await self.ended.wait()
            hub.close()

    def ask(self, request: CollectionRequest) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self.hub.result(20).perform(request), self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(20)
        self.loop.close()


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    backend = LocalBackend()
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def collections(backend: LocalBackend) -> CollectionFactory:
    return CollectionFactory(backend)


def test_item_none_is_not_an_empty_queue(collections: CollectionFactory) -> None:
    work, empty = collections.queue("work"), object()
    work.put(None)
    assert work.get(timeout=20, default=empty) is None
    assert work.get(timeout=0, default=empty) is empty
    work.put(None)
    assert asyncio.run(work.get_async(timeout=20, default=empty)) is None
    assert asyncio.run(work.get_async(timeout=0, default=empty)) is empty


class Party:
    """A thread that waits at a barrier, and the error of its wait."""

    def __init__(self, barrier: Barrier) -> None:
        self.error: BaseException | None = None
        self._barrier = barrier
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._barrier.wait(30)
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        """Reset the barrier until this party has left it, and return its error."""

        def has_left() -> bool:
            self._barrier.reset()
            return not self._thread.is_alive()

        wait_for(has_left, "the party to leave")
        return self.error


def test_reset_breaks_the_barrier_for_waiting_parties(collections: CollectionFactory) -> None:
    error = Party(collections.barrier("reset", 2)).end()
    assert type(error) is threading.BrokenBarrierError
    assert str(error) == "Barrier 'reset' was reset."


def test_barrier_with_another_number_of_parties_is_refused(collections: CollectionFactory) -> None:
    parties = [Party(collections.barrier("mismatch", n)) for n in (2, 3)]
    wait_for(lambda: any(each.error for each in parties), "the second one to be refused")
    errors = {str(each.end()) for each in parties}
    refusal = "Barrier 'mismatch': this call asks for {} parties, and the waiting ones for {}."
    assert errors in [{refusal.format(*each), "Barrier 'mismatch' was reset."} for each in ((2, 3), (3, 2))]


def test_late_party_is_told_how_many_arrived(collections: CollectionFactory) -> None:
    with pytest.raises(TimeoutError, match=r"^Barrier 'late': 1 of 2 parties arrived within 0.05 s\.$"):
        collections.barrier("late", 2).wait(0.05)


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan"), "1", True])
def test_invalid_timeout_of_a_lock_is_refused_in_one_sentence(collections: CollectionFactory, timeout: Any) -> None:
    lock = collections.lock("lock")
    with pytest.raises(SpecError) as caught:
        lock.acquire(timeout)
    assert str(caught.value) == f"timeout must be seconds, or None to wait without a limit, but got {timeout!r}."
    with pytest.raises(SpecError):
        asyncio.run(lock.acquire_async(timeout))
    with pytest.raises(SpecError):
        collections.lock("other", timeout)


def test_lock_waits_its_own_timeout_by_default_and_without_a_limit_for_none(collections: CollectionFactory) -> None:
    lock, impatient = collections.lock("mine", timeout=None), collections.lock("mine", timeout=0)
    errors: list[str] = []
    granted: list[bool] = []

    def compete() -> None:
        try:
            impatient.acquire()
        except TimeoutError as error:
            errors.append(str(error))
        granted.append(impatient.acquire(None))
        impatient.release()

    with lock:
        other = threading.Thread(target=compete)
        other.start()
        wait_for(lambda: errors, "the other to give up")
    other.join(20)
    assert (errors, granted) == (["Lock 'mine' was not free within 0 s."], [True])
