"""The cooldown of the autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.decide.autoscaler import Autoscaler, GrowthLimits
from skyward.scaling.snapshot import Counts, Decision, Group, Snapshot


@dataclass
class Scripted:
    """A policy that decides what it is told."""

    name: str = "scripted"
    interval: float | None = None
    nodes: int = 0
    settled: bool = True
    at_once: Mapping[str, int] = field(default_factory=dict)

    def decide(self, snapshot: Snapshot) -> Decision:
        return Decision({"nodes": self.nodes}, "as told", settled=self.settled, at_once=self.at_once)


class Pool:
    """A pool of one group under an autoscaler with a cooldown of 30 s."""

    def __init__(self) -> None:
        self.policy = Scripted()
        self.autoscaler = Autoscaler(self.policy, cooldown=30.0)
        self.autoscaler.begin(0.0)
        self.nodes = 0

    def want(self, nodes: int, now: float, *, settled: bool = True) -> int:
        """Return the desired nodes once the policy has asked for some."""
        self.policy.nodes, self.policy.settled = nodes, settled
        counts = Counts(active=self.nodes, desired=self.nodes)
        seen = Snapshot(now, (Group("nodes", 0, 10),), {"nodes": counts})
        verdict = self.autoscaler.evaluate(seen, GrowthLimits())
        if verdict is not None:
            self.nodes = verdict.after["nodes"]
        return self.nodes


def test_nodes_that_idle_leave_once_nothing_was_added_for_the_cooldown() -> None:
    pool = Pool()
    assert pool.want(8, now=0.0) == 8
    assert pool.want(6, now=20.0) == 8, "in the cooldown of the growth"
    assert pool.want(6, now=30.0) == 6
    assert pool.want(5, now=31.0) == 5, "a removal does not hold back another"
    assert pool.want(7, now=32.0) == 7
    assert pool.want(5, now=61.0) == 7, "in the cooldown of the growth"
    assert pool.want(5, now=62.0) == 5


def test_other_reductions_also_wait_after_a_removal() -> None:
    pool = Pool()
    pool.want(8, now=0.0)
    assert pool.want(6, now=30.0) == 6
    assert pool.want(5, now=31.0, settled=False) == 6
    assert pool.want(5, now=60.0, settled=False) == 6, "fewer must have been enough for a cooldown"
    assert pool.want(5, now=61.0, settled=False) == 5


def test_a_change_by_hand_starts_the_cooldown_of_both() -> None:
    pool = Pool()
    pool.want(8, now=0.0)
    pool.autoscaler.start_cooldown(100.0)
    assert pool.want(6, now=110.0) == 8
    assert pool.want(6, now=130.0) == 6


def test_nodes_whose_replacements_are_active_leave_in_the_cooldown_and_no_others() -> None:
    pool = Pool()
    pool.want(8, now=0.0)
    pool.policy.at_once = {"nodes": 2}
    assert pool.want(5, now=1.0) == 6, "the third one idles, and waits for the cooldown"
    pool.policy.at_once = {}
    assert pool.want(5, now=29.0) == 6
    assert pool.want(5, now=30.0) == 5
