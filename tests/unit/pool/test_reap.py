"""Reaping of one cluster entry, in the order in which it asks its provider and ends workers."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.decide.machines.sources import MachineSource
from skyward.errors import CredentialsError
from skyward.journal import ClusterEntry, MachineEntry
from skyward.pool.reaping import reap as reaping
from skyward.providers import Cluster, Instance, InstanceType, Offer, SSHAccess
from skyward.providers.conformance import conformance_identity
from skyward.specs import Spec

pytestmark = pytest.mark.unit


class Slow:
    """A cloud that lists machines late: those of a request whose client was killed, and those that were terminated.

    Args:
        appear: number of listings before a machine appears, of an unanswered request.
        remain: number of listings for which a terminated machine is still listed.
    """

    def __init__(self, appear: int = 0, remain: int = 0) -> None:
        self.appear, self.remain = appear, remain
        self.machine: str | None = "m-1"
        self.ending = False
        self.torn_down = False

    async def find(self, _: Cluster) -> list[Instance]:
        self.appear -= 1
        if self.ending and not self.remain:
            self.machine = None
        self.remain -= self.ending
        return [Instance(self.machine, "running")] if self.machine and self.appear < 0 else []

    async def terminate(self, _: Cluster, ids: Sequence[str]) -> None:
        self.ending = self.ending or self.machine in ids

    async def teardown(self, _: Cluster) -> None:
        self.torn_down = True


def entry_of(provider: Any, price: float | None = 1.0, **fields: Any) -> ClusterEntry:
    """Return the entry of a pool at a provider."""
    offer = Offer("one", InstanceType("one", 1, 1), on_demand_price=price)
    source = MachineSource("cloud", "one", "", "on-demand", hourly_price=price or 0.0)
    offered = SourceOffer(source, provider, Spec(), offer, provider)
    return ClusterEntry(1, "default", offered, Cluster("c", "train-1", Spec(), offer), **fields)


def reaped(entry: ClusterEntry, folder: Path) -> frozenset[str]:
    return asyncio.run(reaping._reap(entry, conformance_identity("train-1", folder), set()))


@pytest.mark.parametrize("price", [1.0, None])
def test_machine_that_appears_late_is_terminated(
    price: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaping, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(reaping, "_LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(reaping, "_VISIBLE_WITHIN", 1.0)
    cloud = Slow(appear=5)
    assert reaped(entry_of(cloud, price, requests={"request-1": time.time()}), tmp_path) == {"m-1"}
    assert cloud.machine is None
    assert cloud.torn_down


def test_answered_and_old_and_free_requests_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "_VISIBLE_WITHIN", 86400.0)  # waiting would end at the timeout of the test
    reaped(entry_of(Slow()), tmp_path)
    reaped(entry_of(Slow(), requests={"request-1": time.time() - 2 * 86400}), tmp_path)
    reaped(entry_of(Slow(), 0.0, requests={"request-1": time.time()}), tmp_path)


def test_what_machines_share_is_removed_once_they_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "_FIRST_PAUSE", 0.001)
    cloud = Slow(remain=3)
    assert reaped(entry_of(cloud), tmp_path) == {"m-1"}
    assert (cloud.machine, cloud.torn_down) == (None, True)


def test_machine_that_stays_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "_GONE_WITHIN", 0.0)
    cloud = Slow(remain=1000)
    with pytest.raises(sky.ProvisioningError, match="m-1 still exists"):
        reaped(entry_of(cloud), tmp_path)
    assert not cloud.torn_down


class Refusing:
    """A provider that refuses its key."""

    async def find(self, _: Cluster) -> None:
        raise CredentialsError("the key is wrong")


def test_workers_go_on_if_their_provider_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []

    async def end_workers(*arguments: Any) -> None:
        ended.append(arguments)

    monkeypatch.setattr("skyward.link.ssh.worker.end_workers", end_workers)
    machine = MachineEntry(Instance("m-1", "running", SSHAccess("192.0.2.1")))
    with pytest.raises(CredentialsError):
        reaped(entry_of(Refusing(), machines=(machine,)), tmp_path)
    assert ended == []
