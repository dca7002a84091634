"""How long a thread may compute while another waits for its turn: short while a pool is open, and as it was after."""

import sys
from collections.abc import Iterator

import pytest

from skyward.process.switch_interval import INTERVAL, short_switch_interval

USUAL = 0.005
MICROSECOND = 1e-6
"""What Python counts it in."""


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def test_turns_are_short_until_the_last_has_ended() -> None:
    with short_switch_interval():
        with short_switch_interval():
            assert sys.getswitchinterval() == pytest.approx(INTERVAL, abs=MICROSECOND)
        assert sys.getswitchinterval() == pytest.approx(INTERVAL, abs=MICROSECOND)
    assert sys.getswitchinterval() == pytest.approx(USUAL)


@pytest.mark.parametrize("theirs", [INTERVAL / 10, INTERVAL])
def test_shorter_turns_of_the_user_stay(theirs: float) -> None:
    sys.setswitchinterval(theirs)
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(theirs, abs=MICROSECOND)
    assert sys.getswitchinterval() == pytest.approx(theirs, abs=MICROSECOND)


def test_what_the_user_sets_meanwhile_stays() -> None:
    with short_switch_interval():
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)
