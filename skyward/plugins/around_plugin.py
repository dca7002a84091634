"""The plugin of functions that travel by value: for notebooks, where nodes cannot import them."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from skyward.errors import SpecError
from skyward.specs.plugin import Plugin
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import TaskInfo
from skyward.values.validation import shown

__all__ = ["Around", "around"]

type ContextFactory[T] = Callable[[T], AbstractContextManager[Any] | Any]
"""Function of what is known of a process or a task; it returns a context manager, or yields once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around(Plugin):
    """Wrap the processes of nodes, their tasks, or both, in contexts of functions; see `around`.

    Attributes:
        process, task: the functions, pickled by value; None for none.
    """

    name = "around"
    on_node = "skyward.plugins.nodes.around_node:AroundOnNode"

    process: bytes | None = field(default=None, repr=False)
    task: bytes | None = field(default=None, repr=False)

    def settings(self) -> Mapping[str, Any]:
        """Return the functions as text, in base 64."""
        return {"process": _text(self.process), "task": _text(self.task)}


def around(
    *, process: ContextFactory[InstanceInfo] | None = None, task: ContextFactory[TaskInfo] | None = None
) -> Plugin:
    """Return a plugin that runs functions of yours around each process of a node, and around each task.

    The functions travel by value, with what they use of the notebook, as tasks do; those of modules by name. Each
    returns a context manager, or is a generator function that yields once: `contextlib.contextmanager` is not needed.

    Args:
        process: function of an `InstanceInfo`; its context is entered before the first task of a process.
        task: function of a `sky.plugins.TaskInfo`; its context is entered for each task.

    Raises:
        SpecError: neither is given, one is not a function, or one cannot be pickled.

    Example:
        >>> def seeded(task):
        ...     random.seed(task.task)
        ...     yield
        >>> with sky.Compute(plugins=[sky.plugins.around(task=seeded)]) as pool:
        ...     rolls = roll() @ pool
    """
    if process is None and task is None:
        raise SpecError("around needs a function: write `sky.plugins.around(task=f)`, or give it as `process`.")
    return Around(process=_pickled(process, "process"), task=_pickled(task, "task"))


def _pickled(function: object, name: str) -> bytes | None:
    if function is None:
        return None
    if not callable(function):
        raise SpecError(f"{name} must be a function of one argument, as in `{name}=f`, but got {shown(function)}.")
    try:
        pickled: bytes = cloudpickle.dumps(function)
    except Exception as error:  # whatever the pickling of a user's object raises
        raise SpecError(f"{name} cannot be sent to nodes ({error}): make what it uses inside of it.") from error
    return pickled


def _text(pickled: bytes | None) -> str | None:
    return None if pickled is None else b64encode(pickled).decode()
