"""Edge cases of the task manager: round robin, retries, prefetch, and broadcasts while nodes come and go."""

from collections.abc import Iterable

import pytest

from skyward.control.decide.tasks.dispatch import PREFETCH_HORIZON, PREFETCH_MOST, RECALL_AFTER
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.messages import (
    Broadcast,
    BroadcastEnded,
    CancelBroadcast,
    CancelTasks,
    CheckPrefetched,
    Delivered,
    Dispatch,
    Ended,
    Member,
    RankDraining,
    RankJoined,
    RankLost,
    RankRemoved,
    Recall,
    Released,
    Requeue,
    Settle,
    Stop,
    Submitted,
    TaskManagerEffect,
    UniqueResults,
    Withheld,
)
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

GPU = Needs({"GPU": 1})


def manager_with(*slots: int, retries: int = 3) -> TaskManager:
    """Return a manager with a node for each of `slots`."""
    manager = TaskManager(retries=retries)
    for rank, count in enumerate(slots):
        manager.handle(RankJoined(rank, count), 0.0)
    return manager


def submit(
    manager: TaskManager, count: int, target: int | None = None, *, replayable: bool = True, needs: Needs = NOTHING
) -> tuple[list[int], list[TaskManagerEffect]]:
    tasks = [manager.number() for _ in range(count)]
    return tasks, manager.handle(Submitted(tuple(tasks), target, replayable, needs), 0.0)


def sent(effects: Iterable[TaskManagerEffect]) -> list[tuple[int, int]]:
    return [(effect.task, effect.rank) for effect in effects if isinstance(effect, Dispatch)]


def settled(effects: Iterable[TaskManagerEffect]) -> list[tuple[int, str, str]]:
    return [(effect.task, effect.outcome, effect.reason) for effect in effects if isinstance(effect, Settle)]


def test_tasks_are_dispatched_round_robin() -> None:
    manager = manager_with(2, 2, 2)
    tasks, effects = submit(manager, 4)
    assert sent(effects) == list(zip(tasks, (0, 1, 2, 0), strict=True))
    _, effects = submit(manager, 1)
    assert [rank for _, rank in sent(effects)] == [1]


def test_pinned_task_waits_for_its_node_and_blocks_no_other() -> None:
    manager = manager_with(1, 1)
    (first,), _ = submit(manager, 1, 1)
    (pinned,), effects = submit(manager, 1, 1)
    assert effects == []
    (free,), effects = submit(manager, 1)
    assert sent(effects) == [(free, 0)]
    assert sent(manager.handle(Ended(first, 1, "value", 1.0), 1.0)) == [(pinned, 1)]


def test_task_that_fits_nowhere_blocks_no_other_shape() -> None:
    manager = TaskManager()
    manager.handle(RankJoined(0, 2, "", {"GPU": 1}), 0.0)
    (first, second), effects = submit(manager, 2, needs=GPU)
    assert sent(effects) == [(first, 0)]
    (plain,), effects = submit(manager, 1)
    assert sent(effects) == [(plain, 0)]
    assert sent(manager.handle(Ended(plain, 0, "value", 1.0), 1.0)) == []
    assert sent(manager.handle(Ended(first, 0, "value", 1.0), 1.0)) == [(second, 0)]


def test_oldest_shape_goes_first() -> None:
    manager = TaskManager()
    (old,), _ = submit(manager, 1, needs=GPU)
    (new,), _ = submit(manager, 1)
    assert sent(manager.handle(RankJoined(0, 1, "", {"GPU": 1}), 0.0)) == [(old, 0)]
    assert sent(manager.handle(Ended(old, 0, "value", 1.0), 0.0)) == [(new, 0)]


def test_task_is_requeued_up_to_its_retries_and_then_lost() -> None:
    manager = manager_with(1, retries=2)
    (task,), effects = submit(manager, 1)
    for attempt in range(3):
        assert effects == [Dispatch(task, 0, attempt)]
        effects = manager.handle(RankLost(0, f"crash {attempt}"), 0.0)
        if attempt < 2:
            assert effects == [Requeue(task, 0, attempt + 1, f"crash {attempt}")]
            effects = manager.handle(RankJoined(0, 1), 0.0)
    assert settled(effects) == [(task, "lost", "crash 2")]


def test_task_that_may_run_once_only_is_not_prefetched() -> None:
    """Behind another task it may or may not have run before its node dies: nobody can tell."""
    manager = manager_with(1, retries=0)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", 0.0), 0.0)  # tasks are short: others would be prefetched from now on
    (runs, waits), effects = submit(manager, 2)
    assert sent(effects) == [(runs, 0)]
    assert settled(manager.handle(RankLost(0, "crash"), 0.0)) == [(runs, "lost", "crash")]
    assert manager.handle(RankJoined(0, 1), 0.0) == [Dispatch(waits, 0, 0)]


def test_prefetched_task_counts_as_run_and_is_not_prefetched_again() -> None:
    manager = manager_with(1, retries=1)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", 0.0), 0.0)
    (runs, ahead), effects = submit(manager, 2)
    assert sent(effects) == [(runs, 0), (ahead, 0)]
    manager.handle(RankLost(0, "crash"), 0.0)
    assert sent(manager.handle(RankJoined(0, 1), 0.0)) == [(runs, 0)]
    assert sent(manager.handle(Ended(runs, 0, "value", 0.0), 0.0)) == [(ahead, 0)]
    assert settled(manager.handle(RankLost(0, "crash 2"), 0.0)) == [(ahead, "lost", "crash 2")]


def test_partly_delivered_stream_is_not_replayed() -> None:
    manager = manager_with(1)
    (task,), _ = submit(manager, 1)
    manager.handle(Delivered(task), 0.0)
    assert settled(manager.handle(RankLost(0, "crash"), 0.0)) == [(task, "lost", "crash")]


def test_lost_task_is_requeued_at_the_head() -> None:
    manager = manager_with(2)
    (first, second, third), _ = submit(manager, 3)
    manager.handle(RankLost(0, "crash"), 0.0)
    assert [task for task, _ in sent(manager.handle(RankJoined(0, 3), 0.0))] == [first, second, third]


def test_prefetch_covers_the_horizon() -> None:
    manager = manager_with(1)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", PREFETCH_HORIZON / 3.5), 0.0)
    assert len(sent(submit(manager, 10)[1])) == 1 + 3
    manager = manager_with(1)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", 0.0), 0.0)
    assert len(sent(submit(manager, 100)[1])) == 1 + PREFETCH_MOST


def test_prefetched_task_behind_a_long_task_is_recalled_for_a_free_node() -> None:
    manager = manager_with(1)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", 0.0), 0.0)
    (long, second, third), _ = submit(manager, 3)
    manager.handle(RankJoined(1, 1), 0.0)
    assert manager.handle(CheckPrefetched(), RECALL_AFTER / 2) == []
    assert manager.handle(CheckPrefetched(), RECALL_AFTER) == [Recall(third, 0)]
    assert manager.handle(CheckPrefetched(), 2 * RECALL_AFTER) == [Recall(second, 0)]  # the first is recalled already
    assert sent(manager.handle(Ended(third, 0, "returned", 0.0), 1.0)) == [(third, 1)]
    assert manager.node_of(long) == 0


def test_free_slots_of_a_draining_node_are_no_room_for_prefetched_tasks() -> None:
    """Regression: tasks were recalled for a node that takes no more, and went back to where they came from."""
    manager = manager_with(1)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", 0.0), 0.0)
    _, second, third = submit(manager, 3)[0]
    manager.handle(RankJoined(1, 2), 0.0)
    manager.handle(RankDraining(1), 0.0)
    assert manager.handle(CheckPrefetched(), RECALL_AFTER) == []
    manager.handle(RankJoined(2, 1), 0.1)
    assert manager.handle(CheckPrefetched(), 0.2) == [Recall(third, 0)]
    assert manager.node_of(second) == 0


def test_draining_node_returns_tasks_that_have_not_started() -> None:
    manager = manager_with(1)
    (first,), _ = submit(manager, 1)
    manager.handle(Ended(first, 0, "value", 0.0), 0.0)
    (_, second, third), _ = submit(manager, 3)
    assert manager.handle(RankDraining(0), 0.0) == [Recall(third, 0), Recall(second, 0)]


def test_task_is_stopped_once_and_ends_with_its_node_s_answer() -> None:
    manager = manager_with(1)
    (runs, waits), _ = submit(manager, 2)
    assert manager.handle(CancelTasks((runs, waits)), 0.0) == [Stop(runs, 0), Settle(waits, "cancelled")]
    assert manager.handle(CancelTasks((runs, waits)), 0.0) == []
    assert settled(manager.handle(RankLost(0, "crash"), 0.0)) == [(runs, "cancelled", "crash")]


def test_tasks_of_a_removed_node_are_lost_with_the_reason() -> None:
    manager = manager_with(1, 1)
    (runs, waits), _ = submit(manager, 2, 1)
    assert settled(manager.handle(RankRemoved(1, "scaled down"), 0.0)) == [
        (runs, "lost", "scaled down"),
        (waits, "lost", "scaled down"),
    ]


# Broadcasts.


def members(effects: Iterable[TaskManagerEffect]) -> list[int]:
    return [effect.rank for effect in effects if isinstance(effect, Member)]


def shares(effects: Iterable[TaskManagerEffect]) -> list[tuple[int, int] | None]:
    return [effect.share for effect in effects if isinstance(effect, Dispatch)]


def test_nodes_at_the_start_share_the_data_and_later_ones_get_none() -> None:
    manager = manager_with(1, 1)
    assert shares(manager.handle(Broadcast(manager.number()), 0.0)) == [(0, 2), (1, 2)]
    assert shares(manager.handle(RankJoined(2, 1), 0.0)) == [(2, 2)]


def test_first_node_of_an_empty_pool_gets_all_the_data() -> None:
    manager = manager_with()
    assert manager.handle(Broadcast(manager.number()), 0.0) == []
    assert shares(manager.handle(RankJoined(0, 1), 0.0)) == [(0, 1)]
    assert shares(manager.handle(RankJoined(1, 1), 0.0)) == [(1, 1)]


def test_broadcast_cancelled_before_its_first_node_ends() -> None:
    manager = manager_with()
    broadcast = manager.number()
    manager.handle(Broadcast(broadcast), 0.0)
    assert manager.handle(CancelBroadcast(broadcast), 0.0) == [BroadcastEnded(broadcast)]
    assert not manager.waiting
    assert manager.handle(RankJoined(0, 1), 0.0) == []
    assert manager.handle(CancelBroadcast(broadcast), 0.0) == []


def test_joining_node_takes_no_part_in_a_cancelled_broadcast() -> None:
    manager = manager_with(1)
    broadcast = manager.number()
    ((task, _),) = sent(manager.handle(Broadcast(broadcast), 0.0))
    assert manager.handle(CancelBroadcast(broadcast), 0.0) == [Stop(task, 0)]
    assert manager.handle(RankJoined(1, 1), 0.0) == []
    assert BroadcastEnded(broadcast) in manager.handle(Ended(task, 0, "cancelled", 1.0), 0.0)


def test_node_with_a_cancelled_drain_runs_a_broadcast_once() -> None:
    manager = manager_with(1, 1)
    effects = manager.handle(Broadcast(manager.number()), 0.0)
    task = next(task for task, rank in sent(effects) if rank == 1)
    manager.handle(Ended(task, 1, "value", 1.0), 1.0)
    manager.handle(RankDraining(1), 1.0)
    assert manager.handle(RankJoined(1, 1), 2.0) == []


def test_node_with_a_cancelled_drain_joins_a_second_broadcast() -> None:
    manager = manager_with(2, 2)
    manager.handle(Broadcast(manager.number()), 0.0)
    manager.handle(RankDraining(1), 0.0)
    assert members(manager.handle(Broadcast(manager.number()), 0.0)) == [0]
    assert members(manager.handle(RankJoined(1, 2), 0.0)) == [1]


def test_replacement_node_inherits_the_share_of_the_lost_one() -> None:
    manager = manager_with(1, 1)
    effects = manager.handle(Broadcast(manager.number()), 0.0)
    task = next(task for task, rank in sent(effects) if rank == 1)
    assert manager.handle(RankLost(1, "crash"), 0.0) == [Requeue(task, 1, 1, "crash")]
    assert manager.handle(RankJoined(1, 1), 0.0) == [Dispatch(task, 1, 1, (1, 2))]


@pytest.mark.parametrize("gone", [RankLost, RankRemoved])
@pytest.mark.parametrize("end", ["returned", "lost", "delivered"])
def test_node_that_replaces_one_whose_member_has_ended_takes_no_part(gone: type, end: str) -> None:
    manager = manager_with(1, 1, retries=0 if end == "lost" else 3)
    effects = manager.handle(Broadcast(manager.number()), 0.0)
    task = next(task for task, rank in sent(effects) if rank == 1)
    if end == "returned":
        manager.handle(Ended(task, 1, "value", 1.0), 1.0)
    elif end == "delivered":
        manager.handle(Delivered(task), 1.0)
    manager.handle(gone(1, "crash"), 2.0)
    assert manager.handle(RankJoined(1, 1), 3.0) == []


def test_raising_task_is_retried_and_losses_are_counted_separately() -> None:
    manager = manager_with(1, retries=1)
    (task,) = [manager.number()]
    manager.handle(Submitted((task,), retries=2), 0.0)
    raised = Ended(task, 0, "error", 1.0, "it raised OSError: no")
    assert manager.handle(raised, 0.0) == [Requeue(task, 0, 1, "it raised OSError: no"), Dispatch(task, 0, 1)]
    assert manager.handle(Ended(task, 0, "lost", 0.0), 0.0)[0] == Requeue(
        task, 0, 2, "the process it ran in was killed"
    )
    assert manager.handle(raised, 0.0) == [Requeue(task, 0, 3, "it raised OSError: no"), Dispatch(task, 0, 3)]
    assert settled(manager.handle(raised, 0.0)) == [(task, "error", "")]


def test_raising_task_is_requeued_at_the_head() -> None:
    manager = manager_with(1)
    first, second = manager.number(), manager.number()
    manager.handle(Submitted((first, second), retries=1), 0.0)
    assert sent(manager.handle(Ended(first, 0, "error", 1.0, "it raised"), 0.0)) == [(first, 0)]


def test_raising_stream_that_was_partly_delivered_is_not_retried() -> None:
    manager = manager_with(1)
    task = manager.number()
    manager.handle(Submitted((task,), retries=5), 0.0)
    manager.handle(Delivered(task), 0.0)
    assert settled(manager.handle(Ended(task, 0, "error", 1.0, "it raised"), 0.0)) == [(task, "error", "")]


def test_members_of_a_broadcast_have_its_retries() -> None:
    manager = manager_with(1, 1)
    effects = manager.handle(Broadcast(manager.number(), retries=1), 0.0)
    task = next(task for task, rank in sent(effects) if rank == 1)
    assert sent(manager.handle(Ended(task, 1, "error", 1.0, "it raised"), 0.0)) == [(task, 1)]
    assert settled(manager.handle(Ended(task, 1, "error", 1.0, "it raised"), 0.0)) == [(task, "error", "")]


def test_withheld_task_has_no_slot_and_no_demand() -> None:
    manager = manager_with(1)
    (first, second), _ = submit(manager, 2)
    assert sent(manager.handle(Withheld(first, 0), 0.0)) == [(second, 0)]
    assert (manager.withheld, manager.queued, manager.demands(0.0)) == (1, 0, ())
    assert not manager.waiting
    assert manager.could_start_on(first) is None
    manager.handle(Ended(second, 0, "value", 1.0), 0.0)
    assert not manager.waiting
    assert manager.handle(Released(first), 0.0) == [Dispatch(first, 0, 1)]


def test_withheld_task_pinned_to_a_node_ends_with_it() -> None:
    manager = manager_with(1, 1)
    (task,), _ = submit(manager, 1, target=1)
    manager.handle(Withheld(task, 1), 0.0)
    assert settled(manager.handle(RankRemoved(1, "scaled down"), 0.0)) == [(task, "lost", "scaled down")]
    assert manager.handle(Released(task), 0.0) == []


def test_node_with_unique_results_is_not_empty() -> None:
    manager = manager_with(1)
    assert manager.is_empty(0)
    manager.handle(UniqueResults(0, 2), 0.0)
    assert not manager.is_empty(0)
    manager.handle(UniqueResults(0, 0), 0.0)
    assert manager.is_empty(0)
    manager.handle(UniqueResults(0, 1), 0.0)
    manager.handle(RankLost(0, "crash"), 0.0)
    assert manager.is_empty(0), "they are lost with it"
