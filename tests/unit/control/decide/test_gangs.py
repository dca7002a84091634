"""Gangs in the task manager: members start together or not at all, and end or run again together."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    Abandon,
    Broadcast,
    CancelTasks,
    Dispatch,
    EndGang,
    RankDraining,
    RankJoined,
    RankLost,
    RankRemoved,
    Requeue,
    Settle,
    Stop,
    StopUnfunded,
    SubmitGang,
    Submitted,
    TaskManagerEffect,
    Together,
)
from skyward.scaling.snapshot import GangDemand, Group
from skyward.values.gangs import GANG_PLACEMENTS, GangPlacement
from skyward.values.needs import NOTHING, Needs
from tests.unit.control.decide.test_collectives import again, end, ends, sent, stops

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1})


class World:
    """A manager with nodes of these slots."""

    def __init__(self, *slots: int, retries: int = 3, groups: tuple[Group, ...] = ()) -> None:
        self.manager = TaskManager(retries, groups)
        self.now = 0.0
        for rank, count in enumerate(slots):
            self.tell(RankJoined(rank, count))

    def tell(self, message: Any) -> list[TaskManagerEffect]:
        self.now += 0.001
        return self.manager.handle(message, self.now)

    def task(self, needs: Needs = NOTHING, target: int | None = None) -> tuple[int, list[TaskManagerEffect]]:
        number = self.manager.number()
        return number, self.tell(Submitted((number,), target, needs=needs))

    def gang(
        self, size: int, placement: GangPlacement = "pack", needs: Needs = NOTHING, retries: int = 0
    ) -> tuple[list[int], list[TaskManagerEffect]]:
        number = self.manager.number()
        members = tuple(self.manager.number() for _ in range(size))
        demand = GangDemand((needs,) * size, placement)
        return list(members), self.tell(SubmitGang(number, members, demand, (retries,) * size))


def test_members_are_sent_at_once_with_their_ranks_and_nodes() -> None:
    members, effects = World(2, 1).gang(3)
    found = [each for each in effects if isinstance(each, Dispatch)]
    assert [each.task for each in found] == members
    assert [each.share for each in found] == [(0, 3), (1, 3), (2, 3)]
    assert {each.gang.nodes for each in found if each.gang is not None} == {(0, 0, 1)}


def test_gang_waits_until_all_its_members_fit() -> None:
    world = World(1, 1)
    first, _ = world.task()
    members, effects = world.gang(2)
    assert not sent(effects)
    assert world.manager.gangs() == (GangDemand((NOTHING, NOTHING)),)
    assert world.manager.demands(0.0) == ()
    assert world.manager.queued == 2
    assert set(sent(world.tell(end(first, 0)))) == set(members)
    assert world.manager.gangs() == ()


def test_younger_tasks_take_no_slot_that_a_gang_waits_for() -> None:
    world = World(1, 1)
    first, _ = world.task()
    members, _ = world.gang(2)
    younger, effects = world.task()
    pinned, more = world.task(target=1)
    assert not sent(effects)
    assert not sent(more)
    assert set(sent(world.tell(end(first, 0)))) == set(members)
    world.tell(end(members[0], 0))
    assert world.manager.node_of(younger) is not None or world.manager.node_of(pinned) is not None


def test_younger_tasks_take_no_resource_that_a_gang_waits_for() -> None:
    world = World()
    world.tell(RankJoined(0, 4, "", {"GPU": 2}))
    first, _ = world.task(GPU)
    members, effects = world.gang(2, needs=GPU)
    assert not sent(effects)
    _, effects = world.task(GPU)
    assert not sent(effects)
    plain, effects = world.task()
    assert sent(effects) == {plain: 0}, "a slot is left beside those of the gang"
    assert set(sent(world.tell(end(first, 0)))) == set(members)


def test_older_tasks_go_before_a_gang() -> None:
    world = World(1, 1)
    running = [world.task()[0] for _ in range(2)]
    older = [world.task()[0] for _ in range(2)]
    members, _ = world.gang(2)
    assert set(sent(world.tell(end(running[0], 0)))) == {older[0]}
    assert set(sent(world.tell(end(running[1], 1)))) == {older[1]}
    world.tell(end(older[0], 0))
    assert set(sent(world.tell(end(older[1], 1)))) == set(members)


def test_only_the_oldest_gang_reserves_so_that_two_gangs_never_wait_for_each_other() -> None:
    world = World(1, 1, 1)
    busy = [world.task()[0] for _ in range(3)]
    first, _ = world.gang(2)
    second, _ = world.gang(2)
    world.tell(end(busy[0], 0))
    assert set(sent(world.tell(end(busy[1], 1)))) == set(first)
    assert not sent(world.tell(end(busy[2], 2)))
    assert set(sent(world.tell(end(first[0], 0)))) == set(second)


def test_younger_gang_that_fits_starts_before_an_older_one_that_cannot() -> None:
    world = World(1, 1)
    _, effects = world.gang(3)
    assert not sent(effects)
    second, effects = world.gang(2)
    assert set(sent(effects)) == set(second)


def test_gang_that_waits_for_nodes_reserves_none() -> None:
    world = World(1)
    world.gang(2)
    younger, effects = world.task()
    assert sent(effects) == {younger: 0}


def test_collective_that_is_younger_than_a_waiting_gang_starts_after_it() -> None:
    world = World(1, 1)
    first, _ = world.task()
    members, _ = world.gang(2)
    effects = world.tell(Broadcast(world.manager.number(), together=Together()))
    assert not sent(effects)
    assert set(sent(world.tell(end(first, 0)))) == set(members)


def test_strict_placements_are_kept() -> None:
    world = World(2, 1, 1)
    members, effects = world.gang(2, "strict_pack")
    assert sent(effects) == dict.fromkeys(members, 0)
    spread, effects = world.gang(2, "strict_spread")
    assert sorted(sent(effects).values()) == [1, 2]
    assert set(sent(effects)) == set(spread)


def test_values_are_held_back_until_all_members_have_returned() -> None:
    world = World(1, 1)
    members, _ = world.gang(2)
    assert not ends(world.tell(end(members[1], 1)))
    assert ends(world.tell(end(members[0], 0))) == dict.fromkeys(members, ("value", ""))
    assert not world.manager.waiting


@pytest.mark.parametrize("outcome", ["error", "timeout"])
def test_other_members_go_on_after_one_has_failed(outcome: Any) -> None:
    world = World(1, 1, 1)
    members, _ = world.gang(3)
    world.tell(end(members[0], 0))
    effects = world.tell(end(members[1], 1, outcome))
    assert {task: how for task, (how, _) in ends(effects).items()} == {members[0]: "value", members[1]: outcome}
    assert not stops(effects)
    assert ends(world.tell(end(members[2], 2))) == {members[2]: ("value", "")}


def test_cell_that_raised_is_delivered_at_once() -> None:
    world = World(1, 1)
    members, _ = world.gang(2)
    assert ends(world.tell(end(members[0], 0, raised=True))) == {members[0]: ("value", "")}
    assert ends(world.tell(end(members[1], 1))) == {members[1]: ("value", "")}


def test_whole_gang_runs_again_after_the_loss_of_a_node() -> None:
    world = World(1, 1, 1, 1)
    members, _ = world.gang(3)
    world.tell(end(members[0], 0))
    effects = world.tell(RankLost(1, "node 1 died"))
    assert stops(effects) == {members[2]}
    assert not ends(effects)
    effects = world.tell(end(members[2], 2, "cancelled"))
    assert again(effects) == members
    found = [each for each in effects if isinstance(each, Dispatch)]
    assert {each.task: each.rank for each in found} == dict(zip(members, (0, 2, 3), strict=True))
    assert {(each.attempt, each.gang.start) for each in found if each.gang is not None} == {(1, 2)}
    for task, rank in zip(members, (0, 2, 3), strict=True):
        effects = world.tell(end(task, rank))
    assert ends(effects) == dict.fromkeys(members, ("value", ""))


def test_two_members_on_the_lost_node_are_one_loss() -> None:
    world = World(2, 2, retries=1)
    members, effects = world.gang(2, "strict_pack")
    lost = next(iter(sent(effects).values()))
    effects = world.tell(RankLost(lost, "died"))
    assert not stops(effects)
    assert set(sent(effects)) == set(members)


def test_gang_that_is_lost_too_often_ends_as_lost() -> None:
    world = World(1, 1, retries=1)
    members, _ = world.gang(2)
    world.tell(RankLost(1, "died"))
    world.tell(RankJoined(1, 1))
    assert set(sent(world.tell(end(members[0], 0, "cancelled")))) == set(members)
    effects = world.tell(RankLost(1, "died again"))
    assert ends(effects) == {members[1]: ("lost", "died again")}
    assert ends(world.tell(end(members[0], 0))) == {members[0]: ("value", "")}


def test_loss_of_a_process_runs_the_whole_gang_again() -> None:
    world = World(1, 1)
    members, _ = world.gang(2)
    assert stops(world.tell(end(members[0], 0, "lost"))) == {members[1]}
    assert again(world.tell(end(members[1], 1, "cancelled"))) == members


def test_exception_that_the_retry_policy_covers_runs_the_whole_gang_again() -> None:
    world = World(1, 1)
    members, _ = world.gang(2, retries=1)
    assert stops(world.tell(end(members[0], 0, "error", retry="ValueError"))) == {members[1]}
    assert again(world.tell(end(members[1], 1, "value"))) == members, "it ended while it was stopped"
    assert ends(world.tell(end(members[0], 0, "error", retry="ValueError"))) == {members[0]: ("error", "")}


def test_cancelling_one_member_cancels_the_waiting_gang() -> None:
    world = World(1)
    members, _ = world.gang(2)
    assert ends(world.tell(CancelTasks((members[1],)))) == dict.fromkeys(members, ("cancelled", ""))
    assert world.manager.gangs() == ()


def test_cancelling_one_member_stops_the_running_gang() -> None:
    world = World(1, 1, 1)
    members, _ = world.gang(3)
    world.tell(end(members[0], 0))
    effects = world.tell(CancelTasks((members[1],)))
    assert stops(effects) == {members[1], members[2]}
    assert ends(effects) == {members[0]: ("value", "")}
    assert ends(world.tell(end(members[1], 1, "cancelled"))) == {members[1]: ("cancelled", "")}
    assert ends(world.tell(RankLost(2, "died"))) == {members[2]: ("cancelled", "died")}


def test_cancelled_while_it_is_stopped_to_run_again() -> None:
    world = World(1, 1)
    members, _ = world.gang(2)
    world.tell(RankLost(0, "died"))
    effects = world.tell(CancelTasks((members[0],)))
    assert ends(effects) == {members[0]: ("cancelled", "died")}
    effects = world.tell(end(members[1], 1, "cancelled"))
    assert ends(effects) == {members[1]: ("cancelled", "")}
    assert not again(effects)


def test_budget_stops_all_members() -> None:
    world = World(1, 1)
    members, _ = world.gang(2)
    assert stops(world.tell(StopUnfunded("the budget"))) == set(members)
    found = [ends(world.tell(end(task, rank, "cancelled"))) for rank, task in enumerate(members)]
    assert found == [{task: ("unfunded", "the budget")} for task in members]


def test_waiting_gang_ends_as_a_whole_with_the_reason() -> None:
    world = World(1)
    members, _ = world.gang(2)
    assert ends(world.tell(Abandon("no nodes", shapes=frozenset({GPU})))) == {}
    assert ends(world.tell(Abandon("no nodes"))) == dict.fromkeys(members, ("abandoned", "no nodes"))


def test_gang_ends_with_all_waiting_tasks_but_not_with_those_of_a_shape() -> None:
    world = World(1)
    number = world.manager.number()
    members = (world.manager.number(), world.manager.number())
    world.tell(SubmitGang(number, members, GangDemand((NOTHING, GPU))))
    assert world.manager.shapes() == set()
    assert not ends(world.tell(Abandon("no GPUs", shapes=frozenset({GPU}))))
    effects = world.tell(Abandon("no nodes"))
    assert ends(effects) == dict.fromkeys(members, ("abandoned", "no nodes"))


def test_end_of_one_gang_leaves_the_others() -> None:
    world = World(1)
    first, _ = world.gang(2)
    second, _ = world.gang(3)
    number = next(iter(world.manager.waiting_gangs))
    assert set(ends(world.tell(EndGang(number, "infeasible", "too large")))) == set(first)
    world.tell(RankJoined(1, 1))
    assert set(sent(world.tell(RankJoined(2, 1)))) == set(second)


def test_gang_that_can_never_fit_ends_at_once() -> None:
    world = World(1, groups=(Group("a", 0, 2, slots=2),))
    members, effects = world.gang(3, "strict_pack")
    found = ends(effects)
    assert set(found) == set(members)
    assert found[members[0]] == (
        "infeasible",
        "3 tasks at once on one node (a gang with placement 'strict_pack'), which do not fit even in the pool's "
        "maximum: 2 nodes of 'a', each with 2 slots",
    )
    assert not ends(world.gang(4)[1])
    assert ends(world.gang(5)[1])


def test_draining_node_takes_no_member() -> None:
    world = World(1, 1)
    world.tell(RankDraining(1))
    members, effects = world.gang(2)
    assert not sent(effects)
    world.tell(RankRemoved(1, "drained"))
    assert set(sent(world.tell(RankJoined(2, 1)))) == set(members)


def test_deadlock_of_a_gang_with_held_slots_is_seen() -> None:
    world = World(1, 1)
    first, _ = world.task()
    members, _ = world.gang(2)
    starts = world.manager.gang_start(members[0])
    assert starts is not None
    assert starts({})
    assert not starts({0: 1})
    assert world.manager.gang_start(first) is None


ACTIONS = ("task", "pinned", "gang", "collective", "end", "fail", "kill", "lose", "join", "cancel")


@given(
    st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.integers(0, 4), st.sampled_from(GANG_PLACEMENTS), st.booleans()),
        max_size=40,
    )
)
def test_every_task_ends_once_and_gangs_start_together_whatever_happens(
    actions: list[tuple[str, int, GangPlacement, bool]],
) -> None:
    world = World(1, 2)
    manager, ranks, next_rank = world.manager, {0, 1}, 2
    gangs: list[list[int]] = []
    running: dict[int, int] = {}
    stopping: set[int] = set()
    ended: set[int] = set()

    def look(effects: list[TaskManagerEffect]) -> None:
        starts = sent(effects)
        for members in gangs:
            assert len(starts.keys() & set(members)) in (0, len(members)), "all of them, or none"
        for effect in effects:
            match effect:
                case Dispatch(task, rank):
                    assert task not in ended
                    running[task] = rank
                case Requeue(task):
                    running.pop(task, None)
                case Stop(task):
                    stopping.add(task)
                case Settle(task):
                    assert task not in ended
                    ended.add(task)
                    running.pop(task, None)
                case _:
                    pass
        for rank in manager.ranks:
            node = manager.node(rank)
            assert node is not None
            assert node.spare >= 0
            assert all(amount >= 0 for amount in node.free.values())

    def tell(message: Any) -> None:
        look(world.tell(message))

    def finish(task: int, outcome: Any) -> None:
        rank = running.pop(task)
        stopping.discard(task)
        tell(end(task, rank, outcome))

    for action, number, placement, on_gpu in actions:
        needs = GPU if on_gpu else NOTHING
        match action:
            case "task":
                tell(Submitted((manager.number(),), needs=needs))
            case "pinned" if number in ranks:
                tell(Submitted((manager.number(),), number))
            case "gang":
                gang, members = manager.number(), [manager.number() for _ in range(number + 1)]
                gangs.append(members)
                tell(SubmitGang(gang, tuple(members), GangDemand((NOTHING, *(needs,) * number), placement)))
            case "collective":
                tell(Broadcast(manager.number(), together=Together()))
            case "end" | "fail" | "kill" if running:
                task = sorted(running)[number % len(running)]
                how = {"end": "value", "fail": "error", "kill": "lost"}[action]
                finish(task, "cancelled" if task in stopping else how)
            case "lose" if ranks:
                rank = sorted(ranks)[number % len(ranks)]
                ranks.discard(rank)
                for task in [task for task, where in running.items() if where == rank]:
                    del running[task]
                    stopping.discard(task)
                tell(RankRemoved(rank, "spot"))
            case "join":
                ranks.add(next_rank)
                tell(RankJoined(next_rank, 1 + number % 3, "", {"GPU": number % 3}))
                next_rank += 1
            case "cancel" if gangs:
                tell(CancelTasks((gangs[number % len(gangs)][0],)))
            case _:
                pass
    for _ in range(5):  # enough for whatever waits
        tell(RankJoined(next_rank, 8, "", {"GPU": 8}))
        ranks.add(next_rank)
        next_rank += 1
    while running:
        task = min(running)
        finish(task, "cancelled" if task in stopping else "value")
    assert not manager.waiting
    assert all(set(members) <= ended for members in gangs)


def test_thousands_of_members_wait_and_start_in_little_time() -> None:
    world = World(*[1] * 1000)
    busy = [world.task()[0] for _ in range(1000)]
    members, effects = world.gang(1000, "strict_spread")
    assert not sent(effects)
    for rank, task in enumerate(busy):
        effects = world.tell(end(task, rank))
    assert set(sent(effects)) == set(members)
