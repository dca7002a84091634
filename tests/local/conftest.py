"""Pools of real worker processes for the tests of this tier."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import skyward as sky
from skyward_kernel.pools import PoolManager
from tests.local.fake_cloud import FakeCloud
from tests.notebook import managed_pools


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


@pytest.fixture(scope="module")
def one_slot() -> Iterator[sky.Compute]:
    """One node with one slot."""
    with sky.Compute(nodes=1) as compute:
        yield compute


@pytest.fixture(scope="module", params=["thread", "process"])
def slots(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """One node with two slots, with each executor."""
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2, executor=request.param)) as compute:
        yield compute


@pytest.fixture
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a journal, and all other data of the user, of its own."""
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("skyward.pool.reaping.reap._VISIBLE_WITHIN", 0.0)  # the fake cloud lists machines at once


@pytest.fixture
def cloud(tmp_path: Path) -> FakeCloud:
    """Cloud whose machines are processes here; other processes see it by its directory."""
    return FakeCloud(str(tmp_path))


@pytest.fixture(scope="module")
def pools() -> Iterator[PoolManager]:
    """Pools of the notebooks of a module."""
    with managed_pools() as pools:
        yield pools
        assert pools.close_all()
