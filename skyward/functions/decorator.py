"""`@sky.function`: functions whose calls are values, sent to a pool with an operator."""

import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, Self, TypedDict, Unpack, overload

from skyward.errors import OperatorError, SpecError
from skyward.functions.pending import PendingFunction, PendingFunctionGroup, Unknown, check_timeout, gang, gather
from skyward.functions.signature import is_generator, run_here, stream_arguments, stream_parameters
from skyward.functions.target import CurrentPool, Destination, RightSide, Target, current_pool, sky
from skyward.specs.retries import NO_RETRIES, Retries, RetryOn
from skyward.values.needs import NOTHING, Needs, Resources

__all__ = [
    "CurrentPool",
    "Destination",
    "PendingFunction",
    "PendingFunctionGroup",
    "RightSide",
    "SkyFunction",
    "Target",
    "current_pool",
    "find_decorated",
    "function",
    "gang",
    "gather",
    "is_generator",
    "main",
    "sky",
    "stream_arguments",
    "stream_parameters",
]


class SkyFunction[**P, T]:
    """Function decorated with `@sky.function`. A call runs nothing and returns a `PendingFunction`.

    Attributes:
        fn: the undecorated function.
        timeout: seconds that each call may run, or None for the pool's default.
        needs: resources and capabilities that each call requires of its node.
        retries: retry policy for exceptions that a call raises.

    Example:
        >>> call = train(0.1)  # nothing runs yet
        >>> train.local(0.1)   # runs here, like the undecorated function
    """

    __sky_function__ = True
    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, T]

    def __init__(
        self,
        fn: Callable[P, T],
        timeout: float | None = None,
        needs: Needs = NOTHING,
        retries: Retries = NO_RETRIES,
        bound: tuple[Any, ...] = (),
    ) -> None:
        functools.update_wrapper(self, fn)
        if not hasattr(fn, "__name__"):  # a partial, or an instance with __call__
            self.__name__ = self.__qualname__ = type(fn).__name__
        self.fn = fn
        self.timeout = timeout
        self.needs = needs
        self.retries = retries
        self._bound = bound

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> PendingFunction[T]:
        """Return the call, without running it."""
        return PendingFunction(self.fn, (*self._bound, *args), kwargs, self.timeout, self.needs, self.retries)

    def local(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function in this thread and return its result; an `async def` function runs on a new event loop.

        Raises:
            UsageError: an event loop runs on this thread already.
        """
        result: T = run_here(self.fn, (*self._bound, *args), kwargs)
        return result

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__[S, **Q, R](
        self: "SkyFunction[Concatenate[S, Q], R]", instance: S, owner: type[Any] | None = None
    ) -> "SkyFunction[Q, R]": ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """Return the function bound to `instance`, which is sent as the first argument of its calls."""
        return self if instance is None else self._with(self.fn, (*self._bound, instance))

    def filtered(self, change: Callable[[Callable[..., Any]], Any]) -> "SkyFunction[P, T]":
        """Return a `SkyFunction` with the same settings for `change(fn)`."""
        return self._with(change(self.fn), self._bound)

    def _with(self, fn: Callable[..., Any], bound: tuple[Any, ...]) -> "SkyFunction[P, T]":
        return SkyFunction(fn, self.timeout, self.needs, self.retries, bound)

    @property
    def __signature__(self) -> inspect.Signature:
        fn = self.fn
        for instance in self._bound:
            fn = MethodType(fn, instance)
        return inspect.signature(fn)

    def __repr__(self) -> str:
        return f"<sky.function {self.__qualname__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        # By name if the name resolves to this object, as for any function; by value if registered so with cloudpickle.
        if find_decorated(self.fn) is self and not _travels_by_value(self.__module__):
            return self.__qualname__
        return super().__reduce_ex__(protocol)

    if not TYPE_CHECKING:  # hidden from type checkers, which then flag uses
        __array_ufunc__ = None

        def __rshift__(self, right: object) -> NoReturn:
            raise _not_called(self, f"`{self.__name__}(...) >> pool`")

        def __gt__(self, right: object) -> NoReturn:
            raise _not_called(self, f"`{self.__name__}(...) > pool`")

        def __matmul__(self, right: object) -> NoReturn:
            raise _not_called(self, f"`{self.__name__}(...) @ pool`")

        def __and__(self, right: object) -> NoReturn:
            raise _not_called(self, f"`{self.__name__}(...) & ...`")

        __rrshift__ = __rshift__
        __lt__ = __gt__
        __rmatmul__ = __matmul__
        __rand__ = __and__


def _not_called(fn: SkyFunction[..., Any], fix: str) -> OperatorError:
    return OperatorError(f"`{fn.__name__}` is a function, not a call of one: write {fix}.")


def find_decorated(fn: Any) -> SkyFunction[..., Any] | None:
    """Return the `SkyFunction` at the qualified name of `fn`, if it decorates `fn`; it can be pickled by name."""
    found: Any = sys.modules.get(getattr(fn, "__module__", None) or "__main__")
    for name in getattr(fn, "__qualname__", "<unnamed>").split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, SkyFunction) and found.fn is fn and found.__module__ != "__main__" else None


def _travels_by_value(module: str) -> bool:
    cloudpickle = sys.modules.get("cloudpickle")
    registered = cloudpickle.list_registry_pickle_by_value() if cloudpickle else ()
    return any(module == name or module.startswith(f"{name}.") for name in registered)


class _Decorator:
    """Decorator that `@sky.function(...)` returns."""

    __slots__ = ("_needs", "_retries", "_timeout")

    def __init__(self, timeout: float | None, needs: Needs, retries: Retries) -> None:
        self._timeout = timeout
        self._needs = needs
        self._retries = retries

    @overload
    def __call__[**P](self, fn: Callable[P, Unknown], /) -> SkyFunction[P, Any]: ...
    @overload
    def __call__[**P, Y](self, fn: Callable[P, Generator[Y, Any, Any]], /) -> SkyFunction[P, Iterator[Y]]: ...
    @overload
    def __call__[**P, Y](self, fn: Callable[P, AsyncIterator[Y]], /) -> SkyFunction[P, Iterator[Y]]: ...
    @overload
    def __call__[**P, T](self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> SkyFunction[P, T]: ...
    @overload
    def __call__[**P, T](self, fn: Callable[P, T], /) -> SkyFunction[P, T]: ...
    def __call__(self, fn: Any, /) -> Any:
        if isinstance(fn, SkyFunction):
            fn = fn.fn
        if isinstance(fn, (classmethod, property)):
            raise SpecError(f"Put `@{type(fn).__name__}` above `@sky.function`, not below it.")
        if not callable(fn):
            raise SpecError(
                f"`@sky.function` decorates a function, but got {fn!r}; it takes `timeout=`, `resources=`, "
                "`capabilities=`, `retries=` and `retry_on=` by keyword."
            )
        return SkyFunction(fn, self._timeout, self._needs, self._retries)


class FunctionOptions(TypedDict, total=False):
    """Keywords of `@sky.function`."""

    timeout: float | None
    resources: Resources | None
    capabilities: Iterable[str]
    retries: int
    retry_on: RetryOn | None


@overload
def function[**P](fn: Callable[P, Unknown], /, **options: Unpack[FunctionOptions]) -> SkyFunction[P, Any]: ...
@overload
def function[**P, Y](
    fn: Callable[P, Generator[Y, Any, Any]], /, **options: Unpack[FunctionOptions]
) -> SkyFunction[P, Iterator[Y]]: ...
@overload
def function[**P, Y](
    fn: Callable[P, AsyncIterator[Y]], /, **options: Unpack[FunctionOptions]
) -> SkyFunction[P, Iterator[Y]]: ...
@overload
def function[**P, T](
    fn: Callable[P, Coroutine[Any, Any, T]], /, **options: Unpack[FunctionOptions]
) -> SkyFunction[P, T]: ...
@overload
def function[**P, T](fn: Callable[P, T], /, **options: Unpack[FunctionOptions]) -> SkyFunction[P, T]: ...
@overload
def function(**options: Unpack[FunctionOptions]) -> _Decorator: ...
def function(
    *fns: Any,
    timeout: float | None = None,
    resources: Resources | None = None,
    capabilities: Iterable[str] = (),
    retries: int = 0,
    retry_on: RetryOn | None = None,
) -> Any:
    """Decorate a function so that its calls are values: `train(10)` runs nothing, `train(10) >> pool` runs it.

    A generator function streams: `>>` returns an iterator. A parameter annotated `Iterator[T]` streams in. Each call of
    an `async def` function runs on its own event loop on the node; a timeout or a cancellation cancels its coroutine.

    Args:
        fns: the function, or another callable such as a class, if used without parentheses.
        timeout: seconds that each call may run, instead of the pool's `default_compute_timeout`. It is the only timeout
            of a generator function, and covers the whole stream, including pauses of its reader.
        resources: amounts of the node's resources that each call holds while it runs, such as `{"GPU": 1}`.
        capabilities: capabilities that the node must have, such as `{"gpu"}`.
        retries: how many times a call that raises is retried. Losses of nodes are covered by the pool's
            `retry_on_interruption` instead. A generator is retried only if none of its elements has arrived.
        retry_on: exceptions after which a call is retried, a class or several; None for any `Exception`.

    Raises:
        SpecError: the decorated object is not callable, or is a class method or a property, or a keyword has a value
            that is not allowed.

    Example:
        >>> @sky.function(timeout=600, resources={"GPU": 1})
        ... def train(epochs: int) -> float: ...
        >>> with sky.Compute(accelerator="A100") as pool:
        ...     loss = train(10) >> pool
    """
    needs = Needs({} if resources is None else resources, capabilities) or NOTHING
    decorator = _Decorator(check_timeout(timeout), needs, Retries.of(retries, retry_on))
    return decorator(*fns) if fns else decorator


def main[F: Callable[..., Any]](fn: F) -> F:
    """Mark `fn` as the local entry point of a script, and return it.

    Example:
        >>> @sky.main
        ... def main() -> None: ...
    """
    fn.__sky_main__ = True  # type: ignore[attr-defined]  # a mark for tools
    return fn
