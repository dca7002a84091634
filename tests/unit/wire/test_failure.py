"""Exceptions sent to the client: with their own type where possible, and always with a traceback."""

import linecache
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.errors import RemoteError, RemoteTraceback
from skyward.wire.failures.failure import Failure, capture_failure
from skyward.wire.kinds.exceptions import copy_exception
from skyward.wire.payloads.payload import decode, encode_result

pytestmark = pytest.mark.unit


def failed(call: Callable[[], object], node: int | None = 2) -> Failure:
    """Return the failure of `call` after a round trip."""
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
    """Exception whose arguments are not those of `__init__`."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code, self.why = code, why


class KeywordsOnly(Exception):
    def __init__(self, *, code: int) -> None:
        self.code = code


def KeywordsOnlyOf(code: int) -> KeywordsOnly:  # named as the class it replaces
    return KeywordsOnly(code=code)


class Slotted(Exception):
    __slots__ = ("code", "empty")

    def __init__(self, code: int) -> None:
        super().__init__("slotted")
        self.code = code


class OwnOSError(OSError):
    def __init__(self, place: str) -> None:
        super().__init__(2, "gone", "file")
        self.place = place


class OwnImportError(ImportError):
    def __init__(self, module: str) -> None:
        super().__init__(f"no {module}", name=module)


@dataclass
class Record(Exception):
    code: int
    detail: str


class Reduced(Exception):
    def __init__(self, number: int, way: str = "made") -> None:
        self.number, self.way = number, way

    def __reduce__(self) -> Any:
        return Reduced, (self.number, "reduced")


class BadReduce(Exception):
    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        raise RuntimeError("no")


class BadRebuild(Exception):
    def __reduce__(self) -> Any:
        return int, ("not a number",)


class OwnGroup(ExceptionGroup[Exception]):
    number: int

    def __new__(cls, errors: list[Exception], number: int) -> "OwnGroup":
        group = super().__new__(cls, "own", errors)
        group.number = number
        return group

    def __init__(self, errors: list[Exception], number: int) -> None:
        super().__init__("own", errors)


def groups(members: st.SearchStrategy[Exception]) -> st.SearchStrategy[Exception]:
    return st.builds(ExceptionGroup, st.text(), st.lists(members, min_size=1, max_size=3))


def shape(error: BaseException) -> Any:
    if isinstance(error, BaseExceptionGroup):
        return error.message, [shape(each) for each in error.exceptions]
    return type(error), error.args, {name: value for name, value in vars(error).items() if name != "__notes__"}


def raise_(error: BaseException) -> None:
    raise error


def captured(call: Callable[[], object]) -> Failure:
    try:
        call()
    except BaseException as error:
        return capture_failure(error, 2)
    raise AssertionError("it did not fail")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Sealed(Exception):
    """Exception that refuses every assignment, as a frozen dataclass does."""

    def __setattr__(self, *_: object) -> None:
        raise AttributeError("sealed")


class Holding(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@given(st.text(), st.integers())
def test_exception_keeps_type_and_arguments(text: str, number: int) -> None:
    for kind in (ValueError, KeyError, OSError, Plain, KeyboardInterrupt):
        found = rebuilt(kind(text, number))
        assert type(found) is kind
        assert found.args == (text, number)


def test_exception_keeps_attributes_and_notes() -> None:
    error = Plain("x")
    error.add_note("look there")
    error.__dict__["extra"] = [1, 2]
    found = rebuilt(error)
    assert found.__notes__ == ["look there"]
    assert vars(found)["extra"] == [1, 2]
    assert "Plain: x\nlook there" in str(found.__cause__)


def test_group_keeps_its_members() -> None:
    found = rebuilt(ExceptionGroup("both", [ValueError(1), ExceptionGroup("inner", [Plain(2)])]))
    assert isinstance(found, ExceptionGroup)
    assert found.subgroup(Plain) is not None
    assert len(found.exceptions) == 2


def test_exception_with_custom_init_keeps_its_attributes() -> None:
    found = rebuilt(WithArguments(3, why="so"))
    assert isinstance(found, WithArguments)
    assert (found.code, found.why, found.args, str(found)) == (3, "so", ("3: so",), "3: so")


def test_exception_with_keyword_only_init_is_rebuilt() -> None:
    found = rebuilt(KeywordsOnly(code=4))
    assert isinstance(found, KeywordsOnly)
    assert (found.code, found.args) == (4, ())


def test_exception_keeps_its_slots() -> None:
    found = rebuilt(Slotted(5))
    assert isinstance(found, Slotted)
    assert (found.code, hasattr(found, "empty")) == (5, False)


def test_os_error_with_custom_init_keeps_builtin_fields() -> None:
    found = rebuilt(OwnOSError("here"))
    assert isinstance(found, OwnOSError)
    assert (found.errno, found.strerror, found.filename, found.place) == (2, "gone", "file", "here")
    module = rebuilt(OwnImportError("numpy"))
    assert isinstance(module, OwnImportError)
    assert (module.name, module.msg) == ("numpy", "no numpy")


def test_dataclass_exception_is_rebuilt() -> None:
    found = rebuilt(Record(1, detail="x"))
    assert isinstance(found, Record)
    assert (found.code, found.detail) == (1, "x")


def test_custom_reduce_is_respected() -> None:
    found = rebuilt(Reduced(3))
    assert isinstance(found, Reduced)
    assert (found.number, found.way) == (3, "reduced")


def test_exception_with_failing_reduce_is_still_sent() -> None:
    found = rebuilt(BadReduce(3))
    assert isinstance(found, BadReduce)
    assert found.number == 3


@pytest.mark.parametrize("kind", [OSError, Plain])
def test_unpicklable_parts_are_dropped_with_a_note(kind: type[Exception]) -> None:
    error = kind("broken", threading.Lock())
    vars(error).update(number=3, lock=threading.Lock())
    error.add_note("first")
    found: Any = rebuilt(error)
    assert type(found) is kind
    assert (found.args[0], vars(found)["number"], hasattr(found, "lock")) == ("broken", 3, False)
    assert found.args[1].startswith("<unlocked _thread.lock")
    note = "Not sent from the node, because it cannot be pickled: args[1], lock."
    assert found.__notes__ == ["first", note]


def test_exception_of_unknown_class_becomes_remote_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_there")
    exec("class OnlyThere(Exception):\n    pass", vars(module))
    monkeypatch.setitem(sys.modules, "only_there", module)
    failure = captured(lambda: raise_(module.OnlyThere("x")))
    monkeypatch.delitem(sys.modules, "only_there")
    found = failure.rebuild()
    assert isinstance(found, RemoteError)
    assert (found.type_name, str(found)) == ("only_there.OnlyThere", "only_there.OnlyThere: x")


def test_exception_that_fails_to_unpickle_becomes_remote_error() -> None:
    found = rebuilt(BadRebuild("x"))
    assert isinstance(found, RemoteError)
    assert found.type_name == f"{__name__}.BadRebuild"


def test_group_members_keep_their_own_tracebacks() -> None:
    inner = ExceptionGroup("inner", [KeywordsOnly(code=2), Holding("held")])
    found = rebuilt(ExceptionGroup("outer", [WithArguments(1, why="a"), inner]))
    assert isinstance(found, ExceptionGroup)
    first, second = found.exceptions
    assert isinstance(first, WithArguments)
    assert isinstance(second, ExceptionGroup)
    assert [type(each) for each in second.exceptions] == [KeywordsOnly, Holding]
    assert isinstance(first.__cause__, RemoteTraceback)
    assert "on node 2" in str(first.__cause__)


def test_group_subclass_is_kept() -> None:
    found = rebuilt(OwnGroup([KeyError(1)], 7))
    assert isinstance(found, OwnGroup)
    assert (found.number, found.message, found.exceptions[0].args) == (7, "own", (1,))


def test_base_group_with_unpicklable_member_contains_remote_error() -> None:
    class Local(BaseException):
        def __reduce__(self) -> Any:
            return int, ("x",)

    found = rebuilt(BaseExceptionGroup("base", [Local()]))
    assert type(found) is ExceptionGroup
    assert isinstance(found.exceptions[0], RemoteError)


def test_cause_arrives_as_context() -> None:
    def fail() -> None:
        try:
            try:
                raise KeywordsOnly(code=1)
            except KeywordsOnly as error:
                raise KeyError("second") from error
        except KeyError:
            raise WithArguments(3, why="third")  # noqa: B904  # an implicit context is the point

    found = failed(fail).rebuild()
    assert isinstance(found, WithArguments)
    assert isinstance(found.__cause__, RemoteTraceback)
    second = found.__context__
    assert isinstance(second, KeyError)
    assert isinstance(second.__cause__, KeywordsOnly)
    assert second.__cause__.code == 1


def test_long_chain_keeps_most_recent_exceptions() -> None:
    error: BaseException | None = None
    for number in range(5000):
        new = KeyError(number)
        new.__cause__ = error
        error = new
    assert error is not None
    chain = capture_failure(error).chain
    assert [chain[0].relation, chain[0].message, chain[-1].message] == ["", "4900", "4999"]
    found = Failure(chain).rebuild()
    assert isinstance(found.__context__, KeyError)


@given(st.recursive(st.builds(Plain, st.integers()) | st.builds(KeywordsOnlyOf, st.integers()), groups, max_leaves=8))
def test_nested_groups_keep_their_shape(error: Exception) -> None:
    assert shape(rebuilt(error)) == shape(error)


def test_exception_with_failing_str_is_still_sent() -> None:
    found = rebuilt(Unprintable("x"))
    assert type(found) is Unprintable
    assert "Unprintable: <exception str() failed>" in str(found.__cause__)


def test_immutable_exception_is_still_sent() -> None:
    found = rebuilt(Sealed(3))
    assert (type(found), found.args) == (Sealed, (3,))
    assert isinstance(found.__cause__, RemoteTraceback)


# Tracebacks.


def test_traceback_has_node_file_line_and_source() -> None:
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


def test_client_adds_source_that_only_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    exec(compile("def cell():\n    return 1 / 0\n", "<cell 1>", "exec"), names)
    found = failed(names["cell"])
    assert "return 1 / 0" not in found.render()
    source = "def cell():\n    return 1 / 0\n"
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(source), None, source.splitlines(True), "<cell 1>"))
    assert 'File "<cell 1>", line 2, in cell\n    return 1 / 0\n' in found.render()


def test_node_sends_source_that_only_it_has(tmp_path: Path) -> None:
    file = tmp_path / "on_node.py"
    file.write_text("def run():\n    raise ValueError('there')\n")
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    found = failed(names["run"])
    file.unlink()
    linecache.checkcache(str(file))
    assert "    raise ValueError('there')\n" in found.render()


def test_traceback_shows_chain_oldest_first() -> None:
    def fail() -> None:
        try:
            try:
                raise LookupError("first")
            except LookupError as error:
                raise ValueError("second") from error
        except ValueError:
            raise TypeError("third")  # noqa: B904  # an implicit context is the point

    text = failed(fail).render()
    assert text.index("LookupError: first") < text.index("direct cause") < text.index("ValueError: second")
    assert text.index("ValueError: second") < text.index("During handling") < text.index("TypeError: third")
    assert text.count("Traceback (most recent call last on node 2)") == 3


def test_traceback_omits_suppressed_context() -> None:
    def fail() -> None:
        try:
            raise LookupError("first")
        except LookupError:
            raise ValueError("second") from None

    assert [link.headline for link in failed(fail).chain] == ["ValueError: second"]


def test_cyclic_chain_terminates() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert [link.headline for link in capture_failure(one).chain] == ["ValueError: other", "ValueError: one"]


def test_worker_frames_are_omitted() -> None:
    def fail() -> None:
        decode(None, None)  # type: ignore[arg-type]  # it fails in a frame of skyward/wire/

    frames = failed(fail).chain[-1].frames
    assert frames[-1].function == "fail"
    assert all("skyward/wire/" not in frame.filename for frame in frames)


def test_deep_recursion_keeps_its_last_frames() -> None:
    def dive(depth: int) -> int:
        return dive(depth - 1) if depth else 1 // 0

    found = failed(lambda: dive(500))
    assert len(found.chain[-1].frames) == 200
    assert found.render().endswith("ZeroDivisionError: integer division or modulo by zero")


def test_traceback_without_node_names_none() -> None:
    assert failed(lambda: 1 // 0, None).render().startswith("Traceback (most recent call last):\n")


@pytest.mark.parametrize(
    "error",
    [
        WithArguments(3, why="disk"),
        KeywordsOnly(code=4),
        OSError(2, "missing", "a file"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        ExceptionGroup("both", [ValueError(1), KeyError(2)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exception_copy_is_equal_with_separate_notes(error: Exception) -> None:
    error.__cause__ = RemoteTraceback("there")
    error.add_note("first")
    copy = copy_exception(error)
    copy.add_note("second")
    assert type(copy) is type(error)
    assert copy is not error
    assert (copy.args, str(copy), copy.__cause__) == (error.args, str(error), error.__cause__)
    assert (error.__notes__, copy.__notes__) == (["first"], ["first", "second"])
    assert {**vars(copy), "__notes__": 0} == {**vars(error), "__notes__": 0}
    assert copy.__traceback__ is None
