"""Pools on providers with mistakes: each is named, and neither blocks the pool nor costs a machine."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers import Cluster, Instance, Provider
from skyward.scaling import Decision, Snapshot
from tests.local import tasks
from tests.local.fake_cloud import FakeCloud, _Cloud
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("own_journal")]


@dataclass(frozen=True, slots=True)
class Exiting(FakeCloud):
    """A cloud whose client exits when machines are requested."""

    def create_provider(self) -> Provider:
        return _Exits(Path(self.directory))


class _Exits(_Cloud):
    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        raise SystemExit(3)


@dataclass(frozen=True, slots=True)
class Generous(FakeCloud):
    """A cloud that launches one machine more than requested."""

    def create_provider(self) -> Provider:
        return _Generous(Path(self.directory))


class _Generous(_Cloud):
    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        return await _Cloud.provision(self, cluster, count + 1)


class ExitingPolicy:
    """A policy that exits."""

    name = "exiting"
    interval = 0.1

    def decide(self, snapshot: Snapshot) -> Decision:
        raise SystemExit(3)


def test_provider_that_exits_fails_the_pool_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(sky.NodeStartError, match=r"provider 'fake' raised SystemExit in provision\(\): 3"):
        sky.Compute(provider=Exiting(str(tmp_path)), options=sky.Options(provision_retry_delay=0.0)).open()
    assert FakeCloud(str(tmp_path)).left == []
    assert sky.orphans() == []


def test_machines_beyond_the_request_are_terminated_at_once_with_a_notice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = FakeCloud(str(tmp_path))
    with caplog.at_level(logging.WARNING), sky.Compute(provider=Generous(str(tmp_path)), nodes=2):
        assert len([each for each in cloud.left if each.startswith("machines")]) == 2
    assert "returned 3 machines for a request of 2; the extra ones were terminated" in caplog.text
    assert cloud.left == []


def test_policy_that_exits_leaves_the_pool_as_it_is() -> None:
    with sky.Compute(nodes=(1, 2), policy=ExitingPolicy()) as pool:
        assert tasks.add(1, 2) >> pool == 3
        wait_for(lambda: "the policy raised SystemExit: 3" in str(pool.decisions()), "the policy's evaluation")
        assert pool.snapshot().desired == 1
    assert sky.orphans() == []
