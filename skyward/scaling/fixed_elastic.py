"""Primary groups that start once and stay, and elastic groups for the rest of the load."""

from dataclasses import dataclass, field, replace

from skyward.scaling.scaler.commands import HEARTBEAT, ClusterState, ScalerCommand, StartGroup, check_ratios
from skyward.scaling.snapshot import Decision, Group, NodeLoad, Snapshot
from skyward.scaling.snapshot.wording import of_group
from skyward.scaling.translation import combine, decide_part
from skyward.scaling.vanilla import VanillaRule

__all__ = ["FixedElastic", "FixedElasticRule"]

_UNKNOWN = -1
"""Rank of a node that is not requested yet."""


@dataclass(slots=True)
class FixedElasticRule:
    """`vanilla` if several groups are allowed; a single group is primary: started once and never shut down."""

    up: float = 10
    down: float = 1
    _started: bool = field(default=False, init=False)

    @property
    def started(self) -> bool:
        """True if the primary group was started."""
        return self._started

    def commands(self, view: ClusterState) -> list[ScalerCommand]:
        """Return at most one command."""
        rule = VanillaRule(self.up, self.down)
        if view.max_groups != 1:
            return rule.commands(view)
        wanted = rule.commands(replace(view, max_groups=len(view.groups) + 1))
        if self._started or not wanted or not isinstance(wanted[0], StartGroup):
            return []
        self._started = True
        return wanted


@dataclass(slots=True)
class FixedElastic:
    """Scaler's `fixed_elastic`: groups of at most one node are primary, the others follow `vanilla`.

    A primary node starts with the first task and stays. The others grow when the tasks per slot, primary slots
    included, go above `up`, and shrink below `down`. A group that had a maximum above one is never primary: a group
    that cannot launch nodes for a while has the maximum of those it has.

    Attributes:
        up, down: tasks per slot above which a node is added, and below which one is removed.
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.

    Raises:
        SpecError: a ratio is not a number of at least 0, or `down` is greater than `up`.

    Example:
        >>> groups = {"base": sky.Spec(vcpus=2, nodes=1), "more": sky.Spec(vcpus=4, nodes=(0, 8))}
        >>> sky.Compute(groups=groups, policy="fixed_elastic")
    """

    up: float = 10
    down: float = 1
    name: str = field(default="fixed_elastic", kw_only=True)
    interval: float | None = field(default=HEARTBEAT, kw_only=True)
    _primary: dict[str, FixedElasticRule] = field(default_factory=dict, init=False, repr=False)
    _largest: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_ratios(self.up, self.down)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        for group in snapshot.groups:
            self._largest[group.name] = max(group.max, self._largest.get(group.name, 0))
        primary = tuple(group for group in snapshot.groups if self._largest[group.name] == 1)
        elastic = tuple(group for group in snapshot.groups if self._largest[group.name] != 1)
        decisions = []
        promised = snapshot
        for group in primary:
            rule = self._primary.setdefault(group.name, FixedElasticRule(self.up, self.down))
            decision = decide_part(snapshot, rule, only=(group,), alone=True)
            if rule.started:
                missing = group.max and not snapshot.counts[group.name].desired
                stays = f"the primary node{of_group(group.name, snapshot)} stays once it has started" if missing else ""
                decision = replace(decision, desired={group.name: group.max}, reason=decision.reason or stays)
                promised = _with_node(promised, group)
            decisions.append(decision)
        if elastic:
            decisions.append(decide_part(promised, VanillaRule(self.up, self.down), only=elastic))
        return combine(snapshot, decisions)


def _with_node(snapshot: Snapshot, group: Group) -> Snapshot:
    """Return the snapshot with a node of a primary group that is wanted, as booting until it is requested."""
    counts = snapshot.counts[group.name]
    if not group.max or counts.active or counts.booting:
        return snapshot
    node = NodeLoad(_UNKNOWN, group.name, "booting")
    after = {**snapshot.counts, group.name: replace(counts, booting=1)}
    return replace(snapshot, counts=after, nodes=(*snapshot.nodes, node))
