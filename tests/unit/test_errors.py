"""Exceptions of a broadcast: a single error unchanged, several as a group of their common type."""

import copy
import pickle
import traceback
from typing import Any

import cloudpickle
import pytest

import skyward as sky
from skyward.errors import error_of_nodes

pytestmark = pytest.mark.unit


class CodeError(Exception):
    """Error that cannot be rebuilt from its arguments."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"code {self.code}: {self.detail}"


class SlottedError(Exception):
    __slots__ = ("code",)


class CountedError(Exception):
    """Error with `__init_subclass__`."""

    kinds: list[type] = []  # noqa: RUF012  # shared on purpose

    def __init_subclass__(cls) -> None:
        CountedError.kinds.append(cls)


def of(*errors: BaseException, nodes: int = 3) -> Any:
    return error_of_nodes("train", list(enumerate(errors)), nodes)


def test_single_error_is_raised_unchanged() -> None:
    error = ValueError("bad")
    assert of(error) is error
    assert error.__notes__ == ["It failed on node 0, of 3 nodes."]
    alone = ValueError("bad")
    assert of(alone, nodes=1) is alone
    assert not hasattr(alone, "__notes__")


def test_errors_of_one_type_are_caught_as_that_type_and_as_a_group() -> None:
    errors = ValueError("first"), ValueError("second")
    group = of(*errors)
    assert isinstance(group, ValueError)
    assert isinstance(group, ExceptionGroup)
    assert isinstance(group, sky.NodeErrors)
    assert (group.exceptions, group.nodes) == (errors, (0, 1))
    assert group.args == ("first",)
    assert (str(group), group.message) == ("first", "first")
    assert type(group).__name__ == "ValueError"
    seen: list[Exception] = []
    try:
        raise group
    except* ValueError as caught:
        seen += caught.exceptions
    assert tuple(seen) == errors


def test_traceback_shows_every_error() -> None:
    shown = "".join(traceback.format_exception(of(ValueError("first"), ValueError("second"))))
    assert "ValueError: first" in shown
    assert "ValueError: second" in shown
    assert "It failed on nodes 0 and 1, of 3 nodes." in shown


def test_group_has_the_attributes_of_the_first_error() -> None:
    group = of(CodeError(3, detail="disk"), CodeError(4, detail="net"))
    assert isinstance(group, CodeError)
    assert (group.code, group.detail, str(group)) == (3, "disk", "code 3: disk")


def test_group_has_the_closest_common_type() -> None:
    group = of(UnboundLocalError("a"), RuntimeError("b"))
    assert type(group) is sky.NodeErrors, "what all exceptions have in common says nothing"
    nested = of(NotImplementedError("a"), RecursionError("b"))
    assert isinstance(nested, RuntimeError)
    assert not isinstance(nested, NotImplementedError)


def test_except_star_separates_errors_of_different_types() -> None:
    seen: list[str] = []
    with pytest.raises(ExceptionGroup) as rest:
        try:
            raise of(ValueError("v"), KeyError("k"), TypeError("t"))
        except* KeyError as caught:
            seen += [str(error) for error in caught.exceptions]
        except* TypeError as caught:
            seen += [str(error) for error in caught.exceptions]
    assert seen == ["'k'", "t"]
    assert [str(error) for error in rest.value.exceptions] == ["v"]


@pytest.mark.parametrize(
    "errors",
    [
        (FileNotFoundError(2, "here"), FileNotFoundError(2, "there")),
        (sky.TaskTimeoutError("late"), sky.TaskTimeoutError("later")),
        (SlottedError(1), SlottedError(2)),
        (CountedError(1), CountedError(2)),
    ],
    ids=lambda errors: type(errors[0]).__name__,
)
def test_first_error_is_raised_with_all_errors_if_no_group_type_is_possible(
    errors: tuple[Exception, ...],
) -> None:
    raised = of(*errors)
    assert id(raised) == id(errors[0])
    assert (raised.exceptions, raised.nodes) == (errors, (0, 1))
    assert raised.__notes__ == ["It failed on nodes 0 and 1, of 3 nodes."]
    assert not CountedError.kinds


def test_exception_groups_raised_by_functions_become_members() -> None:
    errors = ExceptionGroup("own", [ValueError(1)]), ExceptionGroup("own", [ValueError(2)])
    group = of(*errors)
    assert type(group) is sky.NodeErrors
    assert group.exceptions == errors


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
@pytest.mark.parametrize("second", [ValueError("b"), KeyError("b")])
def test_group_can_be_pickled_and_copied(dumps: Any, second: Exception) -> None:
    group = of(ValueError("a"), second)
    for again in (pickle.loads(dumps(group)), copy.copy(group)):
        assert isinstance(again, ValueError) == isinstance(group, ValueError)
        assert (again.nodes, again.__notes__, str(again)) == (group.nodes, group.__notes__, str(group))
        assert [repr(error) for error in again.exceptions] == [repr(error) for error in group.exceptions]


@pytest.mark.parametrize("kind", [sky.TaskError, sky.TaskTimeoutError, sky.TaskCancelledError, sky.KeptLostError])
def test_task_error_keeps_its_subject_and_fix_when_it_is_pickled(kind: type[sky.TaskError]) -> None:
    error = kind("was lost.", subject="train()", fix="Rerun it.")
    again = pickle.loads(pickle.dumps(error))
    for each in (error, again):
        assert (type(each), str(each), each.subject, each.fix) == (
            kind,
            "train() was lost. Rerun it.",
            "train()",
            "Rerun it.",
        )
    assert (kind().args, kind("plain").args, kind("plain").subject) == ((), ("plain",), "")
