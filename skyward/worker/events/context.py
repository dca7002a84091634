"""The task that the calling code runs in, as code on a node sees it."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skyward.errors import TooLargeError
from skyward.task.variables import TaskVar
from skyward.wire.protocol.messages import Display, Event, Payload
from skyward.wire.protocol.text import encodable, plain_json

__all__ = ["Port", "Stoppable", "TaskContext", "current_task", "current_task_number", "running"]


_LARGEST = 64 * 1024 * 1024
"""Bytes of one display."""


class Port(Protocol):
    """Where a running task sends its events and keeps the buffers of its results."""

    def emit(self, event: Event) -> None:
        """Send `event` to the client; waits while the client is too far behind."""

    def keep(self, views: list[memoryview]) -> list[bytes]:
        """Keep these buffers on the node until the client drops them; their keys."""


class Stoppable(Protocol):
    """A job that can be told to stop."""

    stopped: Literal["cancelled", "timeout"] | None
    """Why it was told to; None while it was not."""


@dataclass(slots=True, eq=False)
class TaskContext:
    """A task, as the code that it runs sees it.

    Attributes:
        task: its number.
        node: the rank of its node.
        port: its way to the client.
        job: the job that runs it; None outside a slot.
        leaves: whether it has something to leave if it is stopped now.
        ended: whether it has ended. Threads that it started may outlive it.
        raised: qualified name of the type of the exception that its result carries: the task returns, and counts as
            failed. Empty for none.
    """

    task: int
    node: int
    port: Port
    job: Stoppable | None = None
    leaves: bool = False
    ended: bool = False
    raised: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to stop."""
        return self.job is not None and self.job.stopped is not None

    def publish_display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a rich display in the cell, or the console, that the task was sent from.

        Raises:
            TooLargeError: it is larger than what a notebook could show.
        """
        plain = plain_json(dict(data)), plain_json(dict(metadata))
        pickled = pickle.dumps((*plain, None if display_id is None else encodable(str(display_id)), bool(update)), 5)
        if len(pickled) > _LARGEST:
            raise TooLargeError(
                f"A display of {len(pickled) >> 20} MiB cannot be shown; the most is {_LARGEST >> 20} MiB. "
                "Show less of it, or return it."
            )
        self.port.emit(Display(self.task, Payload(pickled)))


running: TaskVar[TaskContext | None] = TaskVar("skyward_task", default=None)


def current_task() -> TaskContext | None:
    """The task that the caller runs in; None outside one.

    A thread that outlives the task which started it belongs to none, unless it was given the context of the task.
    """
    context = running.get()
    return None if context is None or (context.ended and running.is_inherited) else context


def current_task_number() -> int:
    """The number of the task that the caller runs in; 0 outside one."""
    context = current_task()
    return 0 if context is None else context.task
