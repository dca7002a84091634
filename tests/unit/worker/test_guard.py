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
    """Call `call` on another thread, once the user's code runs."""

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


def test_blocking_call_on_the_main_thread_is_interrupted() -> None:
    guard, begun, over = ThreadGuard(), threading.Event(), threading.Event()

    def insist() -> None:  # a signal just before the call blocks does not end it
        while not over.wait(0.1):
            guard.interrupt("cancelled")

    def work() -> None:
        begun.set()
        threading.Event().wait(50)
        pytest.fail("the call was not interrupted")

    thread = later(insist, begun)
    with pytest.raises(Interrupted):
        guard.run(work)
    over.set()
    thread.join(10)


def test_shielded_block_ends_before_the_interrupt() -> None:
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
def test_code_that_catches_an_interrupt_is_interrupted_again(on: Callable[..., None]) -> None:
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
def test_code_outside_the_guard_is_not_interrupted(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()
        guard.interrupt("cancelled")
        assert guard.run(lambda: 3) == 3
        guard.interrupt("cancelled")
        assert sum(range(10_000)) == 49_995_000
        assert guard.reason is None

    on(test)


@either
def test_user_error_propagates_and_closes_the_guard(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()
        with pytest.raises(ValueError, match="substring"):
            guard.run(lambda: "".index("x"))
        guard.interrupt("cancelled")
        assert sum(range(10_000)) == 49_995_000

    on(test)


@either
def test_interrupt_during_closing_leaves_the_guard_closed(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()
        leave, due = guard._leave, [Interrupted()]

        def interrupted() -> None:
            """Raise where the interpreter checks for interrupts: at the start of the function."""
            if due:
                raise due.pop()
            leave()

        guard._leave = interrupted  # type: ignore[method-assign]  # this point is not hit by chance
        with pytest.raises(Interrupted):
            guard.run(lambda: 3)
        guard.interrupt("cancelled")
        assert sum(range(10_000)) == 49_995_000
        assert guard.reason is None

    on(test)


@either
def test_interrupts_in_quick_succession_are_merged(on: Callable[..., None]) -> None:
    def test() -> None:
        guard = ThreadGuard()

        def work() -> str:
            try:
                guard.interrupt("cancelled")
                for _ in range(100):
                    time.sleep(0.001)
            except KeyboardInterrupt:
                guard.interrupt("timeout")  # as by a second thread at the same time
            return "ended by itself"

        assert guard.run(work) == "ended by itself"
        assert guard.reason == "cancelled"

    on(test)


@either
def test_late_interrupt_never_lands_outside_the_guard(on: Callable[..., None]) -> None:
    """A thread interrupts continuously during short calls. Each call returns or raises `Interrupted`."""

    def test() -> None:
        guard, stop = ThreadGuard(), threading.Event()

        def hammer() -> None:
            while not stop.is_set():
                guard.interrupt("cancelled")

        thread = threading.Thread(target=hammer, daemon=True)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that the threads interleave at every point
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
def test_coroutine_is_cancelled_before_it_is_interrupted(on: Callable[..., None]) -> None:
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
        with pytest.raises((Interrupted, asyncio.CancelledError)):  # whichever arrives first
            guard.run(lambda: run_coroutine(stubborn(), guard))
        over.set()
        thread.join(10)
        assert seen[0] == "cancelled"
        assert guard.reason == "cancelled"

    on(test)


@either
def test_interrupt_as_the_loop_closes_leaves_no_loop_open(
    on: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    close, due = asyncio.Runner.close, [Interrupted()]

    def interrupted(runner: asyncio.Runner) -> None:
        """Raise where the interpreter checks for interrupts: at the start of the function."""
        if due:
            raise due.pop()
        close(runner)

    def test() -> None:
        loops = []

        async def work() -> None:
            loops.append(asyncio.get_running_loop())

        guard = ThreadGuard()
        with pytest.raises(Interrupted):
            guard.run(lambda: run_coroutine(work(), guard))
        assert [loop.is_closed() for loop in loops] == [True]

    monkeypatch.setattr(asyncio.Runner, "close", interrupted)
    on(test)


def test_coroutine_that_ends_after_cancellation_is_not_interrupted() -> None:
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
