"""Targets of calls: a pool, `sky.sky`, or the `skyward` module itself."""

import os
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

from skyward.errors import NO_POOL, NoPoolError, OnNodeError, OperatorError

if TYPE_CHECKING:
    from skyward.control.act.tasks.future import TaskFuture  # circular: what a target returns
    from skyward.functions.pending import PendingFunction, PendingFunctionGroup  # circular: what a target takes

__all__ = [
    "CurrentPool",
    "Destination",
    "RightSide",
    "Target",
    "current_pool",
    "described",
    "is_target",
    "resolve_target",
    "sky",
]


class Target(Protocol):
    """Methods of a pool that the operators call."""

    def run[T](self, pending: "PendingFunction[T]", /) -> T:
        """Implement `>>`: return the result; an iterator if the function is a generator function."""
        ...

    def submit[T](self, pending: "PendingFunction[T]", /) -> "TaskFuture[T]":
        """Implement `>`: return a future of the result."""
        ...

    def broadcast[T](self, pending: "PendingFunction[T]", /) -> list[T]:
        """Implement `@`: return one result per node, in order of rank."""
        ...

    def run_group(self, group: "PendingFunctionGroup[Any]", /) -> Any:
        """Implement `>>` of a group: return a tuple of results, or an iterator over them if the group streams."""
        ...

    def submit_group(self, group: "PendingFunctionGroup[Any]", /) -> "TaskFuture[Any]":
        """Implement `>` of a group: return a future of the tuple."""
        ...


type Destination = Target | ModuleType
"""Type of the right side of an operator; the only module is `skyward`."""

current_pool: ContextVar[Target | None] = ContextVar("skyward_current_pool", default=None)
"""The pool in scope: the one of the innermost `with sky.Compute(...)`."""


class RightSide:
    """Right side of an operator, which raises an error if the left side is not a call of a `@sky.function`."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers reject such left sides by themselves
        __array_ufunc__ = None  # otherwise an array would apply the operator to each element

        def __rrshift__(self, left: object) -> Any:
            raise _no_call(left, ">>")

        def __lt__(self, left: object) -> Any:  # Python calls this on the right side of `left > pool`
            raise _no_call(left, ">")

        def __rmatmul__(self, left: object) -> Any:
            raise _no_call(left, "@")


def _no_call(left: object, operator: str) -> OperatorError:
    return OperatorError(
        f"`... {operator} pool` sends a call of a `@sky.function`, but its left side is {described(left)}: put "
        f"`@sky.function` on the function that makes it, and write `f(...) {operator} pool`."
    )


class CurrentPool(RightSide):
    """Target that stands for the pool in scope at the time of use. `sky.sky` is its only instance.

    Example:
        >>> with sky.Compute(nodes=2):
        ...     train(10) >> sky.sky
    """

    __slots__ = ()

    def run[T](self, pending: "PendingFunction[T]", /) -> T:
        return _in_scope(pending).run(pending)

    def submit[T](self, pending: "PendingFunction[T]", /) -> "TaskFuture[T]":
        return _in_scope(pending).submit(pending)

    def broadcast[T](self, pending: "PendingFunction[T]", /) -> list[T]:
        return _in_scope(pending).broadcast(pending)

    def run_group(self, group: "PendingFunctionGroup[Any]", /) -> Any:
        return _in_scope(group).run_group(group)

    def submit_group(self, group: "PendingFunctionGroup[Any]", /) -> "TaskFuture[Any]":
        return _in_scope(group).submit_group(group)

    def __repr__(self) -> str:
        return "sky.sky"

    def __reduce__(self) -> str:
        return "sky"


sky: Final = CurrentPool()


def _in_scope(pending: "PendingFunction[Any] | PendingFunctionGroup[Any]") -> Target:
    pool = current_pool.get()
    if pool is None:
        raise NoPoolError(f"{NO_POOL}, or name it: `{pending.text} >> pool`.")
    return pool


_METHODS = ("run", "submit", "broadcast", "run_group", "submit_group")


def is_target(value: object) -> bool:
    """Return whether calls can be sent to `value`."""
    if isinstance(value, ModuleType):
        return value.__name__ == "skyward"
    # Not isinstance() with a runtime-checkable protocol: that takes ten times as long, on every dispatch.
    return not isinstance(value, type) and all(hasattr(value, name) for name in _METHODS)


def resolve_target(
    target: object, pending: "PendingFunction[Any] | PendingFunctionGroup[Any]", operator: str
) -> Target:
    """Return the pool that `pending <operator> target` is sent to.

    Raises:
        OnNodeError: called on a node.
        OperatorError: `target` is not a pool.
    """
    if (node := os.environ.get("SKYWARD_NODE")) is not None:
        call = "each of its functions" if hasattr(pending, "items") else "the function"
        raise OnNodeError(
            f"`{pending.text} {operator} ...` was used inside node {node}: a node has no pool; call {call} with "
            "`.local(...)` there, or send it from the client."
        )
    if isinstance(target, ModuleType) and target.__name__ == "skyward":
        return sky
    if is_target(target):
        return target  # type: ignore[return-value]  # is_target has checked each method
    if isinstance(target, type) and all(hasattr(target, name) for name in _METHODS):
        fix = f"`{target.__name__}` is the class: open a pool with `with sky.{target.__name__}(...) as pool:`"
        raise OperatorError(f"{fix} and write `{pending.text} {operator} pool`.")
    raise OperatorError(
        f"`{pending.text} {operator} ...` takes a pool on its right, but got {described(target)}: "
        f"write `{pending.text} {operator} pool`, or `{operator} sky` for the pool in scope."
    )


def described(value: object) -> str:
    """Return a short description of a value for an error: its kind, and its repr if that is short."""
    kind = type(value).__name__
    text = getattr(value, "text", None)
    if isinstance(text, str) and type(value).__module__.startswith("skyward."):
        return f"`{text}`"
    if isinstance(value, ModuleType):
        return f"the module `{value.__name__}`"
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    if value is None:
        return "None"
    if isinstance(value, (int, float, str, bytes)) and len(text := repr(value)) <= 40:
        return f"{text} ({kind})"
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
