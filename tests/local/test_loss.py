"""Lost nodes: their tasks are retried a limited number of times, and the pool replaces them."""

import logging
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import skyward as sky
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def test_task_whose_node_is_killed_runs_again(each_executor: sky.Compute, tmp_path: Path) -> None:
    assert tasks.die_once(str(tmp_path / "marker")) >> each_executor == "alive"


def test_retries_end_with_an_error_that_names_the_node(caplog: pytest.LogCaptureFixture) -> None:
    with sky.Compute(nodes=2, retry_on_interruption=1) as pool:
        with (
            caplog.at_level(logging.WARNING),
            pytest.raises(
                sky.NodeLostError,
                match=r"^die\(\) did not finish: node \d died: its process was killed by SIGKILL, the last of 2 att",
            ) as caught,
        ):
            tasks.die() >> pool
        assert re.fullmatch(r"#\d+: machine \d+ of node \d lost: its process was killed by SIGKILL", caught.value.cause)
        assert caught.value.cause in [decision.cause for decision in pool.decisions()]
        (lost,) = [task for task in pool.report().tasks if task.name == "die"]
        history = pool.task_history(lost.number)
        assert history[-1].endswith(f"({caught.value.cause})"), history
        assert tasks.add(1, 2) >> pool == 3
    assert "replacing it" in caplog.text


def test_no_retry_if_retries_are_zero(tmp_path: Path) -> None:
    with sky.Compute(nodes=1, retry_on_interruption=0) as pool:
        with pytest.raises(sky.NodeLostError):
            tasks.die_once(str(tmp_path / "marker")) >> pool
        assert tasks.die_once(str(tmp_path / "marker")) >> pool == "alive"


def test_killed_node_is_replaced_under_its_rank() -> None:
    with sky.Compute(nodes=2) as pool:
        victim = pool.start(tasks.pid(), on=1).future.result(30)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: pool.start(tasks.pid(), on=1).future.result(30) != victim, "a new node 1")
        assert [rank for rank, _, _ in tasks.place() @ pool] == [0, 1]


def test_task_for_a_lost_node_that_cannot_come_back_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: it waited for ever, since other nodes of the pool ran."""

    async def sold_out(*_: object) -> None:
        raise sky.NoCapacityError("none is free")

    groups = {
        "cheap": sky.Spec(vcpus=1, provider=sky.Local(hourly_price=1.0)),
        "dear": sky.Spec(vcpus=1, provider=sky.Local(hourly_price=3600.0)),
    }
    with sky.Compute(groups=groups, budget=1000.0) as pool:
        victim = pool.start(tasks.pid(), on=1).future.result(30)
        monkeypatch.setattr("skyward_providers.local._LocalProvider.provision", sold_out)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: pool.snapshot().per_hour < 3600.0, "the lost node to be gone")
        waiting = pool.start(tasks.pid(), on=1)
        pool.set_budget(pool.snapshot().spent + 30.0)
        with pytest.raises(sky.BudgetExhaustedError, match="cannot start node 1: it cannot afford another node"):
            waiting.future.result(30)
        assert tasks.add(1, 2) >> pool == 3


def test_results_are_complete_and_unique_while_nodes_die(tmp_path: Path) -> None:
    """Kill nodes during a gather: every task has one result, in order."""
    log = tmp_path / "log"

    @sky.function
    def work(number: int) -> int:
        with log.open("a") as file:
            file.write(f"{number}\n")
        return number * number

    with sky.Compute(nodes=2, retry_on_interruption=10) as pool:
        victims = tasks.pid() @ pool
        future = sky.gather(*(work(number) for number in range(600))) > pool
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 50, "some tasks to run")
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        assert future.result(60) == tuple(number * number for number in range(600))


def test_member_of_a_broadcast_runs_again_on_the_replacement(tmp_path: Path) -> None:
    go, started = tmp_path / "go", tmp_path / "started"

    @sky.function
    def member(data: list[int]) -> list[int]:
        import time

        with started.open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not go.exists():
            time.sleep(0.01)
        return sky.shard(data)

    with sky.Compute(nodes=2) as pool:
        run = pool.start(member(list(range(7))), on="all")
        wait_for(lambda: started.exists() and len(started.read_text().split()) == 2, "both members to run")
        os.kill(int(started.read_text().split()[1]), signal.SIGKILL)
        wait_for(lambda: len(started.read_text().split()) == 3, "the lost member to run again")
        go.touch()
        assert run.future.result(20) == [[0, 2, 4, 6], [1, 3, 5]]


def test_frozen_node_does_not_block_the_others(pool: sky.Compute) -> None:
    frozen = pool.start(tasks.pid(), on=1).future.result(30)
    os.kill(frozen, signal.SIGSTOP)
    try:
        assert [pool.start(tasks.add(i, 1), on=0).future.result(30) for i in range(5)] == [1, 2, 3, 4, 5]
    finally:
        os.kill(frozen, signal.SIGCONT)
    assert pool.start(tasks.pid(), on=1).future.result(30) == frozen


def test_nodes_end_when_their_client_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the client leaves no worker running."""
    script = tmp_path / "client.py"
    script.write_text(
        "import time\nimport skyward as sky\nfrom tests.local import tasks\n"
        "pool = sky.Compute(nodes=2).open()\n"
        "print(*(tasks.pid() @ pool), flush=True)\ntime.sleep(60)\n"
    )
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen([_python(), str(script)], stdout=subprocess.PIPE, text=True, env=env) as client:
        assert client.stdout is not None
        workers = [int(word) for word in client.stdout.readline().split()]
        assert len(workers) == 2
        client.kill()
    wait_for(lambda: not any(_alive(worker) for worker in workers), "the workers to end")
    (left,) = sky.reap()
    assert (left.orphan.machines, left.error) == (2, "")


def _python() -> str:
    import sys

    return sys.executable


def _alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
