"""Operators: calls that they send to a pool, and errors about mistakes. The fake pool runs calls at once."""

import pickle
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import skyward
from skyward import NoPoolError, OnNodeError, OperatorError, SpecError, TaskFuture
from skyward.functions.target import current_pool, sky

pytestmark = pytest.mark.unit


class FakePool:
    """Pool that runs calls locally, and records the method of each."""

    def __init__(self, nodes: int = 3) -> None:
        self.nodes = nodes
        self.sent: list[tuple[str, Any]] = []

    def run(self, pending: Any) -> Any:
        self.sent.append(("run", pending))
        return pending.local()

    def submit(self, pending: Any) -> TaskFuture[Any]:
        self.sent.append(("submit", pending))
        future: TaskFuture[Any] = TaskFuture()
        future.set_result(pending.local())
        return future

    def broadcast(self, pending: Any) -> list[Any]:
        self.sent.append(("broadcast", pending))
        return [pending.local() for _ in range(self.nodes)]

    def run_group(self, group: Any) -> Any:
        self.sent.append(("run_group", group))
        results = (pending.local() for pending in group)
        return results if group.stream else tuple(results)

    def submit_group(self, group: Any) -> TaskFuture[Any]:
        self.sent.append(("submit_group", group))
        future: TaskFuture[Any] = TaskFuture()
        future.set_result(tuple(pending.local() for pending in group))
        return future


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


# Any, because the mistakes below are what the types refuse; typing_tests/ holds the types.
gather: Any = skyward.gather


def anything(value: object) -> Any:
    return value


@anything
@skyward.function
def double(number: int) -> int:
    return 2 * number


@anything
@skyward.function(timeout=7)
def name() -> str:
    return "n"


@anything
@skyward.function
def count(number: int) -> Iterator[int]:
    yield from range(number)


def says(text: str) -> str:
    return f"^{re.escape(text)}$"


# What the operators do.


def test_right_shift_runs_a_call(pool: FakePool) -> None:
    call = double(4)
    assert call >> pool == 8
    assert pool.sent == [("run", call)]


def test_greater_than_submits_a_call(pool: FakePool) -> None:
    future = double(4) > pool
    assert future.result() == 8
    assert pool.sent[0][0] == "submit"


def test_at_sign_broadcasts_a_call(pool: FakePool) -> None:
    assert double(4) @ pool == [8, 8, 8]


def test_ampersand_makes_a_group(pool: FakePool) -> None:
    a, b, c = (double(1) & name() & double(number=3)) >> pool
    assert (a, b, c) == (2, "n", 6)


def test_future_of_a_group_has_a_tuple(pool: FakePool) -> None:
    assert ((double(1) & name()) > pool).result() == (2, "n")


def test_group_flattens_on_both_sides() -> None:
    a, b, c, d = double(1), double(2), double(3), double(4)
    for group in ((a & b) & (c & d), a & (b & (c & d)), ((a & b) & c) & d):
        assert list(group) == [a, b, c, d]
        assert len(group) == 4


def test_gather_runs_calls_as_a_group(pool: FakePool) -> None:
    assert gather(*(double(n) for n in range(4))) >> pool == (0, 2, 4, 6)
    assert gather() >> pool == ()


def test_gather_and_operator_make_the_same_group() -> None:
    one, other = double(1), name()
    group, same = gather(one, other), one & other
    assert group.items == same.items
    assert (group.stream, group.ordered, group.timeout, group.placement) == (
        *(same.stream, same.ordered),
        *(same.timeout, same.placement),
    )


def test_streamed_gather(pool: FakePool) -> None:
    group = gather(double(1), double(2), stream=True, ordered=False)
    assert (group.stream, group.ordered) == (True, False)
    assert list(group >> pool) == [2, 4]


def test_generator_returns_an_iterator(pool: FakePool) -> None:
    assert list(count(3) >> pool) == [0, 1, 2]


@pytest.mark.parametrize("target", [sky, skyward], ids=["singleton", "module"])
def test_sky_targets_the_pool_in_scope(pool: FakePool, target: Any) -> None:
    token = current_pool.set(pool)
    try:
        assert double(2) >> target == 4
        assert (double(2) > target).result() == 4
        assert double(2) @ target == [4, 4, 4]
        assert (double(2) & name()) >> target == (4, "n")
        assert ((double(2) & name()) > target).result() == (4, "n")
    finally:
        current_pool.reset(token)


def test_sky_without_a_pool_in_scope_is_refused() -> None:
    expected = "No pool is in scope: open one with `with sky.Compute(...) as pool:`, or name it: `double(...) >> pool`."
    with pytest.raises(NoPoolError, match=says(expected)):
        double(2) >> sky
    with pytest.raises(NoPoolError):
        assert double(2) > skyward


# Values.


def test_pending_is_frozen_and_equal_only_to_itself() -> None:
    """Equal calls would be one call for `asyncio.gather`, which uses them as keys; their arguments need no hash."""
    pending = double([1])
    group = pending & pending
    assert len({pending, double([1]), group, pending & pending, pending}) == 4
    pending = double(1)
    with pytest.raises(AttributeError):
        pending.timeout = 3
    assert pending.local() == 2


def test_with_timeout_replaces_the_timeout() -> None:
    assert name().timeout == 7
    assert name().with_timeout(3).timeout == 3
    assert name().with_timeout(None).timeout is None
    assert (double(1) & name()).with_timeout(2.5).timeout == 2.5


@pytest.mark.parametrize("seconds", [0, -1, True, "3", float("inf"), float("nan")])
def test_timeout_must_be_a_positive_number(seconds: Any) -> None:
    expected = f"timeout must be a positive number of seconds, but got {seconds!r}; None uses the default."
    with pytest.raises(SpecError, match=says(expected)):
        name().with_timeout(seconds)
    with pytest.raises(SpecError, match=says(expected)):
        skyward.function(timeout=seconds)


def test_joined_groups_keep_the_shorter_timeout() -> None:
    long, short = (double(1) & name()).with_timeout(9), (double(2) & name()).with_timeout(4)
    assert (long & short).timeout == 4
    assert (long & name()).timeout == 9


def test_pending_group_survives_pickling(pool: FakePool) -> None:
    import cloudpickle

    group = cloudpickle.loads(cloudpickle.dumps(double(1) & name()))
    assert group >> pool == (2, "n")
    assert pickle.loads(pickle.dumps(sky)) is sky


# Mistakes. Each is answered with one sentence that holds the fix.

MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "not called": (
        lambda pool: double >> pool,
        "`double` is a function, not a call of one: write `double(...) >> pool`.",
    ),
    "not called >": (
        lambda pool: double > pool,
        "`double` is a function, not a call of one: write `double(...) > pool`.",
    ),
    "not called @": (
        lambda pool: double @ pool,
        "`double` is a function, not a call of one: write `double(...) @ pool`.",
    ),
    "not called &": (
        lambda _: double & name(),
        "`double` is a function, not a call of one: write `double(...) & ...`.",
    ),
    "not called on the right of &": (
        lambda _: name() & double,
        "`name() & ...` needs a call on its right, and got the function `double` itself: call it, `double(...)`.",
    ),
    "precedence of >>": (
        lambda pool: double(1) & name() >> pool,
        "`double(...) & ...` needs a call on its right, but got 'n' (str): `>>` and `@` bind tighter than `&`, "
        "so write `(a() & b()) >> pool`.",
    ),
    "precedence of @": (
        lambda pool: double(1) & name() @ pool,
        "`double(...) & ...` needs a call on its right, but got a list: `>>` and `@` bind tighter than `&`, "
        "so write `(a() & b()) >> pool`.",
    ),
    "precedence on the left": (
        lambda pool: double(1) >> pool & name(),
        "`... & name()` needs a call on its left, but got 2 (int): `>>` and `@` bind tighter than `&`, "
        "so write `(a() & b()) >> pool`.",
    ),
    "precedence of >": (
        lambda pool: double(1) > pool & name(),
        "`&` binds tighter than `>`: write `(a() & b()) > pool`.",
    ),
    "group and value": (
        lambda _: (double(1) & name()) & 3,
        "`(double(...) & name()) & ...` needs a call on its right, but got 3 (int): `>>` and `@` bind tighter "
        "than `&`, so write `(a() & b()) >> pool`.",
    ),
    "chain": (
        lambda pool: double(1) > pool > name(),
        "`>` takes the pool on its right: write `name() > pool`, on its own, because Python reads a chain such as "
        "`a() > pool > b()` as two comparisons.",
    ),
    "turned round >>": (lambda pool: pool >> double(1), "The pool goes on the right: write `double(...) >> pool`."),
    "turned round @": (lambda pool: pool @ name(), "The pool goes on the right: write `name() @ pool`."),
    "turned round, group": (
        lambda pool: pool >> (double(1) & name()),
        "The pool goes on the right: write `(double(...) & name()) >> pool`.",
    ),
    "two calls": (
        lambda _: double(1) >> name(),
        "`double(...) >> ...` takes a pool on its right, but got `name()`: write `double(...) >> pool`, "
        "or `>> sky` for the pool in scope.",
    ),
    "value on the left": (
        lambda _: 3 >> name(),
        "`>>` sends a call to a pool, but its left side is 3 (int) and its right side is the call `name()`: "
        "write `name() >> pool`.",
    ),
    "None": (
        lambda _: name() >> None,
        "`name() >> ...` takes a pool on its right, but got None: write `name() >> pool`, "
        "or `>> sky` for the pool in scope.",
    ),
    "another module": (
        lambda _: name() > sys,
        "`name() > ...` takes a pool on its right, but got the module `sys`: write `name() > pool`, "
        "or `> sky` for the pool in scope.",
    ),
    "the class": (
        lambda _: name() >> FakePool,
        "`FakePool` is the class: open a pool with `with sky.FakePool(...) as pool:` and write `name() >> pool`.",
    ),
    "pool in a group": (
        lambda pool: name() & pool,
        "`&` joins calls; a pool takes them with `>>`: write `name() >> pool`.",
    ),
    "broadcast of a group": (
        lambda pool: (double(1) & name()) @ pool,
        "`@` sends one call to every node, and a group holds 2: broadcast each one "
        "(`double(...) @ pool, name() @ pool`), or run the group once with `(double(...) & name()) >> pool`.",
    ),
    "gather of a list": (
        lambda _: gather([name(), name()]),
        "`gather` takes the calls one by one, but got a list: unpack it with `gather(*tasks)`.",
    ),
    "gather of a generator": (
        lambda _: gather(name() for _ in range(2)),
        "`gather` takes the calls one by one, but got a generator: unpack it with `gather(*tasks)`.",
    ),
    "gather of a function": (
        lambda _: gather(name(), double),
        "`gather` takes calls, and argument 2 is the function `double` itself: call it, `double(...)`.",
    ),
    "gather of a group": (
        lambda _: gather(name() & name()),
        "`gather` takes calls, and argument 1 is a group: write `gather(*group, ...)`.",
    ),
    "gather of results": (
        lambda pool: gather(double(3) >> pool),
        "`gather` takes calls of functions decorated with `@sky.function`, and argument 1 is 6 (int).",
    ),
    "gather of a pool": (
        lambda pool: gather(name(), pool),
        "`gather` takes calls only: send the group with `gather(*tasks) >> pool`.",
    ),
    "future of a stream": (
        lambda pool: gather(name(), stream=True) > pool,
        "A streamed gather has no single future: write `gather(..., stream=True) >> pool` for an iterator, or "
        "`gather(...) > pool` for a future of the tuple.",
    ),
    "adding to a stream": (
        lambda _: gather(name(), stream=True) & name(),
        "`&` cannot add to a streamed gather: name every call in it, `gather(*tasks, other, stream=True)`.",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_operator_mistakes_are_explained(pool: FakePool, mistake: str) -> None:
    act, expected = MISTAKES[mistake]
    with pytest.raises(OperatorError, match=says(expected)):
        act(pool)


def test_array_on_the_left_is_refused() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(OperatorError, match="its left side is a ndarray"):
        numpy.ones(3) >> name()
    with pytest.raises(OperatorError, match=r"^`double` is a function"):
        numpy.ones(3) @ double


@pytest.mark.parametrize("pool", [skyward.Compute(), sky], ids=["pool", "singleton"])
def test_left_side_that_is_not_a_call_is_refused(pool: Any) -> None:
    expected = (
        "`... >> pool` sends a call of a `@sky.function`, but its left side is 3 (int): put `@sky.function` on the "
        "function that makes it, and write `f(...) >> pool`."
    )
    with pytest.raises(OperatorError, match=says(expected)):
        3 >> pool
    with pytest.raises(OperatorError, match="its left side is None"):
        None @ pool
    with pytest.raises(OperatorError, match="its left side is a function"):
        assert (lambda: 1) > pool
    array = pytest.importorskip("numpy").ones(3)
    acts: list[Callable[[], Any]] = [lambda: array >> pool, lambda: array > pool, lambda: array @ pool]
    for act in acts:
        with pytest.raises(OperatorError, match="its left side is a ndarray"):
            act()


def test_groups_do_not_run_here() -> None:
    expected = (
        "`.local()` runs one call here, and `gang(name(), double(...))` is a group of 2: run each call, "
        "`name().local(), double(...).local()`, one after the other."
    )
    group: Any = skyward.gang(name(), double(2))
    with pytest.raises(AttributeError, match=says(expected)):
        group.local()
    assert not hasattr(group, "other")


@pytest.mark.parametrize("target", [FakePool(), sky, skyward], ids=["pool", "singleton", "module"])
def test_operators_on_a_node_are_refused(monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    monkeypatch.setenv("SKYWARD_NODE", "3")
    expected = (
        "`name() >> ...` was used inside node 3: a node has no pool; call the function with `.local(...)` there, "
        "or send it from the client."
    )
    with pytest.raises(OnNodeError, match=says(expected)):
        name() >> target
    with pytest.raises(OnNodeError, match=r"call each of its functions with `\.local\(\.\.\.\)` there"):
        skyward.gang(name(), double(2)) >> target
    acts: list[Callable[[Any], Any]] = [lambda p: name() > p, lambda p: name() @ p, lambda p: (name() & name()) >> p]
    for act in acts:
        with pytest.raises(OnNodeError):
            act(target)


def test_text_of_a_long_group_is_shortened() -> None:
    group = name() & name() & name() & name()
    assert group.text == "(name() & name() & name() & ...)"
    assert gather(name()).text == "gather(...)"
    assert gather(name(), stream=True).text == "gather(..., stream=True)"


def test_only_the_skyward_module_is_a_target() -> None:
    with pytest.raises(OperatorError, match="the module `other`"):
        name() >> ModuleType("other")
