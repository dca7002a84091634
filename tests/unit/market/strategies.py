"""Hypothesis strategies of offers and specs."""

from hypothesis import strategies as st

from skyward.providers.protocol import InstanceType, Offer
from skyward.specs import Spec

__all__ = ["OFFERS", "SPECS"]

_PRICES = st.none() | st.floats(0, 100) | st.sampled_from([float("nan"), float("inf"), -1.0])
_MACHINES = st.builds(
    InstanceType,
    name=st.sampled_from(["a", "b", "c"]),
    vcpus=st.sampled_from([0, 1, 4, 8]),
    memory_gb=st.sampled_from([0, 4, 16]),
    accelerator=st.sampled_from(
        [None, "", "GPU", "A100", "NVIDIA A100-40GB", "T4", "H100 PCIe", "h100-sxm5-80gb", "H100", "Fast 9 8GB"]
    ),
    accelerator_count=st.sampled_from([0, 0.5, 1, 4]),
    architecture=st.sampled_from(["x86_64", "arm64"]),
    accelerator_memory_gb=st.sampled_from([None, None, 24, 79.6]),
)
OFFERS = st.lists(
    st.builds(
        Offer,
        id=st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
        instance_type=_MACHINES,
        spot_price=_PRICES,
        on_demand_price=_PRICES,
        billing_unit=st.sampled_from(["second", "minute", "hour"]),
        region=st.sampled_from(["", "eu", "EU", "us", "straße"]),
        specific=st.dictionaries(st.sampled_from(["zone", "gpu"]), st.integers() | st.text(max_size=2), max_size=2),
        open_ended=st.sampled_from([False, False, True]),
    ),
    max_size=8,
)
SPECS = st.builds(
    Spec,
    accelerator=st.sampled_from([None, None, "A100", "A100:4", "H100-SXM", "H100", "T4", "T4:0.5"]),
    vcpus=st.sampled_from([None, 1, 4]),
    memory_gb=st.sampled_from([None, 8]),
    architecture=st.sampled_from([None, "arm64"]),
    region=st.sampled_from([None, "eu", "STRASSE"]),
    allocation=st.sampled_from(["spot", "on-demand", "spot-if-available", "cheapest"]),
    max_hourly_cost=st.none() | st.floats(0.01, 1000),
)
