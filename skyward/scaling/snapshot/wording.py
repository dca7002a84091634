"""Words for the reasons of decisions: what a data scientist reads in the decision log, with its numbers.

A reason is a sentence without its full stop, since the log continues it with the limits that apply.
"""

from skyward.formatting import count_text, duration_text
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.values import Snapshot

__all__ = [
    *("NO_MORE", "beyond_bounds", "enough_text", "idle_text", "more_text", "of_group", "seconds_text", "slots_busy"),
    *("steady", "tasks_wait"),
]

NO_MORE = "no more can be launched now"
"""The limit of a group that can launch no nodes now: its bounds in a snapshot are not those of its user."""

_MINUTES_FROM = 120.0
"""Seconds from which a duration is shown in minutes."""

_TENTHS_UNTIL = 10.0
"""Seconds up to which a measured duration is shown with tenths."""


def seconds_text(seconds: float) -> str:
    """Return the seconds of a setting: `61.5 s`; from two minutes on `2 min 5 s`."""
    return f"{seconds:g} s" if seconds < _MINUTES_FROM else duration_text(seconds)


def idle_text(idle: float, timeout: float) -> str:
    """Return for how long something was idle, in comparison with the timeout that has passed.

    Without a timeout, it may have been idle for less than is shown: `for a moment, and the idle timeout is 0 s`.
    """
    shown = round(idle, 0 if idle >= _TENTHS_UNTIL else 1)
    if not shown and not timeout:
        return "for a moment, and the idle timeout is 0 s"
    limit = f"the idle timeout of {seconds_text(timeout)}"
    return f"for {limit}" if shown <= timeout else f"for {seconds_text(shown)}, longer than {limit}"


def tasks_wait(count: int) -> str:
    """Return that tasks wait: `1 task waits`, `no task waits`."""
    return "no task waits" if not count else f"{count_text(f'{count:,}', 'task')} {'waits' if count == 1 else 'wait'}"


def slots_busy(busy: int, slots: int) -> str:
    """Return the slots in use: `all 4 slots are busy`, `1 of 4 slots is busy`."""
    if not slots:
        return "no node is up"
    if busy >= slots:
        return "the only slot is busy" if slots == 1 else f"all {slots:,} slots are busy"
    return f"{busy:,} of {count_text(f'{slots:,}', 'slot')} {'is' if busy == 1 else 'are'} busy"


def more_text(more: int) -> str:
    """Return that nodes are missing: `1 more node is needed`."""
    return f"{more:,} more {'node is' if more == 1 else 'nodes are'} needed"


def enough_text(nodes: int) -> str:
    """Return that nodes are enough: `1 node is enough`."""
    return f"{count_text(f'{nodes:,}')} {'is' if nodes == 1 else 'are'} enough"


def of_group(name: str, snapshot: Snapshot) -> str:
    """Return ` of 'gpu'`; empty in a pool of one group, whose name says nothing."""
    return f" of {name!r}" if len(snapshot.groups) > 1 else ""


def beyond_bounds(desired: int, bound: int, *, can_launch: bool = True) -> str:
    """Return that more nodes are desired than a maximum, or fewer than a minimum.

    Args:
        can_launch: False if the bound is the number of nodes that are there or come, as no more can be launched now.
    """
    exceeded = f"more than the maximum of {bound}" if desired > bound else f"fewer than the minimum of {bound}"
    if not can_launch:
        exceeded = f"{bound} {'is' if bound == 1 else 'are'} there or on the way, and {NO_MORE}"
    return f"{count_text(desired)} {'was' if desired == 1 else 'were'} desired, {exceeded}"


def steady(snapshot: Snapshot) -> str:
    """Return that nothing is to change, with what the policy saw."""
    waits = [tasks_wait(snapshot.queued)] if snapshot.queued or not snapshot.gangs else []
    waits += [gangs_wait(snapshot)] if snapshot.gangs else []
    return f"nothing to change: {', '.join(waits)} and {slots_busy(snapshot.inflight, snapshot.capacity)}"
