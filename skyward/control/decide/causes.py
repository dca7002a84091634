"""Causes: the messages that made the control plane act, by number.

The control plane numbers its messages from 1 on. The effects of a step, the transitions in the histories of lifecycles,
and decisions carry the number of the step's message. This log keeps the text of the latest messages that changed
machines or the desired number of nodes, and what those follow from: the failed launch of a replacement, from the loss
of the node that it replaces.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import (
    CollectionUsed,
    ContinueSize,
    DrainNode,
    KeptAdded,
    Open,
    PlaneMessage,
    ReleaseKept,
    Resize,
    SetBudget,
    SetFloor,
    SpareStreams,
    TaskMessage,
    Tick,
    UpdateGroup,
)
from skyward.control.decide.tasks import messages as tasks
from skyward.formatting import count_text, joined, money_text

__all__ = ["Cause", "CauseLog", "bounds_text", "describe", "resized_text"]

KEPT = 1000

OPENED = "the pool was opened"


@dataclass(frozen=True, slots=True)
class Cause:
    """One message, and the number of the message that it follows from; 0 for none."""

    number: int
    text: str
    by: int = 0

    def __str__(self) -> str:
        return f"#{self.number}: {self.text}"


class CauseLog:
    """The latest causes, by number."""

    def __init__(self) -> None:
        self._causes: dict[int, Cause] = {}

    def get(self, number: int) -> Cause | None:
        """Return the cause of this number; None if it is not known."""
        return self._causes.get(number)

    def add(self, cause: Cause) -> None:
        """Add a cause; the oldest is dropped if there are too many."""
        self._causes[cause.number] = cause
        if len(self._causes) > KEPT:
            del self._causes[next(iter(self._causes))]

    def chain(self, number: int) -> tuple[Cause, ...]:
        """Return a cause and those it follows from, the first one last; empty if it is not known."""
        found: list[Cause] = []
        while (cause := self._causes.get(number)) is not None:
            found.append(cause)
            number = cause.by
        return tuple(found)

    def because(self, number: int) -> str:
        """Return the first cause of a chain for an error, as ` (caused by: ...)`; empty if there is none.

        The opening of the pool explains nothing, and is left out, as is a chain whose first cause is not known.
        """
        chain = self.chain(number)
        is_known = bool(chain) and not chain[-1].by and chain[-1].text != OPENED
        return f" (caused by: {chain[-1].text})" if is_known else ""


def describe(message: PlaneMessage, groups: Collection[str], rank_of: Callable[[int], int | None]) -> str:
    """Return the text of a message.

    Args:
        groups: names of the groups of the pool.
        rank_of: returns the rank of a machine; None if it is not known any more.
    """
    match message:
        case Open():
            return OPENED
        case Resize(bounds):
            return resized_text(bounds, groups)
        case ContinueSize():
            return "the pool was attached to"
        case DrainNode(rank):
            return f"drain of node {rank} requested"
        case UpdateGroup(group):
            return f"group {group.name!r} got another spec"
        case SetFloor():
            return "request_resources was called"
        case SetBudget(budget):
            return "budget removed" if budget is None else f"budget set to {money_text(budget)}"
        case CollectionUsed():
            return "the client used a collection"
        case KeptAdded(entry):
            return f"node {entry.node} keeps {entry.name}"
        case ReleaseKept():
            return "kept values were dropped"
        case SpareStreams(rank):
            return f"streams on node {rank} are not read"
        case Tick():
            return "regular check"
        case machines.Allocated(machine):
            return f"{_node(machine, rank_of)} allocated"
        case machines.Priced(machine, price):
            return f"{_node(machine, rank_of)} costs ${price:.4g} per hour"
        case machines.Refused(numbers, reason):
            refused = _node(numbers[0], rank_of) if len(numbers) == 1 else f"{len(numbers)} machines"
            return f"{refused} refused: {_first_line(reason)}"
        case machines.Joined(machine):
            return f"{_node(machine, rank_of)} joined"
        case machines.TakenOver(machine):
            return f"{_node(machine, rank_of)} was taken over"
        case machines.Failed(machine, reason):
            return f"{_node(machine, rank_of)} failed to start: {_first_line(reason)}"
        case machines.Lost(machine, reason):
            return f"{_node(machine, rank_of)} lost: {_first_line(reason)}"
        case machines.Reclaimed(machine):
            return f"{_node(machine, rank_of)} is taken back by its provider"
        case machines.Terminated(machine):
            return f"{_node(machine, rank_of)} terminated"
        case _:
            return _task_text(message)


def resized_text(bounds: Mapping[str, tuple[int, int]], groups: Collection[str]) -> str:
    """Return a resize with its bounds: `resized to between 2 and 4 nodes`; in a pool of several groups, with names."""
    named = len(groups) > 1
    return f"resized to {joined(bounds_text(*of, name if named else None) for name, of in bounds.items())}"


def bounds_text(least: int, most: int, group: str | None) -> str:
    """Return the bounds of a group: `between 2 and 4 nodes of 'gpu'`; `group`: None for one that needs no name."""
    size = count_text(least) if least == most else f"between {least} and {most} nodes"
    return size if group is None else f"{size} of {group!r}"


def _task_text(message: TaskMessage) -> str:
    """Return the text of a message about tasks."""
    match message:
        case tasks.Submitted(numbers):
            return f"{_tasks(numbers)} submitted"
        case tasks.SubmitGang(_, numbers):
            return f"gang of {_tasks(numbers)} submitted"
        case tasks.Broadcast(number):
            return f"broadcast {number} submitted"
        case tasks.Ended(task, rank, outcome):
            return f"task {task} ended on node {rank}: {outcome}"
        case tasks.MemberArrived(task, rank):
            return f"task {task} on node {rank} is ready to meet the others"
        case tasks.CancelTasks(numbers):
            return f"{_tasks(numbers)} cancelled"
        case tasks.CancelBroadcast(number):
            return f"broadcast {number} cancelled"
        case tasks.RankDraining(rank):
            return f"the worker of node {rank} is closing"
        case tasks.TasksFound(numbers, rank):
            return f"{_tasks(numbers)} recovered on node {rank}"
        case tasks.Overdue(_, rank, reason):
            return f"node {rank} lost: {_first_line(reason)}"
        case tasks.StartedOnNode(task):
            return f"task {task} started"
        case tasks.Delivered(task):
            return f"elements of task {task} were delivered"
        case tasks.Stored(rank):
            return f"blobs were stored on node {rank}"
        case tasks.Dropped(rank):
            return f"node {rank} drops blobs"
        case tasks.Withheld(task, rank):
            return f"task {task} was withheld from node {rank}: an input was lost"
        case tasks.Released(task):
            return f"task {task} was released"
        case tasks.UniqueResults(rank, count):
            return f"results that only node {rank} has: {count}"
        case tasks.Abandon(reason):
            return f"waiting tasks were abandoned: {_first_line(reason)}"


def _tasks(numbers: tuple[int, ...]) -> str:
    if len(numbers) == 1:
        return f"task {numbers[0]}"
    return f"{len(numbers)} tasks, {numbers[0]} to {numbers[-1]}," if numbers else "no tasks"


def _node(machine: int, rank_of: Callable[[int], int | None]) -> str:
    rank = rank_of(machine)
    return f"machine {machine}" if rank is None else f"machine {machine} of node {rank}"


def _first_line(reason: str) -> str:
    return reason.strip().partition("\n")[0].removesuffix(":")
