"""Time for which idle nodes are worth keeping, from the gaps in their use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.scaling.gaps import ENOUGH, REMEMBERED, Gaps


def cells(seconds: float, gaps: list[float], load: int = 1) -> Gaps:
    """Return what is known after cells that take so long, with these gaps after each but the last."""
    found, now = Gaps(), 0.0
    for gap in [*gaps, 0.0]:
        found.observe(load, now)
        now += seconds
        found.observe(0, now)
        now += gap
    return found


@pytest.mark.parametrize(
    ("gaps", "keep"),
    [
        pytest.param([30.0] * 5, 30.0, id="the next cell always comes before a boot is paid for"),
        pytest.param([600.0] * 5, 0.0, id="it always comes long after"),
        pytest.param([20.0, 600.0, 25.0, 15.0, 600.0], 25.0, id="most come soon"),
        pytest.param([20.0, 600.0, 600.0, 600.0, 600.0], 0.0, id="few come soon"),
        pytest.param([90.0] * 5, 0.0, id="keeping until it comes costs more than another boot"),
    ],
)
def test_the_time_that_would_have_cost_least(gaps: list[float], keep: float) -> None:
    assert cells(100.0, gaps).best_keep(1, cost=60.0) == keep


def test_too_few_gaps_tell_nothing() -> None:
    assert cells(100.0, [30.0] * (ENOUGH - 1)).best_keep(1, cost=60.0) is None


def test_levels_of_load_have_gaps_of_their_own() -> None:
    """A slot is used again and again, and eight of them once in a while."""
    gaps, now = Gaps(), 0.0
    for _ in range(6):
        gaps.observe(8, now)
        for _ in range(5):
            gaps.observe(0, now + 100)
            gaps.observe(1, now + 110)
            now += 110
        gaps.observe(1, now + 1000)
        now += 1000
    assert gaps.best_keep(1, cost=60.0) == 10.0
    assert gaps.best_keep(8, cost=60.0) == 0.0


def test_old_gaps_are_forgotten() -> None:
    gaps = cells(100.0, [600.0] * REMEMBERED + [30.0] * REMEMBERED)
    assert gaps.best_keep(1, cost=60.0) == 30.0


@given(
    st.lists(st.tuples(st.floats(0.1, 1000), st.integers(0, 100)), max_size=60),
    st.floats(0.0, 500.0),
)
def test_no_node_is_kept_for_longer_than_another_boot_costs(steps: list[tuple[float, int]], cost: float) -> None:
    gaps, now = Gaps(), 0.0
    for seconds, load in steps:
        now += seconds
        gaps.observe(load, now)
    for level in (1, 2, 5, 64):
        keep = gaps.best_keep(level, cost)
        assert keep is None or 0 <= keep <= cost
