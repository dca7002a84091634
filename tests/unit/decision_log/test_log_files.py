"""Files of decision logs: what is written comes back, and a file that cannot be read or written is named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest

from skyward.control.decide.autoscaler import BlockedNodes, Evaluation, GrowthLimits
from skyward.control.decide.recorded_autoscaler import AutoscalerStarted, CooldownStarted, EvaluationRecord
from skyward.decision_log.file import DecisionFile
from skyward.decision_log.lines import FORMAT, LogHeader, encode_record, plain, read_decision_log, reader_of
from skyward.errors import SpecError
from skyward.scaling.snapshot import Counts, Decision, Demand, GangDemand, Group, NodeLoad, RetainedNodes, Snapshot
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

GPU = Group("gpu", 0, 4, 2, {"GPU": 2.0}, frozenset({"fast", "big"}), 3.5, 20.0)
SNAPSHOT = Snapshot(
    12.25,
    (Group("cpu"), GPU),
    {"cpu": Counts(1, 0, 0, 1, 1), "gpu": Counts()},
    (Demand(3, Needs({"GPU": 0.5}, {"fast"})), Demand(1)),
    gangs=(GangDemand((Needs({"GPU": 1}), Needs()), "strict_spread"), GangDemand((Needs(),))),
    floor=(Demand(2),),
    idle_for=0.1 + 0.2,
    max_nodes=7,
    boot_seconds=61.5,
    retained={"cpu": RetainedNodes(1, "node 0 keeps model")},
    nodes=(NodeLoad(0, "cpu", "active", 1, {"CPU": 4.0}), NodeLoad(3, "gpu", "booting")),
)
HEADER = LogHeader(FORMAT, "train", "pressure", {"interval": None}, 30.0, (GPU,), {"gpu": 3.5}, 1_700_000_000.0)
LIMITS = GrowthLimits({"cpu": None, "gpu": 2}, 5.0, {"gpu": BlockedNodes(1, "gets no machine now: none is free")})
EVALUATION = EvaluationRecord(SNAPSHOT, LIMITS, Decision({"gpu": 2}, "3 tasks wait"))


def write(path: Path, *records: object) -> None:
    path.write_bytes(b"".join(encode_record(record) for record in records))  # type: ignore[arg-type]  # they are records


def test_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "log", HEADER, AutoscalerStarted(1.0), CooldownStarted(2.0), EVALUATION)
    lines, notices = read_decision_log(tmp_path / "log")
    header, started, cooldown, evaluation = (line.record for line in lines)
    assert (header, started, cooldown, notices) == (HEADER, AutoscalerStarted(1.0), CooldownStarted(2.0), [])
    assert evaluation.snapshot == SNAPSHOT  # type: ignore[union-attr]  # the kind of the fourth line
    assert evaluation.decision == {"desired": {"gpu": 2}, "reason": "3 tasks wait"}  # type: ignore[union-attr]
    assert [line.number for line in lines] == [1, 2, 3, 4]


def test_fields_with_their_defaults_are_not_written() -> None:
    assert plain(Demand(3)) == {"count": 3}
    assert plain(NodeLoad(0, "cpu", "active")) == {"rank": 0, "group": "cpu", "stage": "active"}


@dataclass(frozen=True)
class Wide:
    """Types that a field of a snapshot may have."""

    target: float | Literal["cheap"] = "cheap"
    maybe: Demand | None = None
    by_needs: Mapping[Needs, int] = field(default_factory=dict)
    pairs: tuple[tuple[str, float], ...] = ()
    fixed: tuple[int, str] = (0, "")
    names: frozenset[str] = frozenset()


def test_every_kind_of_field_is_read_as_it_was_written() -> None:
    wide = Wide(2.5, Demand(1), {Needs({"GPU": 1}): 3}, (("a", 1.0),), (4, "b"), frozenset({"c", "d"}))
    read = reader_of(Wide)
    assert read(json.loads(json.dumps(plain(wide)))) == wide
    assert read({}) == Wide()


def test_new_fields_of_a_dataclass_are_written() -> None:
    @dataclass(frozen=True)
    class Later(Demand):
        seconds: float | None = None

    assert plain(Later(2, seconds=0.5)) == {"count": 2, "seconds": 0.5}


@pytest.mark.parametrize("odd", [2.5, -1, object(), float("nan")])
def test_whatever_a_policy_of_the_user_decided_can_be_written(odd: object) -> None:
    decision = Decision({"cpu": odd}, "odd")  # type: ignore[dict-item]  # what a policy might return
    said = json.loads(encode_record(replace(EVALUATION, decision=decision, verdict=Evaluation({}, {}, "odd"))))
    assert set(said) == {"kind", "snapshot", "limits", "decision", "verdict"}


def test_last_line_that_was_cut_off_is_dropped_with_a_notice(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, HEADER, AutoscalerStarted(1.0), EVALUATION)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    lines, notices = read_decision_log(path)
    assert [line.number for line in lines] == [1, 2]
    assert notices == [f"Line 3 of '{path}' was cut off, as its process ended while writing; it is dropped."]


def test_pool_that_opens_again_continues_a_file_whose_last_line_was_cut_off(tmp_path: Path) -> None:
    path, failures = tmp_path / "log", list[str]()
    write(path, HEADER, AutoscalerStarted(1.0))
    path.write_bytes(path.read_bytes()[:-5])
    again = DecisionFile(path, failures.append)
    again.open(replace(HEADER, pool="again"))
    again.write([AutoscalerStarted(5.0)])
    again.close()
    again.close()
    lines, notices = read_decision_log(path)
    assert [getattr(line.record, "pool", "") for line in lines] == ["train", "again", ""]
    assert len(notices) == 1
    assert not failures


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read .No such file or directory.; give the file that a pool has written"),
        ("", "is empty: a pool writes to it once it opens"),
        ("at,seconds\n0,30\n", "is not a decision log: its first line does not describe a pool"),
        ('{"kind":"ready","now":1}\n', "is not a decision log: its first line does not describe a pool"),
        ("[1]\n", "is not a decision log: its first line does not describe a pool"),
        ("\x00\xff\n", "is not a decision log: its first line does not describe a pool"),
        ('{"kind":"pool","format":9,"pool":"a","policy":"no"}\n', "has format 9, but this version of Skyward reads"),
        ('{"kind":"pool","format":1,"pool":"a","policy":"no","new":1}\n', "it has an unknown field 'new'"),
        (
            '{"kind":"pool","format":1,"pool":"a","policy":"no"}\nx\n{"kind":"ready","now":1}\n',
            "Line 2 of .* is not JSON",
        ),
        (
            '{"kind":"pool","format":1,"pool":"a","policy":"no"}\n{"kind":"other"}\n',
            "Line 2 of .* is an entry of kind 'other', which this version of Skyward does not know: replay",
        ),
        (
            '{"kind":"pool","format":1,"pool":"a","policy":"no"}\n{"kind":"ready","now":"x"}\n',
            "Line 2 of .* is a damaged entry .it has a value of another type than its field.: remove this line and",
        ),
        (
            '{"kind":"pool","format":1,"pool":"a","policy":"no"}\n{"kind":"evaluation"}\n',
            "Line 2 of .* is a damaged entry .it lacks 'limits'.: remove this line and the rest, or replay the log",
        ),
        (
            '{"kind":"pool","format":1,"pool":"a","policy":"no"}\n[1]\n',
            "Line 2 of .* is not an entry of a decision log, so the file is damaged; remove this line and the rest",
        ),
        ('{"kind":"pool","format":1,"pool":"a","policy":"no"}\n{}\n', "Line 2 of .* is not an entry of a dec"),
    ],
)
def test_file_that_is_no_decision_log_raises_one_sentence(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "log"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError, match=message) as caught:
        read_decision_log(path)
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_opened_is_reported_once(tmp_path: Path) -> None:
    failures: list[str] = []
    file = DecisionFile(tmp_path / "absent" / "log", failures.append)
    file.open(HEADER)
    file.write([AutoscalerStarted(1.0)])
    file.close()
    reason = "cannot be written (No such file or directory)"
    assert failures == [f"the decision log '{tmp_path}/absent/log' {reason}"]


def test_full_disk_ends_the_log_with_one_report() -> None:
    failures: list[str] = []
    file = DecisionFile(Path("/dev/full"), failures.append)
    file.open(HEADER)
    file.write([AutoscalerStarted(1.0), AutoscalerStarted(2.0)])
    assert failures == ["the decision log '/dev/full' cannot be written (No space left on device)"]


def test_two_pools_do_not_write_to_one_file(tmp_path: Path) -> None:
    failures: list[str] = []
    first, second = (DecisionFile(tmp_path / "log", failures.append) for _ in range(2))
    first.open(HEADER)
    second.open(HEADER)
    assert failures == [f"the decision log '{tmp_path}/log' cannot be written (another pool writes to it)"]
    first.close()
    assert len(read_decision_log(tmp_path / "log")[0]) == 1
