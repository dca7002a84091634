"""Context variables of a task that the threads which it starts see too.

A new thread starts with an empty context (before Python 3.14, always). On a node, `skyward.worker.tasks.threads` has
each thread that a task starts begin with the values that `snapshot` gives at its start. They are kept beside the
context of the thread, so that the context variables of the task's own code are those of any Python process.
"""

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any

__all__ = ["TaskVar", "run_with", "snapshot"]

_UNSET: Any = object()


class _Thread(threading.local):
    """The values that a thread began with."""

    values: Mapping["TaskVar[Any]", Any] = {}  # never changed, only replaced


_thread = _Thread()
_variables: list["TaskVar[Any]"] = []


class TaskVar[T]:
    """A context variable whose value a thread has from the task that started it, until it sets another.

    Args:
        name: of the context variable.
        default: the value where none is set.
    """

    def __init__(self, name: str, *, default: T) -> None:
        self._context: ContextVar[T] = ContextVar(name)
        self._default = default
        _variables.append(self)

    def get(self) -> T:
        """Return the value in the context, else the one that the thread began with, else the default."""
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
        """Whether the calling code has a value, from its context or from the start of its thread."""
        return self._context.get(_UNSET) is not _UNSET or self in _thread.values

    @property
    def is_inherited(self) -> bool:
        """Whether the calling code has the value that its thread began with."""
        return self._context.get(_UNSET) is _UNSET and self in _thread.values


def snapshot() -> Mapping[TaskVar[Any], Any]:
    """Return the values of the calling code; empty outside of a task."""
    return {variable: variable.get() for variable in _variables if variable.is_set}


def run_with[**P, R](
    values: Mapping[TaskVar[Any], Any], call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call `call` on the calling thread, which has `values` meanwhile."""
    before, _thread.values = _thread.values, values
    try:
        return call(*args, **kwargs)
    finally:
        _thread.values = before
