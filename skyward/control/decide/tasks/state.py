"""State of each task and each broadcast, as the task manager keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.lifecycle import TASK, Lifecycle, TaskStatus
from skyward.values.needs import NOTHING, Needs

__all__ = ["BroadcastState", "TaskState"]


@dataclass(slots=True)
class TaskState:
    """One task: its request, its lifecycle, and where it is.

    Attributes:
        number: its own.
        target: the only node that it may run on; None for any.
        replayable: whether it may run again: no part of its result was delivered, and its input is intact.
        needs: what it needs of a node.
        retries: how often it may run again after it has raised.
        blobs: sizes of its data by key.
        bound: it uses what its target keeps, and ends with that node.
        overtaken: how many tasks behind it were sent before it.
        node: the node that it was sent to; None in the queue, and while it is withheld.
        losses: how often its node, or its process there, was lost.
        errors: how often it has raised, and was run again.
        attempt: how often it has left a node without ending, which tells a late report from a current one.
        broadcast: the broadcast that it is a part of.
        share: its part of the broadcast's data, and the number of parts.
    """

    number: int
    target: int | None
    replayable: bool
    needs: Needs = NOTHING
    retries: int = 0
    blobs: Mapping[bytes, int] = field(default_factory=dict)
    bound: bool = False
    overtaken: int = 0
    node: int | None = None
    losses: int = 0
    errors: int = 0
    attempt: int = 0
    broadcast: int | None = None
    share: tuple[int, int] | None = None
    life: Lifecycle[TaskStatus] = field(init=False)

    def __post_init__(self) -> None:
        self.life = Lifecycle(self, TASK, "queued" if self.node is None else "sent")

    @property
    def status(self) -> TaskStatus:
        """Its state."""
        return self.life.state

    @property
    def is_cancelled(self) -> bool:
        """Whether its node was told to stop it."""
        return self.life.state == "cancelling"

    def __str__(self) -> str:
        return f"task {self.number}"


@dataclass(slots=True)
class BroadcastState:
    """One broadcast: the tasks that are left of it, and which nodes were given their part.

    Attributes:
        needs: what each of its tasks needs of a node.
        retries: how often each may run again after it has raised.
        members: tasks that have not ended.
        size: among how many nodes its data is shared.
        given: ranks that were given their part.
        over: ranks whose part has ended though their node was lost.
        only: the nodes that it is for; None for all.
        bound: its parts use what their nodes keep, so that each ends with its node.
        cancelled: it takes no more parts.
    """

    needs: Needs
    retries: int = 0
    members: set[int] = field(default_factory=set)
    size: int = 0
    given: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)
    only: tuple[int, ...] | None = None
    bound: bool = False
    cancelled: bool = False
