"""A journal of another version of Skyward: set aside, or refused with advice that works."""

import os
import re
import shlex
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from skyward.errors import JournalError
from skyward.journal import SELF_TERMINATION, Journal, PoolRecord, WorkerEntry
from skyward.providers.protocol import Cluster, Instance, Offer
from skyward.providers.protocol import InstanceType as Type
from skyward.specs import Spec

pytestmark = pytest.mark.unit

CLUSTER = Cluster("c-1", "p-1", Spec(), Offer("offer", Type("type", 1, 1)))
MACHINE = Instance("m-1", "running")
WORKER = WorkerEntry(0, "node 1", "127.0.0.9:1", "127.0.0.9:2", "node=/tmp")
LEASE = 600.0


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "my data"))
    return tmp_path / "my data"


def set_format(data: Path, number: int = 1) -> None:
    with closing(sqlite3.connect(data / "journal.db")) as db:
        db.execute(f"PRAGMA user_version = {number}")


def launched(*, worker: bool = True) -> PoolRecord:
    """Return the record of a pool with one machine, with or without its worker."""
    record = PoolRecord.new("train", {}, None, LEASE)
    number = record.preparing("default", "the offer")
    record.provisioned(number, record.asking(number), CLUSTER, [MACHINE])
    if worker:
        record.installed(number, MACHINE, WORKER)
    return record


def names(data: Path) -> list[str]:
    return sorted(path.name for path in data.glob("journal*") if path.suffix == ".db")


def refusal() -> str:
    with pytest.raises(JournalError) as raised:
        Journal()
    return str(raised.value)


@pytest.mark.parametrize("number", [1, 99])
def test_journal_without_machines_is_set_aside_and_the_log_says_so(
    data: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    PoolRecord.new("train", {}, None, LEASE).leave()
    set_format(data, number)
    with Journal() as journal:
        assert journal.pools() == []
    assert names(data) == [f"journal-format-{number}.db", "journal.db"]
    assert caplog.messages == [
        f"The journal {data}/journal.db has format {number}, of another version of Skyward; this one writes format 8. "
        f"No machine that it lists can be running, so it was renamed to journal-format-{number}.db."
    ]
    set_format(data, number)
    Journal().close()
    assert f"journal-format-{number}-2.db" in names(data), "no file is overwritten"


def test_machines_whose_lease_has_expired_are_not_running(data: Path) -> None:
    record = launched()
    record.leave()
    set_format(data)
    key = data / "pools" / record.id
    long_ago = time.time() - LEASE - SELF_TERMINATION
    os.utime(key, (long_ago + 60, long_ago + 60))
    assert "Machines that it lists may be running" in refusal()
    os.utime(key, (long_ago - 60, long_ago - 60))
    Journal().close()
    assert names(data) == ["journal-format-1.db", "journal.db"]


def test_machine_without_a_worker_does_not_end_with_its_lease(data: Path) -> None:
    record = launched(worker=False)
    record.leave()
    set_format(data)
    os.utime(data / "pools" / record.id, (0, 0))
    assert "pool 'train' with 1 machine, whose process" in refusal()


def test_refusal_names_the_pools_and_its_command_sets_the_file_aside(data: Path) -> None:
    launched().leave()
    set_format(data)
    text = refusal()
    assert text.startswith(
        f"The journal {data}/journal.db has format 1, of another version of Skyward; this one writes format 8. "
        "Machines that it lists may be running: pool 'train' with 1 machine, whose process "
        f"{os.getpid()} on {os.uname().nodename} is gone. Close these pools, or run `skyward reap`, with that version. "
        "If you know that none is left, set the file aside: `mv "
    )
    assert names(data) == ["journal.db"]
    found = re.search("`(mv .*?)`", text)
    assert found is not None
    subprocess.run(shlex.split(found[1]), check=True)
    launched().end()
    assert names(data) == ["journal-format-1.db", "journal.db"]


def test_pool_whose_process_is_running_is_refused_though_it_has_no_machine(data: Path) -> None:
    record = PoolRecord.new("train", {}, None, LEASE)
    set_format(data)
    assert f"pool 'train' with 0 machines, whose process {os.getpid()} on" in (text := refusal())
    assert "is running. Close these pools" in text
    record.leave()


def test_unanswered_request_is_refused(data: Path) -> None:
    record = PoolRecord.new("train", {}, None, LEASE)
    record.asking(record.preparing("default", "the offer"))
    record.leave()
    set_format(data)
    assert "with 0 machines and 1 unanswered request, whose process" in refusal()


def test_journal_in_use_is_refused(data: Path) -> None:
    with Journal() as other:
        set_format(data)
        assert "and a process of that version uses it (database is locked). End that process, or name" in refusal()
        assert other.pools() == []
    assert names(data) == ["journal.db"]


def test_journal_with_other_tables_is_refused(data: Path) -> None:
    data.mkdir()
    set_format(data, 99)
    with closing(sqlite3.connect(data / "journal.db")) as db:
        db.execute("CREATE TABLE fleets (id TEXT)")
    assert "may be running: it cannot be read (no such table: " in refusal()
