"""The autoscaler: asks the policy how many nodes there should be, and says what of that is done now. Decides only.

What the policy wants is kept within the bounds of the groups, the pool and the budget, and at least at what
`request_resources` asked for. More nodes are had at once. Fewer are had when nothing has changed for the cooldown, and
the policy has wanted fewer all that time: of what it wanted meanwhile, the most is kept. Nodes that keep values for
later tasks stay.

Source: spec/ "Provision controllers", as design section 6 settles it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.lifecycle import AUTOSCALER, AutoscalerState, Lifecycle
from skyward.scaling.bundles import floor_nodes
from skyward.scaling.snapshot import Decision, Policy, Snapshot

__all__ = ["Autoscaler", "Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes of one look at the pool.

    Attributes:
        after: nodes wanted from now on, by group.
        victims: ranks that should go first.
        reason: the policy's, and what was made of it.
        held_back: why what the policy wanted is not done, or not yet.
        changed: whether `after` is anything new.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    reason: str
    victims: tuple[int, ...] = ()
    held_back: str = ""

    @property
    def changed(self) -> bool:
        """Whether other numbers of nodes are wanted now."""
        return dict(self.after) != dict(self.before)


@dataclass
class Autoscaler:
    """The memory around one policy: when it last acted, and what it has wanted since."""

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
        """Whether it waits for the pool, watches it, or lets it cool."""
        return self._life.state

    @property
    def interval(self) -> float:
        """Seconds between looks while nothing happens."""
        return self.policy.interval or self.cooldown or 1.0

    def begin(self, now: float) -> None:
        """The pool is ready."""
        if self.state == "waiting":
            self._life.move("watching", now)

    def acted(self, now: float) -> None:
        """The pool was changed, here or by hand; it is let cool."""
        if self.state != "waiting":
            self._life.move("cooling", now)
        self._acted_at = now
        self._fewer_since.clear()
        self._most_wanted.clear()

    def look(self, snapshot: Snapshot, room: Mapping[str, int | None]) -> Verdict | None:
        """What comes of the pool as it is now; None where nothing does.

        Args:
            room: nodes more of each group that the budget allows; None for any number.
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
        verdict = Verdict(before, after, reason, decision.victims, held_back)
        if verdict.changed:
            self.acted(now)
        return verdict if verdict.changed or held_back else None

    def _step(self, group: str, before: int, wanted: int, settled: bool, now: float) -> int:
        """Nodes of one group from now on: more at once, fewer when the time for it has come."""
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
    """What the decision wants, kept within what is allowed; and a note on every limit that was met."""
    notes: list[str] = []
    before = snapshot.desired
    there = {name: counts.active + counts.booting for name, counts in snapshot.counts.items()}
    floor = floor_nodes(snapshot.groups, snapshot.floor, there)
    wanted: dict[str, int] = {}
    starting = bool(snapshot.queued) and not any(counts.active for counts in snapshot.counts.values())
    for group in snapshot.groups:
        count = decision.desired.get(group.name, before[group.name])
        if starting and count < before[group.name]:
            count = before[group.name]
            notes.append("kept while tasks wait for the first node")
        if count < floor.get(group.name, 0):
            count = floor[group.name]
            notes.append(f"at least {count} for request_resources")
        staying = snapshot.staying.get(group.name)
        if staying is not None and count < staying.nodes:
            count = staying.nodes
            notes.append(staying.why)
        if count > group.max:
            notes.append(f"capped at {group.max} by max")
        count = max(group.min, min(group.max, count))
        counts, more = snapshot.counts[group.name], room.get(group.name)
        affordable = None if more is None else max(before[group.name], counts.active + counts.booting + more)
        if affordable is not None and count > affordable:
            count = affordable
            notes.append(f"capped at {affordable} by the budget")
        wanted[group.name] = count
    excess = sum(wanted.values()) - snapshot.max_nodes if snapshot.max_nodes is not None else 0
    for group in reversed(snapshot.groups):
        give = min(max(0, excess), max(0, wanted[group.name] - max(group.min, before[group.name])))
        if give:
            wanted[group.name] -= give
            excess -= give
            notes.append(f"capped at {snapshot.max_nodes} nodes in all")
    return wanted, notes
