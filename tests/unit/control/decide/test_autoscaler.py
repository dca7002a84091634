"""The cooldown of the autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.decide.autoscaler import Autoscaler, GrowthLimits
from skyward.scaling.snapshot import Counts, Decision, Group, NodeLoad, Snapshot


@dataclass
class Scripted:
    """A policy that decides what it is told."""

    name: str = "scripted"
    interval: float | None = None
    nodes: int = 0
    settled: bool = True
    at_once: Mapping[str, int] = field(default_factory=dict)
    victims: tuple[int, ...] = ()

    def decide(self, snapshot: Snapshot) -> Decision:
        return Decision({"nodes": self.nodes}, "as told", self.victims, settled=self.settled, at_once=self.at_once)


class Pool:
    """A pool of one group under an autoscaler with a cooldown of 30 s."""

    def __init__(self) -> None:
        self.policy = Scripted()
        self.autoscaler = Autoscaler(self.policy, cooldown=30.0)
        self.autoscaler.begin(0.0)
        self.nodes = 0
        self.booting = 0
        self.head_boots: str | None = None

    def want(self, nodes: int, now: float, *, settled: bool = True) -> int:
        """Return the desired nodes once the policy has asked for some."""
        self.policy.nodes, self.policy.settled = nodes, settled
        active = self.nodes - self.booting
        counts = Counts(active, self.booting, desired=self.nodes)
        loads = tuple(NodeLoad(rank, "nodes", "active") for rank in range(active))
        groups = (Group("nodes", 0, 10),)
        seen = Snapshot(now, groups, {"nodes": counts}, nodes=loads, head_boots=self.head_boots)
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
    pool.policy.at_once, pool.policy.victims = {"nodes": 2}, (7, 6)
    assert pool.want(5, now=1.0) == 6, "the third one idles, and waits for the cooldown"
    pool.policy.at_once, pool.policy.victims = {}, ()
    assert pool.want(5, now=29.0) == 6
    assert pool.want(5, now=30.0) == 5


def test_no_active_node_leaves_at_once_for_a_boot_that_a_policy_gives_up() -> None:
    pool = Pool()
    pool.want(5, now=0.0)
    pool.booting, pool.policy.at_once = 2, {"nodes": 4}
    assert pool.want(1, now=1.0) == 3, "the three that are active wait for the cooldown"
    assert pool.want(1, now=30.0) == 1


def test_head_that_boots_is_no_boot_to_give_up_while_others_are_there() -> None:
    pool = Pool()
    pool.want(3, now=0.0)
    pool.booting, pool.head_boots, pool.policy.at_once = 1, "nodes", {"nodes": 1}
    assert pool.want(2, now=1.0) == 3
    pool.booting = 3
    pool.policy.at_once = {"nodes": 3}
    assert pool.want(0, now=2.0) == 0, "nothing is there, and nothing is to be"
