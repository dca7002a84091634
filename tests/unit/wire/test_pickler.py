"""Classes and cached functions of a script on a node: the calls that share them."""

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import cloudpickle
import pytest
from cloudpickle import cloudpickle as inner

from skyward.errors import PayloadError
from skyward.wire.payloads.payload import decode, dumps, encode
from skyward.wire.payloads.pickler import CallScope, decoding_for

pytestmark = pytest.mark.unit


def arrived(value: object, scope: CallScope | None = None) -> Any:
    """Return `value` as a call on a node receives it, with cloudpickle's table of classes restored afterwards."""
    payload = encode(value).payload
    known = dict(inner._DYNAMIC_CLASS_TRACKER_BY_ID)
    try:
        with decoding_for(CallScope() if scope is None else scope):
            return decode(payload, lambda _: b"")
    finally:
        inner._DYNAMIC_CLASS_TRACKER_BY_ID.update(known)


def shared_class() -> type[Any]:
    class Plain:
        rate = 1

        def __init__(self) -> None:
            self.x = 1

    return Plain


def changing_class() -> type[Any]:
    class Counting:
        made = 0

        def __init__(self) -> None:
            type(self).made += 1

    return Counting


def test_calls_share_a_class_that_they_cannot_change() -> None:
    kind = shared_class()
    first = arrived(kind)
    assert first is not kind
    assert arrived(kind) is first
    assert type(arrived(kind())) is first


def test_shared_class_that_was_changed_is_no_longer_shared() -> None:
    kind = shared_class()
    first = arrived(kind)
    first.rate = 2
    second = arrived(kind)
    assert (second is first, second.rate) == (False, 1)
    assert arrived(kind) is second


def test_each_call_has_its_own_copy_of_a_mutable_class() -> None:
    kind = changing_class()
    scope = CallScope()
    first = arrived(kind, scope)
    assert type(arrived(object.__new__(kind), scope)) is first
    assert arrived(kind) is not first
    assert scope.has_own


def test_thread_outside_calls_cannot_unpickle_class_of_several_calls() -> None:
    def on_thread() -> object:
        found: list[object] = []

        def read() -> None:
            try:
                found.append(decode(payload, lambda _: b""))
            except PayloadError as error:
                found.append(str(error))

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        return found.pop()

    kind = changing_class()
    payload = encode(kind).payload
    known = dict(inner._DYNAMIC_CLASS_TRACKER_BY_ID)
    try:
        with ExitStack() as calls:
            calls.enter_context(decoding_for(CallScope()))
            first = decode(payload, lambda _: b"")
            assert on_thread() is first
            calls.enter_context(decoding_for(CallScope()))
            assert on_thread() is first
            assert decode(payload, lambda _: b"") is not first
            assert "this thread belongs to none of them" in str(on_thread())
    finally:
        inner._DYNAMIC_CLASS_TRACKER_BY_ID.update(known)


def test_class_changed_by_client_is_another_class() -> None:
    kind = shared_class()
    first = arrived(kind)
    kind.rate = 5
    assert (arrived(kind).rate, first.rate) == (5, 1)


def test_returned_class_is_the_unchanged_original() -> None:
    for kind in (shared_class(), changing_class()):
        copy = arrived(kind)
        copy.rate = 9
        found = cloudpickle.loads(dumps(object.__new__(copy)))
        assert type(found) is kind
        assert getattr(kind, "rate", 1) == 1


def test_incomplete_class_is_completed_by_the_next_pickle() -> None:
    class Fails:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    kind = shared_class()
    kind.bad = Fails()
    with pytest.raises(ValueError, match="no number"):
        arrived(kind)
    del kind.bad
    assert arrived(kind)().x == 1


def cached_function(step: int) -> Callable[[int], int]:
    @functools.cache
    def add(x: int) -> int:
        return x + step

    return add


def test_cache_is_kept_until_the_function_changes() -> None:
    function: Any = cached_function(1)
    first = arrived(function)
    assert first(1) == 2
    assert arrived(function) is first
    assert arrived([function, function])[1].cache_info().hits == 0
    edited = arrived(cached_function(2))
    assert edited(1) == 3
    assert arrived(function) is not first  # only the newest of a name is kept


def test_cached_function_keeps_its_parameters_and_attributes() -> None:
    @functools.lru_cache(maxsize=3, typed=True)
    def half(x: float) -> float:
        """Return half of `x`."""
        return x / 2

    half.unit = "m"  # type: ignore[attr-defined]
    found = arrived(half)
    assert found.cache_parameters() == {"maxsize": 3, "typed": True}
    assert (found.unit, found.__name__, found.__doc__) == ("m", "half", "Return half of `x`.")


def test_recursive_cached_function_calls_itself() -> None:
    @functools.cache
    def down(n: int) -> int:
        return down(n - 1) + 1 if n else 0

    found = arrived(down)
    assert found(20) == 20
    assert found.cache_info().currsize == 21
