"""Detection of streaming functions and of arguments that stream in."""

import collections.abc
import functools
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import pytest

import skyward
from skyward.functions.signature import is_generator, stream_arguments, stream_parameters

if TYPE_CHECKING:
    from somewhere import Row, Rows  # type: ignore[import-not-found]

pytestmark = pytest.mark.unit

type Numbers = Iterator[int]
type Many[T] = Iterator[T]
Short = Iterator


def numbers() -> Iterator[int]:
    yield 1


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


class Source:
    def __call__(self) -> Iterator[int]:
        yield 1

    def method(self, data: Iterator[int]) -> Iterator[int]:
        yield from data


class Unhashable(Source):
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "fn",
    [numbers, wrapped(numbers), functools.partial(numbers), Source(), Source().method, Unhashable()],
    ids=["plain", "wrapped", "partial", "callable", "method", "unhashable"],
)
def test_generators_are_recognized(fn: Callable[..., Any]) -> None:
    assert is_generator(fn)
    assert is_generator(fn)  # the second answer is remembered


def test_decorated_generator_is_recognized() -> None:
    assert is_generator(skyward.function(numbers).fn)


@pytest.mark.parametrize("fn", [len, lambda: [1], dict, wrapped(len)])
def test_other_functions_are_not_generators(fn: Callable[..., Any]) -> None:
    assert not is_generator(fn)
    assert stream_parameters(fn) == ()


def plain(data: Iterator[int], other: int) -> None: ...
def typing_alias(data: typing.Iterator[int]) -> None: ...
def bare(data: Iterator) -> None: ...  # type: ignore[type-arg]
def dotted(data: collections.abc.Iterator[int]) -> None: ...
def optional(data: Iterator[int] | None = None) -> None: ...
def old_optional(data: Optional[Iterator[int]] = None) -> None: ...  # noqa: UP045 - what is tested
def old_union(data: Union[Iterator[int], list[int]]) -> None: ...  # noqa: UP007 - what is tested
def annotated(data: Annotated[Iterator[int], "rows"]) -> None: ...
def alias(data: Numbers) -> None: ...
def generic_alias(data: Many[int]) -> None: ...
def renamed(data: Short[int]) -> None: ...
def generator(data: Generator[int]) -> None: ...
def text(data: "Iterator[int]") -> None: ...
def text_undefined_item(data: "Iterator[Row]") -> None: ...
def text_undefined(data: "collections.abc.Iterator[Row] | None", rows: "Rows") -> None: ...
def text_renamed(data: "Short[Row]") -> None: ...
def text_alias(data: "Numbers | None") -> None: ...
def text_annotated(data: "Annotated[Iterator[Row], 'rows']") -> None: ...
def text_in_text(data: "'Iterator[Row]' | None") -> None: ...
def text_union(data: "Iterator[Row] | None") -> None: ...
def forward(data: Optional["Iterator[Row]"] = None) -> None: ...
def keyword(*, data: Iterator[int]) -> None: ...


@pytest.mark.parametrize(
    "fn",
    [
        plain, typing_alias, bare, dotted, optional, old_optional, old_union, annotated, alias, generic_alias, renamed,
        generator, text, text_undefined_item, text_undefined, text_renamed, text_alias, text_annotated, text_in_text,
        text_union, forward, keyword, skyward.function(plain),
    ],
)  # fmt: skip
def test_iterator_parameter_is_a_stream(fn: Callable[..., Any]) -> None:
    assert stream_parameters(fn) == ("data",)


def no_iterable(data: Iterable[int]) -> None: ...
def no_list(data: list[Iterator[int]]) -> None: ...
def no_text(data: "list[Iterator[Row]]") -> None: ...
def no_annotation(data) -> None: ...  # type: ignore[no-untyped-def]
def no_number(data: "3") -> None: ...  # type: ignore[valid-type]
def no_attribute(data: "typing.Nothing[int]") -> None: ...  # type: ignore[name-defined]


@pytest.mark.parametrize("fn", [no_iterable, no_list, no_text, no_annotation, no_number, no_attribute, print])
def test_other_parameters_are_no_streams(fn: Callable[..., Any]) -> None:
    assert stream_parameters(fn) == ()


def test_annotation_with_names_of_an_enclosing_function_is_resolved() -> None:
    inner = Iterator

    def consume(data: "inner[int]") -> Any:  # type: ignore[valid-type]
        return inner

    assert stream_parameters(consume) == ("data",)


def several(
    first: Iterator[int], second: int, *more: Iterator[int], extra: Iterator[int] | None, **rest: Iterator[int]
) -> None: ...


def test_arguments_by_position_and_by_name() -> None:
    streams = stream_arguments(several, (iter([1]), 2, iter([3]), iter([4])), {"extra": iter([5]), "other": iter([6])})
    assert {place: list(stream) for place, stream in streams.items()} == {
        0: [1], 2: [3], 3: [4], "extra": [5], "other": [6]
    }  # fmt: skip


def test_argument_passed_by_name_is_a_stream() -> None:
    assert stream_arguments(plain, (), {"data": iter([1]), "other": 3}).keys() == {"data"}
    assert stream_arguments(plain, (), {"other": 3}) == {}


def test_list_streams_if_only_an_iterator_is_allowed() -> None:
    assert list(stream_arguments(plain, ([1, 2], 3), {})[0]) == [1, 2]
    assert stream_arguments(optional, ([1, 2],), {}) == {}
    assert stream_arguments(optional, (None,), {}) == {}
    assert stream_arguments(optional, (iter([1]),), {}).keys() == {0}
    assert stream_arguments(plain, (None, 3), {}) == {}


def test_positions_of_methods_and_partials_skip_bound_arguments() -> None:
    assert stream_arguments(Source().method, (iter([1]),), {}).keys() == {0}
    assert stream_arguments(functools.partial(several, iter([0])), (2, iter([3])), {}).keys() == {1}
