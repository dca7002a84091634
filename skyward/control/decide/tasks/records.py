"""What the task manager remembers of each task and of each broadcast."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.values.needs import NOTHING, Needs

__all__ = ["BroadcastState", "TaskState"]


@dataclass(slots=True)
class TaskState:
    """One task: what it asks for, where it was sent, and what has become of it so far.

    Attributes:
        retries: how often it may run again after it has raised.
        blobs: sizes of its data by key.
        bound: it uses what its target keeps, and ends with that node.
        overtaken: how many tasks behind it were sent before it.
        losses: how often its node, or its process there, was lost.
        errors: how often it has raised, and was run again.
    """

    target: int | None
    replayable: bool
    needs: Needs = NOTHING
    retries: int = 0
    blobs: Mapping[bytes, int] = field(default_factory=dict)
    bound: bool = False
    overtaken: int = 0
    node: int | None = None
    started: bool = False
    cancelled: bool = False
    recalled: bool = False
    losses: int = 0
    errors: int = 0
    attempt: int = 0
    broadcast: int | None = None
    share: tuple[int, int] | None = None


@dataclass(slots=True)
class BroadcastState:
    """What is left of a broadcast, among how many nodes its data is shared, and which nodes were given their part.

    `over`: ranks whose part has ended though their node was lost. `only`: the nodes that it is for; None for all.
    `bound`: its parts use what their nodes keep, so that each ends with its node. `cancelled`: it takes no more parts.
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
