"""The part of plugins that runs on nodes: around each process and each task."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from socket import socket
from typing import Any, ClassVar

from skyward.task.instance import InstanceInfo

__all__ = ["Meeting", "OnNode", "TaskInfo"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """The place where the members of a collective meet: the address of the first one, which only it listens on.

    Attributes:
        address: private address of the first member.
        port: a port that is free there until `listener` is closed.
        listener: for the first member, a socket that is bound to it and does not listen yet; None for the others.
    """

    address: str
    port: int
    listener: socket | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task, as the plugins of its node see it.

    Attributes:
        task: its number.
        attempt: number of earlier attempts.
        position, count: its place in its collective, from 0 on, and the number of members; 0 of 1 outside of one.
        local_position, local_count: its place among the members on its node, and their number, the same on each node.
        meeting: where the members meet; None outside of a collective.
        generation: name of the collective and its attempt, unique among pools; empty outside of one.
        within: seconds that the members have to find each other.

    Example:
        >>> info = sky.plugins.TaskInfo(task=7, position=3, count=4, local_position=1, local_count=2)
        >>> info.node_position, info.node_count
        (1, 2)
    """

    task: int
    attempt: int = 0
    position: int = 0
    count: int = 1
    local_position: int = 0
    local_count: int = 1
    meeting: Meeting | None = None
    generation: str = ""
    within: float = 60.0

    @property
    def node_position(self) -> int:
        """Place of the node among those of the collective."""
        return self.position // self.local_count

    @property
    def node_count(self) -> int:
        """Number of nodes of the collective."""
        return self.count // self.local_count


class OnNode:
    """Base of the parts of plugins that run on nodes. Each process of a node makes one, `Class(**settings)`.

    The module of a subclass imports only the standard library and `skyward`; frameworks are imported in the methods.

    Attributes:
        once: True if a process that was in a collective can be in no other one: it is replaced after each.

    Example:
        class WandbOnNode(sky.plugins.OnNode):
            def __init__(self, project: str) -> None:
                self._project = project

            @contextmanager
            def around_task(self, task):
                import wandb

                with wandb.init(project=self._project):
                    yield
    """

    once: ClassVar[bool] = False

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return variables for the process of slot `worker`, before it starts. Imports no framework."""
        return {}

    def around_process(self, node: InstanceInfo) -> AbstractContextManager[Any]:
        """Return a context that is entered before the first task of a process and left at its end."""
        return nullcontext()

    def around_task(self, task: TaskInfo) -> AbstractContextManager[Any]:
        """Return a context for one task."""
        return nullcontext()

    def follows_loss(self, error: BaseException) -> bool:
        """Return whether a task of a collective raised `error` because another member was lost or had failed."""
        return False
