"""Ownership of the memory that a task returned."""

import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skyward.wire.payloads.payload import encode_result
from skyward.worker.runtime.agent import is_ours

pytestmark = pytest.mark.unit

type Array = np.ndarray[Any, Any]

KEPT: list[object] = []


def fresh() -> Array:
    return np.arange(100_000)


def kept() -> Array:
    KEPT.append(array := fresh())
    return array


def watched() -> Array:
    KEPT.append(weakref.ref(array := fresh()))
    return array


def of_an_iterator() -> Any:
    def arrays() -> Any:
        array = fresh()
        yield array
        array[0] = 1

    KEPT.append(iterator := arrays())
    return next(iterator)


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    KEPT.clear()


def verdicts(make: Callable[[], object]) -> list[bool]:
    """Return the verdict on each buffer of a result, made as tasks make them."""

    def returned(value: object) -> list[bool]:
        data, views = encode_result(value)
        del value
        assert pickle.loads(data, buffers=views) is not None
        return [is_ours(view) for view in (views or [memoryview(data)])]

    return returned(make())


@pytest.mark.parametrize(
    "make",
    [
        fresh,
        lambda: fresh().reshape(10, -1).copy(),
        lambda: {"a": fresh(), "b": [fresh()]},
        lambda: b"x" * 1_000_000,
        lambda: [b"x" * 1_000_000, "text"],
    ],
    ids=["array", "grid", "nested", "bytes", "bytes among others"],
)
def test_memory_without_other_references_is_ours(make: Callable[[], object]) -> None:
    assert all(verdicts(make))


@pytest.mark.parametrize(
    "make",
    [
        kept,
        watched,
        of_an_iterator,
        lambda: fresh()[:50_000],
        lambda: fresh().reshape(10, -1).T,
        lambda: np.frombuffer(bytearray(1_000_000), dtype=np.uint8),
        lambda: pickle.PickleBuffer(bytearray(1_000_000)),
    ],
    ids=["kept", "watched", "of an iterator", "part", "transposed", "of a buffer", "not an array"],
)
def test_memory_with_possible_other_references_is_not_ours(make: Callable[[], object]) -> None:
    assert not any(verdicts(make))


def test_array_twice_in_a_result_is_ours_once() -> None:
    assert verdicts(lambda: (array := fresh(), array)) == [True]


def test_array_and_its_view_are_copied() -> None:
    """Each could be changed through the other."""
    assert verdicts(lambda: (array := fresh(), array[::1])) == [False, False]
