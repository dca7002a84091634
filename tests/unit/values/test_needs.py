"""Needs of tasks, resources of nodes, and whether they fit."""

import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward import Spec, accelerators, function
from skyward.errors import SpecError
from skyward.values.needs import NOTHING, Needs, describe_resources

pytestmark = pytest.mark.unit

AMOUNTS = st.dictionaries(st.sampled_from(["CPU", "GPU", "memory"]), st.integers(0, 8).map(lambda tenths: tenths / 10))
NAMES = st.sets(st.sampled_from(["gpu", "highmem", "fast"]))


@pytest.mark.parametrize(
    ("fields", "resources", "capabilities"),
    [
        ({}, {}, set()),
        ({"vcpus": 4, "memory_gb": 16}, {"CPU": 4, "memory": 16}, set()),
        ({"accelerator": "A100:4"}, {"GPU": 4, "A100": 4}, {"gpu", "a100"}),
        ({"accelerator": accelerators.L4(count=0.25)}, {"GPU": 0.25, "L4": 0.25}, {"gpu", "l4"}),
        ({"accelerator": accelerators.Custom("Z1")}, {"GPU": 1, "Z1": 1}, {"gpu", "z1"}),
        ({"accelerator": "TPUv5e:4"}, {"TPU": 4, "TPUv5e": 4}, {"tpu", "tpuv5e"}),
        ({"accelerator": "Gaudi"}, {"Gaudi": 1}, {"gaudi"}),
        ({"vcpus": 4, "resources": {"CPU": 3, "licence": 2}}, {"CPU": 3, "licence": 2}, set()),
        ({"accelerator": "T4", "resources": {"GPU": 0}}, {"T4": 1}, {"gpu", "t4"}),
        ({"accelerator": "T4", "capabilities": {"HighMem"}}, {"GPU": 1, "T4": 1}, {"gpu", "t4", "highmem"}),
    ],
)
def test_spec_derives_resources_and_capabilities_of_nodes(
    fields: dict[str, Any], resources: dict[str, float], capabilities: set[str]
) -> None:
    spec = Spec(**fields)
    assert spec.node_resources == resources
    assert spec.node_capabilities == capabilities


def test_empty_needs_are_false_and_fit_every_node() -> None:
    assert not NOTHING
    assert Needs({"GPU": 0}) == NOTHING == Needs({}, [])
    assert NOTHING.fit({}, frozenset())
    assert Needs({"GPU": 1})
    assert Needs({}, {"gpu"})


def test_needs_and_resources_in_sentences() -> None:
    assert str(Needs({"GPU": 1, "CPU": 0.5}, {"gpu"})) == "0.5 CPU and 1 GPU and capability 'gpu'"
    assert str(NOTHING) == "a slot"
    assert describe_resources({"GPU": 1, "CPU": 4}, {"t4", "gpu"}) == "4 CPU, 1 GPU and capabilities 'gpu', 't4'"
    assert describe_resources({"memory": 23.5, "CPU": 2}, ()) == "2 CPU, 23.5 GiB memory"
    assert str(Needs({"memory": 64})) == "64 GiB memory"
    assert describe_resources({}, ()) == "no resources"


@given(AMOUNTS, NAMES)
def test_equal_needs_have_equal_hashes(amounts: dict[str, float], names: set[str]) -> None:
    needs = Needs(amounts, {name.upper() for name in names})
    again = Needs(dict(reversed(amounts.items())), [*names, *names])
    assert needs == again == pickle.loads(pickle.dumps(needs))
    assert hash(needs) == hash(again) == hash(pickle.loads(pickle.dumps(needs)))


@given(AMOUNTS, NAMES, AMOUNTS, NAMES)
def test_fit_compares_resources_and_capabilities(
    wanted: dict[str, float], names: set[str], free: dict[str, float], able: set[str]
) -> None:
    enough = all(amount <= free.get(name, 0) for name, amount in wanted.items())
    assert Needs(wanted, names).fit(free, frozenset(able)) is (enough and names <= able)


def test_capabilities_may_be_given_with_an_amount_of_one() -> None:
    assert Needs({}, {"GPU": 1, "fast": 1.0}) == Needs({}, {"gpu", "fast"})
    assert Spec(capabilities={"Fast": 1}).node_capabilities == {"fast"}
    assert function(capabilities={"gpu": 1})(len)("").needs == Needs({}, {"gpu"})


@pytest.mark.parametrize("amount", [2, 0, 0.5, True, None, "1"])
def test_other_amounts_of_a_capability_are_refused_with_the_fix(amount: object) -> None:
    text = (
        f"capabilities['gpu'] must be 1, because a node has a capability or does not, but got {amount!r}; "
        "for amounts, use resources, as in `resources={'gpu': 2}`."
    )
    with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
        Needs({}, {"gpu": amount})  # type: ignore[arg-type, unused-ignore]


def test_ten_tenths_fit_into_one() -> None:
    free = 1.0
    for _ in range(10):
        assert Needs({"GPU": 0.1}).fit({"GPU": free}, frozenset())
        free -= 0.1
    assert not Needs({"GPU": 0.1}).fit({"GPU": free}, frozenset())
