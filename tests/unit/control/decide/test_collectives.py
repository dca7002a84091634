"""Collectives in the task manager: members start, meet, end and run again together, whatever happens to nodes."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    Abandon,
    Broadcast,
    BroadcastEnded,
    CancelBroadcast,
    CancelTasks,
    Delivered,
    Dispatch,
    Ended,
    MeetingOpened,
    MeetingsDue,
    Member,
    MemberArrived,
    RankJoined,
    RankLost,
    RankRemoved,
    Released,
    Requeue,
    Settle,
    StartedOnNode,
    Stop,
    Submitted,
    TaskManagerEffect,
    Together,
    Withheld,
)
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit


class World:
    """A manager, and its effects since the last look."""

    def __init__(self, *slots: int) -> None:
        self.manager = TaskManager(retries=3)
        self.now = 0.0
        for rank, count in enumerate(slots):
            self.tell(RankJoined(rank, count))

    def tell(self, message: Any) -> list[TaskManagerEffect]:
        self.now += 0.001
        return self.manager.handle(message, self.now)

    def open(self, **terms: Any) -> tuple[int, list[int], list[TaskManagerEffect]]:
        """Start a collective; return its number, its members, and the effects."""
        number = self.manager.number()
        more = {name: terms.pop(name) for name in ("ranks", "needs", "retries") if name in terms}
        effects = self.tell(Broadcast(number, together=Together(**terms), **more))
        return number, [each.task for each in effects if isinstance(each, Member)], effects


def sent(effects: Iterable[TaskManagerEffect]) -> dict[int, int]:
    return {each.task: each.rank for each in effects if isinstance(each, Dispatch)}


def ends(effects: Iterable[TaskManagerEffect]) -> dict[int, tuple[str, str]]:
    return {each.task: (each.outcome, each.reason) for each in effects if isinstance(each, Settle)}


def stops(effects: Iterable[TaskManagerEffect]) -> set[int]:
    return {each.task for each in effects if isinstance(each, Stop)}


def again(effects: Iterable[TaskManagerEffect]) -> list[int]:
    return [each.task for each in effects if isinstance(each, Requeue)]


def end(task: int, rank: int, outcome: Any = "value", **more: Any) -> Ended:
    return Ended(task, rank, outcome, 0.1, **more)


def test_members_are_sent_at_once_with_their_places() -> None:
    _, members, effects = World(2, 2).open(procs=2)
    found = [each for each in effects if isinstance(each, Dispatch)]
    assert [(each.rank, each.share) for each in found] == [(0, (0, 4)), (0, (1, 4)), (1, (2, 4)), (1, (3, 4))]
    places = [each.collective.local for each in found if each.collective is not None]
    assert places == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert len({each.collective for each in found if each.collective is not None}) == 2
    assert len(members) == 4


def test_collective_waits_for_all_its_slots_and_nothing_else_takes_them() -> None:
    world = World(1, 1)
    world.tell(Submitted((world.manager.number(),)))
    _, members, effects = world.open()
    assert not sent(effects)
    later = world.manager.number()
    assert not sent(world.tell(Submitted((later,))))
    effects = world.tell(end(1, 0))
    assert set(sent(effects)) == set(members)
    world.tell(end(members[0], 0))
    assert sent(world.tell(end(members[1], 1))) or world.manager.node_of(later) is not None


def test_node_that_joins_later_takes_no_part() -> None:
    world = World(1)
    world.open()
    assert not [each for each in world.tell(RankJoined(1, 1)) if isinstance(each, Member)]


def test_collective_without_a_node_starts_on_the_first_one() -> None:
    world = World()
    _, _, effects = world.open(procs=2)
    assert not effects
    assert len(sent(world.tell(RankJoined(3, 2)))) == 2


def test_meeting_opens_once_all_have_arrived() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open()
    assert not world.tell(MemberArrived(second, 1))
    opened = world.tell(MemberArrived(first, 0, "10.0.0.1:4000"))
    assert opened == [MeetingOpened(first, 0, "10.0.0.1:4000"), MeetingOpened(second, 1, "10.0.0.1:4000")]
    assert world.manager.next_meeting() is None


def test_member_that_does_not_come_in_time_is_named() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(within=5.0)
    world.tell(MemberArrived(first, 0, "10.0.0.1:4000"))
    world.now += 60
    assert world.manager.next_meeting() is None, "the second one has no process yet"
    assert not world.tell(MeetingsDue())
    world.tell(StartedOnNode(second))
    assert world.manager.next_meeting() == pytest.approx(world.now + 5)
    world.now += 6
    assert stops(world.tell(MeetingsDue())) == {first, second}
    world.tell(end(first, 0, "cancelled"))
    found = ends(world.tell(end(second, 1, "cancelled")))
    assert found[first][0] == "cancelled"
    assert found[second] == ("unmet", "rank 1 (node 1) did not meet the others within 5 s")


@pytest.mark.parametrize("outcome", ["error", "timeout", "lost"])
def test_end_of_one_member_stops_the_others_and_all_settle_together(outcome: str) -> None:
    world = World(1, 1, 1)
    number, (first, second, third), _ = world.open()
    assert not ends(world.tell(end(first, 0)))
    effects = world.tell(end(second, 1, outcome))
    assert stops(effects) == {third}
    assert not ends(effects)
    effects = world.tell(end(third, 2, "cancelled"))
    assert {task: how for task, (how, _) in ends(effects).items()} == {
        first: "value",
        second: outcome,
        third: "cancelled",
    }
    assert BroadcastEnded(number) in effects
    assert not world.manager.queued


def test_loss_runs_the_whole_collective_again_up_to_its_restarts() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(restarts=1)
    assert stops(world.tell(RankLost(1, "node 1 died"))) == {first}
    effects = world.tell(end(first, 0, "cancelled"))
    assert sorted(again(effects)) == [first, second]
    assert not sent(effects)
    effects = world.tell(RankJoined(1, 1))
    assert set(sent(effects)) == {first, second}
    generations = {each.collective.generation for each in effects if isinstance(each, Dispatch) and each.collective}
    assert len(generations) == 1
    world.tell(end(second, 1, "lost"))
    assert ends(world.tell(end(first, 0, "cancelled")))[second][0] == "lost"


def test_error_that_follows_a_loss_is_a_loss() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(restarts=1)
    assert stops(world.tell(end(first, 0, "error", follows_loss=True))) == {second}
    assert sorted(again(world.tell(end(second, 1, "lost")))) == [first, second]


def test_own_error_is_not_run_again_though_another_member_was_lost() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(restarts=3)
    world.tell(end(first, 0, "error"))
    assert ends(world.tell(end(second, 1, "lost")))[first][0] == "error"


def test_exception_that_a_retry_covers_runs_all_again() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(retries=1)
    world.tell(end(first, 0, "error", retry="it raised ValueError"))
    assert set(sent(world.tell(end(second, 1, "cancelled")))) == {first, second}
    world.tell(end(first, 0, "error", retry="it raised ValueError"))
    assert ends(world.tell(end(second, 1, "cancelled")))[first][0] == "error"


def test_cell_that_raises_ends_the_others_and_keeps_its_result() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open()
    effects = world.tell(Ended(first, 0, "value", 1.0, raised=True))
    assert [each.task for each in effects if isinstance(each, Stop)] == [second]
    effects = world.tell(Ended(second, 1, "cancelled", 1.0))
    assert [(each.task, each.outcome) for each in effects if isinstance(each, Settle)] == [
        (first, "value"),
        (second, "cancelled"),
    ]


def test_cell_that_raises_what_a_retry_covers_runs_again() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(retries=1)
    world.tell(Ended(first, 0, "value", 1.0, retry="it raised ValueError", raised=True))
    effects = world.tell(Ended(second, 1, "cancelled", 1.0))
    assert sorted(each.task for each in effects if isinstance(each, Dispatch)) == [first, second]


def test_second_report_of_a_member_that_has_ended_is_ignored() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open()
    world.tell(Ended(first, 0, "value", 1.0))
    assert world.tell(Ended(first, 0, "lost", 1.0)) == []
    assert world.tell(Withheld(first, 0)) == []
    assert world.manager.could_start_on(first) is None, "it waits for the others, not for a slot"
    effects = world.tell(Ended(second, 1, "value", 1.0))
    assert [each.outcome for each in effects if isinstance(each, Settle)] == ["value", "value"]


def test_collective_that_delivered_elements_is_not_run_again() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(restarts=1)
    world.tell(Delivered(first))
    world.tell(end(second, 1, "lost"))
    assert ends(world.tell(end(first, 0, "cancelled")))[second][0] == "lost"


def test_node_that_is_gone_for_good_ends_a_collective_that_waits_for_it() -> None:
    world = World(1, 1)
    number, (first, second), _ = world.open(restarts=5)
    world.tell(RankLost(1, "node 1 died"))
    world.tell(end(first, 0, "cancelled"))
    effects = world.tell(RankRemoved(1, "node 1 could not be replaced"))
    assert ends(effects)[second] == ("lost", "node 1 could not be replaced")
    assert BroadcastEnded(number) in effects


def test_node_that_is_gone_while_the_others_stop_is_not_waited_for() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open(restarts=5)
    world.tell(RankLost(1, "node 1 died"))
    world.tell(RankRemoved(1, "node 1 could not be replaced"))
    assert ends(world.tell(end(first, 0, "cancelled")))[second][0] == "lost"


def test_node_of_a_finished_member_is_not_empty() -> None:
    world = World(1, 1)
    _, (first, _), _ = world.open()
    world.tell(end(first, 0))
    assert not world.manager.is_empty(0)


@pytest.mark.parametrize("is_waiting", [True, False], ids=["in the queue", "on nodes"])
def test_cancelling_one_member_cancels_all(is_waiting: bool) -> None:
    world = World(1, 1)
    if is_waiting:
        world.tell(Submitted((world.manager.number(),)))
    number, (first, second), _ = world.open(restarts=1)
    effects = world.tell(CancelTasks((second,)))
    if not is_waiting:
        assert stops(effects) == {first, second}
        world.tell(end(first, 0, "error", follows_loss=True))
        effects = world.tell(end(second, 1, "cancelled"))
    assert {how for how, _ in ends(effects).values()} == {"cancelled"}
    assert BroadcastEnded(number) in effects


def test_lost_input_of_a_member_runs_all_again_without_a_restart() -> None:
    world = World(1, 1)
    _, (first, second), _ = world.open()
    assert stops(world.tell(Withheld(second, 1))) == {first}
    assert not again(world.tell(end(first, 0, "cancelled")))
    assert set(sent(world.tell(Released(second)))) == {first, second}


def test_abandoned_collective_ends_with_the_reason() -> None:
    world = World(1, 1)
    world.tell(Submitted((world.manager.number(),)))
    _, members, _ = world.open()
    found = ends(world.tell(Abandon("no node can be launched")))
    assert ("abandoned", "no node can be launched") in found.values()
    assert set(found) == set(members)


def test_needs_count_for_each_process_of_a_node() -> None:
    world = World()
    world.tell(RankJoined(0, 2, resources={"GPU": 1}))
    world.tell(RankJoined(1, 2, resources={"GPU": 2}))
    _, _, effects = world.open(procs=2, needs=Needs({"GPU": 1}))
    assert set(sent(effects).values()) == {1}


class Collectives(RuleBasedStateMachine):
    """Nodes fail, join and report in any order; each task and each collective ends once, and none waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.up: dict[int, int] = {}
        self.on: dict[int, int] = {}
        self.ended: set[int] = set()
        self.groups: dict[int, list[int]] = {}
        self.losses: dict[int, int] = {}

    def tell(self, message: Any) -> None:
        effects = self.world.tell(message)
        started: set[int] = set()
        settled: set[int] = set()
        for each in effects:
            match each:
                case Member(broadcast, task):
                    self.groups.setdefault(broadcast, []).append(task)
                case Dispatch(task, rank):
                    assert task not in self.on, f"task {task} runs twice"
                    assert task not in self.ended
                    self.on[task] = rank
                    started.add(task)
                    assert sum(where == rank for where in self.on.values()) <= self.up[rank], "too many tasks"
                case Settle(task):
                    assert task not in self.ended, f"task {task} ended twice"
                    assert task not in self.on, f"task {task} ended while it runs"
                    self.ended.add(task)
                    settled.add(task)
                case _:
                    pass
        for members in self.groups.values():
            assert len(started.intersection(members)) in (0, len(members)), "members did not start together"
            assert len(settled.intersection(members)) in (0, len(members)), "members did not end together"

    @precondition(lambda self: len(self.up) < 3)
    @rule(slots=st.integers(2, 3))
    def join(self, slots: int) -> None:
        rank = next(rank for rank in range(3) if rank not in self.up)
        self.up[rank] = slots
        self.tell(RankJoined(rank, slots))

    @rule(count=st.integers(1, 3))
    def submit(self, count: int) -> None:
        self.tell(Submitted(tuple(self.world.manager.number() for _ in range(count))))

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def submit_pinned(self, data: st.DataObject) -> None:
        rank = data.draw(st.sampled_from(sorted(self.up)))
        self.tell(Submitted((self.world.manager.number(),), rank))

    @precondition(lambda self: len(self.groups) < 4)
    @rule(procs=st.integers(1, 2), restarts=st.integers(0, 2))
    def open(self, procs: int, restarts: int) -> None:
        self.tell(Broadcast(self.world.manager.number(), together=Together(procs, restarts, 10.0)))

    @precondition(lambda self: self.on)
    @rule(data=st.data(), outcome=st.sampled_from(["value", "error", "lost", "cancelled", "follows"]))
    def end(self, data: st.DataObject, outcome: Any) -> None:
        task = data.draw(st.sampled_from(sorted(self.on)))
        follows = outcome == "follows"
        rank = self.on.pop(task)
        self.tell(end(task, rank, "error" if follows else outcome, follows_loss=follows))

    @precondition(lambda self: self.on)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.on)))
        self.tell(MemberArrived(task, self.on[task], "10.0.0.1:1"))

    @rule()
    def wait(self) -> None:
        self.world.now += 11
        self.tell(MeetingsDue())

    @precondition(lambda self: self.up)
    @rule(data=st.data(), for_good=st.booleans())
    def lose(self, data: st.DataObject, for_good: bool) -> None:
        rank = data.draw(st.sampled_from(sorted(self.up)))
        del self.up[rank]
        self.on = {task: where for task, where in self.on.items() if where != rank}
        self.tell(RankRemoved(rank, "gone") if for_good else RankLost(rank, "died"))

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        members = data.draw(st.sampled_from(sorted(self.groups)))
        if data.draw(st.booleans()):
            self.tell(CancelBroadcast(members))
        else:
            self.tell(CancelTasks((data.draw(st.sampled_from(self.groups[members])),)))

    def teardown(self) -> None:
        """Let everything end on healthy nodes, and check that nothing waits."""
        while len(self.up) < 3:
            rank = next(rank for rank in range(3) if rank not in self.up)
            self.up[rank] = 3
            self.tell(RankJoined(rank, 3))
        for _ in range(1000):
            if not self.on:
                break
            task, rank = next(iter(self.on.items()))
            del self.on[task]
            self.tell(end(task, rank))
        manager = self.world.manager
        assert (manager.queued, manager.running, manager.waiting) == (0, 0, False), "a task waits for ever"
        assert all(self.ended.issuperset(members) for members in self.groups.values())


TestCollectives = Collectives.TestCase
TestCollectives.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
