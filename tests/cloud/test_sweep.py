"""Sweeping of accounts: what is ours and unknown goes, everything else stays."""

import asyncio
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.cli.main import main
from skyward.journal import PoolRecord, owner_id
from skyward.providers import PoolIdentity
from skyward.providers.conformance import conformance_identity
from tests.cloud.conftest import settings
from tests.fakes.runpod import KEY, FakeRunPod
from tests.fakes.server import Answer

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def configured(runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure the fake as the only provider with credentials, and an empty journal."""
    for name, folder in (("HOME", "home"), ("SKYWARD_DATA_DIR", "data")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("SKYWARD_DEFAULTS", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skyward.toml").write_text(
        f'[providers.pods]\ntype = "runpod"\napi_key = "{KEY}"\nendpoint = "{runpod.url}"\n'
    )


def launch(runpod: FakeRunPod, pool: PoolIdentity, tmp_path: Path) -> str:
    """Launch a machine that no journal knows; return its id."""

    async def main() -> str:
        provider = settings(runpod).create_provider()
        offers = [offer async for offer in provider.offers()]
        cluster = await provider.prepare(sky.Spec(), offers[0], pool)
        cluster = replace(cluster, tags={**pool.tags, "skyward-request": f"request-{pool.id}"})
        _, machines = await provider.provision(cluster, 1)
        return machines[0].id

    return asyncio.run(main())


def ours(pool: str, tmp_path: Path) -> PoolIdentity:
    return replace(conformance_identity(pool, tmp_path), owner=owner_id())


def test_machine_of_ours_that_no_journal_knows_is_removed(runpod: FakeRunPod, tmp_path: Path) -> None:
    machine = launch(runpod, ours("lost-1", tmp_path), tmp_path)
    (listed,) = sky.sweep(dry_run=True)
    assert (listed.provider, listed.kind, listed.id, listed.pool) == ("runpod", "machine", machine, "lost-1")
    assert machine in runpod.pods
    (swept,) = sky.sweep()
    assert swept.error == ""
    assert runpod.pods == {}
    assert sky.sweep() == []


def test_machines_of_others_and_of_recorded_pools_stay(runpod: FakeRunPod, tmp_path: Path) -> None:
    record = PoolRecord.new("alive", {}, None, 600)
    others = [
        launch(runpod, conformance_identity("theirs-1", tmp_path), tmp_path),
        launch(runpod, record.identity, tmp_path),
    ]
    assert sky.sweep() == []
    assert list(runpod.pods) == others
    record.end()


def test_machines_of_a_living_owner_stay_after_a_damaged_journal_was_removed(
    runpod: FakeRunPod, tmp_path: Path
) -> None:
    record = PoolRecord.new("alive", {}, None, 600)
    machine = launch(runpod, record.identity, tmp_path)
    for file in (tmp_path / "data").glob("journal.db*"):
        file.rename(tmp_path / f"damaged-{file.name}")
    assert sky.sweep() == []
    key = tmp_path / "data" / "pools" / record.id
    record.leave()
    assert sky.sweep() == [], "its owner was seen a moment ago"
    os.utime(key, (time.time() - 120,) * 2)
    assert [swept.id for swept in sky.sweep()] == [machine]
    assert runpod.pods == {}


def test_copy_of_a_data_directory_removes_nothing_of_the_original(
    runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner_id()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    machine = launch(runpod, ours("later-1", tmp_path), tmp_path)
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "copy"))
    other = tmp_path / "machine-id"
    other.write_text("0123456789abcdef" * 2)
    monkeypatch.setattr("skyward.journal.installation._MACHINE_IDS", (other,))
    assert sky.sweep() == []
    assert "was copied from another machine" in caplog.text
    assert list(runpod.pods) == [machine]


def test_machine_that_cannot_be_removed_is_reported(
    runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward.pool.reaping.sweep._GONE_WITHIN", 0.0)
    machine = launch(runpod, ours("lost-1", tmp_path), tmp_path)
    runpod.fail("DELETE", "/v1/pods/.*", Answer(400, {"error": "the pod is locked"}), times=-1)
    (swept,) = sky.sweep()
    assert swept.id == machine
    assert "the pod is locked" in swept.error


def test_provider_that_does_not_answer_is_logged(runpod: FakeRunPod, caplog: pytest.LogCaptureFixture) -> None:
    runpod.fail("GET", "/v1/pods", Answer(401, {"error": "revoked"}))
    assert sky.sweep() == []
    assert "What is left at provider 'runpod' is unknown" in caplog.text


def test_command_line_lists_and_removes(runpod: FakeRunPod, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch(runpod, ours("lost-1", tmp_path), tmp_path)
    assert main(["reap", "--dry-run"]) == 0
    assert "1 machine left at runpod, of pool 'lost-1', which is not in the journal" in capsys.readouterr().out
    assert main(["reap"]) == 0
    assert "1 machine removed at runpod" in capsys.readouterr().out
    assert runpod.pods == {}
