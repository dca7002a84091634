"""Waiting for a condition, never for a number of seconds."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

__all__ = ["PATIENCE", "interrupt_when", "wait_for", "wait_for_async"]

PATIENCE = 60.0
"""Seconds that a condition has to come true, on a machine that is busy with other tests."""

_EVERY = 0.005


def wait_for(condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
    """Wait until a condition holds; fail the test otherwise, naming `what` it waited for."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {within:g} s for {what}")
        time.sleep(_EVERY)


async def wait_for_async(condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
    """Wait in a coroutine until a condition holds; fail the test otherwise, naming `what` it waited for."""
    try:
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110  # the condition is one of another process, which sets no event
                await asyncio.sleep(_EVERY)
    except TimeoutError:
        pytest.fail(f"waited {within:g} s for {what}")


@contextmanager
def interrupt_when(condition: Callable[[], object], what: str) -> Iterator[None]:
    """Interrupt this process, as CTRL-C does, when a condition holds; wait at the end until that has happened."""

    def interrupt() -> None:
        wait_for(condition, what)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
