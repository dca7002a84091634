"""The autoscaler: asks the policy for the number of nodes, and decides how much of that to apply now. No I/O.

The policy's request is clamped to the bounds of the groups, the pool and the budget, and is at least the floor set with
`request_resources`. Scaling up is immediate. Scaling down waits until nothing has changed for the cooldown and the
policy has requested fewer nodes all that time; the highest of those requests is used. Nodes that keep values for later
tasks stay.

Source: spec/ "Provision controllers".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.lifecycle import AUTOSCALER, AutoscalerState, Lifecycle
from skyward.scaling.bundles import floor_nodes
from skyward.scaling.snapshot import Decision, Policy, Snapshot

__all__ = ["Autoscaler", "Evaluation"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of one evaluation of the policy.

    Attributes:
        before, after: desired nodes by group, before and from now on.
        victims: ranks to remove first.
        reason: the policy's reason, and the limits that were applied.
        held_back: why the policy's request is not applied, or not yet.
        changed: True if `after` differs from `before`.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    reason: str
    victims: tuple[int, ...] = ()
    held_back: str = ""

    @property
    def changed(self) -> bool:
        """True if the desired numbers of nodes change."""
        return dict(self.after) != dict(self.before)


@dataclass
class Autoscaler:
    """Cooldown and hysteresis around one policy: the time of its last change, and what it has requested since."""

    policy: Policy
    cooldown: float = 30.0
    _life: Lifecycle[AutoscalerState] = field(
        default_factory=lambda: Lifecycle("the autoscaler", AUTOSCALER, "waiting")
    )
    _acted_at: float = float("-inf")
    _fewer_since: dict[str, float] = field(default_factory=dict)
    _most_wanted: dict[str, int] = field(default_factory=dict)

    @property
    def state(self) -> AutoscalerState:
        """The current state: waiting for the pool, watching it, or in cooldown."""
        return self._life.state

    @property
    def interval(self) -> float:
        """Seconds between evaluations while nothing happens."""
        return self.policy.interval or self.cooldown or 1.0

    def begin(self, now: float) -> None:
        """Start evaluating: the pool is ready."""
        if self.state == "waiting":
            self._life.move("watching", now)

    def start_cooldown(self, now: float) -> None:
        """Start the cooldown: the pool was changed, by the policy or by hand."""
        if self.state != "waiting":
            self._life.move("cooling", now)
        self._acted_at = now
        self._fewer_since.clear()
        self._most_wanted.clear()

    def evaluate(self, snapshot: Snapshot, room: Mapping[str, int | None]) -> Evaluation | None:
        """Evaluate the policy; return None where nothing changes and nothing is held back.

        Args:
            room: additional nodes of each group that the budget allows; None for no limit.
        """
        now = snapshot.now
        if self.state == "waiting":
            return None
        if self.state == "cooling" and now - self._acted_at >= self.cooldown:
            self._life.move("watching", now)
        decision = self.policy.decide(snapshot)
        before = snapshot.desired
        wanted, notes = _within_bounds(decision, snapshot, room)
        after = {name: self._step(name, before[name], wanted[name], decision.settled, now) for name in before}
        reason = ", ".join((decision.reason, *notes))
        held_back = self._why_held_back(now) if after != wanted else ""
        if after == wanted == before:
            held_back = ", ".join(notes)
        verdict = Evaluation(before, after, reason, decision.victims, held_back)
        if verdict.changed:
            self.start_cooldown(now)
        return verdict if verdict.changed or held_back else None

    def _step(self, group: str, before: int, wanted: int, settled: bool, now: float) -> int:
        """Return the desired nodes of one group: more at once, fewer only after the cooldown."""
        if wanted >= before:
            self._fewer_since.pop(group, None)
            self._most_wanted.pop(group, None)
            return wanted
        since = self._fewer_since.setdefault(group, now)
        most = self._most_wanted[group] = max(wanted, self._most_wanted.get(group, wanted))
        if now - self._acted_at < self.cooldown:
            return before
        if settled:
            return wanted
        return most if now - since >= self.cooldown else before

    def _why_held_back(self, now: float) -> str:
        left = self.cooldown - (now - self._acted_at)
        if left > 0:
            return f"cooldown for {left:.0f} s more"
        return f"until fewer nodes have been enough for {self.cooldown:g} s"


def _within_bounds(
    decision: Decision, snapshot: Snapshot, room: Mapping[str, int | None]
) -> tuple[dict[str, int], list[str]]:
    """Return the requested nodes by group, clamped to every limit, and a note on each limit that set a number."""
    before = snapshot.desired
    there = {name: counts.active + counts.booting for name, counts in snapshot.counts.items()}
    floor = floor_nodes(snapshot.groups, snapshot.floor, there)
    wanted: dict[str, int] = {}
    notes: dict[str, str] = {}
    starting = snapshot.has_waiting and not any(counts.active for counts in snapshot.counts.values())
    for group in snapshot.groups:
        name, counts, more = group.name, snapshot.counts[group.name], room.get(group.name)
        retained = snapshot.retained.get(name)
        least = [(before[name] if starting else 0, "kept while tasks wait for the first node")]
        least.append((floor.get(name, 0), f"at least {floor.get(name, 0)} for request_resources"))
        least += [(retained.nodes, retained.why)] if retained is not None else []
        highest = max(group.max, 0 if retained is None else retained.nodes)
        most = [(highest, f"capped at {highest} by max")]
        if more is not None:
            affordable = max(before[name], counts.active + counts.booting + more)
            most.append((affordable, f"capped at {affordable} by the budget"))
        count = max(group.min, decision.desired.get(name, before[name]))
        for limit, note in least:
            if count < limit:
                count, notes[name] = limit, note
        for limit, note in most:
            if count > max(limit, 0):
                count, notes[name] = limit, note
        wanted[name] = count
    excess = sum(wanted.values()) - snapshot.max_nodes if snapshot.max_nodes is not None else 0
    for group in reversed(snapshot.groups):
        give = min(max(0, excess), max(0, wanted[group.name] - max(group.min, before[group.name])))
        if give:
            wanted[group.name] -= give
            excess -= give
            notes[group.name] = f"capped at {snapshot.max_nodes} nodes in all"
    return wanted, list(dict.fromkeys(notes.values()))
