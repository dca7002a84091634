"""One pool that cannot be reaped, or a provider that never answers, keeps no other pool from being reaped.

The machines are files of a cloud; nothing is started on them.
"""

import asyncio
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.cli.main import main
from skyward.control.act.machines.guarded import guarded
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.decide.machines.sources import MachineSource
from skyward.journal import Claim, Journal, PoolEntry, PoolRecord, data_directory
from skyward.pool.reaping import reap as reaping
from skyward.pool.reaping.orphans import orphan_of
from skyward.providers import InstanceType, Offer
from skyward.specs import Spec
from skyward_kernel import reaper
from tests.local.fake_cloud import FakeCloud
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("own_journal")]

SOURCE = MachineSource("fake", "fake", "", "on-demand", hourly_price=0.0)


def cloud_at(path: Path) -> FakeCloud:
    path.mkdir()
    cloud = FakeCloud(str(path))
    cloud.create_provider()
    return cloud


def orphan(cloud: FakeCloud, name: str, machines: int = 1, *, prepared: bool = True, answered: bool = True) -> None:
    """Have an orphan past its lease that prepared its cluster, and got machines, unless told otherwise."""
    record = PoolRecord.new(name, {}, None, 0)
    offer = Offer("fake", InstanceType("fake", 1, 1), on_demand_price=0.0)
    source = SourceOffer(SOURCE, guarded(cloud), Spec(provider=cloud, allocation="on-demand"), offer, cloud)
    number = record.preparing("default", source)

    async def launch() -> None:
        cluster = await source.provider.prepare(source.spec, source.offer, record.identity)
        cluster = replace(cluster, tags=record.identity.tags)
        record.prepared(number, cluster)
        token = record.asking(number)
        cluster, instances = await source.provider.provision(cluster, machines)
        if answered:
            record.provisioned(number, token, cluster, instances)

    if prepared:
        asyncio.run(launch())
    record.leave()
    past = time.time() - 5000
    os.utime(data_directory() / "pools" / record.id, (past, past))


def recorded() -> list[str]:
    with Journal() as journal:
        return [entry.name for entry in journal.pools()]


def test_kernel_reaps_pools_beside_those_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, silent, other = (cloud_at(tmp_path / name) for name in ("failing", "silent", "other"))
    orphan(failing, "failing", prepared=False)
    orphan(silent, "silent", prepared=False)
    orphan(other, "other")
    failing.fail("before prepare", 1000)
    silent.hold("before prepare")
    monkeypatch.setattr(reaping, "_ANSWER_WITHIN", 0.2)
    swept, hang = threading.Event(), threading.Event()

    def sweep() -> None:
        swept.set()
        hang.wait()

    monkeypatch.setattr(reaper, "_sweep", sweep)
    stop = reaper.start_reaping(every=0.01)
    try:
        wait_for(lambda: recorded() == ["failing", "silent"] and other.left == [], "the other pool to be reaped")
        wait_for(swept.is_set, "a sweep that never ends")
        orphan(other, "later")
        wait_for(lambda: "later" not in recorded() and other.left == [], "a pool to be reaped during it")
    finally:
        stop()
        hang.set()
        silent.release("before prepare")
    failing.fail("before prepare", 0)
    wait_for(lambda: not any(done.error for done in sky.reap()) and not recorded(), "the rest to be reaped")
    assert failing.left == silent.left == []


def test_error_of_one_entry_ends_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = cloud_at(tmp_path / "cloud")
    orphan(cloud, "damaged")
    orphan(cloud, "sound")

    def damaged(journal: Journal, entry: PoolEntry, claim: Claim) -> sky.Orphan:
        if entry.name == "damaged":
            raise RuntimeError("its records are damaged")
        return orphan_of(journal, entry, claim)

    monkeypatch.setattr(reaping, "orphan_of", damaged)
    assert [(done.orphan.name, done.error) for done in sky.reap(due=True)] == [("sound", "")]
    assert recorded() == ["damaged"]


def test_request_without_an_answer_is_named_and_its_machines_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = cloud_at(tmp_path / "cloud")
    orphan(cloud, "doomed", machines=2, answered=False)
    assert main(["reap", "doomed", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("doomed: 0 machines known, 1 request unanswered, last owned by process")
    assert main(["reap", "doomed"]) == 0
    assert capsys.readouterr().out == "doomed: 2 machines terminated\n"
    assert cloud.left == []


def test_pool_without_machines_whose_provider_cannot_be_asked_can_be_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = cloud_at(tmp_path / "cloud")
    orphan(cloud, "never", prepared=False)
    orphan(cloud, "launched")
    cloud.fail("before prepare", 1000)
    cloud.fail("before terminate", 1)
    assert main(["reap", "never"]) == 1
    assert "`skyward reap --forget never` drops it from the journal" in capsys.readouterr().out
    assert main(["reap", "--forget", "never", "launched"]) == 1
    out = capsys.readouterr().out
    assert "never: forgotten; it never requested a machine\n" in out
    assert "launched: 1 machine may be left: " in out
    assert recorded() == ["launched"]
    assert main(["reap", "--forget"]) == 2
    assert main(["reap", "--forget", "launched"]) == 0
    assert recorded() == cloud.left == []
