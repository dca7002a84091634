"""Loss of collections, decided from the lost nodes and the times of their loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.collections import REPAIR, CollectionContents

pytestmark = pytest.mark.unit

CACHE = ("dict", "cache")


def written() -> CollectionContents:
    contents = CollectionContents()
    assert contents.write([CACHE]) == [CACHE]
    assert contents.write([CACHE]) == []
    return contents


def test_loss_of_the_last_node_loses_all_content_and_is_reported_once() -> None:
    contents = written()
    (loss,) = contents.lose_member(0, 1.0)
    assert loss.whole
    assert contents.take_loss(CACHE) == loss
    assert contents.take_loss(CACHE) is None
    assert contents.lose_member(0, 2.0) == [], "nothing was written since"


def test_three_nodes_lost_within_repair_time_may_lose_part() -> None:
    contents = written()
    assert contents.lose_member(5, 1.0) == []
    assert contents.lose_member(4, 2.0) == []
    (loss,) = contents.lose_member(3, REPAIR)
    assert not loss.whole
    assert contents.written == {CACHE}, "the rest can be lost again"


def test_both_of_two_nodes_lost_within_repair_time_may_lose_part() -> None:
    contents = written()
    assert contents.lose_member(1, 1.0) == []
    assert [loss.whole for loss in contents.lose_member(1, 2.0)] == [False]


@given(st.lists(st.tuples(st.integers(int(REPAIR / 2) + 1, 60), st.integers(3, 20)), max_size=20))
def test_at_most_two_losses_within_repair_time_lose_nothing(losses: list[tuple[int, int]]) -> None:
    contents, now = written(), 0
    for gap, left in losses:
        now += gap
        assert contents.lose_member(left, now) == []
