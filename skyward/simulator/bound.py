"""Lower bounds on the cost of a workload, for a clairvoyant scheduler that knows every task beforehand.

Without waiting, every task starts when it arrives. Then `ceil(running / slots)` nodes are needed at every moment. Each
boots before it is needed; while it is not needed, it is either kept, or terminated and booted again, whichever is
cheaper. The bound is the sum over levels (the first node, the second, ...): nodes are alike, so the one that is free
longest is always the best one to terminate. No policy under which no task waits can cost less: boots take their
shortest time, tasks move between nodes for free, and nodes are terminated the moment they are not needed. If the pool's
maximum makes tasks wait, they start as early as it allows, in the order they arrive; the result is then the cost of
that schedule, not a bound for every other. The minimum is paid for from the start to the end of the last task.

With any wait: the slot seconds of all tasks at the cheapest price of a node that can hold them, and one boot. No policy
can cost less, however long tasks wait.

With waits of at most `wait` seconds, the greatest of three bounds:

- the one for any wait;
- compulsory parts: a task of `seconds` that arrives at `at` runs from `at + wait` to `at + seconds` whenever it starts,
  if that is a time at all. The nodes for these parts alone cost what the bound without waiting says of them. For a wait
  of 0 they are the tasks, and the two bounds are equal;
- prices of slots (the dual of the linear program that chooses the starts of the tasks and the nodes). Let `f(t)` be
  between 0 and the boot time, and fall by at most 1 a second. Charge `1 + f'(t)` for each second of a slot, times the
  price of a node for each of its slots. A node that is up from `s` to `t` then earns at most `t - s + f(t) - f(s)`,
  which is no more than it costs with its boot. So no policy costs less than what the tasks pay at least: `seconds`
  and the least `f(start + seconds) - f(start)` over the starts that the wait allows. Every such `f` gives a bound, for
  groups of several prices, too. The better ones are low while tasks must start and high when they must have ended, as
  that makes bursts pay for boots; `slot_prices` finds good ones, not always the best.

Assumptions: nodes are billed from their allocation, boots take their shortest time, tasks change between the slots of
all nodes for free, nothing is lost, calls to the cloud take no time, and the maximum does not limit the pool. Each of
them makes the bound lower. Limits: one task in a hundred waits longer than the p99 wait of a run, whereas the bound at
that wait lets no task wait longer; a run that starves one task in a hundred can cost less than "the bound at its p99".
A run that loses nodes repeats work, which it pays for and the bound does not. The minimum counts only in the second of
the three.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skyward.scaling.snapshot import Group
from skyward.simulator.cloud import API_SECONDS
from skyward.simulator.scenario import Scenario
from skyward.simulator.slot_prices import PricedTask, best_payment
from skyward.simulator.workload import Task

__all__ = ["CostBound", "LowerBounds", "lower_bound"]

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class CostBound:
    """Lower bounds on the cost of a workload, USD.

    Attributes:
        no_wait: bound if tasks wait only for the pool's maximum; None for pools of several groups, where it is unknown.
        any_wait: bound if tasks may wait for any time.
        wait_p50, wait_p99: of `no_wait`, in seconds.
        makespan: of `no_wait`, in seconds.
    """

    no_wait: float | None
    any_wait: float
    wait_p50: float = 0.0
    wait_p99: float = 0.0
    makespan: float = 0.0


class LowerBounds:
    """The bounds for one workload, in its pool and with its boot times.

    Attributes:
        cost: the bounds without waiting, and for any wait.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._tasks = scenario.tasks()
        self._boot = max(0.0, scenario.boot.least)
        self._groups = scenario.groups
        self._at: dict[float, float] = {}
        self.cost = self._without_limits()

    def at(self, wait: float) -> float:
        """Return the bound in USD for a scheduler under which no task waits longer than `wait` seconds."""
        if wait not in self._at:
            found = max(self.cost.any_wait, self._compulsory(wait), self._priced(wait))
            no_wait = self.cost.no_wait
            allowed = no_wait is not None and wait >= self._longest_wait  # that schedule is one of those
            self._at[wait] = min(found, no_wait) if allowed and no_wait is not None else found
        return self._at[wait]

    def _without_limits(self) -> CostBound:
        from skyward.simulator.measures import percentile

        tasks = self._tasks
        any_wait = _any_wait(tasks, self._groups, self._boot)
        self._longest_wait = 0.0
        if len(self._groups) != 1 or not tasks:
            return CostBound(None if tasks else 0.0, any_wait)
        (group,) = self._groups
        starts = _starts(tasks, group.max * group.slots)
        ends = [start + task.seconds for start, task in zip(starts, tasks, strict=True)]
        seconds = _node_seconds(starts, ends, group, self._boot, max(tasks[-1].at, *ends))
        waits = [start - task.at for start, task in zip(starts, tasks, strict=True)]
        self._longest_wait = max(waits)
        no_wait = seconds * group.hourly_price / HOUR
        p50, p99 = percentile(waits, 0.5), percentile(waits, 0.99)
        return CostBound(no_wait, min(any_wait, no_wait), p50, p99, max(ends) - tasks[0].at)

    def _compulsory(self, wait: float) -> float:
        """Return the cost of the nodes for the parts of the tasks that run whenever they start."""
        if len(self._groups) != 1 or not self._tasks:
            return 0.0
        (group,) = self._groups
        parts = [task for task in self._tasks if task.seconds > wait]
        ends = [task.at + task.seconds for task in parts]
        horizon = max(task.at + task.seconds for task in self._tasks)
        seconds = _node_seconds([task.at + wait for task in parts], ends, group, self._boot, horizon)
        return seconds * group.hourly_price / HOUR

    def _priced(self, wait: float) -> float:
        """Return what the tasks pay at least, at the best prices of slots that are found."""
        priced: list[PricedTask] = []
        prices: dict[object, float | None] = {}
        for task in self._tasks:
            if task.needs not in prices:
                able = [group for group in self._groups if group.max and group.can_hold(task.needs)]
                prices[task.needs] = min((group.hourly_price / group.slots / HOUR for group in able), default=None)
            if price := prices[task.needs]:
                priced.append(PricedTask(task.at, task.seconds, price))
        if not priced:
            return 0.0
        return best_payment(priced, wait, self._boot)


def lower_bound(scenario: Scenario) -> CostBound:
    """Return the bounds without waiting, and for any wait."""
    return LowerBounds(scenario).cost


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
