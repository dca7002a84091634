"""Large values when a node is short of memory, descriptors or budget: each call gets its own, or a reason."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyward as sky
from skyward.link import blob_inventory as holdings
from tests.waiting import wait_for

pytestmark = pytest.mark.local

MB = 1_000_000
ROOM = 30 * MB
"""Bytes of blobs that a node has memory for after `limit_memory` ran on it."""


@sky.function
def limit_memory(room: int) -> None:
    """Limit the memory that the node reports for blobs."""
    from skyward.worker.blobs import store as blobs

    def free() -> int:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        files = {os.stat(link).st_ino: os.stat(link) for link in links if _is_blob(link)}
        return room + blobs._SPARE - sum(file.st_blocks * 512 for file in files.values())

    def _is_blob(link: str) -> bool:
        try:
            return "skyward-blob" in os.readlink(link)
        except FileNotFoundError:
            return False

    blobs.free_memory = free  # type: ignore[attr-defined,assignment]  # for the life of the node


@sky.function
def first(array: Any) -> int:
    return int(array[0])


@sky.function
def firsts(arrays: Iterator[Any]) -> list[int]:
    return [int(array[0]) for array in arrays]


@sky.function
def first_of(array: Any, gate: str) -> int:
    import time

    while not Path(gate).exists():
        time.sleep(0.002)
    return int(array[0])


def array(number: int, nbytes: int = 8 * MB) -> Any:
    return np.full(nbytes // 8, number)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[sky.Compute]:
    """Two nodes with memory for `ROOM` bytes of blobs each."""
    monkeypatch.setattr("skyward.control.act.nodes.node.PAUSES", (0.1, 0.2, 0.4))
    with sky.Compute(nodes=2) as pool:
        limit_memory(ROOM) @ pool
        yield pool


def test_full_node_evicts_blobs_that_no_task_needs(small: sky.Compute) -> None:
    for _ in range(2):
        assert [first(array(number)) >> small for number in range(12)] == list(range(12))
    assert first(array(99)) @ small == [99, 99]


def test_argument_without_room_fails_only_its_task(small: sky.Compute) -> None:
    beside = first(array(1)) > small
    with pytest.raises(sky.TooLargeError, match=r"Node \d has no memory for the data sent to first\(\): .* 40,000,000"):
        first(array(0, 40 * MB)) >> small
    assert beside.result(20) == 1
    with pytest.raises(sky.TooLargeError, match="no memory"):
        first(array(0, 40 * MB)) @ small
    assert [first(array(number)) @ small for number in range(6)] == [[number] * 2 for number in range(6)]
    assert all(node.state == "active" for node in small.snapshot().nodes)


def test_element_without_room_fails_only_its_task(small: sky.Compute) -> None:
    with pytest.raises(sky.TooLargeError, match="sent to firsts"):
        firsts(array(number, 40 * MB) for number in range(3)) >> small
    for start in range(0, 80, 10):  # each fits into the node's memory, all together do not
        assert firsts(array(number, MB) for number in range(start, start + 10)) >> small == [*range(start, start + 10)]


def test_queued_task_keeps_its_argument_during_evictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.control.act.nodes.node.BLOB_BUDGET", 2 * MB)
    gate = tmp_path / "gate"
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=4)) as pool:
        waiting = [first_of(array(number, MB), str(gate)) > pool for number in range(12)]
        wait_for(lambda: pool.snapshot().running == 4, "the slots to be taken")
        gate.touch()
        assert [each.result(20) for each in waiting] == list(range(12))


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_evicted_and_resent_blobs_are_never_mixed_up(monkeypatch: pytest.MonkeyPatch, executor: Any) -> None:
    monkeypatch.setattr("skyward.control.act.nodes.node.BLOB_BUDGET", 12 * MB)
    seed = random.randrange(2**32)
    chosen = random.Random(seed)
    sizes = [100_000, MB, 3 * MB, 5 * MB]
    arrays = [array(number, chosen.choice(sizes)) for number in range(16)]
    picks = [chosen.randrange(len(arrays)) for _ in range(400)]
    with sky.Compute(nodes=2, worker=sky.Worker(concurrency=2, executor=executor)) as pool:
        assert sky.gather(*(first(arrays[pick]) for pick in picks)) >> pool == tuple(picks), f"seed {seed}"


def test_argument_is_sent_again_to_the_replacement_of_a_node_lost_during_its_transfer() -> None:
    large = array(5, 150 * MB)
    with sky.Compute(nodes=1) as pool:
        pid = os_pid() >> pool
        before = sum(node.received for node in pool.snapshot().nodes)
        waiting = first(large) > pool
        wait_for(lambda: sum(node.received for node in pool.snapshot().nodes) > before, "the transfer to begin")
        os.kill(pid, signal.SIGKILL)
        assert waiting.result(60) == 5


@sky.function
def os_pid() -> int:
    return os.getpid()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_functions_beyond_the_caches_of_both_ends_run(executor: Any) -> None:
    from skyward.wire.protocol.messages import CODES

    def numbered(number: int) -> Any:
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(f"def function(x):\n    return x + {number}", namespace)
        return sky.function(namespace["function"])

    functions = [numbered(number) for number in range(CODES + 50)]
    with sky.Compute(nodes=1, worker=sky.Worker(executor=executor)) as pool:
        for _ in range(2):
            assert sky.gather(*(function(1) for function in functions)) >> pool == tuple(range(1, CODES + 51))


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_many_blobs_fit_a_low_limit_of_descriptors(executor: str) -> None:
    """200 arguments, results and elements of 1 MB each need no more descriptors and threads than the first 20."""
    command = [sys.executable, "-m", "benchmarks.soak", "--scale", "0.02", "--descriptors", "128", "--check"]
    only = [word for name in ("arguments", "results", "elements") for word in ("--only", name)]
    root = Path(holdings.__file__).parents[2]
    done = subprocess.run(
        [*command, *only, "--executor", executor], cwd=root, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
