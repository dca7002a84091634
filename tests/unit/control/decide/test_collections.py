"""Loss of collections, decided from the lost nodes and the copies that the others report."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.collections import COPIES, SAME_TIME, CollectionContents, copies_left, is_outvoted
from skyward.wire.protocol.messages import CopiesReport

pytestmark = pytest.mark.unit

CACHE = ("dict", "cache")


def written(*nodes: str) -> CollectionContents:
    contents = CollectionContents()
    assert contents.write([CACHE]) == [CACHE]
    assert contents.write([CACHE]) == []
    settle(contents, *nodes)
    return contents


def settle(contents: CollectionContents, *nodes: str, lost: tuple[str, ...] = (), now: float = 0.0) -> None:
    """All nodes report that they have their copies; `lost` were not removed yet."""
    for node in nodes:
        assert contents.see(node, CopiesReport(node, (*nodes, *lost), True), nodes, now) == []


def test_loss_of_the_last_node_loses_all_content_and_is_reported_once() -> None:
    contents = written("a")
    (loss,) = contents.lose_member("a", 0, 1.0)
    assert loss.whole
    assert contents.take_loss(CACHE) == loss
    assert contents.take_loss(CACHE) is None
    assert contents.lose_member("b", 0, 2.0) == [], "nothing was written since"


def test_loss_of_one_of_three_loses_nothing() -> None:
    assert written("a", "b", "c").lose_member("a", 2, 5.0) == []


def test_losses_that_leave_one_copy_may_lose_part() -> None:
    contents = written("a", "b", "c", "d", "e", "f")
    assert contents.lose_member("a", 5, 10.0) == []
    (loss,) = contents.lose_member("b", 4, 20.0)
    assert not loss.whole
    assert contents.written == {CACHE}, "the rest can be lost again"
    assert contents.lose_member("c", 3, 30.0) == [loss]


def test_single_copy_may_be_lost_when_it_is_moved_until_there_are_others() -> None:
    """A replacement takes the place of a node that has the only copy of some values: the engine can drop both."""
    contents = written("a", "b", "c")
    assert contents.lose_member("a", 2, 10.0) == []
    contents.see("d", CopiesReport("d", ("a", "b", "c", "d"), False), ("b", "c", "d"), 11.0)
    (loss,) = contents.lose_member("b", 2, 14.0)
    assert contents.take_loss(CACHE) == loss, "the collection is used before the copy is moved"
    assert contents.would_move_single_copies(2)
    assert not contents.can_restore(2), "two of four are no majority"
    report = CopiesReport("c", ("c", "d", "e"), True)
    nodes = ("c", "d", "e")
    assert contents.see("c", report, nodes, 18.0) == contents.see("d", replace(report, node="d"), nodes, 18.0) == []
    assert contents.see("e", replace(report, node="e"), nodes, 18.0) == [loss], "what was lost in the move is not told"
    assert not contents.would_move_single_copies(3)
    contents.take_loss(CACHE)
    assert contents.see("c", replace(report, complete=False), nodes, 19.0) == []
    assert contents.see("c", report, nodes, 20.0) == [], "one loss is told again and again"


def test_loss_that_nobody_has_heard_of_is_not_told_twice() -> None:
    contents = written("a", "b", "c")
    contents.lose_member("a", 2, 10.0)
    assert contents.lose_member("b", 1, 14.0)
    settle(contents, "c", "d", "e")
    assert contents.take_loss(CACHE) is not None
    assert contents.take_loss(CACHE) is None


def test_copies_are_made_before_another_node_joins_a_growing_cluster() -> None:
    contents = written("a")
    assert not contents.would_move_single_copies(1)
    assert not contents.would_move_single_copies(2), "a third node gets a copy of everything"
    assert contents.would_move_single_copies(3)
    assert contents.can_restore(3)
    settle(contents, "a", "b", "c")
    assert not contents.would_move_single_copies(3)


def test_majority_removes_lost_members_before_others_join() -> None:
    contents = written("a", "b", "c", "d", "e")
    contents.lose_member("a", 4, 10.0)
    contents.lose_member("b", 3, 12.0)
    assert contents.would_move_single_copies(3)
    assert contents.can_restore(3)


def test_nodes_of_a_pool_of_two_keep_all_values_where_they_are() -> None:
    contents = written("a", "b")
    assert contents.lose_member("b", 1, 10.0) == []
    assert not contents.would_move_single_copies(1)


def test_quorum_lost_at_the_same_time_may_lose_the_last_writes() -> None:
    contents = written("a", "b", "c")
    assert contents.lose_member("a", 2, 10.0) == []
    assert [loss.whole for loss in contents.lose_member("b", 1, 10.0 + SAME_TIME / 2)] == [False]


def test_node_lost_before_the_others_have_copies_may_lose_part() -> None:
    contents = written("a")
    contents.see("b", CopiesReport("b", ("a", "b"), False), ("a", "b"), 1.0)
    assert contents.lose_member("a", 1, 2.0)


def test_lost_member_that_was_not_removed_counts_as_a_possible_place_of_each_copy() -> None:
    contents = written("a", "b", "c")
    contents.lose_member("a", 2, 10.0)
    settle(contents, "b", "c", "d", lost=("a",))
    assert contents.copies == COPIES - 1
    settle(contents, "b", "c", "d")
    assert contents.copies == COPIES


@given(st.lists(st.integers(0, 2), max_size=20))
def test_losses_with_new_copies_in_between_lose_nothing(victims: list[int]) -> None:
    nodes = ["0", "1", "2"]
    contents = written(*nodes)
    for number, victim in enumerate(victims):
        now = 10.0 * number
        assert contents.lose_member(nodes.pop(victim), 2, now) == []
        nodes.append(str(number + 3))
        settle(contents, *nodes, now=now)


def test_copies_are_unknown_while_members_disagree_or_copy() -> None:
    whole = CopiesReport("a", ("a", "b"), True)
    assert copies_left({"a": whole}, ("a", "b")) is None, "one has not reported"
    assert copies_left({"a": whole, "b": CopiesReport("b", ("a", "b"), False)}, ("a", "b")) is None
    assert copies_left({"a": whole, "b": CopiesReport("b", ("a", "b", "c"), True)}, ("a", "b")) is None
    assert copies_left({"a": whole, "b": CopiesReport("b", ("a", "b"), True)}, ("a", "b")) == 2


def test_copies_of_a_member_that_the_others_removed_are_lost_once() -> None:
    contents = written("a", "b", "c")
    members = ("a", "b", "c")
    assert contents.see("b", CopiesReport("b", ("b", "c"), True), members, 10.0) == []
    assert contents.copies == COPIES - 1
    contents.see("c", CopiesReport("c", ("b", "c"), True), members, 11.0)
    assert contents.lose_member("a", 2, 20.0) == []
    assert contents.copies == COPIES - 1


def test_member_that_joins_again_has_lost_its_copies() -> None:
    contents = written("a", "b", "c")
    contents.see("a", CopiesReport("a again", ("a again", "b", "c"), False), ("a", "b", "c"), 10.0)
    assert contents.copies == COPIES - 1


def test_copies_of_a_node_that_leaves_are_handed_over() -> None:
    contents = written("a", "b", "c")
    contents.leave("a", 2)
    assert contents.lose_member("b", 1, 10.0) == []
    assert contents.copies == 1


def test_lost_members_that_are_no_minority_outvote_the_others() -> None:
    assert not is_outvoted({})
    assert is_outvoted({"a": CopiesReport("a", ("a", "b"), True)})
    assert not is_outvoted({name: CopiesReport(name, ("a", "b", "c"), True) for name in ("a", "b")})


def test_cluster_is_stuck_once_lost_members_were_replaced_and_outvote_the_others() -> None:
    contents = written("a", "b")
    contents.lose_member("a", 1, 10.0)
    contents.see("b", CopiesReport("b", ("a", "b"), True), ("b",), 11.0)
    assert not contents.is_stuck(), "a replacement restores the majority"
    settle(contents, "b", "c", lost=("a",))
    contents.lose_member("b", 1, 20.0)
    settle(contents, "c", "d", lost=("a", "b"))
    assert contents.is_stuck()
    assert [loss.whole for loss in contents.give_up()] == [True]
    assert not contents.is_stuck()


def test_cluster_waits_for_the_replacement_of_a_member_that_was_lost_before_its_first_report() -> None:
    contents = CollectionContents()
    contents.see("a", CopiesReport("a", ("a", "b"), True), ("a", "b"), 1.0)
    contents.lose_member("b", 1, 2.0)
    assert is_outvoted({"a": CopiesReport("a", ("a", "b"), True)})
    assert not contents.is_stuck(), "the copies of the survivor are given up"
