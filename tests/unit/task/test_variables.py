"""Variables of a task on the threads that it starts."""

import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skyward.task import variables as taskvar
from skyward.task.variables import TaskVar, run_with, snapshot

pytestmark = pytest.mark.unit


@pytest.fixture
def variable() -> Iterator[TaskVar[int]]:
    """Return a variable of this test."""
    made = TaskVar("of_a_test", default=0)
    yield made
    taskvar._variables.remove(made)


def on_thread(*call: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call[0](*call[1:])))
    thread.start()
    thread.join()
    return found.pop()


def test_thread_inherits_snapshot_until_it_sets_values(variable: TaskVar[int]) -> None:
    def change() -> tuple[int, int, int]:
        before = variable.get()
        token = variable.set(2)
        within = variable.get()
        variable.reset(token)
        return before, within, variable.get()

    token = variable.set(1)
    values = snapshot()
    variable.reset(token)
    assert on_thread(run_with, values, change) == (1, 2, 1)
    assert on_thread(variable.get) == 0
    assert variable.get() == 0


def test_values_reach_an_empty_context_and_the_next_thread(variable: TaskVar[int]) -> None:
    def nested() -> Any:
        return contextvars.Context().run(variable.get), on_thread(run_with, snapshot(), variable.get)

    assert run_with({variable: 3}, nested) == (3, 3)


def test_previous_values_are_restored_after_the_call(variable: TaskVar[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        run_with({variable: 3}, lambda: 1 // 0)
    assert variable.get() == 0
    assert variable not in snapshot()
