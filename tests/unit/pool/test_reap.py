"""Reaping of one cluster entry, in the order in which it asks its provider and ends workers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skyward.control.act.machines.offers import SourceOffer
from skyward.control.decide.machines.sources import MachineSource
from skyward.errors import CredentialsError
from skyward.journal import ClusterEntry, MachineEntry
from skyward.pool.reaping.reap import _reap
from skyward.providers import Cluster, Instance, InstanceType, Offer, SSHAccess
from skyward.providers.conformance import conformance_identity
from skyward.specs import Spec

pytestmark = pytest.mark.unit


class Refusing:
    """A provider that refuses its key."""

    async def find(self, _: Cluster) -> None:
        raise CredentialsError("the key is wrong")


def test_workers_go_on_if_their_provider_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Any] = []

    async def end_workers(*arguments: Any) -> None:
        ended.append(arguments)

    monkeypatch.setattr("skyward.link.ssh.worker.end_workers", end_workers)
    offer = Offer("one", InstanceType("one", 1, 1), on_demand_price=1.0)
    provider: Any = Refusing()
    offered = SourceOffer(MachineSource("refusing", "one", "", "on-demand"), provider, Spec(), offer, provider)
    machine = MachineEntry(Instance("m-1", "running", SSHAccess("192.0.2.1")))
    entry = ClusterEntry(1, "default", offered, Cluster("c", "train-1", Spec(), offer), machines=(machine,))
    with pytest.raises(CredentialsError):
        asyncio.run(_reap(entry, conformance_identity("train-1", tmp_path), set()))
    assert ended == []
