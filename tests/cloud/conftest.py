"""Clouds for the tests of this tier."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from tests.fakes.aws import FakeAWS, aws_server
from tests.fakes.openapi import description
from tests.fakes.runpod import KEY, FakeRunPod
from tests.machines.conftest import network, new_network
from tests.machines.machine import Network
from tests.machines.package_source import UV, package_source

__all__ = ["network", "new_network"]


@pytest.fixture
def runpod() -> Iterator[FakeRunPod]:
    """RunPod, whose pods are data."""
    with FakeRunPod(description("runpod-openapi-v1.json"), description("runpod-openapi-v2.json")) as cloud:
        yield cloud
        assert cloud.wrong == []


@pytest.fixture
def runpod_machines(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRunPod]:
    """RunPod, whose pods are machines that run their start command, and get their packages from this host."""
    published = description("runpod-openapi-v1.json"), description("runpod-openapi-v2.json")
    with (
        package_source(network, tmp_path / "wheels", monkeypatch),
        FakeRunPod(*published, network=network, uv=UV.resolve()) as cloud,
    ):
        yield cloud
        assert cloud.wrong == []


def settings(cloud: FakeRunPod) -> sky.RunPod:
    """Return the settings of the provider for a fake."""
    return sky.RunPod(api_key=KEY, endpoint=cloud.url)


@pytest.fixture(scope="module")
def aws_account() -> Iterator[FakeAWS]:
    """AWS, for the tests of a file."""
    with aws_server() as cloud:
        yield cloud


@pytest.fixture
def aws(aws_account: FakeAWS, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAWS]:
    """AWS, empty, as the one that the SDK finds."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws_account.environment.items():
        monkeypatch.setenv(name, value)
    aws_account.reset()
    yield aws_account
    assert aws_account.shim.wrong == []
