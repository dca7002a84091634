"""Lambda and Hyperstack from the offer to the terminated machine, with real machines that boot by cloud-init."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from tests.cloud.without_pauses import hyperstack_at, lambda_at, without_pauses
from tests.fakes.booted import Booted
from tests.fakes.hyperstack import FakeHyperstack
from tests.fakes.lambda_cloud import FakeLambda
from tests.fakes.vendor_models import VendorModels
from tests.machines import machine
from tests.machines.machine import Network
from tests.machines.package_source import UV, package_source
from tests.required import leave_out_for

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(240)]


@pytest.fixture
def booted(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Booted]:
    leave_out_for("" if shutil.which("cloud-init") else "cloud-init is not installed", "SKYWARD_CLOUD_INIT")
    monkeypatch.setattr(machine, "_READY_WITHIN", 60.0)
    without_pauses(monkeypatch)
    with package_source(network, tmp_path / "wheels", monkeypatch):
        yield Booted(network, UV.resolve())


@sky.function
def hostname() -> str:
    import socket

    return socket.gethostname()


def test_pool_of_two_instances_of_lambda(booted: Booted) -> None:
    with VendorModels("lambda", "lambda_models.py") as models, FakeLambda(models) as cloud:
        cloud.booted = booted
        with sky.Compute(provider=lambda_at(cloud.url), accelerator="A10", nodes=2, logging=False) as pool:
            assert set(hostname() @ pool) == set(booted.by_id)
            pool.dict("names")["a"] = 1
            assert pool.snapshot().per_hour == pytest.approx(2 * 0.75)
        assert cloud.left == []
        assert cloud.wrong == []
    assert not [each for each in booted.by_id.values() if each.pids()]


def test_pool_of_two_machines_of_hyperstack(booted: Booted) -> None:
    with VendorModels("hyperstack", "hyperstack_models.py") as models, FakeHyperstack(models) as cloud:
        cloud.booted = booted
        with sky.Compute(provider=hyperstack_at(cloud.url), accelerator="L40", nodes=2, logging=False) as pool:
            assert set(hostname() @ pool) == set(booted.by_id)
            pool.dict("names")["a"] = 1
        assert cloud.left == []
        assert cloud.wrong == []
    assert not [each for each in booted.by_id.values() if each.pids()]
