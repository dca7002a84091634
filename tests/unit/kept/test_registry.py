"""The registry of kept values: placement of tasks, nodes spared by scaling down, and values lost with a node."""

from collections.abc import Sequence

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import (
    Decided,
    DrainNode,
    ForgetKept,
    KeptAdded,
    KeptValuesLost,
    PlaneEffect,
    ReleaseKept,
    Resize,
    SetBudget,
)
from skyward.control.decide.removal import undrainable
from skyward.control.decide.tasks import messages as tasks
from skyward.errors import KeptLostError, UsageError
from skyward.kept.keep import KeptInfo
from skyward.kept.registry import KeptEntry, KeptRegistry, check_nodes, nodes_for, nodes_of_all
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

HOUR = 3600.0


def kept(key: str, node: int, name: str = "model", pool: str = "p", keep_for: float = HOUR) -> KeptEntry:
    return KeptEntry(KeptInfo(key, name, "Net", 100, keep_for), node, pool)


def lost(entry: KeptEntry, why: str = "node 1 is gone: it died") -> KeptEntry:
    entry.lost = why
    return entry


class TestRegistry:
    def test_node_counts_as_busy_until_keep_for_after_last_use(self) -> None:
        registry = KeptRegistry()
        registry.add(kept("a", 1, keep_for=10))
        assert registry.busy_nodes(9) == {1: "model"}
        assert registry.busy_nodes(10) == {}
        registry.task_submitted(["a"], 20)
        assert registry.busy_nodes(1000) == {1: "model"}, "a task uses it"
        registry.task_ended(["a"], 1000)
        assert registry.busy_nodes(1009) == {1: "model"}
        assert registry.busy_nodes(1010) == {}

    def test_drop_returns_keys_by_node(self) -> None:
        registry = KeptRegistry()
        first, second = kept("a", 1), kept("b", 2)
        registry.add(first)
        registry.add(second)
        assert registry.drop(["a", "b", "a", "unknown"]) == {1: ("a",), 2: ("b",)}
        assert first.lost == "it was dropped"
        assert not registry.entries

    def test_values_of_lost_node_are_lost(self) -> None:
        registry = KeptRegistry()
        gone, left = kept("a", 1), kept("b", 2)
        registry.add(gone)
        registry.add(left)
        assert registry.node_lost(1, "it died") == (gone,)
        assert gone.lost == "node 1 is gone: it died"
        assert not left.lost
        assert registry.node_lost(1, "again") == ()

    def test_names_are_listed_once(self) -> None:
        registry = KeptRegistry()
        for key, name in [("a", "model"), ("b", "conn"), ("c", "model")]:
            registry.add(kept(key, 1, name))
        assert registry.busy_nodes(0) == {1: "model and conn"}


class TestPlacement:
    def test_task_runs_on_node_of_its_values(self) -> None:
        assert nodes_for([[kept("a", 1)]], "p") == {1}
        assert nodes_for([[kept("a", 0), kept("b", 1)], [kept("c", 1, "conn")]], "p") == {1}

    def test_use_of_a_lost_value_raises(self) -> None:
        assert nodes_for([[kept("a", 0), lost(kept("b", 1))]], "p") == {0}
        with pytest.raises(KeptLostError, match=r"^model is no longer kept: node 1 is gone: it died. Rerun the code"):
            nodes_for([[lost(kept("b", 1))]], "p")

    def test_values_on_different_nodes_are_refused(self) -> None:
        with pytest.raises(UsageError, match=r"^model is kept on node 0 and conn is kept on nodes 1 and 2, so no"):
            nodes_for([[kept("a", 0)], [kept("b", 1, "conn"), kept("c", 2, "conn")]], "p")

    def test_values_of_same_name_on_different_nodes_are_refused(self) -> None:
        with pytest.raises(UsageError, match=r"^2 values named model are kept on nodes 0 and 1, so no node"):
            nodes_for([[kept("a", 0)], [kept("b", 1)]], "p")

    def test_value_lost_before_first_use_is_lost_in_every_pool(self) -> None:
        with pytest.raises(KeptLostError, match=r"^model is no longer kept: its pool is closed"):
            nodes_for([[lost(kept("a", 0, pool=""), "its pool is closed")]], "p")

    def test_value_of_another_pool_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"^model is kept in pool 'p', so it cannot be used in pool 'q'"):
            nodes_for([[kept("a", 0)]], "q")

    def test_broadcast_runs_on_nodes_with_their_own_value(self) -> None:
        assert nodes_of_all([[kept("a", 0), kept("b", 1)]], "p", [0, 1]) == {0, 1}
        assert nodes_of_all([[kept("a", 0), kept("b", 1)]], "p", [0, 1, 2]) == {0, 1}
        assert nodes_of_all([[kept("a", 0)]], "p", [0]) == {0}

    def test_broadcast_with_a_lost_part_is_refused(self) -> None:
        with pytest.raises(KeptLostError, match=r"^model of node 1 is no longer kept: node 1 is gone: it died"):
            nodes_of_all([[kept("a", 0), lost(kept("b", 1))]], "p", [0, 1])

    def test_broadcast_of_value_on_one_node_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"^model is kept on node 1 only, and the pool has 2 nodes: run this"):
            nodes_of_all([[kept("a", 1)]], "p", [0, 1])

    def test_broadcast_to_chosen_nodes_requires_value_on_each(self) -> None:
        entries = [kept("a", 0), kept("b", 1), lost(kept("c", 2))]
        check_nodes([entries], "p", [0, 1])
        with pytest.raises(KeptLostError, match=r"^model of node 2 is no longer kept"):
            check_nodes([entries], "p", [0, 2])
        with pytest.raises(
            UsageError, match=r"^model is kept on nodes 0 and 1, so this cannot run on node 3: run it on"
        ):
            check_nodes([entries], "p", [0, 3])


def pool(up: int, least: int = 0, **settings: object) -> World:
    """Return an open pool of `up` idle nodes."""
    world = World(Group("default", least, 4), **settings).open()
    world.submit(up)
    world.wait(0.1)
    world.deliver()
    world.finish()
    assert world.active == up
    return world


def keep(world: World, node: int, key: str = "a", name: str = "model", keep_for: float = HOUR) -> KeptEntry:
    entry = kept(key, node, name, keep_for=keep_for)
    entry.used_at = world.now
    world.tell(KeptAdded(entry))
    return entry


def keep_effects(world: World, node: int, key: str, name: str) -> list[PlaneEffect]:
    """Keep a value; return the effects."""
    before = len(world.said)
    keep(world, node, key, name)
    return world.said[before:]


def use(world: World, node: int, keys: Sequence[str]) -> int:
    task = world.plane.tasks.number()
    world.tell(tasks.Submitted((task,), node, kept=tuple(keys)))
    return task


def ranks(world: World) -> list[int]:
    return sorted(world.plane.reconciler.table.assignments)


class TestScalingDown:
    def test_pool_without_kept_values_scales_to_zero(self) -> None:
        world = pool(3)
        world.wait(300)
        world.deliver()
        assert ranks(world) == []

    def test_node_with_kept_value_stays_and_reason_is_given(self) -> None:
        world = pool(4)
        keep(world, 2)
        world.wait(600)
        world.deliver()
        assert ranks(world) == [0, 2], "and the head, which stays as long as any node does"
        assert any("node 2 keeps model" in reason for reason in world.reasons_given)

    def test_head_with_kept_value_stays_alone(self) -> None:
        world = pool(3)
        keep(world, 0)
        world.wait(600)
        world.deliver()
        assert ranks(world) == [0]

    def test_node_is_removed_after_keep_for_and_reason_names_lost_values(self) -> None:
        world = pool(3)
        entry = keep(world, 2, keep_for=400)
        world.wait(300)
        world.deliver()
        assert ranks(world) == [0, 2]
        world.wait(300)
        world.deliver()
        assert ranks(world) == []
        assert world.reasons_given[-1].endswith("; node 2 no longer keeps model")
        assert entry.lost.startswith("node 2 is gone: it is no longer needed (caused by: ")
        assert "no task has run for 7 min 0 s" in entry.lost
        assert [effect.entries for effect in world.said if isinstance(effect, KeptValuesLost)] == [(entry,)]

    def test_each_use_restarts_the_timer(self) -> None:
        world = pool(2)
        keep(world, 1, keep_for=400)
        for _ in range(4):
            world.wait(300)
            use(world, 1, ["a"])
            world.finish()
        world.deliver()
        assert 1 in ranks(world)

    def test_timer_is_paused_while_a_task_uses_the_value(self) -> None:
        world = pool(2)
        keep(world, 1, keep_for=10)
        use(world, 1, ["a"])
        world.wait(2000)
        assert world.state_of(1) == "active"
        world.finish()
        world.wait(2000)
        world.deliver()
        assert ranks(world) == []

    def test_dropped_value_holds_no_node(self) -> None:
        world = pool(2)
        keep(world, 1)
        assert world.tell(ReleaseKept(("a",))) == [ForgetKept(1, ("a",))]
        world.wait(300)
        world.deliver()
        assert ranks(world) == []

    def test_drain_is_cancelled_if_a_task_keeps_a_value(self) -> None:
        world = pool(2)
        world.submit(1, target=1)
        world.tell(DrainNode(1))
        assert world.state_of(1) == "draining"
        keep(world, 1)
        assert world.state_of(1) == "active"

    @pytest.mark.parametrize("most", [3, 2])
    @pytest.mark.parametrize("order", ["before", "during"])
    def test_value_kept_on_a_draining_node_costs_no_other_kept_value(self, order: str, most: int) -> None:
        world = pool(3, 1, cooldown=5.0)
        if order == "before":
            keep(world, 2)
        world.submit(1, target=1)
        world.submit(1, target=2)
        world.tell(DrainNode(1) if most == 3 else Resize({"default": (2, 2)}))
        if order == "during":
            keep(world, 2)
        keep(world, 1, "b", "other")
        world.finish()
        world.wait(600)
        world.deliver()
        assert ranks(world) == [0, 1, 2]
        assert not [effect for effect in world.said if isinstance(effect, KeptValuesLost)]
        assert world.plane.desired == {"default": 3}

    def test_drain_that_a_kept_value_cancels_is_a_decision(self) -> None:
        world = pool(3, 1)
        keep(world, 2)
        world.submit(1, target=1)
        world.tell(DrainNode(1))
        effects = keep_effects(world, 1, "b", "other")
        assert [str(e.event) for e in effects if isinstance(e, Decided)] == [
            "2 -> 3 nodes: node 1 keeps other, so its drain is cancelled"
        ]
        assert world.plane.desired == {"default": 3}

    def test_pool_is_above_its_maximum_only_while_its_nodes_keep_values(self) -> None:
        world = pool(3, 1, cooldown=5.0)
        keep(world, 2)
        world.submit(1, target=1)
        world.tell(Resize({"default": (2, 2)}))
        assert world.state_of(1) == "draining"
        keep(world, 1, "b", "other")
        assert world.reasons_given[-1] == "2 -> 3 nodes: node 1 keeps other, node 2 keeps model, so 3 nodes stay"
        world.finish()
        world.wait(600)
        world.deliver()
        assert ranks(world) == [0, 1, 2]
        world.tell(ReleaseKept(("b",)))
        world.wait(60)
        world.deliver()
        assert ranks(world) == [0, 2]
        assert world.reasons_given[-1].startswith("3 -> 2 nodes: ")

    def test_use_of_a_kept_value_on_a_draining_node_costs_no_other_kept_value(self) -> None:
        world = pool(3, 1)
        keep(world, 2)
        keep(world, 1, "b", "other", keep_for=0)
        world.submit(1, target=1)
        world.tell(DrainNode(1))
        use(world, 1, ["b"])
        assert world.plane.desired == {"default": 3}
        world.finish()
        world.wait(600)
        world.deliver()
        assert 2 in ranks(world)

    def test_resize_to_fewer_nodes_than_keep_values_leaves_them(self) -> None:
        world = pool(3, 1)
        keep(world, 2)
        world.tell(Resize({"default": (1, 3)}, {"default": 1}))
        world.deliver()
        assert ranks(world) == [0, 2]
        assert (
            world.reasons_given[-1]
            == "3 -> 2 nodes: resized to between 1 and 3 nodes; node 2 keeps model, so 2 nodes stay"
        )

    def test_raised_budget_spares_nodes_that_keep_values(self) -> None:
        world = World(Group("default", 1, 3, hourly_price=3600.0), budget=100000.0).open()
        world.submit(3)
        world.wait(0.1)
        world.deliver()
        keep(world, 2)
        world.tell(SetBudget(world.plane.ledger.spent(world.now) + 100))
        world.wait(0.1)
        assert world.plane.budget_exhausted
        assert world.state_of(2) == "draining"
        world.tell(SetBudget(None))
        assert world.state_of(2) == "active"
        world.finish()
        world.deliver()
        assert 2 in ranks(world)

    def test_manual_drain_of_node_with_kept_value_is_refused(self) -> None:
        world = pool(3)
        keep(world, 1)
        plane = world.plane
        why = undrainable(plane.reconciler.table, plane.groups, plane.desired, plane.kept.busy_nodes(world.now), 1)
        assert why == "it keeps model: drop that first, with `.drop()` on its handle or `%sky drop`"
        assert world.tell(DrainNode(1)) == []

    def test_reached_budget_ends_node_with_kept_value(self) -> None:
        world = World(Group("default", 0, 2, hourly_price=3600.0), budget=1000.0).open()
        world.submit(1)
        world.wait(0.1)
        world.deliver()
        world.finish()
        entry = keep(world, 0)
        world.tell(SetBudget(world.plane.ledger.spent(world.now) + 1))
        world.wait(600)
        world.deliver()
        assert ranks(world) == []
        assert entry.lost.startswith("node 0 is gone: the pool has reached its budget of $")
        reasons = [effect.reason for effect in world.said if isinstance(effect, KeptValuesLost | machines.NodeGone)]
        assert reasons
        assert all("has reached its budget" in reason for reason in reasons)


class TestTasksWithKeptValues:
    def test_task_runs_on_node_of_the_value(self) -> None:
        world = pool(3)
        keep(world, 2)
        assert world.sent[use(world, 2, ["a"])] == 2

    def test_running_and_queued_tasks_fail_with_the_node(self) -> None:
        world = pool(3)
        keep(world, 2)
        running, waiting = use(world, 2, ["a"]), use(world, 2, ["a"])
        plain = world.submit(1, target=2)[0]
        effects = world.tell(machines.Lost(world.machine_of(2), "it died"))
        assert world.settled[running] == world.settled[waiting] == "unkept"
        assert plain not in world.settled
        assert [effect.reason for effect in effects if isinstance(effect, KeptValuesLost)] == ["it died"]

    def test_broadcast_to_nodes_with_the_value_excludes_later_nodes(self) -> None:
        world = pool(2)
        keep(world, 0)
        keep(world, 1, "b")
        number = world.plane.tasks.number()
        effects = world.tell(tasks.Broadcast(number, kept=("a", "b"), ranks=(0, 1)))
        assert [(e.rank) for e in effects if isinstance(e, tasks.Member)] == [0, 1]
        assert sorted(e.share for e in effects if isinstance(e, tasks.Dispatch) and e.share) == [(0, 2), (1, 2)]
        world.submit(2)
        world.wait(60)
        world.deliver()
        assert world.active > 2
        assert len([e for e in world.said if isinstance(e, tasks.Member)]) == 2

    def test_broadcast_member_fails_with_its_node(self) -> None:
        world = pool(2)
        keep(world, 0)
        keep(world, 1, "b")
        number = world.plane.tasks.number()
        effects = world.tell(tasks.Broadcast(number, kept=("a", "b"), ranks=(0, 1)))
        member = next(e.task for e in effects if isinstance(e, tasks.Member) and e.rank == 1)
        world.tell(machines.Lost(world.machine_of(1), "it died"))
        assert world.settled == {**{t: "value" for t in world.settled if t != member}, member: "unkept"}
