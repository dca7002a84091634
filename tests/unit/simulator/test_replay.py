"""Replay of decision logs: the same inputs give the same decisions, and a difference is found."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from skyward.control.decide.autoscaler import GrowthLimits
from skyward.control.decide.plane_view import OnDemand
from skyward.control.decide.recorded_autoscaler import EvaluationRecord, RecordedAutoscaler
from skyward.decision_log.file import DecisionFile
from skyward.decision_log.lines import FORMAT, LogHeader
from skyward.errors import SpecError
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import Counts, Decision, Group, NodeLoad, Snapshot
from skyward.scaling.vanilla import Vanilla
from skyward.simulator import Action, Faults, Scenario, Task, Workload, one_group, simulate
from skyward.simulator.replay import replay
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

GROUPS = (
    Group("cpu", 0, 6, 2, {"CPU": 4.0}, hourly_price=1.0),
    Group("gpu", 1, 3, 1, {"CPU": 4.0, "GPU": 1.0}, frozenset({"fast"}), 3.0, 30.0),
)


def recorded(path: Path, policy: str, **changes: object) -> None:
    """Write the decision log of a run in which nodes are lost, the user intervenes, and the budget matters."""
    needs = Needs({"GPU": 1}, {"fast"})
    times = [900.0 * burst + number for burst in range(3) for number in range(40)]
    work = [Task(at, 90.0, needs if place % 3 == 0 else Needs()) for place, at in enumerate(times)]
    acts = (
        Action(200, "resize", 1, 4),
        Action(400, "floor", 2, 3),
        Action(900, "drain", 1),
        Action(1200, "fund", 0, 90),
    )
    scenario = Scenario(
        tuple(work), GROUPS, policy, seed=3, faults=Faults(spot_loss=2.0), budget=100.0, actions=acts, grace=1800
    )
    simulate(replace(scenario, decision_log=path, **changes))  # type: ignore[arg-type]  # fields of a scenario


@pytest.mark.parametrize("policy", POLICIES)
def test_replay_of_a_run_gives_the_same_decisions(policy: str, tmp_path: Path) -> None:
    recorded(tmp_path / "log", policy)
    result = replay(tmp_path / "log")
    assert result.evaluations > 50
    assert result.changes > 0 or policy == "no"
    assert (result.policies, result.pools, result.differences, result.notices) == ((policy,), 1, (), ())


def test_changed_decision_is_found_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    recorded(path, "pressure")
    lines = path.read_text().splitlines()
    place = next(place for place, line in enumerate(lines) if '"verdict":{' in line)
    said = json.loads(lines[place])
    said["decision"]["desired"]["cpu"] += 1
    lines[place] = json.dumps(said)
    path.write_text("\n".join(lines) + "\n")
    (found,) = replay(path).differences
    assert found.line == place + 1
    assert found.recorded.decision["desired"]["cpu"] == found.now.decision["desired"]["cpu"] + 1


def test_another_cooldown_is_found_in_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "log"
    recorded(path, "pressure")
    header, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(header), "cooldown": 600.0}) + "\n" + rest)
    differences = replay(path).differences
    assert differences
    assert all(each.recorded.decision == each.now.decision for each in differences)


def test_another_policy_is_compared_by_the_numbers_of_nodes(tmp_path: Path) -> None:
    recorded(tmp_path / "log", "pressure")
    assert replay(tmp_path / "log", "pressure").differences == ()
    other = replay(tmp_path / "log", "no")
    assert 0 < len(other.differences) < other.evaluations
    first = other.differences[0]
    assert first.now.nodes(first.snapshot) == first.snapshot.desired


def test_two_runs_in_one_file_are_replayed_with_a_new_policy_each(tmp_path: Path) -> None:
    recorded(tmp_path / "log", "binpack")
    recorded(tmp_path / "log", "fixed_elastic")
    result = replay(tmp_path / "log")
    assert (result.policies, result.pools, result.differences) == (("binpack", "fixed_elastic"), 2, ())


class Broken:
    """A policy of a user that raises at every other call."""

    name, interval, calls = "broken", None, 0

    def decide(self, snapshot: Snapshot) -> Decision:
        self.calls += 1
        if self.calls % 2:
            raise ValueError("odd call")
        return Decision({"nodes": 2}, "two")


def log_of(path: Path, autoscaler: RecordedAutoscaler, header: LogHeader) -> None:
    """Evaluate an autoscaler twice, and write its log."""
    snapshot = Snapshot(0.0, one_group(0, 4), {"nodes": Counts()})
    autoscaler.begin(0.0)
    for now in (1.0, 2.0):
        with contextlib.suppress(ValueError):
            autoscaler.evaluate(replace(snapshot, now=now), GrowthLimits())
    file = DecisionFile(path, pytest.fail)
    file.open(header)
    file.write(autoscaler.take_records())
    file.close()


def test_policy_that_raises_is_recorded_and_goes_on(tmp_path: Path) -> None:
    log_of(tmp_path / "log", RecordedAutoscaler(Broken()), LogHeader(FORMAT, "train", "broken"))
    said = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [each["kind"] for each in said] == ["pool", "ready", "evaluation", "evaluation"]
    assert (said[2]["error"], said[3]["decision"]["desired"]) == ("ValueError: odd call", {"nodes": 2})


def test_idle_nodes_are_recorded_as_they_were_when_the_policy_decided() -> None:
    idle = [NodeLoad(1, "nodes", "active", idle_for=60.0)]
    autoscaler = RecordedAutoscaler(Broken())
    autoscaler.begin(0.0)
    seen = Snapshot(1.0, one_group(0, 4), {"nodes": Counts(active=1)}, idle=OnDemand(lambda: tuple(idle)))
    with contextlib.suppress(ValueError):
        autoscaler.evaluate(seen, GrowthLimits())
    idle.clear()  # the decision drains it
    record = autoscaler.take_records()[-1]
    assert isinstance(record, EvaluationRecord)
    assert [node.rank for node in record.snapshot.idle] == [1]


def test_policy_of_a_user_needs_another_one_for_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log_of(path, RecordedAutoscaler(Broken()), LogHeader(FORMAT, "train", "broken"))
    with pytest.raises(SpecError, match=r"Line 1 of .* names the policy 'broken', which is not one of Skyward's"):
        replay(path)
    assert replay(path, "pressure").evaluations == 2


def test_parameters_of_the_policy_are_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    recorded(path, "vanilla")
    header, rest = path.read_text().split("\n", 1)
    said = json.loads(header)
    assert said["parameters"]["up"] == Vanilla().up
    said["parameters"]["up"] = 1e6
    path.write_text(json.dumps(said) + "\n" + rest)
    assert replay(path).differences
    said["parameters"] = {"upper": 3}
    path.write_text(json.dumps(said) + "\n" + rest)
    with pytest.raises(SpecError, match="parameters that it does not have in this version of Skyward .upper."):
        replay(path)


def test_log_of_the_simulator_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"The run was stopped: the decision log '.*' cannot be written"):
        recorded(tmp_path / "absent" / "log", "pressure")


def test_recording_does_not_change_a_run(tmp_path: Path) -> None:
    scenario = Scenario(Workload("burst", 8, 2), GROUPS, "binpack", seed=1, faults=Faults(spot_loss=0.5))
    rows = [simulate(each).row() for each in (scenario, replace(scenario, decision_log=tmp_path / "log"))]
    for row in rows:
        del row["wall_seconds"]
    assert rows[0] == rows[1]
