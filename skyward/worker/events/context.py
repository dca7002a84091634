"""The task that the calling code runs in."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skyward.errors import TooLargeError
from skyward.formatting import size_text
from skyward.task.variables import TaskVar
from skyward.wire.protocol.messages import Display, Payload, WorkerEvent
from skyward.wire.protocol.text import encodable, plain_json

__all__ = ["Port", "Stoppable", "TaskContext", "current_task", "current_task_number", "running"]


_LARGEST = 64 * 1024 * 1024
"""Largest size of one display, in bytes."""


class Port(Protocol):
    """Interface through which a running task sends events and keeps buffers of its results."""

    def emit(self, event: WorkerEvent) -> None:
        """Send `event` to the client; block while the client is too far behind."""

    def keep(self, views: list[memoryview]) -> list[bytes]:
        """Keep these buffers on the node until the client drops them; return their keys."""


class Stoppable(Protocol):
    """A job that can be stopped."""

    stopped: Literal["cancelled", "timeout"] | None
    """Reason of the stop; None while the job is not stopped."""


@dataclass(slots=True, eq=False)
class TaskContext:
    """A task, for the code that it runs.

    Attributes:
        task: its number.
        node: the rank of its node.
        port: its connection to the client.
        job: its job; None outside a slot.
        leaves: True if it would leave a partial result if it were stopped now.
        ended: True if it has ended. Threads that it started may outlive it.
        raised: qualified name of the exception type in its result: the task returned, but counts as failed. Empty for
            none.
        reason: first line of that exception's text.
        error: that exception, for the contexts around a member of a collective; None for any other task.
    """

    task: int
    node: int
    port: Port
    job: Stoppable | None = None
    leaves: bool = False
    ended: bool = False
    raised: str = ""
    reason: str = ""
    error: Exception | None = None

    @property
    def is_stopped(self) -> bool:
        """True if the task was stopped."""
        return self.job is not None and self.job.stopped is not None

    def publish_display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a rich display in the cell or console that sent the task.

        Raises:
            TooLargeError: it is larger than a notebook can show.
        """
        plain = plain_json(dict(data)), plain_json(dict(metadata))
        pickled = pickle.dumps((*plain, None if display_id is None else encodable(str(display_id)), bool(update)), 5)
        if len(pickled) > _LARGEST:
            raise TooLargeError(
                f"A display of {size_text(len(pickled))} cannot be shown; the limit is {size_text(_LARGEST)}. "
                "Show less of it, or return it."
            )
        self.port.emit(Display(self.task, Payload(pickled)))


running: TaskVar[TaskContext | None] = TaskVar("skyward_task", default=None)


def current_task() -> TaskContext | None:
    """Return the task that the caller runs in; None outside a task.

    A thread that outlives the task which started it belongs to none, unless it was given the context of the task.
    """
    context = running.get()
    return None if context is None or (context.ended and running.is_inherited) else context


def current_task_number() -> int:
    """Return the number of the task that the caller runs in; 0 outside a task."""
    context = current_task()
    return 0 if context is None else context.task
