"""The thread switch interval: short while a pool is open, and restored after."""

import sys
from collections.abc import Iterator

import pytest

from skyward.process.switch_interval import INTERVAL, short_switch_interval

USUAL = 0.005
MICROSECOND = 1e-6
"""Resolution of the interval."""


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL)
    yield
    sys.setswitchinterval(before)


def test_interval_is_short_until_last_context_exits() -> None:
    with short_switch_interval():
        with short_switch_interval():
            assert sys.getswitchinterval() == pytest.approx(INTERVAL, abs=MICROSECOND)
        assert sys.getswitchinterval() == pytest.approx(INTERVAL, abs=MICROSECOND)
    assert sys.getswitchinterval() == pytest.approx(USUAL)


@pytest.mark.parametrize("theirs", [INTERVAL / 10, INTERVAL])
def test_shorter_interval_of_user_is_kept(theirs: float) -> None:
    sys.setswitchinterval(theirs)
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(theirs, abs=MICROSECOND)
    assert sys.getswitchinterval() == pytest.approx(theirs, abs=MICROSECOND)


def test_interval_set_by_user_meanwhile_is_kept() -> None:
    with short_switch_interval():
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)
