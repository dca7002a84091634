"""The task that the calling code runs in, as code on a node sees it."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from skyward.errors import TooLargeError
from skyward.wire.messages import Display, Event, Payload
from skyward.wire.payload import dumps

__all__ = ["Port", "TaskContext", "current_task", "current_task_number", "running"]


_LARGEST = 64 * 1024 * 1024
"""Bytes of one display."""


class Port(Protocol):
    """Where a running task sends its events and keeps the buffers of its results."""

    def emit(self, event: Event) -> None:
        """Send `event` to the client; waits while the client is too far behind."""

    def keep(self, views: list[memoryview]) -> list[bytes]:
        """Keep these buffers on the node until the client drops them; their keys."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The running task: its number, the rank of its node, and its way to the client."""

    task: int
    node: int
    port: Port

    def publish_display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a rich display in the cell, or the console, that the task was sent from.

        Raises:
            TooLargeError: it is larger than what a notebook could show.
        """
        pickled = dumps((dict(data), dict(metadata), display_id, update))
        if len(pickled) > _LARGEST:
            raise TooLargeError(
                f"A display of {len(pickled) >> 20} MiB cannot be shown; the most is {_LARGEST >> 20} MiB. "
                "Show less of it, or return it."
            )
        self.port.emit(Display(self.task, Payload(pickled)))


running: ContextVar[TaskContext | None] = ContextVar("skyward_task", default=None)


def current_task() -> TaskContext | None:
    """The task that the caller runs in; None outside one."""
    return running.get()


def current_task_number() -> int:
    """The number of the task that the caller runs in; 0 outside one."""
    context = running.get()
    return 0 if context is None else context.task
