"""Futures among the arguments of a call: search, and replacement by markers."""

from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import skyward as sky
from skyward.control.act.tasks.future import EncodedResult, TaskFuture, set_members
from skyward.control.act.tasks.streams import RemoteIterator, StreamBuffer
from skyward.pool.future_arguments import Taken, may_hold_futures
from skyward.wire.payloads.arguments import ResultMarker
from skyward.wire.payloads.payload import encode

pytestmark = pytest.mark.unit


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Model:
    weights: Any


def pending() -> TaskFuture[Any]:
    return TaskFuture()


def done(value: object) -> TaskFuture[Any]:
    future: TaskFuture[Any] = TaskFuture()
    outgoing = encode(value)
    future.set_result(EncodedResult(outgoing.payload, outgoing.blobs))
    return future


def index_of(marker: object) -> int:
    assert isinstance(marker, ResultMarker)
    return marker.index


def test_each_future_has_one_marker() -> None:
    a, b, taken = pending(), pending(), Taken()
    args, kwargs = taken.replace((a, 1, b, a), {"c": b})
    assert [index_of(args[0]), args[1], index_of(args[2]), index_of(args[3])] == [0, 1, 1, 0]
    assert args[0] is args[3]
    assert kwargs["c"] is args[2]
    assert taken.futures == [a, b]


def test_futures_are_found_in_lists_tuples_named_tuples_and_dicts() -> None:
    a, taken = pending(), Taken()
    (found,), _ = taken.replace(([0, (1, a)],), {})
    assert index_of(found[1][1]) == 0
    (point,), _ = taken.replace((Point(a, 2),), {})
    assert (type(point), index_of(point.x), point.y) == (Point, 0, 2)
    (table,), _ = taken.replace(({"a": {"b": [a]}},), {})
    assert index_of(table["a"]["b"][0]) == 0


def test_containers_without_futures_stay_the_same_objects() -> None:
    plain: list[Any] = [1, {"b": (2, 3)}]
    (one, other), _ = Taken().replace((plain, [plain, pending()]), {})
    assert one is plain
    assert other[0] is plain


def test_container_passed_twice_stays_one_object() -> None:
    shared = [pending()]
    (one, other), _ = Taken().replace((shared, {"again": shared}), {})
    assert other["again"] is one


def test_list_that_contains_itself_terminates() -> None:
    endless: list[Any] = [pending()]
    endless.append(endless)
    Taken().replace((endless,), {})


@pytest.mark.parametrize(
    "value",
    [{pending()}, Model(pending()), OrderedDict(a=pending()), {pending(): 1}],
    ids=["set", "object", "subclass of dict", "key"],
)
def test_futures_in_other_objects_are_not_replaced(value: object) -> None:
    taken = Taken()
    (found,), _ = taken.replace((value,), {})
    assert found is value
    assert not taken.futures


def test_value_that_the_client_has_read_is_sent_in_its_current_state() -> None:
    a = done([1])
    a.result().append(2)
    taken = Taken()
    (found,), _ = taken.replace((a,), {})
    assert found == [1, 2]
    assert not taken.futures


def test_lent_result_is_sent_unchanged() -> None:
    a = done({"x": bytearray(200_000)})
    taken = Taken()
    taken.replace((a,), {})
    a.result()["x"][0] = 7
    raw = Future.result(a)
    assert isinstance(raw, EncodedResult)
    assert raw.decode()["x"][0] == 0
    assert a.result()["x"][0] == 7
    later = Taken()
    later.replace((a,), {})
    assert later.futures == [a]


def test_futures_of_other_executors_are_accepted() -> None:
    """Futures of an executor of the program."""
    waiting: Future[int] = Future()
    ended: Future[int] = Future()
    ended.set_result(5)
    taken = Taken()
    (one, other), _ = taken.replace((waiting, ended), {})
    assert index_of(one) == 0
    assert other == 5


def test_failed_future_is_awaited_like_others() -> None:
    failed: TaskFuture[Any] = TaskFuture()
    failed.set_exception(ValueError())
    taken = Taken()
    taken.replace((failed,), {})
    assert taken.futures == [failed]


def test_future_of_a_group_becomes_a_tuple_of_its_members() -> None:
    a, b, group = pending(), pending(), pending()
    set_members(group, (a, b))
    taken = Taken()
    ((first, second),), _ = taken.replace((group,), {})
    assert (index_of(first), index_of(second)) == (0, 1)
    assert taken.futures == [a, b]


def test_future_of_a_stream_is_refused_as_an_argument() -> None:
    future: TaskFuture[Any] = TaskFuture()
    future.set_result(RemoteIterator(buffer := StreamBuffer()))
    buffer.connect(lambda _: None, lambda _: Future(), lambda _: None, lambda: None)
    with pytest.raises(sky.SpecError, match=r"^A future of a stream has no value to pass: pass the stream"):
        Taken().replace((future,), {})


def test_quick_check_finds_futures_in_common_places() -> None:
    assert may_hold_futures(pending())
    assert may_hold_futures([pending()] * 100_000)
    assert may_hold_futures({"a": [(1, pending())]})
    assert not may_hold_futures([0] * 1000 + [pending()])
    assert not may_hold_futures("text")
