"""Text of events, shared by console and log."""

import logging
from typing import NamedTuple

from skyward import events
from skyward.formatting import count_text, duration_text, joined, money_text

__all__ = ["LOGGED", "SHOWN", "Line", "line_of"]

LOGGED: tuple[type[events.BaseEvent], ...] = (
    events.PoolRequesting,
    events.PoolProvisioning,
    events.PoolReady,
    events.PoolFailed,
    events.PoolStopping,
    events.PoolClosed,
    events.PoolNote,
    events.NodeEvent,
    events.TaskRetried,
    events.TaskFailed,
    events.TaskTimedOut,
    events.ScalingDecided,
    events.CostChanged,
    events.BudgetReached,
)
"""Event classes in the log, without successful tasks: there may be thousands per second."""

SHOWN: tuple[type[events.BaseEvent], ...] = (
    events.PoolProvisioning,
    events.PoolReady,
    events.PoolClosed,
    events.PoolNote,
    events.NodeReady,
    events.NodeLost,
    events.NodeFailed,
    events.NodeReclaimed,
    events.NodeValuesLost,
    events.ScalingDecided,
)
"""Event classes on the console; of `NodeReady`, only the one that completes the pool."""


class Line(NamedTuple):
    """Line of text with its `logging` level."""

    level: int
    text: str


def line_of(event: events.BaseEvent) -> Line:
    """Return the line of an event, without the name of its pool."""
    match event:
        case (
            events.NodeLost()
            | events.NodeFailed()
            | events.PoolFailed()
            | events.NodeGivenUp()
            | events.NodeReclaimed()
            | events.NodeValuesLost()
        ):
            level = logging.WARNING
        case events.BudgetReached():
            level = logging.WARNING
        case events.ScalingDecided(decision=decision) if decision.failed:
            level = logging.WARNING
        case events.PoolClosed(left=left) if left:
            level = logging.WARNING
        case _:
            level = logging.INFO
    return Line(level, _text(event))


def _text(event: events.BaseEvent) -> str:
    match event:
        case events.PoolRequesting():
            return "looking for offers"
        case events.PoolProvisioning(provider=provider, nodes=nodes):
            return f"starting {count_text(nodes)} ({provider})"
        case events.PoolReady(nodes=nodes, elapsed=elapsed):
            return f"ready with {count_text(nodes)} after {duration_text(elapsed)}"
        case events.PoolFailed(error=error, reason=reason):
            return f"could not be opened: {error}: {reason}"
        case events.PoolStopping():
            return "closing"
        case events.PoolClosed(left=left) if left:
            return f"could not be closed completely, so machines may be left: {left}"
        case events.PoolClosed(elapsed=elapsed, done=done, failed=failed, spent=spent):
            tasks = f"{count_text(done, 'task')} done" + (f", {failed} failed" if failed else "")
            return f"closed after {duration_text(elapsed)}: {tasks}" + (f", {money_text(spent)}" if spent else "")
        case events.PoolNote(text=text):
            return text
        case events.NodeEvent():
            return f"node {event.node} {_of_node(event)}"
        case events.TaskEvent():
            return f"task {event.task} ({event.name}) {_of_task(event)}"
        case events.ScalingDecided(decision=decision):
            return f"{decision.reason}; {decision.held_back}" if decision.failed else str(decision)
        case events.CostChanged(spent=spent, per_hour=per_hour):
            return f"now costs {money_text(per_hour)}/h; {money_text(spent)} spent so far"
        case events.BudgetReached(spent=spent, budget=budget):
            return f"reached its budget of {money_text(budget)}: {money_text(spent)} spent"
        case _:
            return type(event).__name__


def _of_node(event: events.NodeEvent) -> str:
    match event:
        case events.NodeRequested(machine=machine, kind=kind, hourly_price=price):
            return f"was requested as machine {machine}: {kind}" + (f", {money_text(price)}/h" if price else "")
        case events.NodeAllocated(machine=machine):
            return f"has machine {machine}"
        case events.NodePhaseStarted(phase=phase):
            return f"started phase {phase!r}"
        case events.NodePhaseCompleted(phase=phase, elapsed=elapsed):
            return f"completed phase {phase!r} in {duration_text(elapsed)}"
        case events.NodeReady(elapsed=elapsed, ready=ready, wanted=wanted):
            return f"is ready after {duration_text(elapsed)} ({ready} of {count_text(wanted)})"
        case events.NodeDraining():
            return "is draining"
        case events.NodeReclaimed(seconds=seconds):
            return f"is taken back by its provider in {duration_text(seconds)}; it drains until then"
        case events.NodeDrainCancelled():
            return "is no longer draining"
        case events.NodeLost(reason=reason, replaced=replaced):
            return f"was lost: {reason}" + ("; replacing it" if replaced else "")
        case events.NodeFailed(phase=phase, reason=reason, replaced=replaced):
            where = f" in phase {phase!r}" if phase else ""
            return f"failed{where}: {reason}" + ("; trying again" if replaced else "")
        case events.NodeGivenUp(reason=reason):
            return f"was given up: {reason}"
        case events.NodeRemoved(reason=reason):
            return f"was removed: {reason}"
        case events.NodeValuesLost(names=names, reason=reason):
            values, them = ("value", "it") if len(names) == 1 else ("values", "them")
            return f"is gone with the {values} {joined(names)}: {reason}. Run the code that made {them} again"
        case events.NodeTerminated(machine=machine):
            return f"released machine {machine}"
        case _:
            return type(event).__name__


def _of_task(event: events.TaskEvent) -> str:
    match event:
        case events.TaskRetried(retries=retries, reason=reason):
            return f"was requeued (retry {retries}): {reason}"
        case events.TaskFailed(error=error, reason=reason, node=node):
            where = "" if node is None else f" on node {node}"
            return f"failed{where}: {error}" + (f": {reason}" if reason else "")
        case events.TaskTimedOut(node=node):
            return f"timed out on node {node}"
        case _:
            return type(event).__name__
