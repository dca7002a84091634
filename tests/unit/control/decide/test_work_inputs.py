"""Inputs of the policy that the control plane measures, and the parts of its decisions that it carries out."""

from dataclasses import dataclass, field, replace

import pytest

from skyward.control.decide.autoscaler import Autoscaler, GrowthLimits
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.messages import Resize, Tick
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import Ended, RankDraining, RankJoined, Submitted
from skyward.scaling.snapshot import Counts, Decision, Group, Snapshot
from skyward.values.needs import Needs
from tests.unit.control.decide.plane_world import World


@dataclass
class Asked:
    """A policy that changes nothing and records its snapshots."""

    look_in: float | None = None
    name: str = "asked"
    interval: float | None = 1000.0
    seen: list[Snapshot] = field(default_factory=list)

    def decide(self, snapshot: Snapshot) -> Decision:
        self.seen.append(snapshot)
        return Decision({}, "nothing changes", look_in=self.look_in)


def test_boot_time_is_measured_by_group_from_the_latest_request_to_the_first_task() -> None:
    world = World(Group("a", 1, 4), Group("b", 0, 4), policy="no")
    world.open()
    assert world.plane.snapshot(world.now).boots == {"a": 0.0}
    world.tell(Resize({"b": (1, 4)}, {"b": 1}))
    world.allocate()
    world.now += 40.0
    world.deliver()
    assert world.plane.snapshot(world.now).boots == {"a": 0.0, "b": 40.0}
    assert world.plane.snapshot(world.now).boot_seconds == pytest.approx(12.0)


def test_boot_time_of_a_machine_that_this_pool_did_not_launch_is_not_measured() -> None:
    existing = {"a": {MachineSource("cloud", "a"): 1}}
    world = World(Group("a", 1, 4), policy="no", existing=existing).open()
    assert world.plane.snapshot(world.now).boots == {}


def test_pause_and_price_of_a_group_follow_its_sources() -> None:
    first = MachineSource("cloud", "spot", hourly_price=1.0)
    second = MachineSource("cloud", "on-demand", hourly_price=3.0)
    world = World(Group("a", 0, 4), policy="no", sources={"a": (first, second)}).open()
    seen = world.plane.snapshot(world.now)
    assert (seen.pauses, seen.prices) == ({}, {"a": 1.0})
    world.tell(Resize({"a": (0, 4)}, {"a": 1}))
    for source, pauses, price in ((first, {}, 3.0), (second, {"a": 300.0}, 1.0)):
        (number,) = world.asked
        assert world.asked.pop(number).source == source
        world.tell(machines.Refused((number,), "sold out", "capacity"))
        seen = world.plane.snapshot(world.now)
        assert (seen.pauses, seen.prices) == (pauses, {"a": price})
    assert seen.counts["a"].unrequested == 1


def test_policy_is_asked_when_it_wants_to_be_but_not_more_often_than_allowed() -> None:
    policy = Asked(look_in=7.0)
    world = World(Group("a", 0, 4), policy=policy, evaluation_gap=0.5, tick=1000.0).open()
    world.wait(1000.0)
    asked = len(policy.seen)
    world.wait(70.0)
    assert len(policy.seen) == asked + 10
    policy.look_in = 0.0
    world.wait(7.0)
    asked = len(policy.seen)
    world.wait(5.0)
    assert len(policy.seen) == asked + 10


def test_given_up_boots_go_at_once_and_other_nodes_after_the_cooldown() -> None:
    @dataclass
    class Fewer:
        at_once: int
        name: str = "fewer"
        interval: float | None = None

        def decide(self, snapshot: Snapshot) -> Decision:
            return Decision({"a": 1}, "fewer", settled=True, at_once={"a": self.at_once})

    snapshot = Snapshot(100.0, (Group("a", 0, 9),), {"a": Counts(3, 2, desired=5)})
    autoscaler = Autoscaler(Fewer(at_once=2), cooldown=30.0)
    autoscaler.begin(0.0)
    autoscaler.start_cooldown(99.0)
    evaluation = autoscaler.evaluate(snapshot, GrowthLimits())
    assert evaluation is not None
    assert evaluation.after == {"a": 3}
    later = replace(snapshot, now=131.0, counts={"a": Counts(3, desired=3)})
    autoscaler.policy = Fewer(at_once=0)
    evaluation = autoscaler.evaluate(later, GrowthLimits())
    assert evaluation is not None
    assert evaluation.after == {"a": 1}


def packed(slots: int = 2) -> TaskManager:
    """Return a manager with three nodes that packs."""
    manager = TaskManager()
    manager.packs = True
    for rank in range(3):
        manager.handle(RankJoined(rank, slots), 0.0)
    return manager


def placed(manager: TaskManager, *tasks: int, needs: Needs | None = None) -> list[int | None]:
    manager.handle(Submitted(tasks) if needs is None else Submitted(tasks, needs=needs), 0.0)
    return [manager.node_of(task) for task in tasks]


def test_new_tasks_go_to_the_fullest_node_with_a_free_slot() -> None:
    manager = packed()
    assert placed(manager, 1, 2, 3, 4, 5) == [0, 0, 1, 1, 2]
    for task, rank in ((1, 0), (3, 1), (4, 1)):
        manager.handle(Ended(task, rank, "value", 1.0), 1.0)
    assert placed(manager, 6, 7, 8) == [0, 2, 1]
    assert manager.idle_ranks() == []


def test_draining_node_is_not_packed() -> None:
    manager = packed()
    placed(manager, 1)
    manager.handle(RankDraining(0), 1.0)
    manager.handle(Submitted((2,), target=0), 1.0)
    assert manager.node_of(2) == 0
    assert placed(manager, 3) == [1]
    assert manager.idle_ranks() == [2]


def test_task_goes_to_the_fullest_node_that_can_hold_it() -> None:
    manager = TaskManager()
    manager.packs = True
    for rank, gpus in enumerate((0.0, 1.0, 1.0)):
        manager.handle(RankJoined(rank, 4, resources={"GPU": gpus}), 0.0)
    assert placed(manager, 1, 2) == [0, 0]
    assert placed(manager, 3, 4, needs=Needs({"GPU": 1})) == [1, 2]


@pytest.mark.parametrize(
    ("policy", "most", "packs"), [("adaptive", 4, True), ("adaptive", 2, False), ("pressure", 4, False)]
)
def test_only_a_pool_that_scales_with_the_default_policy_packs(policy: str, most: int, packs: bool) -> None:
    world = World(Group("a", 2, most, slots=2), policy=policy).open()
    numbers = world.submit(2)
    assert [world.sent[number] for number in numbers] == ([0, 0] if packs else [0, 1])
    world.tell(Resize({"a": (2, 2)}))
    assert not world.plane.tasks.packs
    world.tell(Tick())


def test_wish_to_be_asked_ends_with_a_policy_that_fails() -> None:
    """Regression: the old time stayed, so the failing policy was asked again at every moment."""

    class Fails:
        name = "fails"
        interval = 60.0
        asked = 0

        def decide(self, snapshot: Snapshot) -> Decision:
            self.asked += 1
            if self.asked > 1:
                raise ValueError("broken")
            return Decision({"a": 1}, "one", look_in=1.0)

    autoscaler = Autoscaler(Fails(), cooldown=0.0)
    autoscaler.begin(0.0)
    snapshot = Snapshot(0.0, (Group("a", 0, 9),), {"a": Counts(1, desired=1)})
    autoscaler.evaluate(snapshot, GrowthLimits())
    assert autoscaler.look_at == 1.0
    with pytest.raises(ValueError, match="broken"):
        autoscaler.evaluate(replace(snapshot, now=1.0), GrowthLimits())
    assert autoscaler.look_at is None
