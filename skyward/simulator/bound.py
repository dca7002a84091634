"""Lower bounds on the cost of a workload, for a clairvoyant scheduler that knows every task beforehand.

Without waiting, every task starts when it arrives. Then `ceil(running / slots)` nodes are needed at every moment. Each
boots before it is needed; while it is not needed, it is either kept, or terminated and booted again, whichever is
cheaper. The bound is the sum over levels (the first node, the second, ...): nodes are alike, so the one that is free
longest is always the best one to terminate. No policy under which no task waits can cost less: boots take their
shortest time, tasks move between nodes for free, and nodes are terminated the moment they are not needed. If the pool's
maximum makes tasks wait, they start as early as it allows, in the order they arrive; the result is then the cost of
that schedule, not a bound for every other. The minimum is paid for from the start to the end of the last task.

With waiting: the slot seconds of all tasks at the cheapest price of a node that can hold them, and one boot. No policy
can cost less, however long tasks wait.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skyward.scaling.snapshot import Group
from skyward.simulator.cloud import API_SECONDS
from skyward.simulator.scenario import Scenario
from skyward.simulator.workload import Task

__all__ = ["CostBound", "lower_bound"]

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class CostBound:
    """Lower bounds on the cost of a workload, USD.

    Attributes:
        no_wait: bound if tasks wait only for the pool's maximum; None for pools of several groups, where it is unknown.
        any_wait: bound if tasks may wait for any time.
        wait_p99: of `no_wait`, in seconds.
        makespan: of `no_wait`, in seconds.
    """

    no_wait: float | None
    any_wait: float
    wait_p99: float = 0.0
    makespan: float = 0.0


def lower_bound(scenario: Scenario) -> CostBound:
    """Return the bounds for the workload of a scenario, in its pool and with its boot times."""
    from skyward.simulator.measures import percentile

    tasks, boot = scenario.tasks(), scenario.boot.least
    any_wait = _any_wait(tasks, scenario.groups, boot)
    if len(scenario.groups) != 1 or not tasks:
        return CostBound(None if tasks else 0.0, any_wait)
    (group,) = scenario.groups
    starts = _starts(tasks, group.max * group.slots)
    ends = [start + task.seconds for start, task in zip(starts, tasks, strict=True)]
    horizon = max(tasks[-1].at, *ends)
    seconds = _node_seconds(starts, ends, group, boot, horizon)
    waits = (start - task.at for start, task in zip(starts, tasks, strict=True))
    no_wait = seconds * group.hourly_price / HOUR
    return CostBound(no_wait, min(any_wait, no_wait), percentile(waits, 0.99), max(ends) - tasks[0].at)


def _starts(tasks: Sequence[Task], slots: int) -> list[float]:
    """Return the start of each task on `slots` slots, first come, first served."""
    busy: list[float] = []
    starts: list[float] = []
    for task in tasks:
        start = task.at
        while busy and busy[0] <= start:
            heapq.heappop(busy)
        if len(busy) >= slots:
            start = max(start, heapq.heappop(busy))
        starts.append(start)
        heapq.heappush(busy, start + task.seconds)
    return starts


def _node_seconds(starts: Iterable[float], ends: Iterable[float], group: Group, boot: float, horizon: float) -> float:
    """Return the seconds of nodes: needed, kept over gaps shorter than a boot, and booting."""
    changes = sorted([(at, 1) for at in starts] + [(at, -1) for at in ends])
    free_since = [API_SECONDS.most] * group.min  # stack of active nodes that are not needed, the latest last
    running = needed = 0
    seconds = before = 0.0
    for at, change in changes:
        seconds += needed * (at - before)
        before = at
        running += change
        now = math.ceil(running / group.slots)
        while needed < now:
            needed += 1
            gap = at - free_since.pop() if free_since else math.inf
            seconds += max(0.0, gap) if needed <= group.min else min(gap, boot)
        while needed > now:
            needed -= 1
            free_since.append(at)
    for level, since in enumerate(reversed(free_since), start=needed):
        seconds += horizon - since if level < group.min else 0.0
    return seconds


def _any_wait(tasks: Sequence[Task], groups: tuple[Group, ...], boot: float) -> float:
    """Return the cost of the work at its cheapest price, by its scarcest resource."""
    by_kind: dict[str, float] = {}
    for task in tasks:
        able = [group for group in groups if group.max and group.can_hold(task.needs)]
        if not able:
            continue
        slot = min(group.hourly_price / group.slots for group in able)
        by_kind[""] = by_kind.get("", 0.0) + task.seconds * slot
        for name, amount in task.needs.resources.items():
            share = min(group.hourly_price * amount / group.resources[name] for group in able)
            by_kind[name] = by_kind.get(name, 0.0) + task.seconds * share
    least = min((group.hourly_price for group in groups if group.max), default=0.0)
    return (max(by_kind.values(), default=0.0) + (boot * least if tasks else 0.0)) / HOUR
