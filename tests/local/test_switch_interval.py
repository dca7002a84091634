"""A busy thread does not delay the messages of its process, at the client or on a node."""

import sys

import pytest

import skyward as sky
from skyward.errors import NodeStartError
from skyward.process.switch_interval import INTERVAL

pytestmark = pytest.mark.local


@sky.function
def turn() -> float:
    return sys.getswitchinterval()


def test_switch_interval_is_low_while_a_pool_is_open() -> None:
    before = sys.getswitchinterval()
    with sky.Compute(nodes=1) as pool, sky.Compute(nodes=1):
        assert sys.getswitchinterval() == pytest.approx(INTERVAL, abs=1e-6)
        assert turn() >> pool == pytest.approx(INTERVAL, abs=1e-6)
    assert sys.getswitchinterval() == before


def test_pool_that_failed_to_open_restores_the_switch_interval() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(NodeStartError), sky.Compute(provider=sky.Local(fail_rate=1.0), nodes=1):
        pass
    assert sys.getswitchinterval() == before
