"""Machines that cannot fetch packages: the client sends them."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.bootstrap import Plan
from skyward.bootstrap.supplies import Supplier
from skyward.link.connection.programs import ClientShell
from skyward.link.launch import bake_machine
from skyward.process.background import run
from skyward.providers.protocol import SSHAccess
from tests.machines import minimal
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network
from tests.machines.serving import served_at
from tests.required import leave_out_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(300)]

UV = Path(__file__).parents[2] / ".venv/bin/uv"
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


@sky.function
def seen() -> tuple[str, str, str]:
    import os

    import torchy  # type: ignore[import-not-found]  # made by the test, on the node

    return sys.base_prefix, str(torchy.VERSION), os.environ.get("KERNEL", "")


@sky.function
def executable() -> str:
    import sys

    return sys.executable


IMAGE = sky.Image(pip=["torchy==${WANTED}"], shell_vars={"KERNEL": "uname -s", "WANTED": "echo 2.5"})


def minimal_machine(network: Network) -> Machine:
    leave_out_for(minimal.why_not(), "SKYWARD_MINIMAL_ROOT")
    network.system = minimal.system()
    return network.add()


def test_minimal_machine_without_a_network_is_set_up_by_the_client(
    network: Network, index: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets uv, the Python of this process, and packages; a second pool finds the environment."""
    machine = minimal_machine(network)
    provider = replace(hosts(network), python=None)
    with sky.Compute(provider=provider, nodes=1, image=IMAGE) as pool:
        base, version, kernel = seen() >> pool
        log = pool.start_log(0)
    assert base.startswith("/opt/skyward/python/")
    assert (version, kernel) == ("2.5", "Linux")
    assert "set up from this computer: it cannot fetch packages (" in log
    (warning,) = [record.getMessage() for record in caplog.records if "fetch packages" in record.getMessage()]
    assert warning.endswith("): it is set up from this computer, over the connection.")
    before = machine.received
    with sky.Compute(provider=provider, nodes=1, image=IMAGE) as pool:
        assert (seen() >> pool)[1] == "2.5"
        assert "set up from" not in pool.start_log(0)
    assert machine.received - before < 1_000_000


def test_python_that_the_client_downloads_is_sent(network: Network, index: str, tmp_path: Path) -> None:
    minimal_machine(network)
    minimal.make_python(tmp_path)
    (tmp_path / "downloads.json").write_text(json.dumps(minimal.described_python(f"{index}python.tar.gz")))
    with sky.Compute(provider=replace(hosts(network), python=None), nodes=1, image=IMAGE) as pool:
        base, *_ = seen() >> pool
    assert base.startswith("/opt/skyward/python/cpython-")
    assert [*(tmp_path / "cache/python").glob("cpython-*")]


def test_machine_in_a_black_hole_is_noticed_soon(
    network: Network, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall drops its packets, so nothing is refused. It has Python and uv."""
    machine = network.add()
    (machine.disk / "usr/local/bin/uv").symlink_to(UV.resolve())
    dropped = f"{network.subnet}.2"
    subprocess.run(["ip", "addr", "add", f"{dropped}/24", "dev", network.name], check=True)
    machine.drop(dropped)
    with served_at(dropped, tmp_path) as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}simple")
        start = time.monotonic()
        with sky.Compute(provider=replace(hosts(network), python=None), nodes=1, image=IMAGE) as pool:
            assert (seen() >> pool)[1] == "2.5"
            took = time.monotonic() - start
            assert "operation timed out" in pool.start_log(0)
    assert took < 60


def test_system_packages_are_named(network: Network, index: str) -> None:
    minimal_machine(network)
    image = replace(IMAGE, apt=("bc", "jq"))
    pool = sky.Compute(provider=replace(hosts(network), python=None), nodes=1, image=image, max_provision_attempts=1)
    with pytest.raises(sky.ProvisioningError, match="only sends packages of Python: install bc jq on it"):
        pool.open()


def test_package_that_the_client_cannot_get_is_named(network: Network, index: str) -> None:
    machine = network.add()
    (machine.disk / "usr/local/bin/uv").symlink_to(UV.resolve())
    pool = sky.Compute(
        provider=replace(hosts(network), python=None),
        nodes=1,
        image=sky.Image(pip=["nowhere-to-be-found"]),
        max_provision_attempts=1,
    )
    with pytest.raises(sky.ProvisioningError, match=r"(?s)cannot get packages for it:.*nowhere-to-be-found"):
        pool.open()


def add_user(machine: Machine, name: str) -> None:
    """Add a user, who accepts the key of root."""
    home = machine.disk / "home" / name
    home.mkdir(parents=True)
    shutil.copytree(machine.disk / "root/.ssh", home / ".ssh")
    with (machine.disk / "etc/passwd").open("a") as users:
        users.write(f"{name}:x:4321:4321::/home/{name}:/bin/sh\n")
    with (machine.disk / "etc/shadow").open("a") as users:
        users.write(f"{name}:*:20000:0:99999:7:::\n")
    for path in (home, *home.rglob("*")):
        os.chown(path, 4321, 4321)


def test_environment_in_the_image_of_a_machine_is_used_by_every_user(network: Network, index: str) -> None:
    machine = minimal_machine(network)
    provider = replace(hosts(network), python=None)
    access = SSHAccess(
        machine.address,
        user="root",
        client_keys=(str(network.key),),
        known_hosts=str(provider.known_hosts),
        config="none",
    )
    image = sky.Image(pip=["torchy"])
    facts = run(bake_machine(access, Plan.of(image, helper=Supplier(ClientShell, print)), 20)).result(120)
    assert facts.packages["torchy"] == "2.5"
    root = machine.disk / "opt/skyward"
    assert {path.name for path in root.iterdir()} == {
        "envs",
        "lock",
        "pruned",
        "python",
        "state",
        "trees",
        "used",
        "uv",
    }
    add_user(machine, "guest")
    received = machine.received
    for user in ("guest", "root"):
        with sky.Compute(provider=replace(provider, username=user), nodes=1, image=image) as pool:
            assert executable() >> pool == facts.executable
            assert "deps: nothing to do" in pool.start_log(0)
    assert machine.received - received < 1_000_000
    assert (machine.disk / "home/guest/.skyward/used").is_dir()


def test_machine_without_a_network_has_no_programs() -> None:
    """Other tests rely on what a minimal system lacks."""
    leave_out_for(minimal.why_not(), "SKYWARD_MINIMAL_ROOT")
    for name in ("python3", f"python{MINOR}", "uv", "pip", "curl", "wget"):
        assert shutil.which(name, path=str(minimal.system() / "usr/bin")) is None
