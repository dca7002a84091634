"""Detection of streaming functions and parameters, and local calls of functions of any kind."""

import ast
import collections.abc
import contextlib
import functools
import inspect
import sys
import typing
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeAliasType, Union
from weakref import WeakKeyDictionary

from skyward.errors import UsageError

__all__ = ["is_generator", "run_here", "stream_arguments", "stream_parameters"]

type Verdict = Literal["always", "maybe", "never"]
"""Answer to whether an annotation is an iterator; "maybe" if it allows other types too, as in `Iterator[T] | None`."""

_STREAMS = (collections.abc.Iterator, collections.abc.Generator)


@dataclass(frozen=True, slots=True)
class _StreamParameter:
    name: str
    kind: inspect._ParameterKind
    position: int
    verdict: Verdict


def _cached[T](compute: Callable[[Callable[..., Any]], T]) -> Callable[[Callable[..., Any]], T]:
    """Cache the results of `compute` for the lifetime of the function."""
    known: WeakKeyDictionary[Callable[..., Any], T] = WeakKeyDictionary()

    @functools.wraps(compute)
    def lookup(fn: Callable[..., Any]) -> T:
        try:
            return known[fn]
        except KeyError:
            return known.setdefault(fn, compute(fn))
        except TypeError:  # not hashable, or not weakly referenceable
            return compute(fn)

    return lookup


@_cached
def is_generator(fn: Callable[..., Any]) -> bool:
    """Return whether calls of `fn` stream: it, or the function it wraps, is a generator function, sync or async."""
    original = _original(fn)
    return inspect.isgeneratorfunction(original) or inspect.isasyncgenfunction(original)


def run_here(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call `fn` in this thread. A coroutine is run to its end, an asynchronous generator as it is read.

    Raises:
        UsageError: an event loop runs on this thread, so the call must be awaited instead.
    """
    value = fn(*args, **kwargs)
    if not isinstance(value, (collections.abc.Coroutine, collections.abc.AsyncGenerator)):
        return value
    import asyncio  # only for an `async def` function

    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        if isinstance(value, collections.abc.Coroutine):
            value.close()
        name, keyword = getattr(fn, "__name__", "fn"), "await" if inspect.iscoroutine(value) else "async for ... in"
        raise UsageError(
            f"An event loop runs on this thread, so write `{keyword} {name}.fn(...)` in place of `.local(...)`."
        )
    if not isinstance(value, collections.abc.Coroutine):
        return _read(value)
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(value)


def _read[T](elements: AsyncGenerator[T]) -> Iterator[T]:
    """Yield the elements of an asynchronous generator, on an event loop that runs only between elements."""
    import asyncio  # see `run_here`

    async def step() -> T:
        return await anext(elements)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            while True:
                try:
                    yield runner.run(step())
                except StopAsyncIteration:
                    return
        finally:
            runner.run(_close(elements))


async def _close(elements: AsyncGenerator[Any]) -> None:
    await elements.aclose()


def stream_parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters of `fn` that are annotated `Iterator[T]`, in order."""
    return tuple(parameter.name for parameter in _parameters(fn))


def stream_arguments(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[int | str, Iterator[Any]]:
    """Return the arguments of a call that stream in, by position in `args` or name in `kwargs`.

    A list passed for an `Iterator[T]` streams too. If the annotation allows other types, only iterators stream.
    """
    streams: dict[int | str, Iterator[Any]] = {}
    for parameter in _parameters(fn):
        kinds = Iterable if parameter.verdict == "always" else Iterator
        for place in _places(parameter, fn, len(args), kwargs):
            value = args[place] if isinstance(place, int) else kwargs[place]
            if isinstance(value, kinds):
                streams[place] = iter(value)
    return streams


def _places(
    parameter: _StreamParameter, fn: Callable[..., Any], count: int, kwargs: Mapping[str, Any]
) -> Iterable[int | str]:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            return range(parameter.position, count)
        case inspect.Parameter.VAR_KEYWORD:
            return kwargs.keys() - inspect.signature(fn).parameters.keys()
        case inspect.Parameter.KEYWORD_ONLY:
            return kwargs.keys() & {parameter.name}
        case _:
            return [parameter.position] if parameter.position < count else kwargs.keys() & {parameter.name}


@_cached
def _parameters(fn: Callable[..., Any]) -> tuple[_StreamParameter, ...]:
    try:
        signature = _signature(fn)
    except (TypeError, ValueError):  # a builtin without one
        return ()
    names = _namespace(_original(fn))
    found = [
        _StreamParameter(parameter.name, parameter.kind, position, _verdict(parameter.annotation, names))
        for position, parameter in enumerate(signature.parameters.values())
    ]
    return tuple(parameter for parameter in found if parameter.verdict != "never")


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # Python 3.14 evaluates annotations lazily; one undefined name must not lose the others.
        return inspect.signature(fn, annotation_format=Format.FORWARDREF)
    return inspect.signature(fn)


def _original(fn: Any) -> Any:
    """Return the function under decorators, partials, methods and callable instances."""
    while True:
        match fn:
            case functools.partial():
                fn = fn.func
            case _ if hasattr(fn, "__wrapped__"):
                fn = fn.__wrapped__
            case _ if inspect.ismethod(fn):
                fn = fn.__func__
            case _ if inspect.isroutine(fn) or isinstance(fn, type):
                return fn
            case _:
                return type(fn).__call__


def _namespace(fn: Any) -> dict[str, Any]:
    """Return the names that the annotations of `fn` may use, as far as they are defined."""
    names = dict(getattr(fn, "__globals__", {}))
    for name, cell in zip(
        getattr(getattr(fn, "__code__", None), "co_freevars", ()), getattr(fn, "__closure__", None) or (), strict=True
    ):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
    return names


def _verdict(annotation: Any, names: Mapping[str, Any]) -> Verdict:
    """Return whether `annotation` is an iterator. A string is parsed, not evaluated: its names may be undefined."""
    match annotation:
        case str():
            return _verdict_of_text(annotation, names)
        case ForwardRef():
            return _verdict_of_text(annotation.__forward_arg__, names)
        case TypeAliasType():
            return _verdict(annotation.__value__, names)
    origin = typing.get_origin(annotation)
    if isinstance(origin, TypeAliasType):
        return _verdict(origin.__value__, names)
    if origin is Annotated:
        return _verdict(typing.get_args(annotation)[0], names)
    if origin is Union or origin is UnionType:
        return _either([_verdict(option, names) for option in typing.get_args(annotation)])
    return "always" if annotation in _STREAMS or origin in _STREAMS else "never"


def _verdict_of_text(text: str, names: Mapping[str, Any]) -> Verdict:
    try:
        return _verdict_of_node(ast.parse(text.strip(), mode="eval").body, names)
    except SyntaxError:
        return "never"


def _verdict_of_node(node: ast.expr, names: Mapping[str, Any]) -> Verdict:
    match node:
        case ast.Constant(value=str() as text):
            return _verdict_of_text(text, names)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _either([_verdict_of_node(left, names), _verdict_of_node(right, names)])
        case ast.Subscript(value=base, slice=ast.Tuple(elts=[*inner])) | ast.Subscript(value=base, slice=inner):
            options = inner if isinstance(inner, list) else [inner]
            match ast.unparse(base).rpartition(".")[2]:
                case "Annotated":
                    return _verdict_of_node(options[0], names)
                case "Optional":
                    return _either([_verdict_of_node(options[0], names), "never"])
                case "Union":
                    return _either([_verdict_of_node(option, names) for option in options])
            return _verdict_of_node(base, names)
        case ast.Name() | ast.Attribute():
            return _verdict_of_name(ast.unparse(node), names)
    return "never"


def _verdict_of_name(dotted: str, names: Mapping[str, Any]) -> Verdict:
    first, *rest = dotted.split(".")
    if first not in names:
        return "always" if dotted.rpartition(".")[2] in ("Iterator", "Generator") else "never"
    try:
        value = functools.reduce(getattr, rest, names[first])
    except AttributeError:
        return "never"
    return "never" if isinstance(value, str) else _verdict(value, names)


def _either(verdicts: list[Verdict]) -> Verdict:
    if all(verdict == "always" for verdict in verdicts):
        return "always"
    return "never" if all(verdict == "never" for verdict in verdicts) else "maybe"
