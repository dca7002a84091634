"""Deadlocks of streams: paused streams hold the slots, and their readers wait for tasks without one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.tasks.deadlock import never_start

pytestmark = pytest.mark.unit

ME, OTHER = 101, 102
"""Threads."""


def test_reader_blocked_by_its_own_stream_is_a_deadlock() -> None:
    assert never_start({0: [1]}, {2: [0]}, {1: ME}, {ME: {2}}) == {2}


def test_task_that_needs_more_slots_than_streams_leave_is_stuck() -> None:
    """Task 2 starts only with another one of its node, which has two slots."""
    assert never_start({0: [1]}, {2: [0]}, {1: ME}, {ME: {2}}, {2: 0}) == {2}
    assert never_start({0: [1]}, {2: [0]}, {1: ME}, {ME: {2}}, {2: 1}) == set()


def test_reader_that_does_not_wait_is_no_deadlock() -> None:
    assert never_start({0: [1]}, {2: [0]}, {1: OTHER}, {ME: {2}}) == set()


def test_running_stream_is_no_deadlock() -> None:
    assert never_start({0: [1]}, {2: [0]}, {}, {ME: {2}}) == set()


def test_slot_held_by_another_task_is_no_deadlock() -> None:
    assert never_start({0: [1, 3]}, {2: [0]}, {1: ME}, {ME: {2}}) == set()
    assert never_start({0: [1], 1: [3]}, {2: [0, 1]}, {1: ME}, {ME: {2}}) == set()


def test_pinned_task_cannot_use_a_slot_of_another_node() -> None:
    assert never_start({0: [1], 1: []}, {2: [0], 3: [1]}, {1: ME}, {ME: {2, 3}}) == {2}


def test_two_readers_that_wait_for_each_others_slots_are_a_deadlock() -> None:
    holders, readers = {0: [1], 1: [2]}, {1: ME, 2: OTHER}
    assert never_start(holders, {3: [0, 1], 4: [0, 1]}, readers, {ME: {3}, OTHER: {4}}) == {3, 4}
    assert never_start(holders, {3: [0, 1]}, readers, {ME: {3}, OTHER: {5}}) == set(), "task 5 runs, and ends"


def test_task_without_a_node_that_fits_waits_for_one() -> None:
    assert never_start({0: [1]}, {2: []}, {1: ME}, {ME: {2}}) == set()


def test_node_whose_slots_are_kept_for_a_collective_that_never_starts_is_held() -> None:
    """Task 3 of the collective waits for the slot of stream 1, task 4 for node 1, which is kept for it meanwhile."""
    holders, waiting, readers = {0: [1], 1: []}, {2: [0, 1], 3: [0], 4: [1]}, {1: ME}
    spare, reserved = {3: 0, 4: 0}, {0: (3, 4), 1: (3, 4)}
    assert never_start(holders, waiting, readers, {ME: {2}}, spare, reserved) == {2}
    assert never_start(holders, waiting, readers, {ME: {2}}, spare, {0: (3, 4)}) == set()
    assert never_start({**holders, 1: [5]}, waiting, readers, {ME: {2}}, spare, reserved) == set()


def test_node_that_comes_after_a_stream_whose_reader_waits_for_it_never_comes() -> None:
    """Node ~0 comes once the tasks 1 and 3 have ended."""
    holders, waiting, readers, successors = {0: [1, 3]}, {2: [~0]}, {1: ME}, {~0: [1, 3]}
    assert never_start(holders, waiting, readers, {ME: {2}}, successors=successors) == {2}
    assert never_start(holders, waiting, readers, {OTHER: {2}}, successors=successors) == set()
    assert never_start({**holders, 1: [4]}, {2: [1, ~0]}, readers, {ME: {2}}, successors=successors) == set()


tasks = st.integers(1, 8)
ranks = st.integers(0, 2)


@given(
    st.dictionaries(ranks, st.sets(tasks, max_size=3), max_size=3),
    st.dictionaries(st.integers(9, 12), st.sets(ranks), max_size=4),
    st.dictionaries(tasks, st.integers(101, 103)),
    st.dictionaries(st.integers(101, 103), st.sets(st.integers(1, 12), max_size=4)),
)
def test_reported_tasks_are_awaited_by_the_readers_of_blocking_streams(
    holders: dict[int, set[int]],
    waiting: dict[int, set[int]],
    readers: dict[int, int],
    blocked: dict[int, set[int]],
) -> None:
    found = never_start(holders, waiting, readers, blocked)
    for task in found:
        for rank in waiting[task]:
            assert holders[rank]
            assert all(blocked[readers[held]] & found for held in holders[rank])
