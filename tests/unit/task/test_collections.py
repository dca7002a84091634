"""Waiting for the answer to an operation, off the main thread."""

import threading
from concurrent.futures import Future

import pytest

from skyward.task.collections.base import wait

pytestmark = pytest.mark.unit


class Late(Future[str]):
    """A future that gets its answer just when a wait for it has timed out."""

    def result(self, timeout: float | None = None) -> str:
        if not self.done():
            self.set_result("the answer")
            raise TimeoutError
        return super().result(timeout)


def waited(future: Future[str]) -> str | BaseException | None:
    """Return the result of a wait, or its exception, on a separate thread."""
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


def test_answer_arriving_at_timeout_is_returned() -> None:
    assert waited(Late()) == "the answer"


def test_timeout_error_of_the_operation_is_raised() -> None:
    future, error = Future[str](), TimeoutError("no answer")
    future.set_exception(error)
    assert waited(future) is error
