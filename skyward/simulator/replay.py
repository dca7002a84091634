"""Replay of a decision log: the recorded inputs, given to the policy and the autoscaler again."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from skyward.control.decide.autoscaler import GrowthLimits
from skyward.control.decide.recorded_autoscaler import (
    AutoscalerStarted,
    CooldownStarted,
    EvaluationRecord,
    RecordedAutoscaler,
)
from skyward.decision_log.lines import LogHeader, LogLine, RecordedEvaluation, plain, read_decision_log
from skyward.errors import SpecError
from skyward.scaling.registry import POLICIES, find_policy
from skyward.scaling.snapshot import Policy, Snapshot

__all__ = ["Difference", "EvaluationOutcome", "Replay", "replay"]


@dataclass(frozen=True, slots=True)
class EvaluationOutcome:
    """Results of one evaluation, as in the log.

    Attributes:
        decision: the policy's; None if it raised.
        error: what it raised; empty for nothing.
        verdict: what the autoscaler made of it; None for no change.
    """

    decision: Any
    error: str
    verdict: Any

    def nodes(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the number of nodes that the policy requested, by group; the present one where it requested none."""
        decided = self.decision if isinstance(self.decision, dict) else {}
        return {**snapshot.desired, **decided.get("desired", {})}


@dataclass(frozen=True, slots=True)
class Difference:
    """An evaluation whose outcome is another one now.

    Attributes:
        line: its line in the file.
        pool: name of the pool.
        since: seconds since the first evaluation of the pool.
        snapshot: its input.
        recorded, now: the outcomes.
    """

    line: int
    pool: str
    since: float
    snapshot: Snapshot
    recorded: EvaluationOutcome
    now: EvaluationOutcome


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay.

    Attributes:
        policies: names of the recorded policies.
        pools: number of pools, or of openings of one, in the file.
        evaluations: number of evaluations.
        changes: number of those that changed the number of nodes in the recorded pool.
        differences: evaluations with another outcome now, oldest first.
        notices: lines of the file that were dropped.
        compared: how the policy of the replay relates to the recorded ones, by name and by parameters.
    """

    policies: tuple[str, ...]
    pools: int
    evaluations: int
    changes: int
    differences: tuple[Difference, ...]
    notices: tuple[str, ...]
    compared: Literal["same", "parameters", "other"] = "same"


def replay(path: Path, policy: str | None = None) -> Replay:
    """Give the recorded inputs to the recorded policies, or to `policy`, and compare the outcomes.

    Args:
        policy: name of another policy. It is asked at the same inputs, which do not follow from its own decisions,
            and only the numbers of nodes are compared: reasons always differ.

    Raises:
        SpecError: the file is not a decision log, or a recorded policy is not one of Skyward's.
    """
    lines, notices = read_decision_log(path)
    names: dict[str, None] = {}
    differences: list[Difference] = []
    pools = evaluations = changes = 0
    header: LogHeader | None = None
    names_match = parameters_match = True
    autoscaler = RecordedAutoscaler(find_policy("no"))
    first = 0.0
    for line in lines:
        match line.record:
            case LogHeader() as header:
                pools += 1
                names[header.policy] = None
                asked = _recorded_policy(header, line, path) if policy is None else find_policy(policy)
                names_match &= header.policy == asked.name
                parameters_match &= not _changed(header, asked)
                autoscaler = RecordedAutoscaler(asked, header.cooldown)
                first = -1.0
            case AutoscalerStarted(now):
                autoscaler.begin(now)
            case CooldownStarted(now):
                autoscaler.start_cooldown(now)
            case RecordedEvaluation(snapshot, limits, decision, error, verdict):
                evaluations += 1
                recorded = EvaluationOutcome(decision, error, verdict)
                changes += _changes(verdict)
                first = snapshot.now if first < 0 else first
                now_decided = _evaluate(autoscaler, snapshot, limits)
                if policy is None:
                    same = now_decided == recorded
                else:
                    same = now_decided.nodes(snapshot) == recorded.nodes(snapshot)
                if not same:
                    name = header.pool if header is not None else ""
                    found = Difference(line.number, name, snapshot.now - first, snapshot, recorded, now_decided)
                    differences.append(found)
    compared: Literal["same", "parameters", "other"] = "other"
    if names_match:
        compared = "same" if parameters_match else "parameters"
    return Replay(tuple(names), pools, evaluations, changes, tuple(differences), tuple(notices), compared)


def _evaluate(autoscaler: RecordedAutoscaler, snapshot: Snapshot, limits: GrowthLimits) -> EvaluationOutcome:
    """Return the outcome of one evaluation."""
    autoscaler.take_records()
    with contextlib.suppress(Exception, SystemExit):  # it is recorded, and the pool went on, too
        autoscaler.evaluate(snapshot, limits)
    for record in autoscaler.take_records():
        if isinstance(record, EvaluationRecord):
            return EvaluationOutcome(plain(record.decision), record.error, plain(record.verdict))
    return EvaluationOutcome(None, "the pool was not ready yet", None)


def _changes(verdict: Any) -> bool:
    return isinstance(verdict, dict) and verdict.get("before") != verdict.get("after")


def _recorded_policy(header: LogHeader, line: LogLine, path: Path) -> Policy:
    """Return a new policy like the one that was recorded.

    Raises:
        SpecError: it is not one of Skyward's, or has other parameters.
    """
    if header.policy not in POLICIES:
        raise SpecError(
            f"Line {line.number} of '{path}' names the policy {header.policy!r}, which is not one of Skyward's, so it "
            f"cannot be run here. Give one with --policy to see what it would have decided: {_listed(POLICIES)}."
        )
    usual = find_policy(header.policy)
    changed = _changed(header, usual)
    try:
        return replace(usual, **changed) if changed else usual  # type: ignore[type-var]  # it is a dataclass
    except TypeError as error:
        raise SpecError(
            f"Line {line.number} of '{path}' gives the policy {header.policy!r} parameters that it does not have in "
            f"this version of Skyward ({', '.join(sorted(changed))}): replay the log with the version that wrote it."
        ) from error


def _changed(header: LogHeader, policy: Policy) -> dict[str, Any]:
    """Return the recorded parameters that are other ones in `policy`."""
    return {name: value for name, value in header.parameters.items() if plain(getattr(policy, name, None)) != value}


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
