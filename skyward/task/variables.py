"""Context variables of a task that are visible to the threads it starts.

A new thread starts with an empty context (before Python 3.14, always). On a node, `skyward.worker.tasks.threads` starts
each thread of a task with the values that `snapshot` returns at its start. They are kept beside the thread's context,
so that the context variables of the task's own code behave as in any Python process.
"""

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any

__all__ = ["TaskVar", "run_with", "snapshot"]

_UNSET: Any = object()


class _Thread(threading.local):
    """The values that a thread started with."""

    values: Mapping["TaskVar[Any]", Any] = {}  # replaced, never mutated


_thread = _Thread()
_variables: list["TaskVar[Any]"] = []


class TaskVar[T]:
    """Context variable that a thread inherits from the task that started it, until the thread sets its own value.

    Args:
        name: of the context variable.
        default: the value where none is set.
    """

    def __init__(self, name: str, *, default: T) -> None:
        self._context: ContextVar[T] = ContextVar(name)
        self._default = default
        _variables.append(self)

    def get(self) -> T:
        """Return the value in the context, else the inherited one, else the default."""
        value: T = self._context.get(_UNSET)
        if value is _UNSET:
            value = _thread.values.get(self, self._default)
        return value

    def set(self, value: T) -> Token[T]:
        """Set the value in the context."""
        return self._context.set(value)

    def reset(self, token: Token[T]) -> None:
        """Undo the `set` that returned `token`."""
        self._context.reset(token)

    @property
    def is_set(self) -> bool:
        """True if the calling code has a value, from its context or inherited."""
        return self._context.get(_UNSET) is not _UNSET or self in _thread.values

    @property
    def is_inherited(self) -> bool:
        """True if the calling code uses the value that its thread inherited."""
        return self._context.get(_UNSET) is _UNSET and self in _thread.values


def snapshot() -> Mapping[TaskVar[Any], Any]:
    """Return the values of the calling code; empty outside a task."""
    return {variable: variable.get() for variable in _variables if variable.is_set}


def run_with[**P, R](
    values: Mapping[TaskVar[Any], Any], call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call `call` on the calling thread with `values` as the inherited ones."""
    before, _thread.values = _thread.values, values
    try:
        return call(*args, **kwargs)
    finally:
        _thread.values = before
