"""Calls that have not run yet, single or in groups, and the operators that send them.

`call >> pool` runs it on one node, `call > pool` returns a future of it, `call @ pool` runs it on every node, and
`call & call` makes a group that runs in parallel. This module does no I/O.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, overload

from skyward.errors import OperatorError, SpecError
from skyward.functions.signature import is_generator, run_here
from skyward.functions.target import Destination, described, is_target, resolve_target, sky
from skyward.functions.unrun import UnrunCall
from skyward.specs.retries import NO_RETRIES, Retries, RetryOn
from skyward.values import limits
from skyward.values.gangs import GangPlacement, gang_placement
from skyward.values.needs import NOTHING, Needs
from skyward.values.validation import shown

if TYPE_CHECKING:
    from concurrent.futures import Future

    from skyward.control.act.tasks.future import TaskFuture  # circular: what an operator returns
    from skyward.control.act.tasks.streams import Stream  # circular: what an operator returns

__all__ = ["PendingFunction", "PendingFunctionGroup", "Unknown", "check_timeout", "gang", "gather"]

# Old-style variables, because inference would make them invariant: a list or a future of T is returned fresh.
T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class Unknown:
    """Type without instances: type checkers infer it for results of unknown type."""


class _LeftOperand(UnrunCall):
    """Operand whose misuse as the left or right side of an operator raises an error with the fix."""

    __slots__ = ()

    # Without this, NumPy would apply `array >> call` to each element.
    __array_ufunc__ = None

    if not TYPE_CHECKING:  # hidden from type checkers, which then flag uses

        def __rrshift__(self, left: object) -> NoReturn:
            raise _wrong_side_error(self, left, ">>")

        def __rmatmul__(self, left: object) -> NoReturn:
            raise _wrong_side_error(self, left, "@")

        def __lt__(self, left: object) -> NoReturn:
            if not is_target(left):
                raise _wrong_side_error(self, left, ">")
            raise OperatorError(
                f"`>` takes the pool on its right: write `{self.text} > pool`, on its own, because Python reads a "
                "chain such as `a() > pool > b()` as two comparisons."
            )

        def __rand__(self, left: object) -> NoReturn:
            if is_target(left):
                raise OperatorError("`&` binds tighter than `>`: write `(a() & b()) > pool`.")
            raise OperatorError(
                f"`... & {self.text}` needs a call on its left, but got {described(left)}: `>>` and `@` bind tighter "
                "than `&`, so write `(a() & b()) >> pool`."
            )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PendingFunction(_LeftOperand, Generic[T_co]):  # noqa: UP046 - see T_co
    """Call of a function that has not run yet. It is equal only to itself, and hashable.

    Attributes:
        fn: the undecorated function.
        args: positional arguments.
        kwargs: keyword arguments.
        timeout: seconds it may run, or None for the pool's `default_compute_timeout`; for a generator function, None
            for no limit.
        needs: resources and capabilities that it requires of its node, in addition to a slot.
        retries: retry policy for exceptions that it raises.
        waits_for: futures that must have succeeded before it runs.
        grace: seconds that it has to end by itself after a cancellation; 0 for the default.

    Example:
        >>> call = train(10).with_timeout(600)
        >>> result = call >> pool
    """

    fn: Callable[..., T_co]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    needs: Needs = NOTHING
    retries: Retries = NO_RETRIES
    waits_for: "tuple[Future[Any], ...]" = ()
    grace: float = 0.0

    def with_timeout(self, seconds: float | None) -> Self:
        """Return the same call with a timeout in seconds; None for the pool's default."""
        return replace(self, timeout=check_timeout(seconds))

    def with_resources(self, **amounts: float) -> Self:
        """Return the same call with these amounts of resources; others are unchanged, 0 removes one."""
        return replace(self, needs=Needs({**self.needs.resources, **amounts}, self.needs.capabilities))

    def with_retries(self, times: int, retry_on: RetryOn | None = None) -> Self:
        """Return the same call, retried up to `times` if it raises one of `retry_on`; None for any exception."""
        return replace(self, retries=Retries.of(times, retry_on))

    def after(self, *futures: "Future[Any]") -> Self:
        """Return the same call, to run once these futures have succeeded; if one fails, the call fails with its error.

        Futures among the arguments of the call are always waited for.

        Raises:
            SpecError: one of them is not a future.
        """
        return replace(self, waits_for=(*self.waits_for, *_futures(self.text, futures)))

    def local(self) -> T_co:
        """Run the call in this thread and return its result; an `async def` function runs on a new event loop.

        Raises:
            UsageError: an event loop runs on this thread already.
        """
        result: T_co = run_here(self.fn, self.args, self.kwargs)
        return result

    @property
    def text(self) -> str:
        """Text of the call for error messages, without its arguments: `train(...)`."""
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"{name}({'...' if self.args or self.kwargs else ''})"

    def __repr__(self) -> str:
        return f"<pending {self.text}>"

    @overload
    def __rshift__(self: "PendingFunction[Unknown]", target: Destination) -> Any: ...
    @overload
    def __rshift__[Y](self: "PendingFunction[Iterator[Y]]", target: Destination) -> "Stream[Y]": ...
    @overload
    def __rshift__(self, target: Destination) -> T_co: ...
    def __rshift__(self, target: Destination) -> Any:
        """Run it on one node and return the result; a generator function returns a stream at once."""
        __tracebackhide__ = True  # IPython leaves such frames out of a traceback
        result = resolve_target(target, self, ">>").run(self)
        if result is NotImplemented:  # Python would try the operator of the right side next
            raise OperatorError(
                f"`{self.text}` returned NotImplemented, which an operator cannot return: use "
                f"`({self.text} > pool).result()`."
            )
        return result

    @overload
    def __gt__(self: "PendingFunction[Unknown]", target: Destination) -> "TaskFuture[Any]": ...
    @overload
    def __gt__[Y](self: "PendingFunction[Iterator[Y]]", target: Destination) -> "TaskFuture[Stream[Y]]": ...
    @overload
    def __gt__(self, target: Destination) -> "TaskFuture[T_co]": ...
    def __gt__(self, target: Destination) -> "TaskFuture[Any]":
        """Run it on one node; return a future of the result, which a coroutine may await."""
        return resolve_target(target, self, ">").submit(self)

    def __await__(self) -> Generator[Any, None, T_co]:
        """Run it on one node of the pool in scope, and wait for the result; cancelling the coroutine stops the task."""
        return resolve_target(sky, self, ">").submit(self).__await__()

    @overload
    def __matmul__(self: "PendingFunction[Unknown]", target: Destination) -> Any: ...
    @overload
    def __matmul__[Y](  # type: ignore[overload-overlap]  # a generator function streams, and returns no list
        self: "PendingFunction[Iterator[Y]]", target: Destination
    ) -> "Stream[tuple[int, Y]]": ...
    @overload
    def __matmul__(self, target: Destination) -> list[T_co]: ...
    def __matmul__(self, target: Destination) -> Any:
        """Run it on every node; return one result per node, in order of rank.

        For a generator function, return an iterator over pairs of a rank and an element, as they arrive from all nodes.
        """
        __tracebackhide__ = True
        return resolve_target(target, self, "@").broadcast(self)

    @overload
    def __and__[U](self, other: "PendingFunction[U]") -> "PendingFunctionGroup[tuple[T_co, U]]": ...
    @overload
    def __and__[*Us](self, other: "PendingFunctionGroup[tuple[*Us]]") -> "PendingFunctionGroup[tuple[T_co, *Us]]": ...
    def __and__(self, other: Any) -> "PendingFunctionGroup[Any]":
        """Return a group that runs both in parallel."""
        return _joined(self, other)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PendingFunctionGroup(_LeftOperand, Generic[R_co]):  # noqa: UP046 - see R_co
    """Group of calls that run in parallel, each on one node.

    Attributes:
        items: the calls, in the order of their results.
        stream: True if `>>` returns an iterator of results instead of a tuple.
        ordered: True if that iterator keeps the order of `items`, False if it yields results as they complete.
        timeout: seconds for the whole group, or None.
        placement: for a gang, whose calls start together or not at all, how they are spread over the nodes; else None.

    Example:
        >>> a, b = (train(1) & evaluate(2)) >> pool
    """

    items: tuple[PendingFunction[Any], ...]
    stream: bool = False
    ordered: bool = True
    timeout: float | None = None
    placement: GangPlacement | None = None

    def after(self, *futures: "Future[Any]") -> Self:
        """Return the same group, to run once these futures have succeeded; see `PendingFunction.after`."""
        return replace(self, items=tuple(item.after(*futures) for item in self.items))

    def with_timeout(self, seconds: float | None) -> Self:
        """Return the same group with a timeout in seconds for the whole group, including its wait for nodes."""
        return replace(self, timeout=check_timeout(seconds))

    @property
    def text(self) -> str:
        """Text of the group for error messages: `(a() & b(...))`."""
        if self.placement is not None:
            return f"gang({', '.join(item.text for item in self.items[:3])}{', ...' if len(self.items) > 3 else ''})"
        if self.stream or len(self.items) < 2:
            return f"gather(...{', stream=True' if self.stream else ''})"
        shown = [item.text for item in self.items[:3]]
        return f"({' & '.join([*shown, '...'] if len(self.items) > 3 else shown)})"

    def __repr__(self) -> str:
        return f"<pending {self.text}>"

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[PendingFunction[Any]]:
        return iter(self.items)

    def __rshift__(self, target: Destination) -> R_co:
        """Run all calls; return a tuple of results, or an iterator over them if the group streams."""
        __tracebackhide__ = True
        result: R_co = resolve_target(target, self, ">>").run_group(self)
        return result

    def __gt__[*Ts](self: "PendingFunctionGroup[tuple[*Ts]]", target: Destination) -> "TaskFuture[tuple[*Ts]]":
        """Run all calls; return a future of the tuple of results, which a coroutine may await."""
        pool = resolve_target(target, self, ">")
        if self.stream:
            raise OperatorError(
                "A streamed gather has no single future: write `gather(..., stream=True) >> pool` for an iterator, or "
                "`gather(...) > pool` for a future of the tuple."
            )
        return pool.submit_group(self)

    def __await__(self) -> Generator[Any, None, R_co]:
        """Run all calls on the pool in scope, and wait for the tuple of results."""
        group: PendingFunctionGroup[Any] = self  # a tuple of any length
        future: TaskFuture[Any] = group > sky
        return future.__await__()

    @overload
    def __and__[*Ts, U](
        self: "PendingFunctionGroup[tuple[*Ts]]", other: PendingFunction[U]
    ) -> "PendingFunctionGroup[tuple[*Ts, U]]": ...
    @overload
    def __and__[*Ts, A, B](
        self: "PendingFunctionGroup[tuple[*Ts]]", other: "PendingFunctionGroup[tuple[A, B]]"
    ) -> "PendingFunctionGroup[tuple[*Ts, A, B]]": ...
    @overload
    def __and__[*Ts, A, B, C](
        self: "PendingFunctionGroup[tuple[*Ts]]", other: "PendingFunctionGroup[tuple[A, B, C]]"
    ) -> "PendingFunctionGroup[tuple[*Ts, A, B, C]]": ...
    @overload
    def __and__(
        self: "PendingFunctionGroup[tuple[Any, ...]]", other: "PendingFunctionGroup[tuple[Any, ...]]"
    ) -> "PendingFunctionGroup[tuple[Any, ...]]": ...
    def __and__(self, other: Any) -> "PendingFunctionGroup[Any]":
        """Return a group with the calls of both, flattened."""
        return _joined(self, other)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name != "local":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            each = ", ".join(f"{item.text}.local()" for item in self.items[:2]) or "a().local()"
            raise AttributeError(
                f"`.local()` runs one call here, and `{self.text}` is a group of {len(self.items)}: run each call, "
                f"`{each}`, one after the other."
            )

        def __matmul__(self, target: object) -> NoReturn:
            each = ", ".join(f"{item.text} @ pool" for item in self.items[:2]) or "a() @ pool"
            raise OperatorError(
                f"`@` sends one call to every node, and a group holds {len(self.items)}: broadcast each one "
                f"(`{each}`), or run the group once with `{self.text} >> pool`."
            )


@overload
def gather[T](
    *pendings: PendingFunction[T], stream: Literal[False] = False, ordered: bool = True
) -> PendingFunctionGroup[tuple[T, ...]]: ...
@overload
def gather[T](
    *pendings: PendingFunction[T], stream: Literal[True], ordered: bool = True
) -> "PendingFunctionGroup[Stream[T]]": ...
@overload
def gather[T](
    *pendings: PendingFunction[T], stream: bool, ordered: bool = True
) -> "PendingFunctionGroup[tuple[T, ...] | Stream[T]]": ...
def gather(*pendings: PendingFunction[Any], stream: bool = False, ordered: bool = True) -> PendingFunctionGroup[Any]:
    """Return a group of any number of calls, which run in parallel under `>>`.

    Args:
        pendings: the calls; without any, the result is empty.
        stream: return an iterator of results, each as soon as it is available, instead of a tuple.
        ordered: with `stream`, keep the order of the calls; False yields results as they complete.

    Raises:
        OperatorError: one of `pendings` is not a call of a `@sky.function`.

    Example:
        >>> results = sky.gather(*(train(seed) for seed in range(8))) >> pool
    """
    for position, pending in enumerate(pendings, 1):
        if not isinstance(pending, PendingFunction):
            raise _not_gatherable(pending, position)
    return PendingFunctionGroup(pendings, stream=stream, ordered=ordered)


@overload
def gang[A](first: PendingFunction[A], /, *, placement: GangPlacement = "pack") -> PendingFunctionGroup[tuple[A]]: ...
@overload
def gang[A, B](
    first: PendingFunction[A], second: PendingFunction[B], /, *, placement: GangPlacement = "pack"
) -> PendingFunctionGroup[tuple[A, B]]: ...
@overload
def gang[T](
    *pendings: PendingFunction[T], placement: GangPlacement = "pack"
) -> PendingFunctionGroup[tuple[T, ...]]: ...
def gang(*pendings: PendingFunction[Any], placement: GangPlacement = "pack") -> PendingFunctionGroup[Any]:
    """Return a gang: calls that start together or not at all, each with a slot of its own, under `>>` or `>`.

    If a node is lost before all of them have returned, the others are stopped and the whole gang runs again. On the
    nodes, `sky.instance_info().gang` has the rank of the member and the nodes of all, and `sky.shard` its share.

    Args:
        pendings: the calls, by their ranks in the gang.
        placement: "pack" uses as few nodes as possible and "spread" as many; "strict_pack" is one node, and
            "strict_spread" a node of its own for each, or an error if the pool can never have that.

    Raises:
        OperatorError: there are no calls, or one of `pendings` is not a call of a `@sky.function` or is a generator.
        SpecError: `placement` is unknown.

    Example:
        >>> results = sky.gang(*(train(rank) for rank in range(2)), placement="strict_spread") >> pool
    """
    for position, pending in enumerate(pendings, 1):
        if not isinstance(pending, PendingFunction):
            raise _not_gatherable(pending, position, "gang")
        if is_generator(pending.fn):
            raise OperatorError(
                f"`{pending.text}` yields its results one by one, and the members of a gang return theirs together: "
                "return a list, or send it with `gather`."
            )
    if not pendings:
        raise OperatorError("A gang needs at least one call: `sky.gang(f(1), f(2)) >> pool`.")
    return PendingFunctionGroup(pendings, placement=gang_placement(placement))


def _not_gatherable(value: object, position: int, name: str = "gather") -> OperatorError:
    if is_uncalled(value):
        return OperatorError(f"`{name}` takes calls, and argument {position} is {_uncalled(value)}.")
    if isinstance(value, PendingFunctionGroup):
        if value.placement is not None:
            return OperatorError(
                f"`{name}` takes calls, and argument {position} is a gang, which cannot be part of another group: send "
                f"it on its own, `{value.text} >> pool`."
            )
        return OperatorError(f"`{name}` takes calls, and argument {position} is a group: write `{name}(*group, ...)`.")
    if is_target(value):
        return OperatorError(f"`{name}` takes calls only: send the group with `{name}(*tasks) >> pool`.")
    if hasattr(value, "__iter__") and not isinstance(value, str):
        kind = described(value)
        return OperatorError(f"`{name}` takes the calls one by one, but got {kind}: unpack it with `{name}(*tasks)`.")
    return OperatorError(
        f"`{name}` takes calls of functions decorated with `@sky.function`, and argument {position} is "
        f"{described(value)}."
    )


def _joined(left: "PendingFunction[Any] | PendingFunctionGroup[Any]", right: object) -> PendingFunctionGroup[Any]:
    if is_uncalled(right):
        raise OperatorError(f"`{left.text} & ...` needs a call on its right, and got {_uncalled(right)}.")
    if not isinstance(right, (PendingFunction, PendingFunctionGroup)):
        if is_target(right):
            raise OperatorError(f"`&` joins calls; a pool takes them with `>>`: write `{left.text} >> pool`.")
        raise OperatorError(
            f"`{left.text} & ...` needs a call on its right, but got {described(right)}: `>>` and `@` bind tighter "
            "than `&`, so write `(a() & b()) >> pool`."
        )
    groups = [side for side in (left, right) if isinstance(side, PendingFunctionGroup)]
    if gangs := [group for group in groups if group.placement is not None]:
        raise OperatorError(
            "`&` cannot add to a gang, whose calls start together: name every call in it, `sky.gang(a(), b(), c())`, "
            f"or send it on its own, `{gangs[0].text} >> pool`."
        )
    if any(group.stream for group in groups):
        raise OperatorError(
            "`&` cannot add to a streamed gather: name every call in it, `gather(*tasks, other, stream=True)`."
        )
    items = [item for side in (left, right) for item in (side if isinstance(side, PendingFunctionGroup) else (side,))]
    timeouts = [group.timeout for group in groups if group.timeout is not None]
    return PendingFunctionGroup(tuple(items), timeout=min(timeouts, default=None))


def _wrong_side_error(pending: Any, left: object, operator: str) -> OperatorError:
    if is_uncalled(left):
        return OperatorError(f"The left side of `{operator}` is {_uncalled(left)}.")
    if is_target(left):
        return OperatorError(f"The pool goes on the right: write `{pending.text} {operator} pool`.")
    return OperatorError(
        f"`{operator}` sends a call to a pool, but its left side is {described(left)} and its right side is the call "
        f"`{pending.text}`: write `{pending.text} {operator} pool`."
    )


def is_uncalled(value: object) -> bool:
    """Return whether `value` is a decorated function instead of a call of one."""
    return getattr(type(value), "__sky_function__", False)


def _uncalled(value: Any) -> str:
    return f"the function `{value.__name__}` itself: call it, `{value.__name__}(...)`"


def _futures(text: str, given: "tuple[Future[Any], ...]") -> "tuple[Future[Any], ...]":
    from concurrent.futures import Future  # loaded only if futures are given

    for each in given:
        if not isinstance(each, Future):
            fix = f"write `{text}.after(a, b)` with `a = f(...) > pool`"
            raise SpecError(f"`.after` takes futures, but got {described(each)}: {fix}.")
    return given


def check_timeout(seconds: float | None) -> float | None:
    """Return `seconds` if it is a valid timeout or None.

    Raises:
        SpecError: it is neither.
    """
    number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 < seconds < inf):
        raise SpecError(
            f"timeout must be a positive number of seconds, but got {shown(seconds)}; None uses the default."
        )
    if seconds is not None and seconds > limits.SECONDS:
        raise SpecError(f"timeout must be at most {limits.SECONDS:,} seconds, but got {shown(seconds)}: lower it.")
    return seconds
