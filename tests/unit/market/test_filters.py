"""Filters of offers: the reasons that they give."""

import pytest

from skyward.market import excluded_by
from skyward.providers.protocol import InstanceType, Offer
from skyward.specs import Spec

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("asked", "said"), [(1, "has 0.5 of 1 vCPU"), (4, "has 0.5 of 4 vCPUs")])
def test_reason_counts_the_vcpus(asked: float, said: str) -> None:
    offer = Offer("small", InstanceType("small", 0.5, 1))
    assert excluded_by(Spec(vcpus=asked), offer) == {"vcpus": said}
