"""A busy thread does not hold up the messages of its process: neither at the client nor on a node."""

import sys

import pytest

import skyward as sky
from skyward.errors import NodeStartError
from skyward.process.switch_interval import INTERVAL

pytestmark = pytest.mark.local


@sky.function
def turn() -> float:
    return sys.getswitchinterval()


def test_turns_are_short_while_a_pool_is_open() -> None:
    before = sys.getswitchinterval()
    with sky.Compute(nodes=1) as pool, sky.Compute(nodes=1):
        assert sys.getswitchinterval() == pytest.approx(INTERVAL, abs=1e-6)
        assert turn() >> pool == pytest.approx(INTERVAL, abs=1e-6)
    assert sys.getswitchinterval() == before


def test_a_pool_that_did_not_open_leaves_turns_as_they_were() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(NodeStartError), sky.Compute(provider=sky.Local(fail_rate=1.0), nodes=1):
        pass
    assert sys.getswitchinterval() == before
