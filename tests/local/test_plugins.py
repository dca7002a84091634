"""Plugins around the processes and tasks of real local nodes, with each executor."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.task.instance import InstanceInfo
from tests.local import tasks
from tests.local.ring_plugin import Ring
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def logged(path: str) -> Any:
    """Return a context manager around processes that writes when they start and end."""

    @contextmanager
    def process(node: InstanceInfo) -> Iterator[None]:
        os.environ["AROUND_PROCESS"] = f"{node.node} {threading.current_thread() is threading.main_thread()}"
        with open(path, "a") as log:
            log.write(f"enter {node.node}\n")
        yield
        with open(path, "a") as log:
            log.write(f"leave {node.node}\n")

    return process


@contextmanager
def counted(task: sky.plugins.TaskInfo) -> Iterator[None]:
    """Number the task in a variable, which is gone after it."""
    os.environ["AROUND_TASK"] = str(task.task)
    try:
        yield
    finally:
        del os.environ["AROUND_TASK"]


@sky.function
def variables() -> tuple[str | None, str | None]:
    return os.environ.get("AROUND_PROCESS"), os.environ.get("AROUND_TASK")


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_functions_around_processes_and_tasks(executor: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    plugin = sky.plugins.around(process=logged(log), task=counted)
    with sky.Compute(nodes=2, worker=sky.Worker(executor=executor), plugins=[plugin]) as pool:
        assert sorted(Path(log).read_text().splitlines()) == ["enter 0", "enter 1"], "before any task"
        first, second = variables() @ pool
        assert (first[0], second[0]) == ("0 True", "1 True")
        assert None not in (first[1], second[1])
    assert sorted(Path(log).read_text().splitlines()) == ["enter 0", "enter 1", "leave 0", "leave 1"]


def test_task_that_fails_leaves_the_context(tmp_path: Path) -> None:
    @sky.function
    def fails() -> None:
        raise ValueError(os.environ["AROUND_TASK"])

    with sky.Compute(plugins=[sky.plugins.around(task=counted)]) as pool:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^\d+"):
                fails() >> pool


def test_stream_runs_inside_the_context() -> None:
    @sky.function
    def numbers() -> Iterator[str | None]:
        for _ in range(3):
            yield os.environ.get("AROUND_TASK")

    with sky.Compute(plugins=[sky.plugins.around(task=counted)]) as pool:
        assert None not in list(numbers() >> pool)


def test_coroutine_runs_inside_the_context() -> None:
    @sky.function
    async def late() -> str | None:
        return os.environ.get("AROUND_TASK")

    with sky.Compute(plugins=[sky.plugins.around(task=counted)]) as pool:
        assert late() >> pool is not None


def test_interrupt_leaves_the_context(tmp_path: Path) -> None:
    @contextmanager
    def marked(task: sky.plugins.TaskInfo) -> Iterator[None]:
        try:
            (tmp_path / f"entered-{task.task}").touch()
            yield
        finally:
            (tmp_path / f"left-{task.task}").touch()

    with sky.Compute(plugins=[sky.plugins.around(task=marked)]) as pool:
        future = tasks.sleep(3600.0) > pool
        wait_for(lambda: list(tmp_path.glob("entered-*")), "the task to be in its context")
        future.cancel()
        assert tasks.add(1, 1) >> pool == 2
        assert len(list(tmp_path.glob("left-*"))) == 2


def test_note_tells_what_a_plugin_could_not_finish() -> None:
    @contextmanager
    def unfinished(task: sky.plugins.TaskInfo) -> Iterator[None]:
        try:
            yield
        finally:
            raise OSError("disk full")

    @sky.function
    def fails() -> None:
        raise ValueError("mine")

    with sky.Compute(plugins=[sky.plugins.around(task=unfinished)]) as pool:
        with pytest.raises(ValueError, match="mine") as raised:
            fails() >> pool
        assert "Plugin 'around' could not finish the task either: OSError: disk full" in raised.value.__notes__
        with pytest.raises(sky.PluginError, match="plugin 'around' could not finish the task on node 0: OSError: disk"):
            tasks.add(1, 1) >> pool


def starts_once(folder: Path) -> Any:
    """Return a function around processes that raises in all but the first one of the first node's worker."""

    def process(node: InstanceInfo) -> Iterator[None]:
        worker = folder / str(os.getppid())
        if node.node == 0 and worker.exists():
            raise OSError("disk full")
        worker.touch()
        yield

    return process


@sky.function
def dies_once(path: str) -> int:
    node = sky.instance_info().node
    if node == 0 and not os.path.exists(path):
        Path(path).touch()
        os._exit(3)
    return node


def test_node_whose_plugins_start_no_more_is_replaced(tmp_path: Path) -> None:
    """It would stay, and fail every task that it is given, although the other node could run them."""
    worker, died = sky.Worker(executor="process"), str(tmp_path / "died")
    plugins = [sky.plugins.around(process=starts_once(tmp_path))]
    with sky.Compute(nodes=2, worker=worker, retry_on_interruption=0, plugins=plugins) as pool:
        with pytest.raises(sky.NodeLostError):
            pool.start(dies_once(died), on=0).future.result()
        futures = [tasks.add(number, 1) > pool for number in range(20)]
        assert [each.result() for each in futures] == list(range(1, 21)), "none counts as run on the bad node"
        wait_for(lambda: len(list(tmp_path.glob("[0-9]*"))) == 3, "the node to be replaced")
        assert pool.start(dies_once(died), on=[0, 1]).future.result() == [0, 1]


def test_collective_runs_again_on_a_node_that_replaces_one_whose_plugins_start_no_more(tmp_path: Path) -> None:
    plugins = [Ring(restarts=2), sky.plugins.around(process=starts_once(tmp_path))]
    with sky.Compute(nodes=2, plugins=plugins) as pool:
        assert dies_once(str(tmp_path / "died")) @ pool == [0, 1]
    assert len(list(tmp_path.glob("[0-9]*"))) == 3
