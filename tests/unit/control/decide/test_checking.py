"""Results of policies of the user: decisions are taken, everything else is refused with a sentence."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.checking import UnusableDecisionError, checked, failure_text
from skyward.scaling import Counts, Decision, Group, NodeLoad, Snapshot

pytestmark = pytest.mark.unit

ONE = Snapshot(
    0.0,
    (Group("default", 0, 4),),
    {"default": Counts(active=2, desired=2)},
    nodes=(NodeLoad(0, "default", "active"), NodeLoad(1, "default", "active")),
)
TWO = Snapshot(0.0, (Group("cpu"), Group("gpu")), {"cpu": Counts(), "gpu": Counts()})


def decision(desired: Any = None, reason: Any = "because", **rest: Any) -> Decision:
    return Decision({} if desired is None else desired, reason, **rest)


@pytest.mark.parametrize("count", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_any_kind_are_taken(count: object) -> None:
    made = checked(decision({"default": count}, victims=np.array([1, 0]), settled=np.bool_(True)), ONE)
    assert made == Decision({"default": 3}, "because", (1, 0), settled=True)
    assert [type(each) for each in (*made.desired.values(), *made.victims, made.settled)] == [int, int, int, bool]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (2.5, "2.5"),
        (2.0, "2.0"),
        (np.float64(2.0), "np.float64(2.0)"),
        (-1, "-1"),
        (True, "True"),
        (np.bool_(True), "np.True_"),
        (float("nan"), "nan"),
        (None, "None"),
        ("2", "'2'"),
        ([2], "[2]"),
    ],
)
def test_counts_that_are_no_number_of_nodes_are_refused(count: object, shown: str) -> None:
    text = f"the policy wants {shown} nodes of 'default', but the number must be an integer of at least 0"
    with pytest.raises(UnusableDecisionError, match=f"^{re.escape(text)}$"):
        checked(decision({"default": count}), ONE)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (3, "the policy returned 3, but it must return a `sky.scaling.Decision`, as in "),
        (None, "the policy returned None, but it must return a `sky.scaling.Decision`, as in "),
        (decision(3), "the policy's `desired` must be a number of nodes by group, as in `{'default': 2}`, but it is 3"),
        (decision({"gpu": 1}), "the policy wants nodes of 'gpu', but the pool's group is 'default'"),
        (decision({0: 1}), "the policy wants nodes of 0, but the pool's group is 'default'"),
        (decision(reason=7), "the policy's `reason` must be text, but it is 7"),
        (decision(reason=None), "the policy's `reason` must be text, but it is None"),
        (
            decision(victims=("1",)),
            "the policy names '1' as a node to remove first, but the ranks of the nodes are 0 and 1",
        ),
        (
            decision(victims=(2,)),
            "the policy names 2 as a node to remove first, but the ranks of the nodes are 0 and 1",
        ),
        (decision(victims=(True,)), "the policy names True as a node to remove first, but the ranks of the nodes are "),
        (decision(victims="1"), "the policy's `victims` must be ranks of nodes, as in `(3, 2)`, but they are '1'"),
        (decision(victims=None), "the policy's `victims` must be ranks of nodes, as in `(3, 2)`, but they are None"),
        (decision(settled="False"), "the policy's `settled` must be True or False, but it is 'False'"),
        (decision(infeasible=(1,)), "the policy's `infeasible` must be shapes of tasks, but it is (1,)"),
    ],
)
def test_anything_else_than_a_decision_is_refused(given: object, text: str) -> None:
    with pytest.raises(UnusableDecisionError, match=f"^{re.escape(text)}"):
        checked(given, ONE)


def test_the_groups_of_the_pool_are_named() -> None:
    with pytest.raises(UnusableDecisionError, match=r"nodes of 'tpu', but the pool's groups are 'cpu' and 'gpu'$"):
        checked(decision({"cpu": 1, "tpu": 1}), TWO)


def test_reason_is_one_line_that_can_be_sent() -> None:
    made = checked(decision(reason="two\nlines \ud800" + " and more" * 1000), ONE)
    assert made.reason.startswith("two lines ? and more")
    assert len(made.reason) == 2000


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_failure_is_one_line() -> None:
    assert failure_text(ValueError("no\nidea")) == "the policy raised ValueError: no"
    assert failure_text(Unprintable()) == "the policy raised Unprintable"
    assert failure_text(UnusableDecisionError("it returned 3")) == "it returned 3"


class Hostile(Mapping[str, int]):
    """A mapping, all of whose methods raise."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Any:
        raise RuntimeError("no items")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


garbage = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**30),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from([np.int64(3), np.float32(2), np.bool_(False), np.array([1, 2]), object(), int, "\ud800"]),
    st.builds(Hostile),  # not one of the samples, which Hypothesis may print
    st.complex_numbers(),
)
names = st.sampled_from(["default", "gpu", ""]) | garbage.filter(lambda each: getattr(type(each), "__hash__", None))
answers = garbage | st.builds(
    Decision,
    garbage | st.dictionaries(names.filter(lambda each: not isinstance(each, Hostile)), garbage, max_size=3),
    garbage,
    garbage | st.lists(garbage, max_size=3) | st.sets(st.integers(-1, 3), max_size=3),
    settled=garbage,
    infeasible=garbage | st.lists(garbage, max_size=2),
)


@given(answer=answers)
def test_arbitrary_answers_are_exact_decisions_or_refused_with_one_line(answer: object) -> None:
    try:
        made = checked(answer, ONE)
    except Exception as error:  # a method of the answer may raise anything: the pool's size stays, too
        text = failure_text(error)
        assert text
        assert text.isprintable()
        return
    assert set(made.desired) <= {"default"}
    assert all(type(count) is int and count >= 0 for count in made.desired.values())
    assert set(made.victims) <= {0, 1}
    assert all(type(rank) is int for rank in made.victims)
    assert type(made.reason) is str
    assert made.reason.encode() is not None
    assert type(made.settled) is bool
    assert made.infeasible == ()
