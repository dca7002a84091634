"""How many nodes are launched, drained and called back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.convergence import recall, reconcile

pytestmark = pytest.mark.unit


@st.composite
def pools(draw: st.DrawFn) -> tuple[set[int], set[int], set[int], int]:
    ranks = draw(st.integers(0, 12))
    stage = draw(st.lists(st.sampled_from("cpd"), min_size=ranks, max_size=ranks))
    current = {rank for rank in range(ranks) if stage[rank] != "p"}
    leaving = {rank for rank in range(ranks) if stage[rank] == "d"}
    return current, set(range(ranks)) - current, leaving, draw(st.integers(0, 14))


@given(pools())
def test_the_arithmetic(pool: tuple[set[int], set[int], set[int], int]) -> None:
    current, pending, leaving, desired = pool
    provision, drain = reconcile(current, pending, leaving, desired)
    back = recall(current, pending, leaving, desired)
    assert 0 not in drain
    assert set(drain) <= current - leaving
    assert list(drain) == sorted(drain, reverse=True)
    assert set(back) <= leaving
    staying = len(current - leaving) - len(drain) + len(back) + len(pending) + provision
    assert staying >= desired
    assert not (provision and drain)
    assert not (back and drain)
    if not pending:
        assert staying == desired or (0 in current - leaving and staying == 1)


@given(pools())
def test_what_was_done_is_not_done_again(pool: tuple[set[int], set[int], set[int], int]) -> None:
    current, pending, leaving, desired = pool
    provision, drain = reconcile(current, pending, leaving, desired)
    leaving = (leaving | set(drain)) - set(recall(current, pending, leaving, desired))
    pending = pending | set(range(100, 100 + provision))
    assert reconcile(current, pending, leaving, desired) == (0, ())
    assert recall(current, pending, leaving, desired) == ()


def test_the_lowest_ranks_are_called_back_first() -> None:
    assert recall([0, 1, 2, 3, 4], [], [3, 4], 4) == (3,)
