"""Exceptions on their way home: of their own type where they can be, with a traceback whatever they are."""

import linecache
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.errors import RemoteError, RemoteTraceback
from skyward.wire.failure import Failure, capture_failure
from skyward.wire.payload import decode, encode_result

pytestmark = pytest.mark.unit


def failed(call: Callable[[], object], node: int | None = 2) -> Failure:
    """The failure of `call`, as it arrives."""
    try:
        call()
    except BaseException as error:
        data, views = encode_result(capture_failure(error, node))
        found = pickle.loads(data, buffers=views)
        assert isinstance(found, Failure)
        return found
    raise AssertionError("it did not fail")


def rebuilt(error: BaseException) -> BaseException:
    def fail() -> None:
        raise error

    return failed(fail).rebuild()


class Plain(Exception):
    pass


class WithArguments(Exception):
    """Pickles, but cannot be made again: its arguments are not those of `__init__`."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code}: {why}")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Sealed(Exception):
    """Lets nothing be set, as a frozen dataclass does."""

    def __setattr__(self, *_: object) -> None:
        raise AttributeError("sealed")


class Holding(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@given(st.text(), st.integers())
def test_an_exception_keeps_its_type_and_arguments(text: str, number: int) -> None:
    for kind in (ValueError, KeyError, OSError, Plain, KeyboardInterrupt):
        found = rebuilt(kind(text, number))
        assert type(found) is kind
        assert found.args == (text, number)


def test_what_else_it_holds_and_its_notes_come_too() -> None:
    error = Plain("x")
    error.add_note("look there")
    error.__dict__["extra"] = [1, 2]
    found = rebuilt(error)
    assert found.__notes__ == ["look there"]
    assert vars(found)["extra"] == [1, 2]
    assert "Plain: x\nlook there" in str(found.__cause__)


def test_a_group_keeps_its_parts() -> None:
    found = rebuilt(ExceptionGroup("both", [ValueError(1), ExceptionGroup("inner", [Plain(2)])]))
    assert isinstance(found, ExceptionGroup)
    assert found.subgroup(Plain) is not None
    assert len(found.exceptions) == 2


@pytest.mark.parametrize(
    ("error", "text"),
    [(Holding("held"), "Holding: held"), (WithArguments(3, why="so"), "WithArguments: 3: so")],
    ids=["does not pickle", "does not unpickle"],
)
def test_one_that_cannot_travel_is_a_remote_error_that_names_it(error: Exception, text: str) -> None:
    found = rebuilt(error)
    assert isinstance(found, RemoteError)
    assert found.type_name == f"{__name__}.{type(error).__name__}"
    assert str(found) == f"{__name__}.{text}"
    assert text in str(found.__cause__)


def test_one_whose_text_cannot_be_made_arrives_nevertheless() -> None:
    found = rebuilt(Unprintable("x"))
    assert type(found) is Unprintable
    assert "Unprintable: <exception str() failed>" in str(found.__cause__)


def test_one_that_lets_nothing_be_set_arrives_nevertheless() -> None:
    found = rebuilt(Sealed(3))
    assert (type(found), found.args) == (Sealed, (3,))
    assert isinstance(found.__cause__, RemoteTraceback)


# Tracebacks.


def test_the_traceback_names_node_file_line_and_source() -> None:
    def inner() -> None:
        raise Plain("deep")  # here

    def outer() -> None:
        inner()

    found = failed(outer)
    lines = Path(__file__).read_text().splitlines()
    number = next(index for index, line in enumerate(lines, 1) if line.endswith('Plain("deep")  # here'))
    text = found.render()
    assert str(found.rebuild().__cause__).strip() == text
    assert text.startswith("Traceback (most recent call last on node 2):\n")
    assert f'File "{__file__}", line {number}, in inner\n    raise Plain("deep")  # here\n' in text
    assert text.endswith(f"{__name__}.Plain: deep")
    assert [frame.function for frame in found.chain[-1].frames][-2:] == ["outer", "inner"]


def test_source_that_only_the_client_has_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(compile("def cell():\n    return 1 / 0\n", "<cell 1>", "exec"), names)
    found = failed(names["cell"])
    assert "return 1 / 0" not in found.render()
    source = "def cell():\n    return 1 / 0\n"
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(source), None, source.splitlines(True), "<cell 1>"))
    assert 'File "<cell 1>", line 2, in cell\n    return 1 / 0\n' in found.render()


def test_source_that_only_the_node_has_travels_along(tmp_path: Path) -> None:
    file = tmp_path / "on_node.py"
    file.write_text("def run():\n    raise ValueError('there')\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    found = failed(names["run"])
    file.unlink()
    linecache.checkcache(str(file))
    assert "    raise ValueError('there')\n" in found.render()


def test_what_led_to_it_is_told_oldest_first() -> None:
    def fail() -> None:
        try:
            try:
                raise LookupError("first")
            except LookupError as error:
                raise ValueError("second") from error
        except ValueError:
            raise TypeError("third")  # noqa: B904  # the point is how it looks without `from`

    text = failed(fail).render()
    assert text.index("LookupError: first") < text.index("direct cause") < text.index("ValueError: second")
    assert text.index("ValueError: second") < text.index("During handling") < text.index("TypeError: third")
    assert text.count("Traceback (most recent call last on node 2)") == 3


def test_what_was_suppressed_is_not_told() -> None:
    def fail() -> None:
        try:
            raise LookupError("first")
        except LookupError:
            raise ValueError("second") from None

    assert [link.headline for link in failed(fail).chain] == ["ValueError: second"]


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert [link.headline for link in capture_failure(one).chain] == ["ValueError: other", "ValueError: one"]


def test_frames_of_the_worker_itself_are_left_out() -> None:
    def fail() -> None:
        decode(None, None)  # type: ignore[arg-type]  # it fails in a frame of skyward/wire/

    frames = failed(fail).chain[-1].frames
    assert frames[-1].function == "fail"
    assert all("skyward/wire/" not in frame.filename for frame in frames)


def test_a_deep_recursion_keeps_its_last_frames() -> None:
    def dive(depth: int) -> int:
        return dive(depth - 1) if depth else 1 // 0

    found = failed(lambda: dive(500))
    assert len(found.chain[-1].frames) == 200
    assert found.render().endswith("ZeroDivisionError: integer division or modulo by zero")


def test_without_a_node_none_is_named() -> None:
    assert failed(lambda: 1 // 0, None).render().startswith("Traceback (most recent call last):\n")
