"""Rules for which nodes a function prints from. The node applies them, per task."""

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from skyward.errors import NotOnNodeError, SpecError
from skyward.functions.decorator import SkyFunction
from skyward.task.instance import InstanceInfo, instance_info
from skyward.task.variables import TaskVar

__all__ = ["Only", "OutputRule", "muted", "silent", "stderr", "stdout"]

type Only = Literal["head"] | Callable[[InstanceInfo], bool]
"""The nodes that print: the head node, or those for which the predicate is true."""

muted: TaskVar[frozenset[str]] = TaskVar("skyward_muted", default=frozenset())
"""The streams ("stdout", "stderr") that the running task does not write to. The worker's streams read it."""


@dataclass(frozen=True, slots=True)
class OutputRule:
    """Decorator of `sky.stdout` and `sky.stderr`: functions write to `streams` only on the nodes of `only`.

    Attributes:
        streams: "stdout", "stderr" or both.
        only: "head", or a predicate of the node's `InstanceInfo`; None for no node.

    Example:
        >>> on_head: sky.OutputRule = sky.stdout(only="head")
        >>> quiet = on_head(train)
    """

    streams: frozenset[str]
    only: Only | None

    def __call__[F: Callable[..., Any]](self, fn: F) -> F:
        if isinstance(fn, SkyFunction):
            return fn.filtered(functools.partial(_filtered, self))  # type: ignore[return-value]  # F is a SkyFunction
        if not callable(fn):
            name = "silent" if self.only is None else next(iter(self.streams))
            raise SpecError(f"`sky.{name}` decorates a function, but got {fn!r}.")
        filtered: F = _filtered(self, fn)
        return filtered

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the rule to the running task inside the context. Off a node, nothing is muted."""
        token = muted.set(muted.get() | self.streams) if self._mutes() else None
        try:
            yield
        finally:
            if token is not None:
                muted.reset(token)

    def _mutes(self) -> bool:
        if self.only is None:
            return True
        try:
            info = instance_info()
        except NotOnNodeError:
            return False
        return not (info.is_head if self.only == "head" else self.only(info))


def stdout(*, only: Only) -> OutputRule:
    """Return a decorator that lets a function print to stdout only on the nodes of `only`.

    On other nodes, its stdout is discarded. It may stand above or below `@sky.function`.

    Args:
        only: "head", or a predicate of the node's `InstanceInfo`.

    Raises:
        SpecError: `only` is neither.

    Example:
        @sky.stdout(only="head")
        @sky.function
        def train() -> None:
            print("printed once per broadcast")
    """
    return OutputRule(frozenset({"stdout"}), _checked(only, "stdout"))


def stderr(*, only: Only) -> OutputRule:
    """Return a decorator like `stdout`, for stderr.

    Example:
        @sky.stderr(only=lambda info: info.node < 2)
        @sky.function
        def train() -> None: ...
    """
    return OutputRule(frozenset({"stderr"}), _checked(only, "stderr"))


def silent[F: Callable[..., Any]](fn: F) -> F:
    """Decorate a function so that it prints nothing on any node. It may stand above or below `@sky.function`.

    Example:
        @sky.silent
        @sky.function
        def train() -> None: ...
    """
    return OutputRule(frozenset({"stdout", "stderr"}), None)(fn)


def _checked(only: Only, name: str) -> Only:
    if only != "head" and not callable(only):
        raise SpecError(
            f'`sky.{name}(only=...)` takes "head" or a function from InstanceInfo to bool, but got {only!r}.'
        )
    return only


# The wrappers use only functions of this module as globals: functions are pickled by name; a context variable cannot be
# pickled at all.


def _filtered(rule: OutputRule, fn: Callable[..., Any]) -> Any:
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def stream(*args: Any, **kwargs: Any) -> Any:
            return (yield from _stepped(rule, fn(*args, **kwargs)))

        return stream

    if inspect.isasyncgenfunction(fn):

        @functools.wraps(fn)
        async def async_stream(*args: Any, **kwargs: Any) -> Any:
            async with contextlib.aclosing(_stepped_async(rule, fn(*args, **kwargs))) as items:
                async for item in items:
                    yield item

        return async_stream

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def async_call(*args: Any, **kwargs: Any) -> Any:
            return await _awaited(rule, fn(*args, **kwargs))

        return async_call

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _called(rule, fn, args, kwargs)

    return call


def _called(rule: OutputRule, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with rule.applied():
        return fn(*args, **kwargs)


async def _awaited(rule: OutputRule, coroutine: Coroutine[Any, Any, Any]) -> Any:
    with rule.applied():
        return await coroutine


async def _stepped_async(rule: OutputRule, stream: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """Run `stream` with the rule applied while it runs and lifted while it is suspended at a `yield`."""
    try:
        while True:
            with rule.applied():
                try:
                    item = await anext(stream)
                except StopAsyncIteration:
                    return
            yield item
    finally:
        with rule.applied():
            await stream.aclose()


def _stepped(rule: OutputRule, stream: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run `stream` with the rule applied while it runs and lifted while it is suspended at a `yield`."""
    step: Callable[[], Any] = functools.partial(next, stream)
    while True:
        with rule.applied():
            try:
                item = step()
            except StopIteration as end:
                return end.value
        try:
            sent = yield item
        except GeneratorExit:
            with rule.applied():
                stream.close()
            raise
        except BaseException as error:
            step = functools.partial(stream.throw, error)
        else:
            step = functools.partial(stream.send, sent)
