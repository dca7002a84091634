"""The control plane on real worker processes that are killed, drained and added under load."""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.scale import SCALE
from tests.waiting import wait_for

pytestmark = pytest.mark.local

KILLS = 20 * SCALE
TASKS = 2_000 * SCALE
RETRIES = 5


@sky.function
def work(number: int, log: str, process: bool) -> int:
    """Append a line to the file of its worker, and return the number."""
    with open(f"{log}/{os.getppid() if process else os.getpid()}", "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.005)  # leaves work for the last kill
    return number


@pytest.mark.timeout(60 + 60 * SCALE)
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_killed_workers_lose_no_task_and_run_none_more_often_than_its_retries(tmp_path: Path, executor: Any) -> None:
    """SIGKILL a worker repeatedly while thousands of tasks run: each returns its own result, once."""
    chosen = random.Random(seed := random.randrange(2**32))

    def ran() -> int:
        return sum(path.read_bytes().count(b"\n") for path in tmp_path.iterdir())

    killed: set[str] = set()
    with sky.Compute(nodes=4, retry_on_interruption=RETRIES, worker=sky.Worker(executor=executor)) as pool:
        calls = (work(number, str(tmp_path), executor == "process") for number in range(TASKS))
        waiting = sky.gather(*calls) > pool
        for kill in range(KILLS):
            goal = (kill + 1) * TASKS // (KILLS + 10)

            def can_kill(goal: int = goal) -> bool:
                return waiting.done() or (ran() >= goal and bool(set(os.listdir(tmp_path)) - killed))

            wait_for(can_kill, f"{goal} tasks to run before kill {kill}")
            victims = sorted(set(os.listdir(tmp_path)) - killed)
            if waiting.done() or not victims:
                break
            victim = chosen.choice(victims)
            with contextlib.suppress(ProcessLookupError):  # killed together with its worker
                os.kill(int(victim), signal.SIGKILL)
            killed.add(victim)
        results = waiting.result(60)
        ended = pool.snapshot()
    assert len(killed) == KILLS, f"seed {seed}"
    assert results == tuple(range(TASKS))
    assert (ended.done, ended.failed, ended.queued, ended.running) == (TASKS, 0, 0, 0)
    runs = Counter(line for path in tmp_path.iterdir() for line in path.read_text().splitlines())
    assert max(runs.values()) <= 1 + RETRIES
    print(f"{len(killed)} kills, {TASKS} tasks, {sum(runs.values())} runs, at most {max(runs.values())} of one task")


def test_scaling_down_ends_no_running_task(tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"

    @sky.function
    def patient() -> int:
        import time

        with log.open("a") as file:
            file.write("started\n")
        while not gate.exists():
            time.sleep(0.005)
        return os.getpid()

    with sky.Compute(nodes=4) as pool:
        waiting = [patient() > pool for _ in range(4)]
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) == 4, "all nodes to be busy")
        pool.resize(1)
        wait_for(lambda: sum(node.state == "draining" for node in pool.snapshot().nodes) == 3, "three nodes to drain")
        gate.touch()
        assert len({future.result(20) for future in waiting}) == 4, "a task ended on another node than it started"
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "the pool to shrink")
        assert len(log.read_text().splitlines()) == 4, "a task ran twice"


def test_drain_is_cancelled_when_the_node_is_needed_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @sky.function
    def patient() -> int:
        import time

        while not gate.exists():
            time.sleep(0.005)
        return os.getpid()

    with sky.Compute(nodes=2) as pool:
        before = set(tasks.pid() @ pool)
        waiting = [patient() > pool for _ in range(2)]
        wait_for(lambda: pool.snapshot().running == 2, "both nodes to be busy")
        pool.resize(1)
        wait_for(lambda: any(node.state == "draining" for node in pool.snapshot().nodes), "a node to drain")
        pool.resize(2)
        wait_for(lambda: all(node.state == "active" for node in pool.snapshot().nodes), "the drain to be cancelled")
        gate.touch()
        assert {future.result(20) for future in waiting} == before
        assert set(tasks.pid() @ pool) == before, "a node was replaced"


def test_fixed_pool_replaces_lost_nodes_without_tasks() -> None:
    with sky.Compute(nodes=3) as pool:
        before = tasks.pid() @ pool
        for victim in before[1:]:
            os.kill(victim, signal.SIGKILL)
        wait_for(
            lambda: (
                len(now := pool.snapshot().nodes) == 3
                and all(node.state == "active" for node in now)
                and not set(tasks.pid() @ pool) & set(before[1:])
            ),
            "three new nodes",
        )
        assert (tasks.pid() @ pool)[0] == before[0]
        assert any("a node was lost" in event.reason for event in pool.decisions())
