"""A condition whose waiters and notifiers are interrupted at any step."""

import ctypes
import threading

import pytest

from skyward.process.conditions import LockedCondition
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

ROUNDS = 100


class Interrupted(BaseException):
    """Raised in a thread by another one."""


def test_lock_is_free_after_any_interrupt() -> None:
    """A thread takes and releases the lock without a pause, and is interrupted again and again."""
    condition = LockedCondition()
    over = threading.Event()
    caught = entered = 0

    def work() -> None:
        nonlocal caught, entered
        while not over.is_set():
            try:
                while True:
                    with condition.lock:
                        entered += 1
            except Interrupted:
                caught += 1

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert thread.ident is not None
    for number in range(ROUNDS):
        before = entered
        wait_for(lambda before=before: entered > before, "the thread to go on")  # type: ignore[misc]  # binds it
        if number == ROUNDS - 1:
            over.set()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted))
        wait_for(lambda number=number: caught > number, "the interrupt")  # type: ignore[misc]  # binds it
        assert condition.lock.acquire(timeout=30), "an interrupted thread holds the lock"
        condition.lock.release()
    thread.join(30)
    assert not thread.is_alive()


def test_condition_itself_is_not_entered() -> None:
    with pytest.raises(RuntimeError, match="Enter the lock"), LockedCondition():
        pass
