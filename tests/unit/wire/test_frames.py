"""Serialized frames of an exception: small values, stand-ins of other values, and code without its constants."""

import datetime
import json
import pickle
import re
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no type information
import pytest

from skyward.wire.failures.failure import capture_failure
from skyward.wire.failures.frames import FrameRecorder, FrameState, NodeValue
from skyward.worker.cells import cell as cells

pytestmark = pytest.mark.unit


def states_of(call: Callable[[], object], namespace: dict[str, Any] | None = None) -> list[FrameState]:
    """Return the frame states of the exception that `call` raises, after a round trip; those of this file first."""
    recorder = FrameRecorder(globals() if namespace is None else namespace, 3, "<cell>")
    try:
        call()
    except Exception as error:
        failure = pickle.loads(pickle.dumps(capture_failure(error, 3, recorder=recorder)))
        return [frame.state for frame in failure.chain[-1].frames][1:]
    raise AssertionError("nothing was raised")


def sent(value: object) -> Any:
    """Return the received form of a local variable."""

    def fail() -> None:
        variable = value
        raise ValueError(variable is value)

    (state,) = states_of(fail)
    return state.variables["variable"]


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, -2.5, 1j, "text", b"bytes", ..., range(5), Decimal("1.5"), 1 << 1000),
        *([], (1, "a"), {"k": [1, {2, 3}]}, frozenset({1}), {1: {2: 3}}),
        *(datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4), datetime.timedelta(1)),
    ],
)
def test_small_values_are_sent_as_they_are(value: object) -> None:
    found = sent(value)
    assert found == value
    assert type(found) is type(value)


class Plain:
    def __init__(self) -> None:
        self.small = [1, 2]
        self.large = list(range(1000))
        self.inner = types.SimpleNamespace(x=1)


class Loud:
    def __repr__(self) -> str:
        raise RuntimeError("not now")


class Slotted:
    __slots__ = ("x",)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 5000, r"<str on node 3: 'x+\.\.\.x+'>"),
        (list(range(1000)), r"<list on node 3: \[0, 1, 2, .*19, \.\.\.\]>"),
        (1 << 5000, r"<int on node 3: .*\.\.\..*>"),
        (Plain(), r"<wire.test_frames.Plain on node 3: <.*Plain object at 0x\w+>>"),
        (Loud(), r"<wire.test_frames.Loud on node 3: <Loud instance at 0x\w+>>"),
        (Slotted(), r"<wire.test_frames.Slotted on node 3: <.*>>"),
        (json, r"<module on node 3: <module 'json' from .*>>"),
        (json.loads, r"<function on node 3: <function loads at 0x\w+>>"),
        (Plain, r"<type on node 3: <class '.*Plain'>>"),
        ({Plain: 1}, r"<dict on node 3: \{<class '.*Plain'>: 1\}>"),
        (
            datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
            r"<datetime.datetime on node 3: datetime.datetime\(.*>",
        ),
    ],
)
def test_other_values_are_sent_as_type_and_repr(value: object, shown: str) -> None:
    found = repr(sent(value)).replace("tests.unit.", "")
    assert re.fullmatch(shown, found), found
    assert len(found) < 700


def test_attributes_of_object_are_sent() -> None:
    found = sent(Plain())
    assert found.small == [1, 2]
    assert repr(found.large).startswith("<list on node 3: [0, 1,")
    assert found.inner.x == 1
    with pytest.raises(AttributeError, match=r"^This .*Plain stayed on node 3: its attribute 'other' was not sent\.$"):
        found.other()


def test_proxy_that_raises_on_access_is_tolerated() -> None:
    class Refusing:
        @property  # type: ignore[misc]  # like a proxy outside its context
        def __class__(self) -> Any:
            raise RuntimeError("not now")

    assert repr(sent(Refusing())).startswith("<tests.unit.wire.test_frames.test_proxy")


def test_recursive_value_is_cut_off() -> None:
    value: list[Any] = [1]
    value.append(value)
    found = sent(value)
    assert found[0] == 1
    assert isinstance(found[1][1][1], NodeValue)


def test_small_arrays_are_sent_and_large_ones_described() -> None:
    small, scalar = sent(np.arange(4)), sent(np.float64(1.5))
    assert (small * 2).tolist() == [0, 2, 4, 6]
    assert scalar + 1 == 2.5
    assert repr(sent(np.zeros(10_000))).startswith("<numpy.ndarray on node 3: array([0., 0., 0., ...")
    assert isinstance(sent(np.array([Plain()], dtype=object)), NodeValue)


def test_array_is_described_if_client_cannot_unpickle_it(monkeypatch: pytest.MonkeyPatch) -> None:
    value = NodeValue("numpy.ndarray", "array([1])", 3, {}, b"cno_such_module\nthing\n.")
    assert repr(pickle.loads(pickle.dumps(value))) == "<numpy.ndarray on node 3: array([1])>"


def test_total_size_of_variables_is_bounded() -> None:
    namespace: dict[str, Any] = {"__name__": "cell", **{f"v{n}": "x" * 900 for n in range(2000)}}
    lines = ["def f():", *(f"    v{n}" for n in range(2000)), "    1 / 0"]
    exec(compile("\n".join(lines), "<cell>", "exec"), namespace)
    (state,) = states_of(namespace["f"], namespace)
    assert len(state.globals) == 100
    many = [["x" * 900] * 50 for _ in range(100)]

    def fail() -> None:
        kept = list(many)
        raise ValueError(len(kept))

    (state,) = states_of(fail)
    assert len(pickle.dumps(state)) < 300_000


def test_recording_stops_at_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("skyward.wire.failures.frames.clock", types.SimpleNamespace(monotonic=lambda: next(now)))

    def fail() -> None:
        first, second, third = "1", "2", "3"
        raise ValueError(first, second, third)

    (state,) = states_of(fail)
    assert state.variables["first"] == "1"
    assert repr(state.variables["third"]) == "<str on node 3>"


@pytest.mark.parametrize("how", ["object", "list", "counter", "frame"])
def test_endless_repr_does_not_block_recording(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("skyward.wire.failures.frames._SECONDS", 0.05)
    is_over = threading.Event()

    class Endless:
        w = 3

        def __repr__(self) -> str:
            try:
                while True:
                    pass
            finally:
                is_over.set()

    one = Endless()
    value = {"object": one, "list": [one] * 100, "counter": Counter([one]), "frame": pd.DataFrame({"a": [one]})}[how]
    assert re.fullmatch(r"<[\w.<>]+ on node 3>", repr(sent(value)))
    assert is_over.wait(10)
    assert repr(sent(Plain())).startswith("<tests.unit.wire.test_frames.Plain on node 3: <")


def test_interrupt_ends_recording() -> None:
    class Slow:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sent(Slow())


def test_code_is_sent_without_constants() -> None:
    secret = "a constant of the function"

    def fail(n: int) -> float:
        text = f"{n} a text of the function"
        return n / len(text[:0])

    (state,) = states_of(lambda: fail(1))[1:]
    code = state.code.load()
    assert code is not None
    assert (code.co_name, code.co_argcount, code.co_varnames) == ("fail", 1, ("n", "text"))
    assert set(code.co_consts) <= {None}
    assert code.co_code == fail.__code__.co_code
    assert secret not in str(state)


def test_source_of_library_is_sent_and_of_cell_is_not() -> None:
    namespace: dict[str, Any] = {"__name__": "cell", "json": json}
    exec(compile("def f():\n    return json.loads('{bad')", "<cell>", "exec"), namespace)
    own, library, *_ = states_of(namespace["f"], namespace)
    assert (own.is_users, own.code.lines) == (True, [])
    assert (library.is_users, library.module) == (False, "json")
    assert library.code.lines[0].startswith("def loads(s, *,")
    assert library.code.first_line == json.loads.__code__.co_firstlineno


def test_recursive_frames_share_one_code() -> None:
    def down(n: int) -> int:
        return down(n + 1)

    states = states_of(lambda: down(0))
    assert len(states) > 200
    assert len({id(state.code) for state in states if state.variables.get("n") is not None}) <= 2


def test_long_traceback_keeps_both_ends_and_reports_omission() -> None:
    def down(n: int) -> int:
        return down(n - 1) if n else 1 // n

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        down(2000)
    except ZeroDivisionError as error:
        failure = capture_failure(error, 3, recorder=FrameRecorder(globals(), 3, "<cell>"))
    finally:
        sys.setrecursionlimit(limit)
    (link,) = failure.chain
    assert len(link.frames) == 1200
    assert link.headline.endswith("802 frames in the middle of the traceback were omitted.")
    first, last = link.frames[1], link.frames[-1]
    assert first.state is not None
    assert last.state is not None
    assert (first.state.variables["n"], last.state.variables["n"]) == (2000, 0)


def test_failure_without_recorder_has_no_frame_state() -> None:
    try:
        json.loads("{bad")
    except ValueError as error:
        failure = capture_failure(error, 3)
    assert {frame.state for frame in failure.chain[-1].frames} == {None}
    assert len(pickle.dumps(failure)) < 2500


def test_failures_are_equal_regardless_of_variables() -> None:
    def fail(n: int) -> None:
        raise ValueError("same")

    found = []
    for n in range(2):
        try:
            fail(n)
        except ValueError as error:
            found.append(capture_failure(error, 3, recorder=FrameRecorder(globals(), 3, "<cell>")).chain)
    assert found[0] == found[1]
    assert len(set(found)) == 1


def test_first_failures_of_each_cell_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_failures", type(cells._failures)())
    found = [cells.recorder_for("run", {}, 0, "<cell>") is not None for _ in range(12)]
    assert found == [True] * 8 + [False] * 4
    assert cells.recorder_for("another", {}, 0, "<cell>") is not None
    for n in range(100):
        cells.recorder_for(f"run {n}", {}, 0, "<cell>")
    assert len(cells._failures) == 64
