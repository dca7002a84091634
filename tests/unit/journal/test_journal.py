"""The journal: order of writes, confidentiality, and ownership of pools."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.errors import JournalError
from skyward.journal import Claim, Journal, JournalSeal, MachineEntry, PoolRecord, SizeEntry, UpdateEntry, WorkerEntry
from skyward.providers.protocol import Cluster, Instance, LocalAccess, Offer
from skyward.providers.protocol import InstanceType as Type
from skyward.specs import Spec

pytestmark = pytest.mark.unit

ROOT = str(Path(__file__).parents[3])
CLUSTER = Cluster("c-1", "p-1", Spec(), Offer("offer", Type("type", 1, 1)))
MACHINES = (Instance("m-1", "running", LocalAccess("127.0.0.9", "/tmp")), Instance("m-2", "provisioning"))
WORKER = WorkerEntry(0, "node 1", "127.0.0.9:1", "127.0.0.9:2", "node=/tmp")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def new(name: str = "train", groups: dict[str, object] | None = None) -> PoolRecord:
    return PoolRecord.new(name, groups or {}, None, 600)


def test_each_step_is_recorded_before_it_happens_and_until_it_is_undone() -> None:
    record = new()
    with Journal() as journal:
        (pool,) = journal.pools("train")
        assert (pool.id, pool.pid, pool.lease) == (record.id, os.getpid(), 600)
        number = record.preparing("gpu", "the offer")
        (entry,) = journal.clusters(record.id)
        assert (entry.number, entry.group, entry.offered, entry.cluster) == (number, "gpu", "the offer", None)
        record.prepared(number, CLUSTER)
        first, second = record.asking(number), record.asking(number)
        (entry,) = journal.clusters(record.id)
        assert entry.cluster == CLUSTER
        assert set(entry.requests) == {first, second}
        record.provisioned(number, first, CLUSTER, MACHINES)
        record.installed(number, MACHINES[0], WORKER)
        (entry,) = journal.clusters(record.id)
        assert list(entry.requests) == [second]
        assert entry.machines == (MachineEntry(MACHINES[0], WORKER), MachineEntry(MACHINES[1]))
        assert journal.machines(record.id) == list(entry.machines)
        record.gone(number, "m-1")
        assert [machine.instance.id for machine in journal.machines(record.id)] == ["m-2"]
        record.torn_down(number)
        assert journal.clusters(record.id) == []
        record.end()
        assert journal.pools() == []


def test_size_is_recorded_in_place_of_the_one_before() -> None:
    record = new()
    assert record.size() is None
    first = SizeEntry({"default": (1, 4)}, {"default": 3}, frozenset({"m-2"}), frozenset({"m-1"}))
    last = SizeEntry({"default": (1, 1), "gpu": (0, 2)}, {"default": 1, "gpu": 0})
    for size in (first, last):
        record.set_size(size)
        assert record.size() == size
    record.end()


def test_updates_are_recorded_in_place_of_those_before() -> None:
    record = new()
    assert record.updates() == []
    record.set_updates([UpdateEntry("gpu", 2, False), UpdateEntry("default", 0, False)])
    last = [UpdateEntry("default", 0, True), UpdateEntry("gpu", 2, False)]
    record.set_updates(last)
    assert record.updates() == last
    record.set_updates([])
    assert record.updates() == []
    record.end()


def test_specs_are_recorded_sealed_with_the_present_ones_last(data: Path) -> None:
    record = new()
    for first, text in ((0, "spec a"), (1, "spec b"), (0, "spec a"), (1, "spec b"), (0, "spec a")):
        record.set_specs("default", first, (text,))
    record.set_specs("gpu", 2, ("spec c",))
    with Journal() as journal:
        found = journal.specs(record.id)
    assert [(each.group, each.first) for each in found] == [("default", 1), ("default", 0), ("gpu", 2)]
    record.set_specs("default", 3, threading.Lock())  # what cannot be pickled
    with Journal() as journal:
        assert journal.specs(record.id)[-1].specs == b""
    record.end()
    with Journal() as journal:
        assert journal.specs(record.id) == []


def test_only_the_user_can_read_the_journal_and_no_data_of_a_closed_pool_stays(data: Path) -> None:
    record = new(groups={"default": ("a value that only this pool has",)})
    record.prepared(record.preparing("default", "another such value"), CLUSTER)
    (key,) = (data / "pools").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (data / "journal.db", key)] == [0o600, 0o600]
    secret = key.read_bytes()
    kept = b"".join(path.read_bytes() for path in data.glob("journal*"))
    assert b"a value that only this pool has" in kept
    assert secret not in kept
    record.end()
    assert not list((data / "pools").iterdir())
    kept = b"".join(path.read_bytes() for path in data.glob("journal*"))
    assert b"such value" not in kept
    assert b"a value that only this pool has" not in kept


def test_token_of_adapters_is_not_recorded(data: Path) -> None:
    adapters = sky.Adapter(token="a token that nobody knows")
    record = new(groups={"default": (Spec(provider=adapters),)})
    kept = b"".join(path.read_bytes() for path in data.glob("journal*"))
    assert b"skyward_providers.adapter" in kept
    assert b"nobody knows" not in kept
    record.end()


def test_secrets_are_readable_with_the_key_of_the_pool_only(data: Path) -> None:
    """Neither the journal file nor the repr of a spec contains them in plain text."""
    spec = Spec(image=sky.Image(env={"HF_TOKEN": "hf_of_nobody"}))
    assert "'HF_TOKEN': '***'" in repr(spec)
    assert "hf_of_nobody" not in repr(spec)
    record = new(groups={"default": (spec,)})
    cluster = replace(CLUSTER, spec=spec)
    number = record.preparing("default", spec)
    record.prepared(number, cluster)
    record.provisioned(number, record.asking(number), cluster, MACHINES)
    kept = b"".join(path.read_bytes() for path in data.rglob("*") if path.is_file())
    assert b"HF_TOKEN" in kept
    assert b"hf_of_nobody" not in kept
    record.leave()
    with Journal() as journal:
        (entry,) = journal.clusters(record.id)
        assert entry.offered.image.env == {"HF_TOKEN": "***"}, "reaping needs no key"
        claim = Claim.take(record.id)
        assert claim is not None
        seal = JournalSeal(claim.secrets_key)
        (entry,) = journal.clusters(record.id, seal)
        assert (entry.offered, entry.cluster) == (spec, cluster)
        assert "hf_of_nobody" not in repr(entry)
        assert seal.unpack(journal.pools()[0].settings) == ({"default": (spec,)}, None)
        PoolRecord.taken_over(record.id, journal, claim).end()


def test_options_that_cannot_be_pickled_are_left_out() -> None:
    record = new(groups={"default": (sys._getframe(),)})
    with Journal() as journal:
        assert journal.pools()[0].settings == b""
    record.end()


def test_pool_belongs_to_its_owner_until_that_dies(data: Path) -> None:
    script = "import sys, time; from skyward.journal import PoolRecord\n" \
        "print(PoolRecord.new('theirs', {}, None, 0).id, flush=True); time.sleep(100)"  # fmt: skip  # one script
    env = {**os.environ, "PYTHONPATH": ROOT}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout is not None
        pool = owner.stdout.readline().strip()
        assert Claim.take(pool) is None
        owner.send_signal(signal.SIGKILL)
    claim = Claim.take(pool)
    assert claim is not None
    assert Claim.take(pool) is None, "this process has the claim already"
    claim.release()
    again = Claim.take(pool)
    assert again is not None
    assert again.derive("node 1") == claim.derive("node 1") != again.derive("node 2")
    again.end()
    assert Claim.take(pool) is None


def test_number_of_unsent_tasks_survives_the_owner() -> None:
    left = new("left")
    assert left.unsent == 0
    left.unsent = 70_000
    left.leave()
    claim = Claim.take(left.id)
    assert claim is not None
    assert claim.unsent == 70_000
    assert claim.derive("one") == left.derive("one"), "the secret was overwritten"
    claim.end()


def test_pool_that_was_left_without_tasks_stays_so_until_a_task_is_sent() -> None:
    left = new("left")
    left.is_idle = True
    left.set_lease(42.0)
    left.leave()
    for sends in (False, True):
        claim = Claim.take(left.id)
        assert claim is not None
        assert claim.left_idle
        record = PoolRecord.taken_over(left.id, Journal(), claim)
        assert record.is_idle
        if sends:
            record.is_idle = False
        record.leave()
    claim = Claim.take(left.id)
    assert claim is not None
    assert not claim.left_idle
    with Journal() as journal:
        assert [entry.lease for entry in journal.pools("left")] == [42.0]
    claim.end()


def test_end_and_leave_are_idempotent() -> None:
    ended, left = new("ended"), new("left")
    for _ in range(2):
        ended.end()
        left.leave()
    left.end()
    with Journal() as journal:
        assert [pool.name for pool in journal.pools()] == ["left"], "a pool that others may reap stays on record"


def test_pool_name_is_restricted_to_characters_of_files_and_tags() -> None:
    record = new("../my pool/ä")
    assert record.id.startswith("my-pool---")
    record.end()


def test_unwritable_directory_is_named(data: Path) -> None:
    data.parent.mkdir(exist_ok=True)
    data.touch()
    message = rf"^Skyward records the machines it launches in {data}, which cannot be created"
    with pytest.raises(JournalError, match=message):
        new()


def test_second_connection_does_not_release_the_locks_of_the_first(data: Path) -> None:
    look = "from skyward.journal import Journal; Journal().close()"
    with Journal() as journal:
        journal.pools()
        Journal().close()
        subprocess.run([sys.executable, "-c", look], check=True)
        assert (data / "journal.db-wal").exists(), "another process removed the WAL that this one uses"


def test_concurrent_writes_do_not_corrupt_the_journal(data: Path) -> None:
    write = (
        "from skyward.journal import Journal\n"
        "for number in range(20):\n"
        "    with Journal() as one, Journal() as two:\n"
        "        one.add_phase_seconds('p', 'i', {str(number): 1.0}, 3)\n"
        "        two.add_phase_seconds('p', 'i', {str(number): 2.0}, 3)\n"
    )
    writing = [subprocess.Popen([sys.executable, "-c", write]) for _ in range(4)]
    assert [each.wait() for each in writing] == [0] * 4
    with closing(sqlite3.connect(data / "journal.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT count(*) FROM took").fetchone() == (60,)


def test_damaged_journal_is_named(data: Path) -> None:
    data.mkdir(exist_ok=True)
    (data / "journal.db").write_bytes(b"no database" * 1000)
    with pytest.raises(JournalError, match=r"is damaged \(.*\): remove or rename it\. Machines recorded only"):
        new()
