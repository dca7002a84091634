"""Inventory of blobs: within its budget, the least recently used is dropped first, and never one that a call needs."""

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
    """Compares the inventory with a list of blobs, the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.inventory = BlobInventory(BUDGET)
        self.held: list[bytes] = []
        self.calls: list[list[bytes]] = []

    @rule(wanted=st.lists(keys, max_size=4, unique=True))
    def want(self, wanted: list[bytes]) -> None:
        self.calls.append(wanted)
        missing, dropped = self.inventory.want(blobs(*wanted))
        assert list(missing) == [key for key in wanted if key not in self.held]
        self.held = [key for key in self.held if key not in wanted] + wanted
        free = [key for key in self.held if all(key not in call for call in self.calls)]
        assert list(dropped) == free[: len(dropped)]
        if dropped:  # no more than necessary
            assert sum(SIZES[key] for key in self.held if key not in dropped[:-1]) > BUDGET
        self.held = [key for key in self.held if key not in dropped]
        assert self.inventory.nbytes <= BUDGET or dropped == tuple(free)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.inventory.release(self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1))))

    @rule(key=keys)
    def forget(self, key: bytes) -> None:
        self.inventory.forget(key)
        self.held = [each for each in self.held if each != key]

    @invariant()
    def inventory_matches_the_list(self) -> None:
        assert [key for key in SIZES if key in self.inventory] == sorted(self.held)
        assert sorted(self.inventory) == sorted(self.held)
        assert self.inventory.nbytes == sum(SIZES[key] for key in self.held)

    def teardown(self) -> None:
        for call in self.calls:
            self.inventory.release(call)
        self.inventory.want({})
        assert self.inventory.nbytes <= BUDGET


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=100, stateful_step_count=20)


def use(inventory: BlobInventory, *sizes: int) -> tuple[list[int], list[int]]:
    """Run a call with blobs of these sizes; return the sizes of those sent and of those dropped."""
    wanted = blobs(*(key for key, size in SIZES.items() if size in sizes))
    missing, dropped = inventory.want(wanted)
    inventory.release(wanted)
    return [SIZES[key] for key in missing], [SIZES[key] for key in dropped]


def test_least_recently_used_blob_is_dropped_first() -> None:
    inventory = BlobInventory(BUDGET)
    for size in (30, 50, 30):
        use(inventory, size)
    assert use(inventory, 60) == ([60], [50])


def test_call_larger_than_the_budget_exceeds_it_until_the_next_call() -> None:
    inventory = BlobInventory(BUDGET)
    assert use(inventory, 101, 300) == ([101, 300], [])
    assert inventory.nbytes == 401
    assert use(inventory, 1) == ([1], [101, 300])


def test_wanted_blob_is_not_dropped_for_another_call() -> None:
    inventory = BlobInventory(BUDGET)
    waiting = blobs(*(key for key, size in SIZES.items() if size == 60))
    inventory.want(waiting)
    inventory.want(waiting)
    assert use(inventory, 50) == ([50], [])
    inventory.release(waiting)
    assert use(inventory, 100) == ([100], [50])
    inventory.release(waiting)
    assert use(inventory, 1) == ([1], [60, 100])


def test_shrinking_does_not_change_the_budget() -> None:
    inventory = BlobInventory(BUDGET)
    use(inventory, 30, 60)
    dropped = [SIZES[key] for key in inventory.shrink_to(inventory.nbytes // 2)]
    assert dropped == [30, 60]
    assert use(inventory, 30, 60) == ([30, 60], [])
    assert use(inventory, 1) == ([1], [])


def test_blob_of_a_failed_transfer_is_sent_again() -> None:
    inventory = BlobInventory(BUDGET)
    use(inventory, 30)
    (key,) = (key for key, size in SIZES.items() if size == 30)
    inventory.forget(key)
    inventory.forget(key)
    assert use(inventory, 30) == ([30], [])
    assert inventory.nbytes == 30


def test_pinned_blob_is_not_dropped() -> None:
    inventory = BlobInventory(100)
    inventory.adopt([(b"result", 80)])
    inventory.pin([b"result"])
    missing, dropped = inventory.want({b"a": memoryview(bytes(60))})
    assert (list(missing), dropped) == ([b"a"], ())
    assert inventory.shrink_to(0) == ()
    assert not inventory.can_pin(21)
    assert inventory.can_pin(20)
    inventory.unpin([b"result", b"never pinned"])
    assert inventory.can_pin(100)
    assert inventory.shrink_to(60) == (b"result",)


def test_wanted_blob_is_not_discarded() -> None:
    inventory = BlobInventory(100)
    inventory.adopt([(b"result", 80)])
    inventory.want({b"result": memoryview(bytes(80))})
    assert inventory.discard([b"result", b"unknown"]) == ()
    inventory.release([b"result"])
    assert inventory.discard([b"result", b"unknown"]) == (b"result",)
    assert inventory.nbytes == 0
