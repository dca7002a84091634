"""State of each task and each broadcast in the task manager."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.decide.tasks.collectives import CollectiveState
from skyward.control.lifecycle import TASK, Lifecycle, TaskStatus
from skyward.values.needs import NOTHING, Needs

__all__ = ["BroadcastState", "TaskState"]


@dataclass(slots=True)
class TaskState:
    """One task: its request, its lifecycle, and where it is.

    Attributes:
        number: the task's number.
        target: the only node that may run it; None for any.
        replayable: True if it may run again: no part of its result was delivered, and its input is intact.
        needs: resources that it needs.
        retries: retries after it raised.
        blobs: sizes of its data by key.
        bound: True if it uses values on its target and so ends with that node.
        overtaken: number of later tasks that were sent before it.
        node: the node that it was sent to; None in the queue, and while it is withheld.
        losses: times that its node, or its process there, was lost.
        errors: times that it raised and was retried.
        attempt: times that it left a node without ending, which tells late reports from current ones.
        unfunded: why it was stopped for the budget; empty if it was not.
        broadcast: the broadcast that it is a member of.
        gang: the gang that it is a member of.
        share: its position in the data of its broadcast or gang, and the number of shares.
        local: its position among the members of a collective on its node.
        function: the function that it runs.
        since: when it was submitted, or was queued again.
        started_at: when it got its slot; None while it has none.
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
    unfunded: str = ""
    broadcast: int | None = None
    gang: int | None = None
    share: tuple[int, int] | None = None
    local: int = 0
    function: str = ""
    since: float = 0.0
    started_at: float | None = None
    life: Lifecycle[TaskStatus] = field(init=False)

    def __post_init__(self) -> None:
        self.life = Lifecycle(self, TASK, "queued" if self.node is None else "sent")

    @property
    def status(self) -> TaskStatus:
        """The current state."""
        return self.life.state

    @property
    def is_cancelled(self) -> bool:
        """True if its node was asked to stop it."""
        return self.life.state == "cancelling"

    def __str__(self) -> str:
        return f"task {self.number}"


@dataclass(slots=True)
class BroadcastState:
    """One broadcast: its remaining tasks, and the nodes that have a share.

    Attributes:
        needs: resources that each of its tasks needs.
        retries: retries of each after it raised.
        members: tasks that have not ended.
        size: number of nodes that share its data.
        given: ranks that have, or had, a share: another node of the same rank takes over only tasks that run again.
        only: the nodes that take part; None for all.
        bound: True if its members use values on their nodes and so end with them.
        cancelled: True if it takes no more members.
        collective: its members together; None if they are independent.
        function: the function that its members run.
    """

    needs: Needs
    retries: int = 0
    members: set[int] = field(default_factory=set)
    size: int = 0
    given: set[int] = field(default_factory=set)
    only: tuple[int, ...] | None = None
    bound: bool = False
    cancelled: bool = False
    collective: CollectiveState | None = None
    function: str = ""
