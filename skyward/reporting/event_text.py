"""Events as lines of text, for the console and the log: one wording for both."""

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
"""Kinds of events that the log has. Tasks that go well are left out: there may be thousands a second."""

SHOWN: tuple[type[events.BaseEvent], ...] = (
    events.PoolProvisioning,
    events.PoolReady,
    events.PoolClosed,
    events.PoolNote,
    events.NodeReady,
    events.NodeLost,
    events.NodeFailed,
    events.NodeValuesLost,
    events.ScalingDecided,
)
"""Kinds of events that the console has; of `NodeReady` only the one that completes the pool."""


class Line(NamedTuple):
    """One line of text, and its level, as `logging` counts levels."""

    level: int
    text: str


def line_of(event: events.BaseEvent) -> Line:
    """Return an event as one line, without the name of its pool."""
    match event:
        case (
            events.NodeLost()
            | events.NodeFailed()
            | events.PoolFailed()
            | events.NodeGivenUp()
            | events.NodeValuesLost()
        ):
            level = logging.WARNING
        case events.BudgetReached():
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
            return str(decision)
        case events.CostChanged(spent=spent, per_hour=per_hour):
            return f"costs {money_text(per_hour)}/h from now on; {money_text(spent)} so far"
        case events.BudgetReached(spent=spent, budget=budget):
            return f"reached its budget of {money_text(budget)}: {money_text(spent)} spent"
        case _:
            return type(event).__name__


def _of_node(event: events.NodeEvent) -> str:
    match event:
        case events.NodeRequested(machine=machine, kind=kind, hourly_price=price):
            return f"is requested as machine {machine}: {kind}" + (f", {money_text(price)}/h" if price else "")
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
        case events.NodeDrainCancelled():
            return "is not drained after all"
        case events.NodeLost(reason=reason, replaced=replaced):
            return f"was lost: {reason}" + ("; replacing it" if replaced else "")
        case events.NodeFailed(phase=phase, reason=reason, replaced=replaced):
            return f"failed in phase {phase!r}: {reason}" + ("; trying again" if replaced else "")
        case events.NodeGivenUp(reason=reason):
            return f"is given up: {reason}"
        case events.NodeRemoved(reason=reason):
            return f"is removed: {reason}"
        case events.NodeValuesLost(names=names, reason=reason):
            was = "was" if len(names) == 1 else "were"
            return f"is gone, and with it {joined(names)}, which {was} kept there: {reason}. Run what made it again"
        case events.NodeTerminated(machine=machine):
            return f"gave back machine {machine}"
        case _:
            return type(event).__name__


def _of_task(event: events.TaskEvent) -> str:
    match event:
        case events.TaskRetried(retries=retries, reason=reason):
            return f"is queued again (retry {retries}): {reason}"
        case events.TaskFailed(error=error, reason=reason, node=node):
            where = "" if node is None else f" on node {node}"
            return f"failed{where}: {error}" + (f": {reason}" if reason else "")
        case events.TaskTimedOut(node=node):
            return f"timed out on node {node}"
        case _:
            return type(event).__name__
