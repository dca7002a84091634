"""Leases of machines: without a client, a worker ends when its lease expires, after its tasks."""

import subprocess
from pathlib import Path

import psutil
import pytest

import skyward as sky
from tests.killed_client import kill_at_work
from tests.machines.conftest import hosts, source_of_hosts
from tests.machines.machine import Machine, Network, command_line
from tests.waiting import wait_for

pytestmark = pytest.mark.machines

WORK = """
@sky.function
def work(mark, seconds):
    import subprocess, time
    subprocess.Popen(["setsid", "sleep", "1000"])
    print("begun", flush=True)
    time.sleep(seconds)
    open(mark, "w").close()
"""


def killed_client(network: Network, seconds: float) -> None:
    """Start a client process, and kill it while its task runs."""
    start = f"run = pool.start(work('/root/mark', {seconds}))"
    kill_at_work(WORK, start, source_of_hosts(network, grace=1), "nodes=1, ttl=0", printed="begun")


def test_worker_of_a_killed_client_ends_after_its_lease(network: Network) -> None:
    """The lease is 31 s: the grace of 1 s, and 30 s. Running tasks finish first."""
    machine = network.add()
    killed_client(network, 5)
    (worker,) = machine.running("skyward.worker")
    root = Path(f"/proc/{machine.pids()[0]}/root")
    nodes = root / "opt/skyward/nodes"
    assert list(nodes.iterdir())
    wait_for((root / "root/mark").exists, "the task to finish")
    assert machine.running("skyward.worker") == [worker]
    wait_for(lambda: not machine.running("skyward.worker"), "the worker to end")
    wait_for(lambda: not list(nodes.glob("*")), "its directory to be removed")
    wait_for(lambda: len(machine.pids()) == 1, "all but the listening sshd to end")
    assert [done.error for done in sky.reap()] == [""]


def test_ssh_processes_of_a_killed_client_end(network: Network) -> None:
    """On both sides of the connection."""
    machine = network.add()
    killed_client(network, 0)
    wait_for(lambda: not ssh_to(machine), "the ssh processes here to end")
    assert [done.error for done in sky.reap()] == [""]


def test_inner_supervisor_ends_what_the_outer_one_left(network: Network) -> None:
    """The shell that waits for a worker does not kill the process group of both supervisors."""
    machine = network.add()
    nodes = Path(f"/proc/{machine.pids()[0]}/root/opt/skyward/nodes")
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        starts() >> pool
        (worker,) = machine.running("skyward.worker")
        inner, outer = psutil.Process(worker).parents()[:2]
        inner.suspend()
        outer.kill()
        wait_for(lambda: not list(nodes.glob("*/pid")), "the shell to notice")
        inner.resume()
        wait_for(lambda: not machine.running("sleep\x001000"), "the child process of the task to end")


@sky.function
def starts() -> None:
    subprocess.Popen(["setsid", "sleep", "1000"])


def ssh_to(machine: Machine) -> list[bytes]:
    lines = (command_line(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [line for line in lines if line.startswith(b"ssh\0") and machine.address.encode() in line]
