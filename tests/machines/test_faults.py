"""Faults between a pool and its machines: a short one loses nothing, a long one loses the node and no result."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from tests.local.pools import wait_for_cluster
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network, command_line
from tests.remote_tasks import total, where
from tests.scale import FULL, SCALE
from tests.waiting import wait_for

pytestmark = pytest.mark.machines


@sky.function
def speak(n: int, pause: float) -> int:
    for number in range(n):
        print(f"line {number}")
        time.sleep(pause)
    return n


@sky.function
def ticks(n: int, pause: float) -> Iterator[int]:
    for number in range(n):
        yield number
        time.sleep(pause)


def lines(text: str) -> list[str]:
    return [line.rpartition("] ")[2] for line in text.splitlines() if "line " in line]


def outage(machine: Machine, seconds: float) -> None:
    """Disconnect the cable for that time. (This sleep is the subject of the test.)"""
    machine.cut()
    try:
        time.sleep(seconds)
    finally:
        machine.mend()


@pytest.fixture
def short(network: Network, request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """Pool of one node with two slots; with the default grace of 30 s, or the test's."""
    network.add()
    provider = hosts(network, grace=getattr(request, "param", 30.0))
    with sky.Compute(provider=provider, nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        yield pool


@pytest.mark.parametrize(("seconds", "short"), [(2, 30.0), (9, 30.0), (60, 90.0)], indirect=["short"])
@pytest.mark.timeout(240)
def test_outage_within_the_grace_loses_nothing(
    short: sky.Compute, network: Network, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shorter than the keepalive, so that the connection survives, and longer, so that it is restored."""
    before = where() >> short
    speaking = short.start(speak(60, 0.1))
    stream = iter(ticks(60, 0.1) >> short)
    assert next(stream) == 0
    outage(network.machines[0], seconds)
    assert speaking.future.result(60) == 60
    assert list(stream) == list(range(1, 60))
    assert lines(capsys.readouterr().out) == [f"line {number}" for number in range(60)]
    assert where() >> short == before


def test_blob_transfer_survives_a_broken_connection(short: sky.Compute, network: Network) -> None:
    before = where() >> short
    data = np.random.default_rng(1).integers(0, 200, 300_000_000, dtype=np.uint8)
    sending = short.start(total(data))
    wait_for(lambda: network.machines[0].received > 20_000_000, "the transfer of the blob to start")
    assert not sending.future.done()
    network.machines[0].kill_sessions()
    assert sending.future.result(60) == int(data.sum())
    assert where() >> short == before


@sky.function
def numbers(n: int, log: str) -> Iterator[int]:
    with open(log, "a") as file:
        file.write("numbers\n")
    for number in range(n):
        yield number
        time.sleep(0.02)


@sky.function
def double(items: Iterator[int], log: str) -> list[int]:
    with open(log, "a") as file:
        file.write("double\n")
    return [2 * item for item in items]


@sky.function
def total_once(data: npt.NDArray[np.uint8], log: str) -> int:
    with open(log, "a") as file:
        file.write("total\n")
    return int(data.sum())


@sky.function
def random_bytes(n: int, log: str) -> npt.NDArray[np.uint8]:
    with open(log, "a") as file:
        file.write("random\n")
    return np.random.default_rng(2).integers(0, 200, n, dtype=np.uint8)


FAULTS = [("cut", 5), ("freeze", 5)] if SCALE < FULL else [("cut", 5), ("cut", 20), ("freeze", 10)]


@pytest.mark.parametrize(("fault", "seconds"), FAULTS)
@pytest.mark.parametrize("short", [60.0], indirect=True)
def test_fault_during_streams_and_transfers_keeps_order_and_runs_nothing_twice(
    short: sky.Compute, network: Network, fault: str, seconds: float
) -> None:
    machine, log, count = network.machines[0], "/root/runs", 400
    data = np.random.default_rng(1).integers(0, 200, 300_000_000, dtype=np.uint8)
    stream = iter(numbers(count, log) >> short)
    assert next(stream) == 0
    before = machine.received
    sending = short.start(total_once(data, log))
    wait_for(lambda: machine.received > before + 20_000_000, "the transfer to be under way")
    if fault == "cut":
        outage(machine, seconds)
    else:
        machine.freeze()
        try:
            time.sleep(seconds)
        finally:
            machine.thaw()
    assert list(stream) == list(range(1, count))
    assert sending.future.result(60) == int(data.sum())
    assert double((number for number in range(count)), log) >> short == [2 * number for number in range(count)]
    expected = np.random.default_rng(2).integers(0, 200, 30_000_000, dtype=np.uint8)
    assert np.array_equal(random_bytes(30_000_000, log) >> short, expected)
    runs = Path(f"/proc/{machine.pids()[0]}/root{log}").read_text().splitlines()
    assert sorted(runs) == ["double", "numbers", "random", "total"]


def test_killed_connection_is_restored(short: sky.Compute, network: Network) -> None:
    before = where() >> short
    network.machines[0].kill_sessions()
    assert where() >> short == before


def test_outage_beyond_the_grace_replaces_the_node_by_a_spare(network: Network) -> None:
    first, spare = network.add(), network.add()
    name = first.name

    @sky.function
    def elsewhere() -> str:
        import socket

        while socket.gethostname() == name:
            time.sleep(0.05)
        return socket.gethostname()

    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        running = pool.start(elsewhere())
        first.cut()
        assert running.future.result(60) == spare.name
        assert (where() >> pool)[0] == spare.name
        assert first.running("skyward.worker"), "the worker ended before the test could end it"
        first.mend()
        wait_for(lambda: not first.running("skyward.worker"), "the replaced worker to end, long before its lease")
        nodes = Path(f"/proc/{first.pids()[0]}/root/opt/skyward/nodes")
        wait_for(lambda: not list(nodes.iterdir()), "its directory to be removed")
        wait_for(lambda: len(first.pids()) == 1, "all but the listening sshd to end")
        assert (where() >> pool)[0] == spare.name


def test_pool_closed_during_an_outage_leaves_nothing_on_the_machine_afterwards(network: Network) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        first.cut()
        assert pool.start(where()).future.result(60)[0] == spare.name
        closing = threading.Thread(target=pool.close)
        closing.start()
        wait_for(lambda: pool.snapshot().state == "stopping", "the pool to close")
        assert first.running("skyward.worker")
        first.mend()
        closing.join()
        wait_for(lambda: len(first.pids()) == 1, "all but the listening sshd to end")


def test_watch_of_a_worker_ends_with_its_connection(network: Network) -> None:
    machine = network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        before = where() >> pool
        wait_for(lambda: len(watches(machine)) == 1, "the watch")
        (watch,) = watches(machine)
        machine.kill_sessions()
        wait_for(lambda: watches(machine) and watch not in watches(machine), "another watch in its place")
        wait_for(lambda: len(watches(machine)) == 1, "no further watches")
        assert where() >> pool == before


def watches(machine: Machine) -> list[int]:
    """Return the processes that read the pipe which closes with the worker."""
    found = []
    for pid in machine.pids():
        with contextlib.suppress(OSError):
            if command_line(pid) == b"cat\0" and os.readlink(f"/proc/{pid}/fd/0").endswith("/life"):
                found.append(pid)
    return found


@pytest.mark.parametrize("alone", [True, False], ids=["the worker", "the shell that started it, too"])
def test_remote_worker_killed_while_it_starts_is_reported_at_once(network: Network, alone: bool) -> None:
    machine = network.add()
    site = machine.disk / "opt/site"
    site.mkdir()
    others = "" if alone else "os.kill(os.getppid(), 9); "
    (site / "sitecustomize.py").write_text(f"import os; os.write(2, b'loading\\n'); {others}os.kill(os.getpid(), 9)")
    image = sky.Image(env={"PYTHONPATH": "/opt/site"})
    how = " by SIGKILL" if alone else ", with the shell that waited for it"
    with (
        pytest.raises(sky.NodeStartError, match=rf"the worker ended during startup \(killed{how}\):\nloading$"),
        sky.Compute(provider=hosts(network), nodes=1, image=image, provision_retry_delay=0.01),
    ):
        pass


def test_remote_worker_that_does_not_come_up_is_reported_with_its_log(network: Network) -> None:
    """Regression: the error had no line of the log."""
    site = network.add().disk / "opt/site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os, time; os.write(2, b'loading\\n'); time.sleep(60)")
    image = sky.Image(env={"PYTHONPATH": "/opt/site"})
    options = sky.Options(bootstrap_timeout=2, provision_retry_delay=0.01)
    with (
        pytest.raises(sky.NodeStartError, match=r"did not come up within 2 s .*:\nloading$"),
        sky.Compute(provider=hosts(network), nodes=1, image=image, options=options),
    ):
        pass


def test_frozen_machine_is_replaced(network: Network) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        first.freeze()
        assert pool.start(where()).future.result(60)[0] == spare.name
        first.thaw()


def test_powered_off_machine_is_replaced(network: Network) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        first.kill()
        assert pool.start(where()).future.result(60)[0] == spare.name


def test_content_of_collections_outlives_the_machine_through_which_the_client_entered(network: Network) -> None:
    """It is silent until its connections are closed, so that the client cannot ask it for the members any more."""
    first, *_ = network.add(), network.add(), network.add()
    with sky.Compute(provider=hosts(network, grace=4), nodes=(1, 2)) as pool:
        cache, expected = pool.dict("cache"), {number: number for number in range(20)}
        cache.update(expected)
        pool.resize(2)
        wait_for_cluster(pool)
        first.kill()
        wait_for(
            lambda: {each.machine for each in pool.snapshot().nodes if each.state == "active"} == {2, 3}, "a spare"
        )
        assert {number: cache[number] for number in expected} == expected
        cache[0] = 1
        assert cache[0] == 1


def test_deadline_is_not_enforced_while_the_machine_is_unreachable(network: Network) -> None:
    """The state of the task is unknown then, so nothing is decided."""

    @sky.function
    def holds_gil() -> None:
        import ctypes

        ctypes.PyDLL(None).sleep(600)

    network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        before = where() >> pool
        running = pool.start(speak(20, 0.1).with_timeout(5))
        outage(network.machines[0], 9)
        assert running.future.result(20) == 20, "the task ended in time, and its event arrived late"
        assert where() >> pool == before
        with pytest.raises(sky.TaskTimeoutError):
            pool.start(holds_gil().with_timeout(0.5)).future.result(25)
        assert (where() >> pool)[1] != before[1]


def test_killed_worker_is_noticed_at_once(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        (worker,) = first.running("skyward.worker")
        os.kill(worker, signal.SIGKILL)
        assert pool.start(where()).future.result(20)[0] == spare.name
    assert "its process was killed by SIGKILL" in caplog.text
