"""An autoscaler that records what it is told and what it decides. The records, in order, are enough to repeat it."""

from dataclasses import dataclass, field, replace

from skyward.control.decide.autoscaler import Autoscaler, Evaluation, GrowthLimits
from skyward.control.decide.plane_view import OnDemand
from skyward.scaling.snapshot import Decision, Policy, Snapshot

__all__ = ["AutoscalerRecord", "AutoscalerStarted", "CooldownStarted", "EvaluationRecord", "RecordedAutoscaler"]


@dataclass(frozen=True, slots=True)
class AutoscalerStarted:
    """The pool is ready, so that evaluations start."""

    now: float


@dataclass(frozen=True, slots=True)
class CooldownStarted:
    """The pool was changed by something other than the policy."""

    now: float


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One evaluation of the policy.

    Attributes:
        limits: those of the budget, and of groups that could launch no nodes.
        decision: the policy's; None if it raised.
        error: the error that the policy, or the check of its decision, raised; empty for none.
        verdict: what the autoscaler made of the decision; None where nothing changed and nothing was held back.
    """

    snapshot: Snapshot
    limits: GrowthLimits
    decision: Decision | None
    error: str = ""
    verdict: Evaluation | None = None


type AutoscalerRecord = AutoscalerStarted | CooldownStarted | EvaluationRecord


@dataclass(slots=True)
class _HeardPolicy:
    """A policy whose last decision is kept."""

    policy: Policy
    decision: Decision | None = None

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def interval(self) -> float | None:
        return self.policy.interval

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision of the policy."""
        self.decision = self.policy.decide(snapshot)
        return self.decision


@dataclass
class RecordedAutoscaler(Autoscaler):
    """An autoscaler with records.

    Attributes:
        records: what happened since they were last taken, oldest first.
    """

    records: list[AutoscalerRecord] = field(default_factory=list)

    def take_records(self) -> list[AutoscalerRecord]:
        """Return the records so far, and start new ones."""
        taken, self.records = self.records, []
        return taken

    def begin(self, now: float) -> None:
        """Start evaluating, and record it."""
        super().begin(now)
        self.records.append(AutoscalerStarted(now))

    def start_cooldown(self, now: float) -> None:
        """Start the cooldown, and record it."""
        super().start_cooldown(now)
        self.records.append(CooldownStarted(now))

    def evaluate(self, snapshot: Snapshot, limits: GrowthLimits) -> Evaluation | None:
        """Evaluate the policy, and record the inputs and the results."""
        if self.state == "waiting":
            return super().evaluate(snapshot, limits)
        # the views that build them are of this moment
        snapshot = replace(snapshot, nodes=tuple(snapshot.nodes), idle=tuple(snapshot.idle))
        policy, heard = self.policy, _HeardPolicy(self.policy)
        self.policy = heard
        verdict, error = None, ""
        try:
            verdict = super().evaluate(snapshot, limits)
        except (Exception, SystemExit) as raised:
            error = f"{type(raised).__name__}: {raised}"
            raise
        finally:
            self.policy = policy
            if isinstance(snapshot.work, OnDemand):  # most evaluations need none of it
                snapshot = replace(snapshot, work=tuple(snapshot.work) if snapshot.work.is_made else ())
            self.records.append(EvaluationRecord(snapshot, limits, heard.decision, error, verdict))
        return verdict
