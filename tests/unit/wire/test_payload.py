"""Serialized values: decoded values equal the originals, and no byte is sent more often than necessary."""

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skyward as sky
from skyward.errors import NotPicklableError
from skyward.wire.payloads.payload import (
    Outgoing,
    Packed,
    blobs_of,
    decode,
    encode,
    encode_argument,
    encode_call,
    encode_result,
    outgoing,
    pack,
)
from skyward.wire.protocol.messages import INLINE_LIMIT, Blob, Payload

pytestmark = pytest.mark.unit


def arrive(sent: Outgoing) -> Any:
    """Return the decoded value, with its own writable blobs."""
    blobs = {key: bytearray(view) for key, view in sent.blobs.items()}
    return decode(sent.payload, lambda blob: blobs[blob.key])


def inline_bytes(payload: Payload) -> int:
    return sum(len(part) for part in (payload.data, *payload.buffers) if not isinstance(part, Blob))


def zeros(size: int) -> "numpy.ndarray[Any, Any]":
    return numpy.zeros(size, dtype="u1")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)
sizes = st.sampled_from([0, 1, 1000, INLINE_LIMIT - 1, INLINE_LIMIT, INLINE_LIMIT + 1, 3 * INLINE_LIMIT])


@given(plain)
def test_plain_values_round_trip(value: Any) -> None:
    assert arrive(encode(value)) == value
    data, views = encode_result(value)
    assert pickle.loads(data, buffers=views) == value


@given(st.lists(plain, max_size=3), st.dictionaries(st.text(min_size=1), plain, max_size=3))
def test_calls_round_trip(args: list[Any], kwargs: dict[str, Any]) -> None:
    assert arrive(encode_call(tuple(args), kwargs, "f")) == (tuple(args), kwargs)


@given(st.lists(sizes, max_size=12), st.integers(0, 255))
@settings(max_examples=60)
def test_buffers_round_trip_and_small_ones_are_inline(lengths: list[int], fill: int) -> None:
    arrays = [numpy.full(size, fill, dtype="u1") for size in lengths]
    sent = encode(arrays)
    for one, other in zip(arrive(sent), arrays, strict=True):
        assert one.tolist() == other.tolist()
        assert one.flags.writeable
    assert inline_bytes(sent.payload) <= 4 * INLINE_LIMIT + len(pickle.dumps(arrays, 5, buffer_callback=bool))
    small = sum(size for size in lengths if size <= INLINE_LIMIT)
    large = [size for size in lengths if size > INLINE_LIMIT]
    assert len(blobs_of([sent.payload])) >= len(large)
    if small <= 4 * INLINE_LIMIT:
        assert [blob.size for blob in blobs_of([sent.payload])] == large


@pytest.mark.parametrize(("extra", "blobs"), [(0, 0), (1, 1)])
def test_buffer_over_the_limit_is_a_blob(extra: int, blobs: int) -> None:
    sent = encode(zeros(INLINE_LIMIT + extra))
    assert len(sent.blobs) == len(blobs_of([sent.payload])) == blobs
    assert len(blobs_of([outgoing(bytes(INLINE_LIMIT + extra), ()).payload])) == blobs


def test_object_referenced_twice_is_sent_once_and_stays_one_object() -> None:
    array = zeros(2 * INLINE_LIMIT)
    sent = encode([array, array])
    assert [view.nbytes for view in sent.blobs.values()] == [array.nbytes]
    first, second = arrive(sent)
    first[0] = 7
    assert second[0] == 7


def test_equal_buffers_are_sent_once_and_stay_separate() -> None:
    sent = encode([zeros(2 * INLINE_LIMIT), zeros(2 * INLINE_LIMIT)])
    assert len(blobs_of([sent.payload])) == 2
    assert len(sent.blobs) == 1
    assert sent.nbytes < 3 * INLINE_LIMIT


def test_decoded_value_is_a_copy() -> None:
    for size in (10, 2 * INLINE_LIMIT):
        array = zeros(size)
        arrive(encode(array))[0] = 7
        assert array[0] == 0


@pytest.mark.parametrize("size", [10, 2 * INLINE_LIMIT])
def test_read_only_arrays_round_trip_unchanged(size: int) -> None:
    array = zeros(size)
    array.flags.writeable = False
    assert arrive(encode(array)).tolist() == array.tolist()
    assert not array.flags.writeable


@pytest.mark.parametrize("size", [30, 1000])
@pytest.mark.parametrize(
    "cut",
    [lambda a: a.T, lambda a: a[::2], lambda a: a[:, 1:3], lambda a: numpy.asfortranarray(a), lambda a: a[:0]],
    ids=["transposed", "every other row", "columns", "fortran", "empty"],
)
def test_arrays_of_every_layout_round_trip(size: int, cut: Callable[[Any], Any]) -> None:
    array = cut(numpy.arange(size * 20.0).reshape(size, 20))
    found = arrive(encode(array))
    assert found.shape == array.shape
    assert numpy.array_equal(found, array)


def test_function_keeps_its_closure() -> None:
    data = zeros(2 * INLINE_LIMIT)

    def total(more: int) -> int:
        return int(data.sum()) + more

    sent = encode(total)
    assert len(sent.blobs) == 1
    assert arrive(sent)(3) == 3


# Packed values.


@given(plain)
def test_packed_values_unpack(value: Any) -> None:
    packed = pack(value)
    assert packed.unpack() == value
    assert packed.addresses() == pack(value).addresses()
    assert arrive(encode(packed)).unpack() == value
    assert pickle.loads(pickle.dumps(packed, protocol=4)).unpack() == value


def test_packed_value_keeps_its_address_inside_another() -> None:
    packed = pack(zeros(2 * INLINE_LIMIT))
    sent = encode({"name": packed})
    assert packed.addresses().keys == tuple(sent.blobs)
    found = arrive(sent)["name"]
    assert isinstance(found, Packed)
    assert (found.addresses(), found.nbytes) == (packed.addresses(), packed.nbytes)
    assert set(encode([found]).blobs) == set(sent.blobs)


def test_address_of_packed_value_changes_with_its_buffers() -> None:
    array = zeros(100)
    before = pack(array).addresses()
    array[99] = 1
    assert pack(array).addresses() != before


# What cannot be pickled.


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda lock: lock, "it is of type _thread.lock, which"),
        (lambda lock: {"a": [1, lock]}, "x['a'][1] is of type _thread.lock, which"),
        (lambda lock: {"a": (Holder(lock),)}, "x['a'][0].held is of type _thread.lock, which"),
        (lambda lock: lambda: lock, "x (closure variable lock) is of type _thread.lock, which"),
    ],
    ids=["itself", "inside", "an attribute", "a closure"],
)
def test_error_names_the_unpicklable_part(make: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(NotPicklableError) as caught:
        encode(make(threading.Lock()), "x")
    assert str(caught.value) == (
        f"x cannot be sent to a node: {said} cannot be pickled (cannot pickle '_thread.lock' object). "
        "Make it on the node, or leave it out."
    )


def test_unpicklable_part_of_recursive_value_is_named() -> None:
    loop: list[Any] = [threading.Lock()]
    loop.insert(0, loop)
    with pytest.raises(NotPicklableError, match=r"x\[1\] is of type _thread\.lock"):
        encode(loop, "x")


def test_error_names_the_unpicklable_argument() -> None:
    with pytest.raises(NotPicklableError, match=r"^argument key of f\(\) cannot be sent to a node: it is of type _th"):
        encode_call((1,), {"key": threading.Lock()}, "f")
    with pytest.raises(NotPicklableError, match=r"^argument 2 of f\(\) cannot .*: argument 2 of f\(\)\['lock'\] is of"):
        encode_call((1, {"lock": threading.Lock()}), {}, "f")


def test_result_refused_by_pickle_is_pickled_by_cloudpickle() -> None:
    data, views = encode_result([lambda: 3, zeros(10)])
    function, array = pickle.loads(data, buffers=views)
    assert (function(), len(array), len(views)) == (3, 10, 1)


@sky.function
def unrun(number: int = 0) -> int:
    return number


class Box:
    def __init__(self, held: object) -> None:
        self.held = held


CALL_WITHIN = pytest.mark.parametrize(
    "make",
    [
        lambda call: [1, call],
        lambda call: (call, 1),
        lambda call: {"a": {"b": [(call,)]}},
        lambda call: {call: 1},
        lambda call: Box(Box(call)),
        lambda call: ValueError(call),
        lambda call: [lambda: 3, call],
    ],
    ids=["list", "tuple", "deep", "key", "attribute", "exception", "beside a function"],
)
CALLS = pytest.mark.parametrize(
    ("call", "text"),
    [(unrun(1), "unrun(...)"), (sky.gang(unrun(), unrun()), "gang(unrun(), unrun())"), (unrun() & unrun(), None)],
    ids=["call", "gang", "group"],
)


@CALLS
@CALL_WITHIN
def test_calls_that_have_not_run_are_refused_within_arguments(
    make: Callable[[Any], Any], call: Any, text: str | None
) -> None:
    text = text or "(unrun() & unrun())"
    with pytest.raises(NotPicklableError) as caught:
        encode_call((1, make(call)), {}, "f")
    assert str(caught.value) == (
        f"argument 2 of f() has a call that has not run, `{text}`, and a task takes values: send it to the pool first, "
        f"and pass its future, `{text} > pool`, or its result."
    )
    with pytest.raises(NotPicklableError, match="^argument key of f.. is a call that has not run"):
        encode_call((), {"key": call}, "f")
    with pytest.raises(NotPicklableError, match="^an element has a call that has not run"):
        encode_argument(make(call), "an element")


@CALLS
@CALL_WITHIN
def test_calls_that_have_not_run_are_refused_within_results(
    make: Callable[[Any], Any], call: Any, text: str | None
) -> None:
    text = text or "(unrun() & unrun())"
    with pytest.raises(NotPicklableError) as caught:
        encode_result(make(call), "the result of f()")
    assert str(caught.value) == (
        f"the result of f() has a call that has not run, `{text}`, and a node has no pool to run it: run it in the "
        "task, with `.local(...)` of its function."
    )


def test_calls_that_only_code_refers_to_are_sent() -> None:
    call = unrun(3)

    class Runs:
        held = call

    def runs() -> int:
        return call.local() + Runs.held.local()

    array = zeros(2 * INLINE_LIMIT)
    (function, kind, same), _ = arrive(encode_call((runs, Runs, array), {}, "f"))
    assert (function(), kind.held.local(), same.nbytes) == (6, 3, array.nbytes)
    data, views = encode_result((array, runs))
    same, function = pickle.loads(data, buffers=views)
    assert (function(), same.nbytes, len(views)) == (6, array.nbytes, 1)


def test_calls_that_have_not_run_are_pickled_outside_arguments_and_results() -> None:
    """As the variables of a cell, for example."""
    with pytest.raises(NotPicklableError):
        encode_argument([unrun(3)], "x")
    assert pack({"call": unrun(3)}).unpack()["call"].local() == 3
    first, second = pack(unrun(1) & unrun(2)).unpack()
    assert (first.local(), second.local()) == (1, 2)
