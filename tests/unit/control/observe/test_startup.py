"""Usual durations of phases, and the logs and failures of starts."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from skyward.bootstrap import PhaseEvent
from skyward.control.observe import startup as booting
from skyward.control.observe.startup import NodeStartup, StartupTracker, UsualTimes, usual_start
from skyward.errors import JournalError, NodeStartError
from skyward.journal import Journal, PoolRecord

pytestmark = pytest.mark.unit


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolRecord]:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    record = PoolRecord.new("train", {}, None, 600)
    yield record
    record.end()


def test_usual_time_is_the_median_of_the_latest_and_outlives_the_process(record: PoolRecord) -> None:
    usual = UsualTimes(record)
    assert usual.of("aws", "abc", "deps") is None
    for seconds in (1000.0, 30.0, 50.0):
        usual.add("aws", "abc", {"deps": seconds, "worker": 1.0})
    assert usual.of("aws", "abc", "deps") == 50.0
    assert UsualTimes(record).of("aws", "abc", "deps") == 50.0
    assert usual.of("aws", "another image", "deps") is None
    assert usual.of("ssh", "abc", "deps") is None
    for _ in range(9):
        UsualTimes(record).add("aws", "abc", {"deps": 40.0})
    with Journal() as journal:
        assert journal.took("aws", "abc") == {"deps": [40.0] * 9, "worker": [1.0] * 3}, "the latest nine are kept"


def test_large_pool_records_a_few_of_its_starts(record: PoolRecord) -> None:
    usual = UsualTimes(record)
    for number in range(1000):
        usual.add("aws", "abc", {"deps": float(number)})
    assert record.took("aws", "abc") == {"deps": [float(number) for number in range(9)]}
    assert usual.of("aws", "abc", "deps") == 995.0, "its own starts count all the same"


def test_start_is_estimated_from_earlier_starts(record: PoolRecord) -> None:
    """Its phases are not added up: a later start of an image needs fewer of them."""
    assert usual_start("aws", "abc") is None
    startups = StartupTracker(record)
    startups.add_allocation("aws", 20.0)
    for number, took in enumerate(({"connecting": 10.0, "deps": 60.0}, {"connecting": 2.0}, {"connecting": 4.0})):
        boot = NodeStartup(number, number)
        boot.took, boot.image = took, "abc"
        startups.completed(boot, "aws")
    assert usual_start("aws", "abc") == 24.0
    assert usual_start("aws", "another image") == usual_start("aws") == 24.0
    assert usual_start("gcp", "abc") is None


class _Unwritable:
    """A record on a full disk."""

    def took(self, provider: str, image: str) -> dict[str, list[float]]:
        raise JournalError("It cannot be read.")

    def add_phase_seconds(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        raise JournalError("It cannot be written.")


def test_unwritable_journal_does_not_prevent_starts() -> None:
    startups, boot = StartupTracker(_Unwritable()), NodeStartup(0, 1)
    boot.took = {"deps": 3.0}
    startups.completed(boot, "aws")
    assert startups.usual.of("aws", "", "deps") == 3.0
    entered = NodeStartup(1, 2)
    entered.took = {"deps": 90.0}
    startups.completed(entered, "aws", attached=True)
    assert startups.usual.of("aws", "", "deps") == 3.0, "a recovered node does not count for usual durations"


def test_log_of_a_start_has_each_phase_and_the_full_failure(record: PoolRecord) -> None:
    startups, boot = StartupTracker(record), NodeStartup(3, 7)
    startups.begin(boot)
    boot.enter("connecting")
    boot.on_phase_event(PhaseEvent("skipped", "env"))
    assert boot.on_phase_event(PhaseEvent("started", "deps")) == "deps"
    error = NodeStartError("bootstrap phase 'deps' failed (status 1):\nb\nc\nd\ne", "a\nb\nc\nd\ne")
    startups.failed(boot, error)
    failure = startups.failures[3]
    assert (failure.phase, failure.reason) == ("deps", "bootstrap phase 'deps' failed (status 1)")
    assert failure.lines == ("c", "d", "e")
    said = [line.partition("  ")[2] or line for line in startups.log(3).splitlines()]
    assert said == [
        "connecting",
        "env: nothing to do",
        "deps",
        "failed: bootstrap phase 'deps' failed (status 1):",
        *"abcde",
    ]
    startups.completed(NodeStartup(3, 8), "aws")
    assert startups.failures == {}


def test_logs_of_starts_are_bounded(record: PoolRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(booting, "LOGS", 10_000)
    startups = StartupTracker(record)
    for rank in range(50):
        boot = NodeStartup(rank, rank)
        startups.begin(boot)
        startups.failed(boot, NodeStartError("it failed", "x" * 2000))
    assert [rank for rank in range(50) if startups.log(rank)] == [46, 47, 48, 49]
