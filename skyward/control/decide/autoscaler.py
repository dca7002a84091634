"""The autoscaler: asks the policy for the number of nodes, and decides how much of that to apply now. No I/O.

The policy's request is clamped to the bounds of the groups, the pool and the budget, and is at least the floor set with
`request_resources`, and what waiting gangs need under a policy of the user. Scaling up is immediate. Scaling down waits
until nothing has changed for the cooldown and the policy has requested fewer nodes all that time; the highest of those
requests is used. A request that is based on an idle time waits only until nothing has been added for the cooldown.
Booting nodes that are given up, and nodes whose replacements are active, go at once, and no others in their place.
Nodes that keep values for later tasks stay.

Source: spec/ "Provision controllers".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from skyward.control.decide.checking import checked
from skyward.control.lifecycle import AUTOSCALER, AutoscalerState, Lifecycle
from skyward.formatting import count_text, joined, money_text
from skyward.scaling.snapshot import Decision, Policy, Snapshot
from skyward.scaling.snapshot.bundles import floor_nodes
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import NO_MORE, of_group, seconds_text

__all__ = ["Autoscaler", "BlockedNodes", "Evaluation", "GrowthLimits"]


@dataclass(frozen=True, slots=True)
class BlockedNodes:
    """Nodes of a group that cannot be launched now, and why: the end of a sentence about the group."""

    nodes: int
    why: str


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """Limits of the number of nodes that are not those of the groups.

    Attributes:
        room: additional nodes of each group that the budget allows; None for no limit.
        budget: USD, for the reason.
        blocked: nodes that cannot be launched now, by group: if the policy wants nodes of others, they are no longer
            waited for.
        needed: nodes without which waiting tasks could start nowhere, by group.
        for_gangs: nodes that the waiting gangs need, by group; empty for a policy that counts gangs itself.
    """

    room: Mapping[str, int | None] = field(default_factory=dict)
    budget: float | None = None
    blocked: Mapping[str, BlockedNodes] = field(default_factory=dict)
    needed: Mapping[str, int] = field(default_factory=dict)
    for_gangs: Mapping[str, int] = field(default_factory=dict)


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
    """Cooldown and hysteresis around one policy: the time of its last change, and what it has requested since.

    Attributes:
        due_at: when the policy is to be asked next because fewer nodes may be decided then: the cooldown ends, or
            fewer have been enough for as long; None for no such time.
        look_at: time at which the policy is to be asked again, whatever happens; None for its interval.
    """

    policy: Policy
    cooldown: float = 30.0
    look_at: float | None = None
    _life: Lifecycle[AutoscalerState] = field(
        default_factory=lambda: Lifecycle("the autoscaler", AUTOSCALER, "waiting")
    )
    due_at: float | None = field(default=None, init=False)
    _acted_at: float = float("-inf")
    _grew_at: float = float("-inf")
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
        """Start the cooldown: the pool was changed by hand."""
        self._cool_down(now, is_growth=True)

    def _cool_down(self, now: float, *, is_growth: bool) -> None:
        """Start the cooldown; nodes that idle may go in one that follows a removal."""
        if self.state != "waiting":
            self._life.move("cooling", now)
        self._acted_at = now
        if is_growth:
            self._grew_at = now
        self.due_at = self._end_of_cooldown()
        self._fewer_since.clear()
        self._most_wanted.clear()

    def evaluate(self, snapshot: Snapshot, limits: GrowthLimits) -> Evaluation | None:
        """Evaluate the policy; return None where nothing changes and nothing is held back.

        Raises:
            UnusableDecisionError: the policy returned no decision about this pool. Nothing changes.
        """
        now = snapshot.now
        if self.state == "waiting":
            return None
        if self.state == "cooling" and now >= self._acted_at + self.cooldown:
            self._life.move("watching", now)
        self.look_at = None
        decision = checked(self.policy.decide(snapshot), snapshot)
        before = snapshot.desired
        wanted, notes = _within_bounds(decision, snapshot, limits)
        self.due_at = self._end_of_cooldown()
        self.look_at = None if decision.look_in is None else now + decision.look_in
        at_once = _at_once(decision, wanted, snapshot)
        after = {
            name: self._step(name, before[name], wanted[name], decision.settled, now, at_once.get(name, 0))
            for name in before
        }
        if any(after[name] > before[name] for name in after):
            for name, each in limits.blocked.items():
                after[name] = min(after[name], max(wanted[name], before[name] - each.nodes))
                notes = list(dict.fromkeys((*notes, f"group {name!r} {each.why}")))
        after = _growth_within_total(before, after, snapshot)
        reason, held_back = decision.reason, ""
        if after == wanted == before:
            held_back = joined(notes)
        else:
            reason = ", but ".join(filter(None, (reason, joined(notes))))
            held_back = self._why_held_back(now, decision.settled) if after != wanted else ""
        verdict = Evaluation(before, after, reason, decision.victims, held_back)
        if verdict.changed:
            self._cool_down(now, is_growth=any(after[name] > before[name] for name in after))
        return verdict if verdict.changed or held_back else None

    def _end_of_cooldown(self) -> float | None:
        """Return when the cooldown ends, for a policy that is asked when there is a reason to, and not at intervals."""
        return self._acted_at + self.cooldown if self.state == "cooling" and self.policy.interval is None else None

    def _step(self, group: str, before: int, wanted: int, settled: bool, now: float, at_once: int) -> int:
        """Return the desired nodes of one group: more at once, fewer only after the cooldown.

        Args:
            at_once: nodes that go without the cooldown.
        """
        if wanted >= before:
            self._fewer_since.pop(group, None)
            self._most_wanted.pop(group, None)
            return wanted
        before = max(wanted, before - at_once)
        since = self._fewer_since.setdefault(group, now)
        most = self._most_wanted[group] = max(wanted, self._most_wanted.get(group, wanted))
        earliest = self._grew_at + self.cooldown
        if not settled:
            earliest = max(self._acted_at + self.cooldown, since + self.cooldown)
        if now >= earliest:
            return wanted if settled else most
        self.due_at = earliest if self.due_at is None else min(self.due_at, earliest)
        return before

    def _why_held_back(self, now: float, settled: bool) -> str:
        left = self.cooldown - (now - (self._grew_at if settled else self._acted_at))
        if left > 0:
            return f"the cooldown of {seconds_text(self.cooldown)} ends in {max(1, ceil(left))} s"
        return f"until fewer nodes have been enough for {seconds_text(self.cooldown)}"


def _at_once(decision: Decision, wanted: Mapping[str, int], snapshot: Snapshot) -> dict[str, int]:
    """Return the nodes that go without the cooldown, by group: no more than boots that can be cancelled, and victims.

    Otherwise active nodes would go in place of a boot that must go on: node 0 boots on while any node stays.
    """
    stays = any(wanted.values()) or any(counts.active for counts in snapshot.counts.values())
    allowed: dict[str, int] = {}
    for name, number in decision.at_once.items():
        most = snapshot.counts[name].booting - (stays and snapshot.head_boots == name)
        if number > most and decision.victims:
            going = {node.rank for node in snapshot.nodes if node.group == name and node.stage == "active"}
            most += len(going.intersection(decision.victims))
        allowed[name] = max(0, min(number, most))
    return allowed


def _growth_within_total(before: Mapping[str, int], after: Mapping[str, int], snapshot: Snapshot) -> dict[str, int]:
    """Return the nodes from now on, by group, without growth above the maximum of all while others are held back."""
    within = dict(after)
    for name in reversed(within):
        if snapshot.max_nodes is None or sum(within.values()) <= snapshot.max_nodes:
            break
        excess = sum(within.values()) - snapshot.max_nodes
        within[name] -= max(0, min(excess, within[name] - before[name]))
    return within


def _within_bounds(decision: Decision, snapshot: Snapshot, limits: GrowthLimits) -> tuple[dict[str, int], list[str]]:
    """Return the requested nodes by group, clamped to every limit, and a note on each limit that set a number."""
    before = snapshot.desired
    there = {name: counts.active + counts.booting for name, counts in snapshot.counts.items()}
    floor = floor_nodes(snapshot.groups, snapshot.floor, there)
    wanted: dict[str, int] = {}
    notes: dict[str, str] = {}
    starting = snapshot.has_waiting and not any(counts.active for counts in snapshot.counts.values())
    for group in snapshot.groups:
        name, counts, more = group.name, snapshot.counts[group.name], limits.room.get(group.name)
        retained = snapshot.retained.get(name)
        of = of_group(name, snapshot)
        waited_for = before[name] - limits.blocked[name].nodes if name in limits.blocked else before[name]
        least = [(waited_for if starting else 0, "the nodes stay while tasks wait for the first one")]
        least.append((limits.needed.get(name, 0), f"tasks wait that only nodes of group {name!r} can run"))
        if for_gangs := limits.for_gangs.get(name, 0):
            least.append((for_gangs, f"{gangs_wait(snapshot)}, so at least {count_text(for_gangs)}{of} must be there"))
        floored = count_text(floor.get(name, 0))
        least.append((floor.get(name, 0), f"`request_resources` reserves at least {floored}{of}"))
        least += [(retained.nodes, retained.why)] if retained is not None else []
        highest = max(group.max, 0 if retained is None else retained.nodes)
        bound = f"the maximum{of} is {count_text(highest)}" if group.can_launch else f"{NO_MORE}{of}"
        if name in limits.blocked:
            bound = f"group {name!r} {limits.blocked[name].why}"
        most = [(highest, bound)]
        if more is not None:
            affordable = max(before[name], counts.active + counts.booting + more)
            allowed = f"at most {count_text(affordable)}" if affordable else "no node"
            amount = "" if limits.budget is None else f" of {money_text(limits.budget)}"
            most.append((affordable, f"the budget{amount} allows {allowed}{of}"))
        count = max(group.min, decision.desired.get(name, before[name]))
        for limit, note in least:
            if count < limit:
                count, notes[name] = limit, note
        for limit, note in most:
            if count > max(limit, 0):
                count, notes[name] = limit, note
        wanted[name] = count
    head = snapshot.head
    if head is not None and not wanted[head] and any(wanted.values()):
        wanted[head], notes[head] = 1, "node 0 stays while there is any other"
    excess = sum(wanted.values()) - snapshot.max_nodes if snapshot.max_nodes is not None else 0
    for group in reversed(snapshot.groups):
        spared = max(group.min, before[group.name], int(group.name == head and any(wanted.values())))
        give = min(max(0, excess), max(0, wanted[group.name] - spared))
        if give:
            wanted[group.name] -= give
            excess -= give
            notes[group.name] = f"the maximum of the pool is {count_text(snapshot.max_nodes)}"
    return wanted, list(dict.fromkeys(notes.values()))
