"""`sky.request_resources`: arguments, and the floor that the pool gets."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward
from skyward import NoPoolError, OnNodeError, OperatorError, SpecError
from skyward.functions.target import current_pool, sky
from skyward.pool.resource_requests import demands_of
from skyward.scaling.snapshot import Demand
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

request: Any = skyward.request_resources


class Pool:
    """Pool that records its floors."""

    def __init__(self) -> None:
        self.floors: list[list[Demand]] = []

    def request_resources(self, *wanted: Any, bundles: Any) -> None:
        self.floors.append(demands_of(wanted, bundles))


@pytest.fixture
def pool() -> Iterator[Pool]:
    """The pool in scope."""
    pool: Any = Pool()
    token = current_pool.set(pool)
    yield pool
    current_pool.reset(token)


GPU, CPU = Needs({"GPU": 1}), Needs({"CPU": 4})


@pytest.mark.parametrize(
    ("args", "keywords", "floor"),
    [
        (({"GPU": 1},), {}, [Demand(1, GPU)]),
        (({"GPU": 1}, {"CPU": 4}, {"GPU": 1.0}), {}, [Demand(2, GPU), Demand(1, CPU)]),
        ((({"CPU": 4}, 10), {"GPU": 1}), {}, [Demand(10, CPU), Demand(1, GPU)]),
        ((), {"bundles": [{"GPU": 1}] * 3}, [Demand(3, GPU)]),
        ((), {"bundles": iter([({"GPU": 1}, 2)])}, [Demand(2, GPU)]),
        ((), {}, []),
        ((), {"bundles": []}, []),
    ],
)
def test_request_sets_the_floor_of_bundles(
    pool: Pool, args: tuple[Any, ...], keywords: dict[str, Any], floor: list[Demand]
) -> None:
    request(*args, **keywords)
    assert pool.floors == [floor]


@given(st.lists(st.tuples(st.sampled_from([{"GPU": 1}, {"CPU": 4}, {"CPU": 4, "GPU": 1}]), st.integers(1, 9))))
def test_equal_bundles_are_one_demand_and_none_is_lost(wanted: list[tuple[dict[str, float], int]]) -> None:
    pool = Pool()
    request(*wanted, pool=pool)
    (floor,) = pool.floors
    assert len({demand.needs for demand in floor}) == len(floor)
    assert sum(demand.count for demand in floor) == sum(count for _, count in wanted)


@pytest.mark.parametrize("scope", [None, sky, skyward], ids=["none", "singleton", "module"])
def test_request_goes_to_the_pool_in_scope(pool: Pool, scope: Any) -> None:
    request({"GPU": 1}, pool=scope)
    assert len(pool.floors) == 1


def test_request_goes_to_the_named_pool(pool: Pool) -> None:
    other = Pool()
    request({"GPU": 1}, pool=other)
    assert (len(pool.floors), len(other.floors)) == (0, 1)


@pytest.mark.parametrize(
    ("args", "keywords", "expected"),
    [
        (
            ("GPU",),
            {},
            "A bundle must be amounts by name, or (amounts, count), as in `sky.request_resources({'GPU': 1}, "
            "({'CPU': 4}, 10))`, but got 'GPU'.",
        ),
        (
            ({"GPU": 0},),
            {},
            "A bundle must have an amount above 0, as in `sky.request_resources({'GPU': 1}, ({'CPU': 4}, 10))`, "
            "but got {'GPU': 0}.",
        ),
        (({"GPU": -1},), {}, "bundle['GPU'] must be a number of at least 0, but got -1."),
        ((({"GPU": 1}, 0),), {}, "the count of bundle {'GPU': 1} must be a whole number of at least 1, but got 0."),
        (({"GPU": 1},), {"bundles": []}, "Bundles are given in two ways: put all of them in `bundles=[...]`."),
        ((), {"bundles": {"GPU": 1}}, "bundles must be a list, as in `bundles=[{'GPU': 1}]`, but got {'GPU': 1}."),
        ((), {"bundles": 3}, "bundles must be a list, as in `bundles=[{'GPU': 1}]`, but got 3."),
    ],
)
def test_invalid_bundles_are_refused(
    pool: Pool, args: tuple[Any, ...], keywords: dict[str, Any], expected: str
) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        request(*args, **keywords)
    assert pool.floors == []


@pytest.mark.parametrize(("value", "shown"), [(3, "3 (int)"), (Pool, "the class `Pool`"), ("p", "'p' (str)")])
def test_value_that_is_not_a_pool_is_refused(value: Any, shown: str) -> None:
    with pytest.raises(
        OperatorError, match=f"^{re.escape(f'pool must be a pool, but got {shown}: write `pool=pool`.')}$"
    ):
        request({"GPU": 1}, pool=value)


def test_request_without_a_pool_in_scope_is_refused() -> None:
    with pytest.raises(
        NoPoolError, match=r"^No pool is in scope: open one with `with sky\.Compute\(\.\.\.\) as pool:`"
    ):
        request({"GPU": 1})


def test_request_on_a_node_is_refused(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_NODE", "3")
    with pytest.raises(OnNodeError, match=r"inside node 3: a node has no pool; call it on the client\.$"):
        request({"GPU": 1})
    assert pool.floors == []
