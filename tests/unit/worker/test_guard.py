"""Interrupts of user code: they land inside it and nowhere else, on the main thread and on any other."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from skyward.worker.tasks.coroutines import run_coroutine
from skyward.worker.tasks.guard import Interrupted, ThreadGuard

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _same_handler() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def on_main(test: Callable[[], None]) -> None:
    test()


def on_another(test: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(test).result(20)


either = pytest.mark.parametrize("on", [on_main, on_another])


def later(call: Callable[[], object], begun: threading.Event) -> threading.Thread:
    """Call on another thread, once the user's code runs."""

    def wait_and_call() -> None:
        begun.wait(10)
        call()

    thread = threading.Thread(target=wait_and_call, daemon=True)
    thread.start()
    return thread


@either
def test_user_code_is_interrupted_and_sees_a_keyboard_interrupt(on: Callable[..., None]) -> None:
    def test() -> None:
        guard, begun, seen = ThreadGuard(), threading.Event(), []

        def work() -> None:
            try:
                begun.set()
                while True:
                    time.sleep(0.001)
            except KeyboardInterrupt as error:
                seen.append(type(error))
                raise

        thread = later(lambda: guard.interrupt("timeout"), begun)
        with pytest.raises(Interrupted):
            guard.run(work)
        thread.join(10)
        assert seen == [Interrupted]
        assert guard.reason == "timeout"

    on(test)


def test_on_the_main_thread_even_a_blocking_call_ends() -> None:
    guard, begun, over = ThreadGuard(), threading.Event(), threading.Event()

    def insist() -> None:  # a signal that comes just before the call blocks is not noticed by it
        while not over.wait(0.1):
            guard.interrupt("cancelled")

    def work() -> None:
        begun.set()
        threading.Event().wait(50)
        pytest.fail("the call went on")

    thread = later(insist, begun)
    with pytest.raises(Interrupted):
        guard.run(work)
    over.set()
    thread.join(10)


def test_what_is_shielded_ends_before_it_is_interrupted() -> None:
    guard, done, after = ThreadGuard(), [], []

    def work() -> None:
        with guard.shielded():
            guard.interrupt("cancelled")
            done.append(True)
        after.append(True)

    with pytest.raises(Interrupted):
        guard.run(work)
    assert (done, after) == ([True], [])


@either
def test_what_is_interrupted_once_may_be_again(on: Callable[..., None]) -> None:
    def test() -> None:
        guard, begun, over = ThreadGuard(), threading.Event(), threading.Event()
        caught = []

        def insist() -> None:
            while not over.wait(0.01):
                guard.interrupt("cancelled")

        def stubborn() -> None:
            try:
                begun.set()
                while True:
                    time.sleep(0.001)
            except KeyboardInterrupt:
                caught.append(True)
            while True:
                time.sleep(0.001)

        thread = later(insist, begun)
        with pytest.raises(Interrupted):
            guard.run(stubborn)
        over.set()
        thread.join(10)
        assert caught == [True]

    on(test)


@either
def test_outside_user_code_nothing_is_interrupted(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()
        guard.interrupt("cancelled")
        assert guard.run(lambda: 3) == 3
        guard.interrupt("cancelled")
        assert sum(range(10_000)) == 49_995_000
        assert guard.reason is None

    on(test)


@either
def test_an_error_of_the_user_comes_through_and_closes_the_guard(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()
        with pytest.raises(ValueError, match="substring"):
            guard.run(lambda: "".index("x"))
        guard.interrupt("cancelled")
        assert sum(range(10_000)) == 49_995_000

    on(test)


@either
def test_an_interrupt_on_the_way_out_leaves_the_guard_closed(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()
        leave, due = guard._leave, [Interrupted()]

        def interrupted() -> None:
            """Where the interpreter looks for interrupts: as the function begins."""
            if due:
                raise due.pop()
            leave()

        guard._leave = interrupted  # type: ignore[method-assign]  # the one point that no test hits by chance
        with pytest.raises(Interrupted):
            guard.run(lambda: 3)
        guard.interrupt("cancelled")
        assert sum(range(10_000)) == 49_995_000
        assert guard.reason is None

    on(test)


@either
def test_interrupts_that_come_together_are_one(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()

        def work() -> str:
            try:
                guard.interrupt("cancelled")
                for _ in range(100):
                    time.sleep(0.001)
            except KeyboardInterrupt:
                guard.interrupt("timeout")  # the other one may just have been decided on
            return "ended by itself"

        assert guard.run(work) == "ended by itself"
        assert guard.reason == "cancelled"

    on(test)


@either
def test_an_interrupt_at_the_very_end_never_lands_outside(on: Callable[..., None]) -> None:
    """A thread interrupts all the time while short calls come and go. Each ends with its result or interrupted."""

    def test() -> None:
        guard, stop = ThreadGuard(), threading.Event()

        def hammer() -> None:
            while not stop.is_set():
                guard.interrupt("cancelled")

        thread = threading.Thread(target=hammer, daemon=True)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that the threads meet at every point there is
        outcomes = {True: 0, False: 0}
        try:
            thread.start()
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                try:
                    finished = guard.run(lambda: sum(range(200))) > 0
                except Interrupted:
                    finished = False
                outcomes[finished] += 1
        finally:
            stop.set()
            sys.setswitchinterval(interval)
            thread.join(10)
        assert outcomes[True]

    on(test)


@either
def test_a_coroutine_is_cancelled_first_and_interrupted_then(on: Callable[..., None]) -> None:
    def test() -> None:
        guard, begun, over = ThreadGuard(), threading.Event(), threading.Event()
        seen: list[str] = []

        def insist() -> None:
            while not over.wait(0.01):
                guard.interrupt("cancelled")

        async def stubborn() -> None:
            try:
                begun.set()
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                seen.append("cancelled")
            try:
                await asyncio.sleep(50)
            except asyncio.CancelledError:
                seen.append("again")
                raise

        thread = later(insist, begun)
        with pytest.raises((Interrupted, asyncio.CancelledError)):  # whichever of the two arrives first
            guard.run(lambda: run_coroutine(stubborn(), guard))
        over.set()
        thread.join(10)
        assert seen[0] == "cancelled"
        assert guard.reason == "cancelled"

    on(test)


def test_a_coroutine_that_ends_when_it_is_cancelled_is_not_interrupted() -> None:
    guard = ThreadGuard()

    async def tidy() -> str:
        try:
            guard.interrupt("timeout")
            await asyncio.sleep(50)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            return "tidied up"
        return "not cancelled"

    assert guard.run(lambda: run_coroutine(tidy(), guard)) == "tidied up"
