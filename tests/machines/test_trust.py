"""Authentication: only machines with the right host key, and clients with a node's pass, are accepted."""

import asyncio
import socket
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.errors import NodeStartError
from skyward.link.channel import Channel
from skyward.link.launch import start_worker
from skyward.providers.protocol import Cluster, InstanceType, Offer
from skyward.wire.protocol.messages import Shutdown
from skyward.wire.transport.bulk import GET, MISSING, BulkRequest
from skyward.wire.transport.proof import UnprovedError, call
from skyward.wire.transport.secrets import SECRETS_VARIABLE
from skyward.wire.transport.trust import Authority, issue_secrets
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network
from tests.waiting import wait_for

pytestmark = pytest.mark.machines

CLUSTER = Cluster("ssh", "pool", sky.Spec(), Offer("ssh", InstanceType("host", 1, 1)))


@sky.function
def name() -> str:
    return socket.gethostname()


def refusal(provider: sky.SSH, options: sky.Options | None = None, **spec: Any) -> str:
    """Open a pool of one node that is refused, and return the error message."""
    options = replace(options or sky.Options(), max_provision_attempts=1, provision_retry_delay=0)
    with pytest.raises(sky.ProvisioningError) as caught:
        sky.Compute(provider=provider, nodes=1, options=options, **spec).open()
    return str(caught.value)


def test_machine_with_a_wrong_host_key_is_refused(network: Network) -> None:
    machine = network.add()
    provider = hosts(network)
    machine.kill()
    machine.renew_host_key()
    machine.boot()
    error = refusal(provider)
    assert f"root@{machine.address} shows another host key than {provider.known_hosts} has for it" in error
    assert error.count("\n") == 0


def test_machine_without_a_known_host_key_is_refused(network: Network) -> None:
    machine = network.add()
    provider = replace(hosts(network), known_hosts=network.known_hosts())
    assert f"the host key of root@{machine.address} is not in {provider.known_hosts}" in refusal(provider)


def test_wrong_client_key_is_refused(network: Network, tmp_path: Path) -> None:
    network.add()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    assert "accepts none of our keys" in refusal(replace(hosts(network), client_keys=tmp_path / "key"))


def test_ssh_configuration_applies(network: Network, tmp_path: Path) -> None:
    """Aliases, users and keys of a configuration file, and a jump host."""
    jump, inner = network.add(), network.add()
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n  User root\n  IdentityFile {network.key}\n  UserKnownHostsFile {network.known_hosts(jump, inner)}\n"
        f"Host jump\n  HostName {jump.address}\n  HostKeyAlias {jump.address}\n"
        f"Host inner\n  HostName {inner.address}\n  HostKeyAlias {inner.address}\n  ProxyJump jump\n"
    )
    provider = sky.SSH(hosts=["inner"], config=config, python=sys.executable)
    with sky.Compute(provider=provider, nodes=1) as pool:
        assert name() >> pool == inner.name
        assert "ESTABLISHED" in connections(jump, inner)


def connections(machine: Machine, to: Machine) -> str:
    """Return the connections of one machine to another."""
    inside = ["nsenter", "--target", str(machine.pids()[0]), "--net"]
    shown = subprocess.run([*inside, "ss", "-tn", "dst", to.address], capture_output=True, text=True, check=True)
    return shown.stdout.replace("ESTAB", "ESTABLISHED")


def test_new_host_key_is_logged_then_pinned(network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = network.add()
    config = tmp_path / "config"
    config.write_text(f"Host *\n  UserKnownHostsFile {tmp_path / 'known'}\n")
    provider = replace(hosts(network), known_hosts=None, config=config)
    for _ in range(2):
        with sky.Compute(provider=provider, nodes=1) as pool:
            assert name() >> pool == machine.name
    assert caplog.text.count(f"first connection to {machine.address}") == 1
    machine.kill()
    machine.renew_host_key()
    machine.boot()
    assert "shows another host key than the known hosts has for it" in refusal(provider)


def worker_ports(machine: Machine) -> list[tuple[str, int]]:
    """Return the listening addresses of a machine's processes, except sshd."""
    inside = ["nsenter", "--target", str(machine.pids()[0]), "--net"]
    shown = subprocess.run([*inside, "ss", "-tlnH"], capture_output=True, text=True, check=True)
    found = [line.split()[3].rpartition(":") for line in shown.stdout.splitlines()]
    return [(host, int(port)) for host, _, port in found if port != "22"]


def test_ports_of_a_worker_are_not_on_the_network(network: Network) -> None:
    """Except for that of the pool's cluster, which refuses peers without a certificate of the pool."""
    machine = network.add()
    with sky.Compute(provider=hosts(network), nodes=1):
        ports = worker_ports(machine)
        assert {host for host, _ in ports} <= {"127.0.0.1", machine.address}
        of_cluster = {port for host, port in ports if host == machine.address}
        own = {port for host, port in ports if host == "127.0.0.1"} - of_cluster
        assert own
        for port in own:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((machine.address, port), timeout=5)
        for port in of_cluster:
            assert hears(machine.address, port) == b""


def test_certificate_of_another_pool_is_refused(network: Network, tmp_path: Path) -> None:
    """Even if its authority has the same name."""
    machine = network.add()
    with sky.Compute(provider=hosts(network), nodes=1, name="same") as pool:
        assert name() >> pool == machine.name
        other = Authority("same", b"o" * 32).issue("node")
        files = {kind: tmp_path / kind for kind in ("cert", "key")}
        files["cert"].write_bytes(other.cert)
        files["key"].write_bytes(other.key)

        def of_cluster() -> set[int]:
            return {port for host, port in worker_ports(machine) if host == machine.address}

        wait_for(of_cluster, "the node to listen for peers")
        for port in of_cluster():
            assert hears(machine.address, port, files["cert"], files["key"]) == b""
        assert name() >> pool == machine.name


def hears(host: str, port: int, *certificate: Path) -> bytes:
    """Connect to a port with TLS, without a certificate or with that of the files, and return the answer."""
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    if certificate:
        anyone.load_cert_chain(*map(str, certificate))
    with socket.create_connection((host, port), timeout=5) as plain:
        try:
            with anyone.wrap_socket(plain) as connection:
                connection.sendall(b"hello" * 100)
                return connection.recv(1)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_unauthenticated_client_at_a_tunnel_is_refused_by_engine_and_bulk_path(network: Network) -> None:
    """Also with the pass of another node of the same pool."""
    network.add()
    asyncio.run(_strange(network))


async def _strange(network: Network) -> None:
    (instance,) = (await hosts(network).create_provider().provision(CLUSTER, 1))[1]
    assert instance.access is not None
    ours, its = issue_secrets("node 1", b"s" * 32)
    other, _ = issue_secrets("node 2", b"o" * 32)
    worker = await start_worker(instance.access, {"SKYWARD_NODE_ID": "0", SECRETS_VARIABLE: its.write()}, 30)
    try:
        hello = worker.hello
        with pytest.raises(NodeStartError, match="cannot be reached"):
            await Channel(hello.address, other.credentials, 3, _ignore, _ignore, dial=worker.dial).connect()
        with pytest.raises(UnprovedError):
            await asyncio.to_thread(_bulk_answers, hello.bulk, other.key)
        assert await asyncio.to_thread(_bulk_answers, hello.bulk, ours.key) == MISSING
        friend = Channel(hello.address, ours.credentials, 10, _ignore, _ignore, dial=worker.dial)
        await friend.connect()
        friend.send(Shutdown())
        assert await worker.exited() == "its process ended with status 0"
        await friend.close()
    finally:
        await worker.stop()


def _ignore(_: object) -> None:
    return None


def _bulk_answers(path: str, key: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        call(connection, key)
        connection.sendall(BulkRequest(GET, b"k" * 32, 0).write())
        return connection.recv(1)
