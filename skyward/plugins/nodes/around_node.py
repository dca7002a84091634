"""The part of the plugin of functions that runs on nodes."""

from base64 import b64decode
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from inspect import isgenerator
from typing import Any

import cloudpickle

from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo

__all__ = ["AroundOnNode"]


class AroundOnNode(OnNode):
    """Enters the contexts of functions that were pickled by value.

    They are unpickled as they are needed: what they import is imported in the processes that run tasks only.

    Args:
        process: function of an `InstanceInfo`, pickled, in base 64; None for none.
        task: function of a `TaskInfo`, likewise.
    """

    def __init__(self, process: str | None, task: str | None) -> None:
        self._process = process
        self._task = task

    def around_process(self, node: InstanceInfo) -> AbstractContextManager[Any]:
        """Return the context of the process."""
        return nullcontext() if self._process is None else _context(_loaded(self._process), node, "process")

    def around_task(self, task: TaskInfo) -> AbstractContextManager[Any]:
        """Return the context of a task."""
        return nullcontext() if self._task is None else _context(self._around_task, task, "task")

    @cached_property
    def _around_task(self) -> Any:
        return _loaded(self._task or "")


def _loaded(text: str) -> Any:
    return cloudpickle.loads(b64decode(text))


def _context(function: Any, argument: object, name: str) -> AbstractContextManager[Any]:
    """Return the context that a function makes.

    Raises:
        TypeError: it returns none, nor does it yield.
    """
    made = function(argument)
    if isgenerator(made):
        return _yielding(made)
    if not isinstance(made, AbstractContextManager):
        raise TypeError(
            f"The function of `sky.plugins.around({name}=...)` returned {type(made).__name__}: it must return a "
            "context manager, or `yield` once."
        )
    return made


def _yielding(made: Iterator[object]) -> AbstractContextManager[Any]:
    """Return the context of a generator: what is before its `yield`, and what is after it."""
    return contextmanager(lambda: made)()
