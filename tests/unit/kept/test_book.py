"""What nodes keep: where its users run, what scaling down spares, and what is lost with a node."""

from collections.abc import Sequence

import pytest

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import DrainNode, Forget, Keep, Release, SetBudget, Unkept
from skyward.control.decide.plane import undrainable
from skyward.control.decide.tasks import messages as tasks
from skyward.errors import KeptLostError, UsageError
from skyward.kept.book import KeptBook, KeptEntry, check_nodes, nodes_for, nodes_of_all
from skyward.kept.keep import KeptInfo
from skyward.scaling.snapshot import Group
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

HOUR = 3600.0


def kept(key: str, node: int, name: str = "model", pool: str = "p", keep_for: float = HOUR) -> KeptEntry:
    return KeptEntry(KeptInfo(key, name, "Net", 100, keep_for), node, pool)


def lost(entry: KeptEntry, why: str = "node 1 is gone: it died") -> KeptEntry:
    entry.lost = why
    return entry


class TestTheBook:
    def test_a_node_counts_as_busy_for_some_time_after_the_last_use(self) -> None:
        book = KeptBook()
        book.add(kept("a", 1, keep_for=10))
        assert book.holding(9) == {1: "model"}
        assert book.holding(10) == {}
        book.began(["a"], 20)
        assert book.holding(1000) == {1: "model"}, "a task uses it"
        book.ended(["a"], 1000)
        assert book.holding(1009) == {1: "model"}
        assert book.holding(1010) == {}

    def test_what_is_dropped_is_told_to_its_nodes(self) -> None:
        book = KeptBook()
        first, second = kept("a", 1), kept("b", 2)
        book.add(first)
        book.add(second)
        assert book.drop(["a", "b", "a", "unknown"]) == {1: ("a",), 2: ("b",)}
        assert first.lost == "it was dropped"
        assert not book.entries

    def test_what_a_lost_node_kept_is_lost(self) -> None:
        book = KeptBook()
        gone, left = kept("a", 1), kept("b", 2)
        book.add(gone)
        book.add(left)
        assert book.leave(1, "it died") == (gone,)
        assert gone.lost == "node 1 is gone: it died"
        assert not left.lost
        assert book.leave(1, "again") == ()

    def test_names_are_listed_once(self) -> None:
        book = KeptBook()
        for key, name in [("a", "model"), ("b", "conn"), ("c", "model")]:
            book.add(kept(key, 1, name))
        assert book.holding(0) == {1: "model and conn"}


class TestWhereATaskRuns:
    def test_where_what_it_uses_is(self) -> None:
        assert nodes_for([[kept("a", 1)]], "p") == {1}
        assert nodes_for([[kept("a", 0), kept("b", 1)], [kept("c", 1, "conn")]], "p") == {1}

    def test_not_where_it_is_lost(self) -> None:
        assert nodes_for([[kept("a", 0), lost(kept("b", 1))]], "p") == {0}
        with pytest.raises(KeptLostError, match=r"^model is not kept any more: node 1 is gone: it died. Run what made"):
            nodes_for([[lost(kept("b", 1))]], "p")

    def test_two_values_on_two_nodes_are_refused_with_both_nodes_named(self) -> None:
        with pytest.raises(UsageError, match=r"^model is kept on node 0 and conn is kept on nodes 1 and 2, so no"):
            nodes_for([[kept("a", 0)], [kept("b", 1, "conn"), kept("c", 2, "conn")]], "p")

    def test_two_values_of_one_name_on_two_nodes_are_refused_too(self) -> None:
        with pytest.raises(UsageError, match=r"^2 values of the name model are kept on nodes 0 and 1, so no node"):
            nodes_for([[kept("a", 0)], [kept("b", 1)]], "p")

    def test_a_value_that_was_lost_before_anyone_asked_is_lost_in_every_pool(self) -> None:
        with pytest.raises(KeptLostError, match=r"^model is not kept any more: its pool is closed"):
            nodes_for([[lost(kept("a", 0, pool=""), "its pool is closed")]], "p")

    def test_a_value_of_another_pool_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"^model is kept in pool 'p', so it cannot be used in pool 'q'"):
            nodes_for([[kept("a", 0)]], "q")

    def test_a_broadcast_runs_where_each_node_has_its_own(self) -> None:
        assert nodes_of_all([[kept("a", 0), kept("b", 1)]], "p", [0, 1]) == {0, 1}
        assert nodes_of_all([[kept("a", 0), kept("b", 1)]], "p", [0, 1, 2]) == {0, 1}
        assert nodes_of_all([[kept("a", 0)]], "p", [0]) == {0}

    def test_a_broadcast_does_not_leave_a_lost_part_out(self) -> None:
        with pytest.raises(KeptLostError, match=r"^model of node 1 is not kept any more: node 1 is gone: it died"):
            nodes_of_all([[kept("a", 0), lost(kept("b", 1))]], "p", [0, 1])

    def test_a_broadcast_of_what_one_node_of_several_keeps_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"^model is kept on node 1 only, and the pool has 2 nodes: run this"):
            nodes_of_all([[kept("a", 1)]], "p", [0, 1])

    def test_a_broadcast_for_certain_nodes_finds_it_on_each_of_them(self) -> None:
        entries = [kept("a", 0), kept("b", 1), lost(kept("c", 2))]
        check_nodes([entries], "p", [0, 1])
        with pytest.raises(KeptLostError, match=r"^model of node 2 is not kept any more"):
            check_nodes([entries], "p", [0, 2])
        with pytest.raises(
            UsageError, match=r"^model is kept on nodes 0 and 1, so this cannot run on node 3: run it on"
        ):
            check_nodes([entries], "p", [0, 3])


def pool(up: int, least: int = 0, **settings: object) -> World:
    """An open pool of `up` idle nodes."""
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
    world.tell(Keep(entry))
    return entry


def use(world: World, node: int, keys: Sequence[str]) -> int:
    task = world.plane.tasks.number()
    world.tell(tasks.Submitted((task,), node, kept=tuple(keys)))
    return task


def ranks(world: World) -> list[int]:
    return sorted(world.plane.reconciler.book.seats)


class TestScalingDown:
    def test_without_anything_kept_the_pool_empties(self) -> None:
        world = pool(3)
        world.wait(300)
        world.deliver()
        assert ranks(world) == []

    def test_a_node_that_keeps_something_stays_and_the_decision_says_why(self) -> None:
        world = pool(4)
        keep(world, 2)
        world.wait(600)
        world.deliver()
        assert ranks(world) == [0, 2], "and the head, which stays as long as any node does"
        assert any("node 2 keeps model" in reason for reason in world.reasons_given)

    def test_the_head_that_keeps_something_stays_alone(self) -> None:
        world = pool(3)
        keep(world, 0)
        world.wait(600)
        world.deliver()
        assert ranks(world) == [0]

    def test_when_the_time_is_over_the_node_goes_and_the_decision_says_what_goes_with_it(self) -> None:
        world = pool(3)
        entry = keep(world, 2, keep_for=400)
        world.wait(300)
        world.deliver()
        assert ranks(world) == [0, 2]
        world.wait(300)
        world.deliver()
        assert ranks(world) == []
        assert world.reasons_given[-1].endswith("; model on node 2 is not kept any more")
        assert entry.lost == "node 2 is gone: it is not needed any more"
        assert [effect.entries for effect in world.said if isinstance(effect, Unkept)] == [(entry,)]

    def test_each_use_begins_the_time_anew(self) -> None:
        world = pool(2)
        keep(world, 1, keep_for=400)
        for _ in range(4):
            world.wait(300)
            use(world, 1, ["a"])
            world.finish()
        world.deliver()
        assert 1 in ranks(world)

    def test_while_a_task_uses_it_the_time_stands_still(self) -> None:
        world = pool(2)
        keep(world, 1, keep_for=10)
        use(world, 1, ["a"])
        world.wait(2000)
        assert world.state_of(1) == "active"
        world.finish()
        world.wait(2000)
        world.deliver()
        assert ranks(world) == []

    def test_what_was_dropped_holds_no_node(self) -> None:
        world = pool(2)
        keep(world, 1)
        assert world.tell(Release(("a",))) == [Forget(1, ("a",))]
        world.wait(300)
        world.deliver()
        assert ranks(world) == []

    def test_a_drain_is_called_off_where_a_task_of_the_node_keeps_something(self) -> None:
        world = pool(2)
        world.submit(1, target=1)
        world.tell(DrainNode(1))
        assert world.state_of(1) == "draining"
        keep(world, 1)
        assert world.state_of(1) == "active"

    def test_a_node_that_keeps_something_is_not_drained_by_hand(self) -> None:
        world = pool(3)
        keep(world, 1)
        plane = world.plane
        why = undrainable(plane.reconciler.book, plane.groups, plane.desired, plane.kept.holding(world.now), 1)
        assert why == "it keeps model: free that first, with `.drop()` of its handle or `%sky drop`"
        assert world.tell(DrainNode(1)) == []

    def test_a_budget_that_is_reached_ends_it_all_the_same(self) -> None:
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
        assert entry.lost


class TestTasksThatUseIt:
    def test_run_on_its_node(self) -> None:
        world = pool(3)
        keep(world, 2)
        assert world.sent[use(world, 2, ["a"])] == 2

    def test_end_with_its_node_whether_they_run_or_wait(self) -> None:
        world = pool(3)
        keep(world, 2)
        running, waiting = use(world, 2, ["a"]), use(world, 2, ["a"])
        plain = world.submit(1, target=2)[0]
        effects = world.tell(machines.Lost(world.machine_of(2), "it died"))
        assert world.settled[running] == world.settled[waiting] == "unkept"
        assert plain not in world.settled
        assert [effect.reason for effect in effects if isinstance(effect, Unkept)] == ["it died"]

    def test_a_broadcast_among_the_nodes_that_keep_it_leaves_later_ones_out(self) -> None:
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

    def test_a_member_of_such_a_broadcast_ends_with_its_node(self) -> None:
        world = pool(2)
        keep(world, 0)
        keep(world, 1, "b")
        number = world.plane.tasks.number()
        effects = world.tell(tasks.Broadcast(number, kept=("a", "b"), ranks=(0, 1)))
        member = next(e.task for e in effects if isinstance(e, tasks.Member) and e.rank == 1)
        world.tell(machines.Lost(world.machine_of(1), "it died"))
        assert world.settled == {**{t: "value" for t in world.settled if t != member}, member: "unkept"}
