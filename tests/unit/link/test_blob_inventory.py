"""What a node holds: within its budget, the least recently used given up first, and never what a call needs."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skyward.link.blob_inventory import BlobInventory

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
        self.holdings = BlobInventory(BUDGET)
        self.held: list[bytes] = []
        self.calls: list[list[bytes]] = []

    @rule(wanted=st.lists(keys, max_size=4, unique=True))
    def want(self, wanted: list[bytes]) -> None:
        self.calls.append(wanted)
        missing, dropped = self.holdings.want(blobs(*wanted))
        assert list(missing) == [key for key in wanted if key not in self.held]
        self.held = [key for key in self.held if key not in wanted] + wanted
        free = [key for key in self.held if all(key not in call for call in self.calls)]
        assert list(dropped) == free[: len(dropped)]
        if dropped:  # and no more than it must
            assert sum(SIZES[key] for key in self.held if key not in dropped[:-1]) > BUDGET
        self.held = [key for key in self.held if key not in dropped]
        assert self.holdings.nbytes <= BUDGET or dropped == tuple(free)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.holdings.release(self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1))))

    @rule(key=keys)
    def forget(self, key: bytes) -> None:
        self.holdings.forget(key)
        self.held = [each for each in self.held if each != key]

    @invariant()
    def the_book_is_right(self) -> None:
        assert [key for key in SIZES if key in self.holdings] == sorted(self.held)
        assert sorted(self.holdings) == sorted(self.held)
        assert self.holdings.nbytes == sum(SIZES[key] for key in self.held)

    def teardown(self) -> None:
        for call in self.calls:
            self.holdings.release(call)
        self.holdings.want({})
        assert self.holdings.nbytes <= BUDGET


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=100, stateful_step_count=20)


def use(holdings: BlobInventory, *sizes: int) -> tuple[list[int], list[int]]:
    """A call with blobs of these sizes comes and goes; the sizes of what is sent and of what is dropped."""
    wanted = blobs(*(key for key, size in SIZES.items() if size in sizes))
    missing, dropped = holdings.want(wanted)
    holdings.release(wanted)
    return [SIZES[key] for key in missing], [SIZES[key] for key in dropped]


def test_a_blob_that_is_used_again_outlives_one_that_is_not() -> None:
    holdings = BlobInventory(BUDGET)
    for size in (30, 50, 30):
        use(holdings, size)
    assert use(holdings, 60) == ([60], [50])


def test_a_call_larger_than_the_budget_goes_over_it_and_the_next_call_clears_up() -> None:
    holdings = BlobInventory(BUDGET)
    assert use(holdings, 101, 300) == ([101, 300], [])
    assert holdings.nbytes == 401
    assert use(holdings, 1) == ([1], [101, 300])


def test_what_a_call_waits_for_is_not_dropped_for_another() -> None:
    holdings = BlobInventory(BUDGET)
    waiting = blobs(*(key for key, size in SIZES.items() if size == 60))
    holdings.want(waiting)
    holdings.want(waiting)
    assert use(holdings, 50) == ([50], [])
    holdings.release(waiting)
    assert use(holdings, 100) == ([100], [50])
    holdings.release(waiting)
    assert use(holdings, 1) == ([1], [60, 100])


def test_lack_of_memory_does_not_change_the_budget() -> None:
    holdings = BlobInventory(BUDGET)
    use(holdings, 30, 60)
    dropped = [SIZES[key] for key in holdings.shrink_to(holdings.nbytes // 2)]
    assert dropped == [30, 60]
    assert use(holdings, 30, 60) == ([30, 60], [])
    assert use(holdings, 1) == ([1], [])


def test_what_did_not_get_through_is_sent_again() -> None:
    holdings = BlobInventory(BUDGET)
    use(holdings, 30)
    (key,) = (key for key, size in SIZES.items() if size == 30)
    holdings.forget(key)
    holdings.forget(key)
    assert use(holdings, 30) == ([30], [])
    assert holdings.nbytes == 30


def test_what_is_pinned_stays_whatever_else_is_wanted() -> None:
    holdings = BlobInventory(100)
    holdings.adopt([(b"result", 80)])
    holdings.pin([b"result"])
    missing, dropped = holdings.want({b"a": memoryview(bytes(60))})
    assert (list(missing), dropped) == ([b"a"], ())
    assert holdings.shrink_to(0) == ()
    assert not holdings.may_pin(21)
    assert holdings.may_pin(20)
    holdings.unpin([b"result", b"never pinned"])
    assert holdings.may_pin(100)
    assert holdings.shrink_to(60) == (b"result",)


def test_what_is_discarded_stays_while_it_is_wanted() -> None:
    holdings = BlobInventory(100)
    holdings.adopt([(b"result", 80)])
    holdings.want({b"result": memoryview(bytes(80))})
    assert holdings.discard([b"result", b"unknown"]) == ()
    holdings.release([b"result"])
    assert holdings.discard([b"result", b"unknown"]) == (b"result",)
    assert holdings.nbytes == 0
