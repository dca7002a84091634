"""Waiting for the answer to an operation, off the main thread."""

import threading
from concurrent.futures import Future

import pytest

from skyward.task.collections.base import wait

pytestmark = pytest.mark.unit


class Late(Future[str]):
    """One that is answered just when a wait for it has timed out."""

    def result(self, timeout: float | None = None) -> str:
        if not self.done():
            self.set_result("the answer")
            raise TimeoutError
        return super().result(timeout)


def waited(future: Future[str]) -> str | BaseException | None:
    """What a wait gives or raises, on a thread of its own."""
    came: list[str | BaseException] = []

    def run() -> None:
        try:
            came.append(wait(future))
        except BaseException as error:
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    return came[0] if came else None


def test_an_answer_that_comes_as_the_wait_times_out_is_the_result() -> None:
    assert waited(Late()) == "the answer"


def test_an_operation_that_failed_with_a_timeout_fails_with_that() -> None:
    future, error = Future[str](), TimeoutError("nobody came")
    future.set_exception(error)
    assert waited(future) is error
