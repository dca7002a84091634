"""Content addresses: equal for equal bytes; bytes that may have changed are hashed again."""

import gc
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from skyward.wire.payloads import digest
from skyward.wire.payloads.digest import content_address, fresh_key, is_fresh, remember_address

pytestmark = pytest.mark.unit

LARGE = 1024 * 1024
"""Bytes from which the address of a read-only array is cached."""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the buffers that were hashed, in order."""
    sizes: list[int] = []

    class Counting:
        AUTO = blake3.AUTO

        def __call__(self, view: memoryview, **options: Any) -> Any:
            sizes.append(view.nbytes)
            return blake3(view, **options)

    monkeypatch.setattr(digest, "blake3", Counting())
    return sizes


def frozen(size: int = LARGE, start: int = 0) -> "numpy.ndarray[Any, Any]":
    array = numpy.arange(start, start + size, dtype="u1")
    array.flags.writeable = False
    return array


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_addresses_are_equal_exactly_for_equal_bytes(one: bytes, other: bytes) -> None:
    addresses = content_address(memoryview(one)), content_address(memoryview(bytearray(other)))
    assert (addresses[0] == addresses[1]) == (one == other)
    assert len(addresses[0]) == 32


@pytest.mark.parametrize("size", [0, 1, LARGE - 1, LARGE, LARGE + 1])
def test_address_does_not_depend_on_number_of_threads(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert content_address(memoryview(data)) == blake3(data).digest()
    assert content_address(memoryview(frozen(size))) == blake3(frozen(size).tobytes()).digest()


def test_large_read_only_array_is_hashed_once(reads: list[int]) -> None:
    array = frozen()
    assert content_address(memoryview(array)) == content_address(memoryview(array))
    assert reads == [LARGE]


def test_array_below_the_threshold_is_hashed_each_time(reads: list[int]) -> None:
    array = frozen(LARGE - 1)
    assert content_address(memoryview(array)) == content_address(memoryview(array))
    assert reads == [LARGE - 1] * 2


def test_new_array_at_same_memory_address_is_hashed_again() -> None:
    seen = set()
    for start in range(5):
        array = frozen(start=start)
        seen.add(content_address(memoryview(array)))
        del array
    assert len(seen) == 5


def test_collected_array_leaves_no_cache_entry() -> None:
    gc.collect()
    before = len(digest._known)
    array = frozen()
    content_address(memoryview(array))
    assert len(digest._known) == before + 1
    del array
    gc.collect()
    assert len(digest._known) == before


def test_slice_of_read_only_array_has_its_own_address() -> None:
    array = frozen(2 * LARGE)
    whole = content_address(memoryview(array))
    part = memoryview(array)[:LARGE]
    assert content_address(part) == blake3(part).digest() != whole
    assert content_address(memoryview(array)) == whole


def writable() -> Any:
    return numpy.zeros(LARGE, dtype="u1")


def read_only_view() -> Any:
    view = writable().view()
    view.flags.writeable = False
    return view


def over_a_bytearray() -> Any:
    array = numpy.frombuffer(bytearray(LARGE), dtype="u1")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("make", [writable, read_only_view, over_a_bytearray])
def test_writable_memory_is_hashed_each_time(make: Callable[[], Any]) -> None:
    array = make()
    base = memoryview(array.base if array.base is not None else array)
    before = content_address(memoryview(array))
    base[0] = 7
    assert content_address(memoryview(array)) == blake3(array.tobytes()).digest() != before


def test_arrays_over_bytes_are_hashed_once(reads: list[int]) -> None:
    array = numpy.frombuffer(bytes(LARGE), dtype="u1")
    assert content_address(memoryview(array)) == content_address(memoryview(array))
    assert content_address(memoryview(array[:])) == content_address(memoryview(array))
    assert reads == [LARGE, LARGE]  # the view once, too: it is another object


def test_address_is_cached_while_its_owner_lives() -> None:
    class Holder:
        pass

    data, holder = bytes(1000), Holder()
    remember_address(data, b"remembered", holder)
    assert content_address(memoryview(data)) == b"remembered"
    assert content_address(memoryview(data)[1:]) == blake3(data[1:]).digest()
    assert content_address(memoryview(bytes(bytearray(1000)))) == blake3(data).digest()
    del holder
    assert content_address(memoryview(data)) == blake3(data).digest()


@given(st.binary(max_size=100))
def test_fresh_keys_are_distinguishable_from_content_addresses(data: bytes) -> None:
    assert not is_fresh(content_address(memoryview(data)))
    one, other = fresh_key(), fresh_key()
    assert is_fresh(one)
    assert one != other
    assert len(one) == 32
