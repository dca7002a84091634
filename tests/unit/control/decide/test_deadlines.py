"""Overdue tasks of a node, as their client counts, and the tasks beside them."""

import pytest

from skyward.control.decide.tasks.deadlines import ALLOWANCE, Deadlines
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    Broadcast,
    BroadcastEnded,
    CancelTasks,
    Delivered,
    Dispatch,
    Member,
    Overdue,
    RankJoined,
    RankLost,
    Settle,
    Submitted,
    TaskManagerEffect,
)
from skyward.wire.protocol.messages import PACKING_TIMEOUT

pytestmark = pytest.mark.unit


def test_task_is_overdue_an_allowance_after_its_timeout() -> None:
    deadlines = Deadlines(1)
    deadlines.sent(1, 2.0, 10.0)
    assert not deadlines.overdue(12.0 + ALLOWANCE - 0.01)
    assert deadlines.overdue(12.0 + ALLOWANCE) == (1,)


def test_timeout_of_a_prefetched_task_counts_from_the_end_of_the_previous_task() -> None:
    deadlines = Deadlines(2)
    for task in (1, 2, 3):
        deadlines.sent(task, 2.0, 0.0)
    deadlines.ended(1, 5.0)
    assert deadlines.overdue(5.0) == (2,)
    assert deadlines.overdue(7.0 + ALLOWANCE) == (2, 3)


def test_task_without_a_timeout_is_overdue_only_after_a_stop_request() -> None:
    deadlines = Deadlines(1)
    deadlines.sent(1, None, 0.0)
    assert not deadlines
    assert not deadlines.overdue(1e9)
    deadlines.stopped(1, 50.0)
    deadlines.stopped(1, 51.0)
    assert deadlines
    assert deadlines.overdue(50.0 + ALLOWANCE) == (1,)
    deadlines.ended(1, 52.0)
    assert not deadlines


def manager(*slots: int) -> TaskManager:
    made = TaskManager(retries=3)
    for rank, count in enumerate(slots):
        made.handle(RankJoined(rank, count), 0.0)
    return made


def submit(tasks: TaskManager, count: int, target: int | None = None, *, replayable: bool = True) -> list[int]:
    numbers = [tasks.number() for _ in range(count)]
    tasks.handle(Submitted(tuple(numbers), target, replayable), 0.0)
    return numbers


def ends(effects: list[TaskManagerEffect]) -> list[tuple[int, str]]:
    return [(effect.task, effect.outcome) for effect in effects if isinstance(effect, Settle)]


def sent(effects: list[TaskManagerEffect]) -> list[int]:
    return [effect.task for effect in effects if isinstance(effect, Dispatch)]


def test_grace_extends_the_deadline_and_packing_extends_it_further() -> None:
    deadlines = Deadlines(2)
    deadlines.sent(1, 2.0, 0.0, grace=5.0)
    deadlines.sent(2, None, 0.0, grace=5.0)
    deadlines.stopped(2, 1.0)
    assert deadlines.overdue(1.0 + 5.0 + ALLOWANCE) == (2,)
    assert deadlines.overdue(2.0 + 5.0 + ALLOWANCE) == (1, 2)
    deadlines.leaving(2, 6.0)
    deadlines.leaving(3, 6.0)
    assert deadlines.overdue(5.0 + PACKING_TIMEOUT) == (1,)
    assert deadlines.overdue(6.0 + PACKING_TIMEOUT + ALLOWANCE) == (1, 2)


def test_overdue_task_ends_once_and_its_neighbour_is_requeued() -> None:
    tasks = manager(2)
    late, neighbour = submit(tasks, 2)
    effects = tasks.handle(Overdue((late,), 0, "node 0 was terminated"), 5.0)
    assert ends(effects) == [(late, "timeout")]
    assert not sent(effects)
    assert not tasks.handle(RankLost(0, "node 0 died"), 5.0)
    assert sent(tasks.handle(RankJoined(0, 2), 6.0)) == [neighbour]


def test_overdue_task_that_was_cancelled_ends_as_cancelled() -> None:
    tasks = manager(1)
    (late,) = submit(tasks, 1)
    tasks.handle(CancelTasks((late,)), 1.0)
    assert ends(tasks.handle(Overdue((late,), 0, ""), 3.0)) == [(late, "cancelled")]


def test_neighbour_that_is_not_replayable_is_lost_with_the_reason() -> None:
    tasks = manager(2)
    late, neighbour = submit(tasks, 2)
    tasks.handle(Delivered(neighbour), 1.0)
    effects = tasks.handle(Overdue((late,), 0, "node 0 was terminated"), 5.0)
    assert ends(effects) == [(late, "timeout"), (neighbour, "lost")]
    assert any(isinstance(effect, Settle) and effect.reason == "node 0 was terminated" for effect in effects)


def test_task_pinned_to_a_terminated_node_is_not_sent_to_it() -> None:
    tasks = manager(1)
    (late,) = submit(tasks, 1)
    (pinned,) = submit(tasks, 1, target=0, replayable=False)
    effects = tasks.handle(Overdue((late,), 0, ""), 5.0)
    assert not sent(effects)
    assert ends(effects) == [(late, "timeout")]
    assert sent(tasks.handle(RankJoined(0, 1), 6.0)) == [pinned]


def test_overdue_report_of_a_moved_task_is_ignored() -> None:
    tasks = manager(1)
    (moved,) = submit(tasks, 1)
    tasks.handle(RankLost(0, "died"), 1.0)
    tasks.handle(RankJoined(1, 1), 1.0)
    assert not ends(tasks.handle(Overdue((moved,), 0, ""), 2.0))


def test_overdue_member_of_a_broadcast_does_not_run_again_on_the_new_node() -> None:
    tasks = manager(1, 1)
    members = [effect for effect in tasks.handle(Broadcast(tasks.number()), 0.0) if isinstance(effect, Member)]
    first, second = (member.task for member in members)
    assert ends(tasks.handle(Overdue((first,), 0, ""), 5.0)) == [(first, "timeout")]
    assert not sent(tasks.handle(RankJoined(0, 1), 6.0))
    effects = tasks.handle(Overdue((second,), 1, ""), 7.0)
    assert ends(effects) == [(second, "timeout")]
    assert any(isinstance(effect, BroadcastEnded) for effect in effects)
