"""Connection options, and the resources that are measured on a connected machine."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

import skyward as sky
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.machines.test_trust import refusal

pytestmark = pytest.mark.machines


class Mute:
    """Server that disconnects at once instead of answering as an sshd, and records the times of calls."""

    def __init__(self) -> None:
        self.calls: list[float] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"root@127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.calls.append(time.monotonic())
            connection.close()

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def mute() -> Iterator[Mute]:
    listener = Mute()
    yield listener
    listener.close()


def test_options_set_the_timeout_and_interval_of_connection_attempts(network: Network, mute: Mute) -> None:
    network.add()
    provider = replace(hosts(network), hosts=[mute.host])
    message = refusal(provider, sky.Options(ssh_timeout=4, ssh_retry_interval=1.5))
    assert f"{mute.host} cannot be reached" in message
    assert message.endswith("gave up after 4 s")
    assert message.count("\n") == 0
    assert 3 < len(mute.calls) <= 9  # three attempts in 4 s, for the node and for each replacement
    assert mute.calls[1] - mute.calls[0] >= 1.5


@sky.function
def measured() -> tuple[float, float, int, float]:
    info = sky.instance_info()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return info.vcpus, info.memory_gb, len(os.sched_getaffinity(0)), round(memory, 2)


def test_resources_of_a_machine_are_measured(network: Network) -> None:
    """Tasks can request CPUs and memory of machines that were declared without resources."""
    network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        vcpus, memory, cpus, gigabytes = measured().with_resources(CPU=1, memory=0.5) >> pool
        assert (vcpus, memory) == (cpus, gigabytes)
        with pytest.raises(sky.NoGroupFitsError, match=f"no node of this pool can ever have.*{cpus:g} CPU"):
            measured().with_resources(CPU=cpus + 1) >> pool


def test_resources_of_the_spec_override_measured_ones(network: Network) -> None:
    network.add()
    with sky.Compute(provider=hosts(network), nodes=1, vcpus=64, resources={"memory": 0}) as pool:
        vcpus, _, _, _ = measured().with_resources(CPU=64) >> pool
        assert vcpus == 64
        with pytest.raises(sky.NoGroupFitsError, match="no node of this pool can ever have"):
            measured().with_resources(memory=0.1) >> pool
