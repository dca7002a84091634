"""Pools of real worker processes for the tests of this tier."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import skyward as sky

type Wait = Callable[[Callable[[], object], str], None]


class Recorder:
    """A sink that records everything."""

    def __init__(self) -> None:
        self.written: list[tuple[int, str, str]] = []
        self.displayed: list[tuple[int, dict[str, Any]]] = []
        self.ended: list[int] = []

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        self.written.append((node, stream, text))

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        self.displayed.append((node, data))

    def task_ended(self, node: int) -> None:
        self.ended.append(node)

    def text(self, stream: str) -> str:
        return "".join(text for _, name, text in self.written if name == stream)


@pytest.fixture(scope="module")
def pool() -> Iterator[sky.Compute]:
    """Two nodes with one slot each, shared by the tests of a module that leave it unchanged."""
    with sky.Compute(nodes=2, name="shared") as compute:
        yield compute


@pytest.fixture(scope="module", params=["thread", "process"])
def each_executor(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """Two nodes, with each executor."""
    with sky.Compute(nodes=2, worker=sky.Worker(executor=request.param)) as compute:
        yield compute


@pytest.fixture
def wait_for() -> Wait:
    """Wait until a condition holds; fail with the description of the condition."""

    def wait(condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited 60 s for {what}")
            time.sleep(0.005)

    return wait
