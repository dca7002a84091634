"""What a node holds: within its budget, the least recently used given up first, and never what a call needs."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from skyward.link.holdings import Holdings

pytestmark = pytest.mark.unit

BUDGET = 100
SIZES = {bytes([number]): size for number, size in enumerate((0, 1, 10, 30, 50, 60, 100, 101, 300))}
keys = st.sampled_from(sorted(SIZES))


def blobs(*names: bytes) -> dict[bytes, memoryview]:
    return {name: memoryview(bytes(SIZES[name])) for name in names}


class Node(RuleBasedStateMachine):
    """Holds the book against a list of what is there, the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.holdings = Holdings(BUDGET)
        self.held: list[bytes] = []
        self.last: set[bytes] = set()

    @rule(wanted=st.lists(keys, max_size=4, unique=True))
    def want(self, wanted: list[bytes]) -> None:
        missing, dropped = self.holdings.want(blobs(*wanted))
        assert list(missing) == [key for key in wanted if key not in self.held]
        self.held = [key for key in self.held if key not in wanted] + wanted
        assert list(dropped) == self.held[: len(dropped)]
        assert not {*dropped} & {*wanted}
        if dropped:  # and no more than it must
            assert sum(SIZES[key] for key in self.held[len(dropped) - 1 :]) > BUDGET
        self.held, self.last = self.held[len(dropped) :], set(wanted)

    @rule(key=keys)
    def forget(self, key: bytes) -> None:
        self.holdings.forget(key)
        self.held = [each for each in self.held if each != key]

    @invariant()
    def the_book_is_right(self) -> None:
        assert [key for key in SIZES if key in self.holdings] == sorted(self.held)
        assert self.holdings.nbytes == sum(SIZES[key] for key in self.held)

    @invariant()
    def the_budget_holds_but_for_one_large_call(self) -> None:
        assert self.holdings.nbytes <= BUDGET or set(self.held) <= self.last


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)


def test_a_blob_that_is_used_again_outlives_one_that_is_not() -> None:
    holdings = Holdings(BUDGET)
    thirty, fifty, sixty = (key for key, size in SIZES.items() if size in (30, 50, 60))
    holdings.want(blobs(thirty))
    holdings.want(blobs(fifty))
    holdings.want(blobs(thirty))
    missing, dropped = holdings.want(blobs(sixty))
    assert (list(missing), dropped) == ([sixty], (fifty,))


def test_a_call_larger_than_the_budget_goes_over_it_and_the_next_call_clears_up() -> None:
    holdings = Holdings(BUDGET)
    one, large, huge = (key for key, size in SIZES.items() if size in (1, 101, 300))
    assert holdings.want(blobs(large, huge))[1] == ()
    assert holdings.nbytes == 401
    assert holdings.want(blobs(one))[1] == (large, huge)


def test_what_did_not_get_through_is_sent_again() -> None:
    holdings = Holdings(BUDGET)
    (key,) = (key for key, size in SIZES.items() if size == 30)
    holdings.want(blobs(key))
    holdings.forget(key)
    holdings.forget(key)
    assert list(holdings.want(blobs(key))[0]) == [key]
    assert holdings.nbytes == 30
