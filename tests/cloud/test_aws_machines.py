"""AWS EC2 from the offer to the terminated machine, with real machines that boot by Debian's cloud-init."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import skyward as sky
from skyward.providers import Instance
from skyward_providers.cloud import watchdog
from tests.cloud.aws_cases import SETTINGS, prepared
from tests.fakes.aws import FakeAWS
from tests.fakes.aws.machines import BootedMachines
from tests.local.bootstrapping import make_wheel
from tests.machines import machine
from tests.machines.machine import Network
from tests.machines.package_source import UV, package_source
from tests.required import leave_out_for
from tests.waiting import wait_for, wait_for_async

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(240)]


@pytest.fixture
def booted(aws: FakeAWS, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BootedMachines]:
    """Machines of a fake AWS that get their packages from this host."""
    leave_out_for("" if shutil.which("cloud-init") else "cloud-init is not installed", "SKYWARD_CLOUD_INIT")
    monkeypatch.setattr(machine, "_READY_WITHIN", 60.0)
    with package_source(network, tmp_path / "wheels", monkeypatch), TemporaryDirectory(dir="/var/tmp") as archives:
        yield BootedMachines(aws.shim, network, UV.resolve(), Path(archives))


@sky.function
def hostname() -> str:
    import socket

    return socket.gethostname()


def test_pool_launches_two_machines_runs_and_terminates_them(aws: FakeAWS, booted: BootedMachines) -> None:
    with sky.Compute(provider=SETTINGS, vcpus=2, allocation="spot", nodes=2, logging=False) as pool:
        assert set(hostname() @ pool) == {each.id for each in aws.machines()}
        assert {each.lifecycle for each in aws.machines()} == {"spot"}
        assert pool.snapshot().per_hour > 0
        pool.dict("names")["a"] = 1
    assert aws.left() == []
    assert not [each for each in booted.by_id.values() if each.pids()]


def test_machine_that_was_taken_back_is_replaced(aws: FakeAWS, booted: BootedMachines) -> None:
    with sky.Compute(provider=SETTINGS, vcpus=2, nodes=1, logging=False) as pool:
        first = hostname() >> pool
        aws.shim.interrupt("us-east-1", first)
        assert (hostname() >> pool) != first
        wait_for(lambda: len(aws.machines()) == 1, "the replacement")
    assert aws.left() == []


def test_machine_without_a_client_terminates_itself(
    aws: FakeAWS, booted: BootedMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward_providers.aws.provider.watchdog", lambda end: watchdog(end, starting=5, idle=5))

    async def main() -> Instance | None:
        provider = SETTINGS.create_provider()
        cluster, (launched,) = await provider.provision(await prepared(provider, tmp_path), 1)
        assert booted.by_id[launched.id].running("skyward-watchdog")
        await wait_for_async(lambda: not booted.by_id[launched.id].pids(), "the end of the machine")
        _, instance = await provider.get_instance(cluster, launched.id)
        await provider.teardown(cluster)
        return instance

    ended = asyncio.run(main())
    assert ended is not None
    assert (ended.status, ended.detail) == ("exited", "it shut down")
    assert aws.left() == []


@sky.function
def environment() -> tuple[str, str | None]:
    import os
    import sys

    return sys.prefix, os.environ.get("TOKEN")


def test_pool_starts_from_an_image_that_was_built_with_its_environment(
    aws: FakeAWS, booted: BootedMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image has no key of its builder, and no values of variables."""
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    aws.shim.making_for = 2
    make_wheel(tmp_path / "wheels", "tiny", "1.0")
    image = sky.Image(pip=["tiny"], env={"TOKEN": "a-token-that-nobody-may-read"})
    built = sky.build_image(provider=SETTINGS, vcpus=2, image=image)
    ((builder, keys),) = booted.keys.items()
    assert keys == set()
    assert not booted.by_id[builder].pids()
    assert aws.machines() == []
    assert (built.region, built.architecture) == ("us-east-1", "x86_64")
    assert built.size_gb > 0
    assert built.monthly_price == pytest.approx(0.05 * built.size_gb)
    assert sky.sweep() == [], "an image on record is kept on purpose"

    (tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl").unlink()  # a pool could not install it
    with sky.Compute(provider=SETTINGS, vcpus=2, nodes=1, image=image, logging=False) as pool:
        prefix, token = environment() >> pool
        assert prefix.startswith("/opt/skyward/envs/")
        assert token == "a-token-that-nobody-may-read"
        (machine,) = aws.machines()
        assert machine.image_id == built.id
    assert sky.delete_image(built.id)
    assert aws.left() == []
