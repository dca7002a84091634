"""The id of an installation: kept on its machine and on those that share its directory, and another one in a copy."""

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.journal import Claim, Journal, PoolEntry, PoolRecord, owner_id, this_installation
from skyward.pool.reaping.reap import forget

pytestmark = pytest.mark.unit


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the id of this machine."""
    file = tmp_path / "machine-id"
    file.write_text("a" * 32)
    monkeypatch.setattr("skyward.journal.installation._MACHINE_IDS", (file,))
    return file


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Path) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def move_to_a_copy(data: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the data directory to another machine, and continue there; return the copy."""
    copy = data.with_name("copy")
    shutil.copytree(data, copy)
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(copy))
    machine.write_text("b" * 32)
    return copy


def test_copy_on_another_machine_has_an_id_of_its_own(
    data: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = owner_id()
    assert this_installation().since == 0.0
    move_to_a_copy(data, machine, monkeypatch)
    copy = owner_id()
    assert copy != original
    assert owner_id() == copy
    assert 0 < this_installation().since <= time.time()


def test_machines_that_share_a_directory_are_one_installation(machine: Path) -> None:
    original = owner_id()
    machine.write_text("b" * 32)
    assert owner_id() == original


@pytest.mark.parametrize("known", ["", "uninitialized\n"])
def test_machine_without_an_id_keeps_the_installation(
    data: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    original = owner_id()
    move_to_a_copy(data, machine, monkeypatch)
    machine.write_text(known)
    assert owner_id() == original


def test_file_with_nothing_but_an_id_is_kept(data: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.mkdir()
    (data / "owner").write_text("0123456789abcdef0123")
    move_to_a_copy(data, machine, monkeypatch)
    assert owner_id() == "0123456789abcdef0123"


def test_damaged_file_is_an_error_of_the_journal(data: Path) -> None:
    owner_id()
    (data / "owner").write_text("")
    with pytest.raises(sky.JournalError, match="cannot be read .it is damaged."):
        owner_id()


def test_pools_of_the_original_are_reaped_by_name_only(
    data: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner_id()
    record = PoolRecord.new("theirs", {}, None, 0)
    record.leave()
    copy = move_to_a_copy(data, machine, monkeypatch)
    os.utime(copy / "pools" / record.id, (time.time() - 5000,) * 2)
    assert sky.reap(due=True) == []
    (left,) = sky.reap()
    assert "from whose data directory this one was copied" in left.error
    own = PoolRecord.new("own", {}, None, 0)
    own.leave()
    assert [(done.orphan.name, bool(done.error)) for done in sky.reap()] == [("theirs", True), ("own", False)]
    assert [done.error for done in sky.reap("theirs")] == [""]
    with Journal() as journal:
        assert journal.pools() == []


def test_pool_of_another_computer_that_was_just_seen_is_left_alone(data: Path) -> None:
    record = PoolRecord.new("shared", {}, None, 0)
    with Journal() as journal:
        journal.hand_over(record.id, "login2", 4711)
    record.leave()
    (left,) = sky.reap("shared")
    assert "process 4711 on login2 was seen 0 s ago, and may live" in left.error
    assert "may live" in forget(["shared"])[0]
    os.utime(data / "pools" / record.id, (time.time() - 120,) * 2)
    assert [done.error for done in sky.reap()] == [""]


def test_pool_of_this_computer_is_reaped_at_once() -> None:
    record = PoolRecord.new("here", {}, None, 0)
    with Journal() as journal:
        (entry,) = journal.pools()
    assert isinstance(entry, PoolEntry)
    assert entry.host == socket.gethostname()
    record.leave()
    assert [done.error for done in sky.reap()] == [""]
    assert not Claim.exists(record.id)


@pytest.mark.parametrize(("name", "begins"), [("étude", "tude-"), ("_x", "x-"), ("---", "pool-"), ("a" * 60, "a" * 40)])
def test_ids_of_pools_are_labels_of_every_cloud(name: str, begins: str) -> None:
    record = PoolRecord.new(name, {}, None, 0)
    assert record.id.startswith(begins)
    assert record.id[0].isalnum()
    assert len(record.id) <= 51
    record.end()
