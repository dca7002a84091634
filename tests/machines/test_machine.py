"""The test machines themselves: reachable over SSH, isolated from this host, and removed after the test."""

import asyncio
import subprocess
from pathlib import Path

import asyncssh
import pytest

from tests.machines.machine import STATE, Machine, Network
from tests.waiting import wait_for

pytestmark = pytest.mark.machines


def ask(network: Network, machine: Machine, command: str) -> str:
    """Run a command on a machine over a separate connection, and return its output."""
    return asyncio.run(_ask(network, machine, command))


async def _ask(network: Network, machine: Machine, command: str) -> str:
    async with asyncssh.connect(
        machine.address, username="root", client_keys=[str(network.key)],
        known_hosts=str(network.known_hosts(machine)), config=None,
    ) as connection:  # fmt: skip  # one option a line would hide the call
        done = await connection.run(command, check=True)
        return str(done.stdout).strip()


def test_machine_has_its_own_name_disk_and_processes(network: Network) -> None:
    machine = network.add()
    assert ask(network, machine, "hostname; echo here > /root/mark; cat /proc/1/comm") == f"{machine.name}\nsshd"
    assert not Path("/root/mark").exists()
    machine.kill()
    machine.boot()
    assert ask(network, machine, "test -e /root/mark || echo blank") == "blank"


def test_freeze_and_thaw_stop_and_continue_the_processes(network: Network) -> None:
    machine = network.add()
    first = Path(f"/proc/{machine.pids()[0]}/stat")

    def state() -> str:
        return first.read_text().rpartition(")")[2].split()[0]

    machine.freeze()
    wait_for(lambda: state() == "T", "the machine to stop")
    machine.thaw()
    wait_for(lambda: state() == "S", "the machine to continue")


def test_closed_network_leaves_nothing(network: Network) -> None:
    machine = network.add()
    inside = machine.pids()
    network.close()
    network.close()
    wait_for(lambda: not [pid for pid in inside if Path(f"/proc/{pid}/exe").exists()], "its processes to end")
    assert network.name not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert not list(STATE.glob(f"{network.name}-*"))
