"""A large blob leaves the client once for a cluster, and reaches every node despite losses."""

import os
import signal
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from benchmarks.kernel import bytes_sent
from skyward.control.act.tasks.run import Run
from tests.local import tasks
from tests.local.pools import blob_bytes_sent, wait_for_cluster
from tests.remote_tasks import crc
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]

type Array = npt.NDArray[np.uint8]

SIZE = 24_000_000
TWO = sky.Worker(concurrency=2)
"""One slot for the task that waits for its blob, and one for a probe."""
SLACK = 1_000_000
"""Bytes of all other messages meanwhile."""


def fresh(seed: int, size: int = SIZE) -> Array:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes regard each other as being on other machines, and transfer blobs over connections."""
    monkeypatch.setattr("skyward.control.act.nodes.replication.LocalAccess", type("ElsewhereAccess", (), {}))


@pytest.fixture(params=["near", "apart"])
def either_way(request: pytest.FixtureRequest) -> str:
    """Transfer of blobs through shared memory, or over connections."""
    if request.param == "apart":
        request.getfixturevalue("apart")
    return str(request.param)


class Gate:
    """A gate that passes half of each large blob, and the rest when it is opened."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_open = False

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """A connection with this gate."""
        gate = self

        class Gated(socket.socket):
            is_shut = False

            def sendall(self, data: Any, flags: int = 0) -> None:
                if len(data) >= SIZE:
                    super().sendall(data[: SIZE // 2])
                    data = data[SIZE // 2 :]
                    with gate._changed:
                        assert gate._changed.wait_for(lambda: gate._is_open or self.is_shut, 120)
                super().sendall(data)

            def shutdown(self, how: int) -> None:
                super().shutdown(how)
                with gate._changed:
                    self.is_shut = True
                    gate._changed.notify_all()

        connection = Gated(socket.AF_INET, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        connection.connect(address)
        return connection


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr("skyward.link.bulk.socket.create_connection", gate.connect)
    yield gate
    gate.open()


def has_of_blobs(process: int) -> int:
    """Return the bytes of blobs that a process has in memory."""
    total = 0
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            if "skyward-blob" in os.readlink(entry):
                total = max(total, entry.stat().st_size)
        except FileNotFoundError:
            continue
    return total


def all_have_half(processes: list[int]) -> Callable[[], bool]:
    return lambda: all(has_of_blobs(process) >= SIZE // 2 - 2 * 1024 * 1024 for process in processes)


def on(pool: sky.Compute, rank: int, array: Array) -> Run[int]:
    return pool.start(crc(array), on=rank)


def expected(array: Array) -> int:
    return zlib.crc32(array)


@pytest.mark.usefixtures("either_way")
def test_broadcast_leaves_the_client_once() -> None:
    with sky.Compute(nodes=6) as pool:
        wait_for_cluster(pool)
        before = bytes_sent()
        array = fresh(1)
        assert crc(array) @ pool == [expected(array)] * 6
        left = sum(count - before.get(own, 0) for own, count in bytes_sent().items())
        assert blob_bytes_sent(pool) == SIZE
        assert SIZE < left < SIZE + SLACK
        assert [node.received for node in pool.snapshot().nodes] == [SIZE] * 6


@pytest.mark.usefixtures("either_way")
def test_captured_array_of_many_tasks_leaves_the_client_once() -> None:
    array = fresh(2)

    @sky.function
    def captured(number: int) -> int:
        return int(array[number])

    with sky.Compute(nodes=4) as pool:
        wait_for_cluster(pool)
        assert sky.gather(*map(captured, range(40))) >> pool == tuple(map(int, array[:40]))
        assert blob_bytes_sent(pool) == SIZE


def test_broadcast_right_after_opening_leaves_the_client_once() -> None:
    """It waits until the nodes can reach each other, which takes less time than sending it twice."""
    with sky.Compute(nodes=3) as pool:
        array = fresh(3, 5 * SIZE)
        assert crc(array) @ pool == [expected(array)] * 3
        assert blob_bytes_sent(pool) == array.nbytes


def test_small_blobs_are_sent_to_each_node() -> None:
    with sky.Compute(nodes=3) as pool:
        wait_for_cluster(pool)
        array = fresh(4, 200_000)
        assert crc(array) @ pool == [expected(array)] * 3
        assert blob_bytes_sent(pool) == 3 * array.nbytes


def test_nodes_without_a_cluster_are_each_sent_a_copy() -> None:
    with sky.Compute(nodes=3, cluster=False) as pool:
        array = fresh(5)
        assert crc(array) @ pool == [expected(array)] * 3
        assert blob_bytes_sent(pool) == 3 * SIZE


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.usefixtures("either_way")
def test_replication_completes_after_the_loss_of_a_node(gate: Gate, victim: int) -> None:
    with sky.Compute(nodes=4, retry_on_interruption=5, worker=TWO) as pool:
        wait_for_cluster(pool)
        processes: list[int] = tasks.pid() @ pool
        array = fresh(6)
        result = pool.start(crc(array), on="all").future
        wait_for(all_have_half(processes[:1]), "half of it to arrive")
        os.kill(processes[victim], signal.SIGKILL)
        wait_for(lambda: pool.start(tasks.pid(), on=victim).future.result(60) != processes[victim], "a new node")
        gate.open()
        assert result.result(120) == [expected(array)] * 4
        assert blob_bytes_sent(pool) == SIZE, "a current node was sent it more than once"


@pytest.mark.usefixtures("apart")
def test_nodes_receive_a_blob_while_the_client_still_sends_it(gate: Gate) -> None:
    with sky.Compute(nodes=4) as pool:
        wait_for_cluster(pool)
        processes: list[int] = tasks.pid() @ pool
        array = fresh(7)
        result = pool.start(crc(array), on="all").future
        wait_for(all_have_half(processes), "half of it to arrive everywhere")
        assert not result.done()
        gate.open()
        assert result.result(60) == [expected(array)] * 4


@pytest.mark.usefixtures("apart")
def test_nodes_behind_a_lost_node_resume_where_they_were(gate: Gate) -> None:
    with sky.Compute(nodes=4, retry_on_interruption=5) as pool:
        wait_for_cluster(pool)
        processes: list[int] = tasks.pid() @ pool
        array = fresh(8)
        results = [on(pool, rank, array) for rank in range(4)]
        wait_for(all_have_half(processes), "half of it to arrive everywhere")
        os.kill(processes[1], signal.SIGKILL)
        gate.open()
        assert [result.future.result(60) for result in results] == [expected(array)] * 4


@pytest.mark.usefixtures("apart")
def test_nodes_behind_a_stalled_node_pull_from_another(gate: Gate) -> None:
    with sky.Compute(nodes=3, retry_on_interruption=5) as pool:
        wait_for_cluster(pool)
        processes: list[int] = tasks.pid() @ pool
        array = fresh(9)
        results = [on(pool, rank, array) for rank in range(3)]
        wait_for(all_have_half(processes), "half of it to arrive everywhere")
        os.kill(processes[1], signal.SIGSTOP)
        try:
            gate.open()
            assert [results[rank].future.result(60) for rank in (0, 2)] == [expected(array)] * 2
        finally:
            os.kill(processes[1], signal.SIGCONT)
        assert results[1].future.result(60) == expected(array)


@pytest.mark.usefixtures("either_way")
def test_node_that_joins_during_replication_gets_the_blob_from_the_others(gate: Gate) -> None:
    with sky.Compute(nodes=2, worker=TWO) as pool:
        wait_for_cluster(pool)
        processes: list[int] = tasks.pid() @ pool
        array = fresh(10)
        result = pool.start(crc(array), on="all").future
        wait_for(all_have_half(processes[:1]), "half of it to arrive")
        pool.resize(3)
        wait_for(lambda: [node.state for node in pool.snapshot().nodes] == ["active"] * 3, "a third node")
        wait_for_cluster(pool)
        gate.open()
        assert result.result(60) == [expected(array)] * 3
        assert blob_bytes_sent(pool) == SIZE


@pytest.mark.usefixtures("either_way")
def test_draining_nodes_forward_no_blobs(gate: Gate) -> None:
    """The pool shrinks while the drained node has half of a blob that the others need."""
    with sky.Compute(nodes=3) as pool:
        wait_for_cluster(pool)
        processes: list[int] = tasks.pid() @ pool
        array = fresh(11)
        results = [on(pool, rank, array) for rank in (2, 0, 1)]
        wait_for(all_have_half(processes[2:]), "half of it to arrive")
        results[0].future.cancel()
        pool.resize(2)
        wait_for(lambda: len(pool.snapshot().nodes) == 2, "a node to be gone")
        gate.open()
        assert [result.future.result(60) for result in results[1:]] == [expected(array)] * 2
