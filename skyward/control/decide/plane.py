"""The control plane of one pool: composes task manager, autoscaler and reconciler, and passes messages between them.

One pure step, `message, now -> effects`. The asyncio pool (`skyward.control.act.pool`) and the simulator
(`skyward.simulator`) drive this same class; they differ in the clock, and in what executes the effects.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from skyward.control.decide.autoscaler import Autoscaler
from skyward.control.decide.causes import Cause, CauseLog, describe
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.budget import (
    DRAIN_RESERVE,
    STOP_RESERVE,
    TERMINATION_RESERVE,
    Ledger,
    unaffordable,
)
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.messages import (
    CollectionUsed,
    ContinueSize,
    Decided,
    DrainNode,
    ForgetKept,
    KeptAdded,
    KeptValuesLost,
    Open,
    PlaneEffect,
    PlaneMessage,
    ReleaseKept,
    Resize,
    SetBudget,
    SetFloor,
    ThresholdReached,
    Tick,
)
from skyward.control.decide.plane_view import PlaneView
from skyward.control.decide.removal import after_drain, at_least, retained_nodes
from skyward.control.decide.settings import PlaneSettings
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.tasks.manager import TaskManager
from skyward.errors import IllegalTransitionError
from skyward.events.decisions import Decider, DecisionEvent, DecisionLog
from skyward.formatting import count_text, money_text
from skyward.kept.registry import KeptRegistry
from skyward.scaling.bundles import floor_nodes
from skyward.scaling.gang_placement import gang_fits, gang_nodes
from skyward.scaling.gang_text import gang_text, maximum_text
from skyward.scaling.snapshot import Demand, GangDemand, Group, Policy, RetainedNodes, Snapshot
from skyward.values.needs import NOTHING, Needs

__all__ = ["ControlPlane"]

RECALL_TICK = 0.05
"""Seconds between checks of prefetched tasks, which wait on a node without a slot."""


class ControlPlane:
    """The state of one pool. `handle` is the only entry point; it returns effects, in order.

    Attributes:
        decisions: the latest decisions.
        causes: the latest messages that changed machines or decisions, by number.
        kept: the values that nodes keep for later tasks.
        ready: True once enough nodes were active.
        handled: number of the latest message, from 1 on.
        failure: why nodes cannot be launched; empty while they can.
    """

    def __init__(self, settings: PlaneSettings, policy: Policy) -> None:
        self.settings = settings
        self.policy = policy
        self.groups = {group.name: group for group in settings.groups}
        self.tasks = TaskManager(settings.retries, settings.groups, settings.max_nodes)
        self.ledger = Ledger(settings.budget)
        self.reconciler = Reconciler(settings.sources, self.ledger, settings.limits, existing=settings.existing)
        self.autoscaler = Autoscaler(policy, settings.cooldown)
        self.decisions = DecisionLog()
        self.causes = CauseLog()
        self.kept = KeptRegistry()
        self._view = PlaneView(self.groups, self.tasks, self.reconciler.table, self.ledger)
        self.ready = False
        self.failure = ""
        self.budget_exhausted = False
        self._stopped = False
        self._evicted = False
        self._floor: tuple[Demand, ...] = ()
        self._draining: set[int] = set()
        self._uses: dict[int, tuple[str, ...]] = {}
        self._found: dict[int, Mapping[str, float]] = {}
        self._boot_seconds: float | None = None
        self._gangs_fit: tuple[tuple[Group, ...], set[int]] = (), set()
        self._evaluated_at = float("-inf")
        self._evaluate_at: float | None = None
        self._reconciled_at = 0.0
        self._recalled_at = float("-inf")
        self.handled = 0
        self._message: PlaneMessage = Tick()

    # The step.

    def handle(self, message: PlaneMessage, now: float) -> list[PlaneEffect]:
        """Handle `message` at time `now`, in seconds of any monotonic clock.

        The message gets the next number, which its effects, the transitions and the decisions of this step carry.
        """
        self.handled += 1
        self._message = message
        try:
            return self._step(message, now)
        except IllegalTransitionError as error:
            error.add_note(f"The control plane was handling {self._cause()}.")
            raise

    def _step(self, message: PlaneMessage, now: float) -> list[PlaneEffect]:
        effects: list[PlaneEffect] = []
        match message:
            case tasks.Submitted(target=target) if target is not None and self._drain_can_end(target):
                self._submit_to_draining(message, target, now, effects)
            case tasks.TasksFound() if self._stopped:
                self._tell_tasks(message, now, effects)
                self._tell_tasks(tasks.StopUnfunded(self.failure), now, effects)
            case (
                tasks.Submitted()
                | tasks.SubmitGang()
                | tasks.Ended()
                | tasks.MemberArrived()
                | tasks.StartedOnNode()
                | tasks.TasksFound()
                | tasks.Withheld()
                | tasks.Released()
                | tasks.UniqueResults()
                | tasks.Delivered()
                | tasks.Stored()
                | tasks.Dropped()
                | tasks.Broadcast()
                | tasks.CancelTasks()
                | tasks.CancelBroadcast()
                | tasks.Abandon()
                | tasks.RankDraining()
            ):
                self._tell_tasks(message, now, effects)
            case tasks.Overdue():
                self._cause()
                self._tell_tasks(message, now, effects)
            case Open():
                self._reconciled_at = self._evaluated_at = now
                self._reconcile(machines.Desired(self.first), now, effects)
            case Resize(bounds, nodes):
                self._resize(bounds, nodes, now, effects)
            case ContinueSize(wanted, draining):
                self._continue_size(wanted, draining, now, effects)
            case DrainNode(rank):
                kept = self.kept.busy_nodes(now)
                if after := after_drain(self.reconciler.table, self.groups, self.desired, kept, rank):
                    self._decide("user", after, f"node {rank} is drained", now, effects, drain=rank)
            case SetFloor(demands):
                self._floor = demands
                self._evaluate(now, effects)
            case SetBudget(budget):
                self._set_budget(budget, now, effects)
            case CollectionUsed():
                if not any(self.desired.values()):
                    self._wake(NOTHING, "the client uses a collection and the pool has no nodes", now, effects)
                if self.tasks.idle_since is not None:
                    self.tasks.idle_since = now
            case KeptAdded(entry):
                self.kept.add(entry)
                self._spare_keeping(now, effects)
            case ReleaseKept(keys):
                dropped = self.kept.drop(keys).items()
                effects += (ForgetKept(node, names, cause=self.handled) for node, names in dropped)
            case Tick():
                self._tick(now, effects)
            case _:
                self._cause()
                self._record_resources(message)
                self._reconcile(message, now, effects)
                if isinstance(message, machines.TakenOver):
                    self._remove_emptied(now, effects)
        if self.ledger.budget is not None:
            self._watch_budget(now, effects)
        self._check_readiness(message, now, effects)
        if self._uses:
            self._end_uses(effects, now)
        return effects

    def close(self, now: float) -> list[PlaneEffect]:
        """Terminate every machine, whatever runs there; each must still be reported as `Terminated`."""
        self.handled += 1
        return [*self.reconciler.close(now, self.handled)]

    def _cause(self) -> Cause:
        """Return the message that is being handled as a cause, recorded for later."""
        if (cause := self.causes.get(self.handled)) is None:
            cause = Cause(self.handled, describe(self._message, self._rank_of), self._follows_from(self._message))
            self.causes.add(cause)
        return cause

    def _rank_of(self, machine: int) -> int | None:
        known = self.reconciler.table.machines.get(machine)
        return None if known is None else known.rank

    def _follows_from(self, message: PlaneMessage) -> int:
        """Return the number of the message for which the machine of this report was launched, kept or removed."""
        match message:
            case machines.Refused((machine, *_)):
                pass
            case machines.Allocated(machine) | machines.Joined(machine) | machines.Failed(machine):
                pass
            case machines.Terminated(machine):
                pass
            case _:
                return 0
        known = self.reconciler.table.machines.get(machine)
        return 0 if known is None else known.cause

    # Tasks.

    def _tell_tasks(self, message: tasks.TaskManagerMessage, now: float, effects: list[PlaneEffect]) -> None:
        new = message if isinstance(message, (tasks.Submitted, tasks.Broadcast)) else None
        if new is not None and not any(self.desired.values()):
            self._wake(new.needs, "a task was submitted and the pool has no nodes", now, effects)
        done: list[PlaneEffect] = [*self.tasks.handle(message, now, self.handled)]
        if new is not None and new.kept:
            self._begin_uses(new, done, now)
        effects += done
        if isinstance(message, tasks.SubmitGang) and not any(self.desired.values()):
            self._wake_for_gangs(now, effects)
        if new is not None and new.kept:
            self._spare_keeping(now, effects)
        self._remove_emptied(now, effects)

    def _remove_emptied(self, now: float, effects: list[PlaneEffect]) -> None:
        for rank in [rank for rank in self._draining if self._is_emptied(rank, now)]:
            self._draining.discard(rank)
            self._reconcile(machines.Emptied(rank), now, effects)

    def _begin_uses(self, message: tasks.Submitted | tasks.Broadcast, effects: list[PlaneEffect], now: float) -> None:
        """Record the tasks that use kept values."""
        if isinstance(message, tasks.Submitted):
            users = message.tasks
        else:
            users = tuple(effect.task for effect in effects if isinstance(effect, tasks.Member))
        for task in users:
            self._uses[task] = message.kept
            self.kept.task_submitted(message.kept, now)

    def _end_uses(self, effects: list[PlaneEffect], now: float) -> None:
        """Record the end of tasks that used kept values."""
        for effect in effects:
            if isinstance(effect, tasks.Settle):
                self.kept.task_ended(self._uses.pop(effect.task, ()), now)

    def _wake(self, needs: Needs, reason: str, now: float, effects: list[PlaneEffect]) -> None:
        """Launch a node that can hold `needs`, for a pool that has none."""
        able = [group for group in self._scalable_groups() if group.max and group.can_hold(needs)]
        if able and not self.budget_exhausted:
            group = min(able, key=lambda each: each.hourly_price)
            after = {**self.desired, group.name: 1}
            self._decide("policy", after, reason, now, effects)

    def _wake_for_gangs(self, now: float, effects: list[PlaneEffect]) -> None:
        """Launch the nodes that the waiting gangs need, for a pool that has none."""
        needed = gang_nodes(self.snapshot(now)).launch
        if needed and not self.budget_exhausted:
            reason = "a gang was submitted and the pool has no nodes"
            self._decide("policy", {**self.desired, **needed}, reason, now, effects)

    def _end_hopeless_gangs(self, now: float, effects: list[PlaneEffect]) -> None:
        """End the waiting gangs for which the pool can never have enough nodes at once."""
        groups, why = self._groups_for_gangs(now)
        before, fitting = self._gangs_fit
        if before != groups:
            fitting = set()
        waiting = self.tasks.waiting_gangs()
        for number, demand in waiting.items():
            if number in fitting:
                continue
            if gang_fits(groups, demand, self.settings.max_nodes):
                fitting.add(number)
                continue
            outcome, reason = self._why_hopeless(demand, groups, why, now)
            effects.extend(self.tasks.handle(tasks.EndGang(number, outcome, reason), now, self.handled))
        self._gangs_fit = groups, fitting & waiting.keys()

    def _groups_for_gangs(self, now: float) -> tuple[tuple[Group, ...], set[Literal["given up", "budget", "policy"]]]:
        """Return the groups with as many nodes as each can have now, and what limits them."""
        limits: set[Literal["given up", "budget", "policy"]] = set()
        groups = []
        for name, group in self.groups.items():
            there = self.reconciler.effective(name)
            most = max(group.max, there)
            if name in self.reconciler.given_up_groups or self.reconciler.is_closed(name):
                limits.add("given up")
                most = min(most, there)
            if self.policy.name == "no" and self.desired.get(name, 0) < most:
                limits.add("policy")
                most = max(there, self.desired.get(name, 0))
            price = self.settings.sources[name][0].hourly_price
            room = self.ledger.room(price, now)
            if room is not None and there + room < most:
                limits.add("budget")
                most = there + room
            groups.append(replace(group, max=most))
        return tuple(groups), limits

    def _why_hopeless(
        self, gang: GangDemand, groups: tuple[Group, ...], limits: Container[str], now: float
    ) -> tuple[Literal["infeasible", "abandoned", "unfunded"], str]:
        """Return how a gang ends for which the pool has not, and never will have, enough nodes."""
        if reason := self.tasks.gang_infeasible(gang):
            return "infeasible", reason
        text, most = gang_text(gang), maximum_text(groups, self.settings.max_nodes)
        if "given up" in limits:
            because = f": it {self.failure}" if self.failure else ""
            return "abandoned", f"cannot start enough nodes for {text}{because}"
        if "budget" in limits:
            budget, spent = money_text(self.ledger.budget or 0.0), money_text(self.ledger.spent(now))
            paid = f"its budget of {budget}, of which {spent} is spent, pays for {most}"
            return "unfunded", f"cannot pay for {text}: {paid}"
        return "infeasible", f"{text}, which need more nodes than there are, {most}, and policy 'no' adds none"

    # Machines.

    def _reconcile(self, message: machines.ReconcilerMessage, now: float, effects: list[PlaneEffect]) -> None:
        before = dict(self.desired)
        self.reconciler.may_empty = self.budget_exhausted or not any(group.min for group in self.groups.values())
        self.reconciler.keeping = frozenset() if self.budget_exhausted else frozenset(self.kept.busy_nodes(now))
        for effect in self.reconciler.handle(message, now, self.handled):
            match effect:
                case machines.NodeGone():
                    if self.budget_exhausted and effect.departure == "removed":
                        effect = replace(effect, reason=f"the pool {self.failure}")
                    self._draining.discard(effect.rank)
                    self._node_gone(effect, now, effects)
                case machines.GiveUp(_, rank, reason, origin=origin):
                    self.failure = f"could not start node {rank}{self.causes.because(origin)}: {reason}"
                case _:
                    pass
            effects.append(effect)
            match effect:
                case machines.NodeGone(rank, reason, _, machine, departure):
                    if departure == "removed" and not self.budget_exhausted:
                        reason += self.causes.because(effect.origin)
                    if gone := self.kept.node_lost(rank, reason):
                        effects.append(KeptValuesLost(rank, machine, gone, reason, cause=self.handled))
                case machines.Activate(machine, rank, group):
                    self._draining.discard(rank)
                    self._joined(machine, rank, self.groups[group], now, effects)
                case machines.Drain(rank):
                    self._draining.add(rank)
                    self._tell_tasks(tasks.RankDraining(rank), now, effects)
                case _:
                    pass
        if self.reconciler.requester.over_budget and self.cannot_start and not self.reconciler.given_up:
            self.failure = unaffordable(self.ledger.budget or 0.0, self.ledger.spent(now))
        if isinstance(message, machines.Lost) and any(self._is_short(group) for group in before):
            self._log("reconciler", before, before, f"a node was lost ({message.reason}); replacing it", now, effects)

    def _record_resources(self, message: machines.ReconcilerMessage) -> None:
        """Record the resources found on a machine. Its group is given the most that any of its nodes has."""
        match message:
            case machines.Terminated(number):
                self._found.pop(number, None)
            case machines.Joined(number, found) if found and (machine := self.reconciler.table.machines.get(number)):
                self._found[number] = found
                group = self.groups[machine.group]
                most = {name: max(had, group.resources.get(name, 0.0)) for name, had in found.items()}
                self.groups[group.name] = replace(group, resources={**group.resources, **most})
                self.tasks.groups = tuple(self.groups.values())
            case _:
                pass

    def _is_short(self, group: str) -> bool:
        return self.reconciler.table.count(group, "active") < self.desired.get(group, 0)

    def _joined(self, number: int, rank: int, group: Group, now: float, effects: list[PlaneEffect]) -> None:
        machine = self.reconciler.table.machines.get(number)
        if machine is not None and machine.requested_at and machine.since == now:
            took = now - machine.requested_at[0]
            self._boot_seconds = took if self._boot_seconds is None else 0.7 * self._boot_seconds + 0.3 * took
        resources = {**group.resources, **self._found.get(number, {})}
        joined = tasks.RankJoined(rank, group.slots, group.name, resources, group.capabilities)
        self._tell_tasks(joined, now, effects)

    def _node_gone(self, gone: machines.NodeGone, now: float, effects: list[PlaneEffect]) -> None:
        """Pass the end of a node on to its tasks."""
        rank, reason = gone.rank, gone.reason
        if gone.again:
            self._tell_tasks(tasks.RankLost(rank, f"node {rank} died: {reason}"), now, effects)
        elif self._evicted:
            self._tell_tasks(tasks.RankRemoved(rank, self.failure, "unfunded"), now, effects)
        else:
            because = self.causes.because(gone.origin) if gone.departure == "removed" else ""
            self._tell_tasks(tasks.RankRemoved(rank, f"node {rank} is gone{because}: {reason}"), now, effects)

    def _threshold(self, group: Group) -> int:
        return self.settings.thresholds.get(group.name, group.min)

    @property
    def desired(self) -> Mapping[str, int]:
        """Desired nodes, by group."""
        return self.reconciler.desired

    @property
    def draining(self) -> frozenset[int]:
        """Ranks of the nodes that drain."""
        return frozenset(self._draining)

    @property
    def first(self) -> dict[str, int]:
        """Nodes that the pool starts with, by group."""
        existing = {group: sum(sources.values()) for group, sources in self.settings.existing.items()}
        desired = self.settings.desired
        return {
            g.name: max(g.min, self._threshold(g), existing.get(g.name, 0), desired.get(g.name, 0))
            for g in self.groups.values()
        }

    @property
    def is_attached(self) -> bool:
        """True if the pool started with machines of a former process."""
        return any(any(sources.values()) for sources in self.settings.existing.values())

    @property
    def is_unfunded(self) -> bool:
        """True if the budget is reached, or does not cover a machine that is wanted."""
        return self.budget_exhausted or self.reconciler.requester.over_budget

    @property
    def cannot_start(self) -> bool:
        """True if enough nodes for work to start, or any at all, cannot be launched any more."""
        if not self.ready and self.is_unfunded and not self.is_attached:
            return True
        given_up = len(self.reconciler.given_up)
        if not given_up:
            return False
        if self.ready:
            return self.reconciler.empty
        needed = sum(map(self._threshold, self.groups.values()))
        return sum(self.desired.values()) - given_up < needed

    def _is_limited(self) -> bool:
        return bool(self.reconciler.given_up) or any(map(self.reconciler.is_closed, self.groups))

    def _hopeless_shapes(self) -> frozenset[Needs]:
        """Return the queued shapes that fit only groups of which no node can be launched."""
        able = [group for group in self.groups.values() if self.reconciler.can_have(group.name)]
        return frozenset(needs for needs in self.tasks.shapes() if not any(group.can_hold(needs) for group in able))

    def may_gain_nodes(self) -> bool:
        """Return whether nodes are booting, or more can be launched."""
        wanted = sum(self.desired.values())
        active = sum(self.reconciler.table.count(group, "active") for group in self.groups)
        if wanted - len(self.reconciler.given_up) > active:
            return True
        most = self.settings.max_nodes
        if self.budget_exhausted or (most is not None and wanted >= most):
            return False
        able = (name for name in self.groups if self.reconciler.can_have(name))
        return any(self.groups[name].max > self.desired.get(name, 0) for name in able)

    # Scaling.

    def infeasible(self, floor: Sequence[Demand]) -> str:
        """Return why a floor exceeds the pool at its maximum; empty if it fits."""
        for demand in floor:
            if reason := self.tasks.infeasible(demand.needs):
                return reason
        if floor and not floor_nodes(tuple(self.groups.values()), floor, {}):
            asked = ", ".join(f"{demand.count} times {demand.needs}" for demand in floor)
            most = ", ".join(f"{group.max} of {name!r}" for name, group in self.groups.items())
            return f"{asked}, which do not fit even in the pool's maximum number of nodes: {most}"
        return ""

    def _resize(
        self, bounds: Mapping[str, tuple[int, int]], nodes: Mapping[str, int], now: float, effects: list[PlaneEffect]
    ) -> None:
        for name, (least, most) in bounds.items():
            self.groups[name] = replace(self.groups[name], min=least, max=most)
        self.tasks.groups = tuple(self.groups.values())
        after = dict(self.desired)
        for name, (least, most) in bounds.items():
            after[name] = max(least, min(most, nodes.get(name, after.get(name, least))))
        sizes = ", ".join(f"{least}" if least == most else f"{least} to {most}" for least, most in bounds.values())
        if not self.budget_exhausted:
            self._decide("user", after, f"resized to {sizes}", now, effects, retry_given_up=True)

    def _continue_size(
        self, nodes: Mapping[str, int], draining: tuple[int, ...], now: float, effects: list[PlaneEffect]
    ) -> None:
        retained = self.retained(now)
        kept = {name: each.nodes for name, each in retained.items()}
        after = {name: max(nodes.get(name, count), kept.get(name, 0)) for name, count in self.desired.items()}
        if after == dict(self.desired) or self.budget_exhausted:
            return
        reason = f"the pool had {count_text(sum(nodes.values()), 'desired node')} when its process ended"
        self._decide("user", after, reason, now, effects, victims=draining)

    def _decide(
        self,
        by: Decider,
        after: Mapping[str, int],
        reason: str,
        now: float,
        effects: list[PlaneEffect],
        *,
        victims: tuple[int, ...] = (),
        retry_given_up: bool = False,
        drain: int | None = None,
    ) -> None:
        if not self.budget_exhausted:
            after, stay = at_least(after, self.retained(now))
            reason += f"; {stay}" if stay else ""
        self._log(by, dict(self.desired), after, reason, now, effects)
        self.autoscaler.start_cooldown(now)
        self._reconcile(machines.Desired(after, victims, retry_given_up, drain), now, effects)

    def _submit_to_draining(self, new: tasks.Submitted, rank: int, now: float, effects: list[PlaneEffect]) -> None:
        """Cancel the drain of a node for tasks that must run on it."""
        by_hand = self._cancel_drain(rank, now, effects)
        self._tell_tasks(new, now, effects)
        if by_hand:
            self._undo_drain(rank, f"a new task must run on node {rank}, so its drain is cancelled", now, effects)
        self._reconcile(machines.Reconcile(), now, effects)

    def _spare_keeping(self, now: float, effects: list[PlaneEffect]) -> None:
        """Keep the nodes whose kept values count: cancel their drains, and want as many nodes as must stay."""
        if self.budget_exhausted:
            return
        kept = self.kept.busy_nodes(now)
        draining = [rank for rank in sorted(self._draining) if rank in kept and self._drain_can_end(rank)]
        for rank in [rank for rank in draining if self._cancel_drain(rank, now, effects)]:
            self._undo_drain(rank, f"node {rank} keeps {kept[rank]}, so its drain is cancelled", now, effects)
        after, stay = at_least(self.desired, self.retained(now))
        if stay:
            self._decide("reconciler", after, stay, now, effects)
        elif draining:
            self._reconcile(machines.Reconcile(), now, effects)

    def _drain_can_end(self, rank: int) -> bool:
        """Return whether a node drains, and may take tasks again: its provider does not take it back."""
        return rank in self._draining and not self._is_reclaimed(rank)

    def _is_reclaimed(self, rank: int) -> bool:
        machine = self.reconciler.table.machine_of(rank, "STOP_REQUESTED")
        return machine is not None and machine.reclaimed

    def _is_emptied(self, rank: int, now: float) -> bool:
        """Return whether a draining node can go.

        Not one whose tasks and results of a former process are still unknown; and one that its provider takes back
        stays until then while it keeps values that may still be used.
        """
        if not self.tasks.is_empty(rank):
            return False
        machine = self.reconciler.table.machine_of(rank, "STOP_REQUESTED")
        if machine is None:
            return True
        return not machine.adopted and not (machine.reclaimed and rank in self.kept.busy_nodes(now))

    def _cancel_drain(self, rank: int, now: float, effects: list[PlaneEffect]) -> bool:
        """Let a draining node take tasks again; return True if the user had drained it."""
        machine = self.reconciler.table.machine_of(rank, "STOP_REQUESTED")
        by_hand = machine is not None and machine.expelled
        self._reconcile(machines.DrainRefused(rank), now, effects)
        return by_hand

    def _undo_drain(self, rank: int, reason: str, now: float, effects: list[PlaneEffect]) -> None:
        """Want the node again by which the user made the pool smaller, so that no other goes in its place."""
        group = self.groups[self.reconciler.table.assignments[rank].machine.group]
        most = self.settings.max_nodes
        has_room = self.desired[group.name] < group.max and (most is None or sum(self.desired.values()) < most)
        is_surplus = self.reconciler.effective(group.name) > self.desired[group.name]
        if has_room and is_surplus and not self.budget_exhausted:
            after = {**self.desired, group.name: self.desired[group.name] + 1}
            self._decide("reconciler", after, reason, now, effects)

    def _evaluate(self, now: float, effects: list[PlaneEffect]) -> None:
        """Evaluate the policy, and apply what is due now."""
        self._evaluated_at, self._evaluate_at = now, None
        if not self.ready or self.budget_exhausted or not self.elastic:
            return
        prices = {name: sources[0].hourly_price for name, sources in self.settings.sources.items()}
        room = {name: self.ledger.room(price, now) for name, price in prices.items()}
        try:
            verdict = self.autoscaler.evaluate(self.snapshot(now), room)
        except (Exception, SystemExit) as error:  # of a policy that the user wrote; the pool stays as it is
            failed = f"the policy raised {type(error).__name__}: {error}"
            self._log("policy", dict(self.desired), dict(self.desired), failed, now, effects, "nothing is changed")
            return
        if verdict is None:
            return
        before, after = verdict.before, verdict.after
        reason = verdict.reason + self._note_on_lost_values(after, verdict.victims)
        self._log("policy", before, after, reason, now, effects, verdict.held_back)
        if verdict.changed:
            self._reconcile(machines.Desired(after, verdict.victims), now, effects)

    def retained(self, now: float) -> dict[str, RetainedNodes]:
        """Return the nodes that scaling down keeps, by group; the head stays while any node does."""
        return retained_nodes(self.reconciler.table, self.kept.busy_nodes(now))

    def _note_on_lost_values(self, after: Mapping[str, int], victims: tuple[int, ...]) -> str:
        """Return a note on values that are kept past their time and are lost with a decision."""
        going = [(rank, self.kept.names(rank)) for rank in self.reconciler.would_drain(after, victims)]
        return "".join(f"; node {rank} no longer keeps {names}" for rank, names in going if names)

    @property
    def elastic(self) -> bool:
        """True if the autoscaler may change the number of nodes: also one above the maximum, for kept values."""
        return any(
            group.max > group.min or self.desired.get(group.name, 0) > group.max for group in self.groups.values()
        )

    # Budget.

    def _watch_budget(self, now: float, effects: list[PlaneEffect]) -> None:
        """Drain every node in time for the budget; then stop the tasks that still run; then terminate every node."""
        if not self.budget_exhausted and now >= self.ledger.exhausted_at(DRAIN_RESERVE):
            self._exhaust_budget(now, effects)
        if not self.budget_exhausted:
            return
        self.failure = self._unfunded(now)
        if not self._stopped and now >= self.ledger.exhausted_at(STOP_RESERVE):
            self._stopped = True
            self._tell_tasks(tasks.StopUnfunded(self.failure), now, effects)
        if not self._evicted and now >= self.ledger.exhausted_at(TERMINATION_RESERVE):
            self._evicted = True
            self._reconcile(machines.Evict(f"the pool {self.failure}"), now, effects)

    def _unfunded(self, now: float) -> str:
        """Return why nothing more can run: the budget, and what is spent of it."""
        budget, spent = money_text(self.ledger.budget or 0.0), money_text(self.ledger.spent(now))
        drains = not self._stopped and self.ledger.per_hour
        left = f", and its nodes need up to {DRAIN_RESERVE:g} s more to drain" if drains else ""
        how = "`pool.set_budget(USD)`, or `%sky up NAME --budget USD` in a notebook"
        return f"has reached its budget of {budget}: {spent} is spent{left}; raise the budget to continue: {how}"

    @property
    def _next_reserve(self) -> float:
        """Reserve of the next step: draining, stopping tasks, or terminating nodes."""
        if not self.budget_exhausted:
            return DRAIN_RESERVE
        return TERMINATION_RESERVE if self._stopped else STOP_RESERVE

    def _exhaust_budget(self, now: float, effects: list[PlaneEffect]) -> None:
        self.budget_exhausted = True
        spent, rate, budget = self.ledger.spent(now), self.ledger.per_hour, self.ledger.budget or 0.0
        reason = (
            f"budget of {money_text(budget)} reached: {money_text(spent)} spent, nodes cost {money_text(rate)}/h; "
            "draining all nodes"
        )
        self.failure = self._unfunded(now)
        self._decide("budget", dict.fromkeys(self.groups, 0), reason, now, effects)

    def _set_budget(self, budget: float | None, now: float, effects: list[PlaneEffect]) -> None:
        self.ledger.budget = budget
        if self.budget_exhausted and now < self.ledger.exhausted_at(DRAIN_RESERVE):
            self.budget_exhausted, self._stopped, self._evicted, self.failure = False, False, False, ""
            after = {group.name: group.min for group in self.groups.values()}
            self._decide("budget", after, "the budget changed", now, effects, retry_given_up=True)
            self._spare_keeping(now, effects)

    # Time.

    @property
    def next_tick(self) -> float:
        """The latest time for the next `Tick`."""
        return min(self._due())

    def _due(self) -> Iterable[float]:
        yield self._reconciled_at + self.settings.tick
        if self.reconciler.closing:
            return
        if self.tasks.has_prefetched():
            yield self._recalled_at + RECALL_TICK
        if (meeting := self.tasks.next_meeting()) is not None:
            yield meeting
        if self.reconciler.requester.retry_at is not None:
            yield self.reconciler.requester.retry_at
        if not self._evicted:
            yield self.ledger.exhausted_at(self._next_reserve) + 0.001
        if self.ready and self.elastic:
            yield from self._due_evaluations()

    def _tick(self, now: float, effects: list[PlaneEffect]) -> None:
        if self.tasks.has_prefetched() and now >= self._recalled_at + RECALL_TICK:
            self._recalled_at = now
            self._tell_tasks(tasks.CheckPrefetched(), now, effects)
        if (meeting := self.tasks.next_meeting()) is not None and now >= meeting:
            self._tell_tasks(tasks.MeetingsDue(), now, effects)
        retry_at = self.reconciler.requester.retry_at
        if now >= self._reconciled_at + self.settings.tick or (retry_at is not None and now >= retry_at):
            self._reconciled_at = now
            self._reconcile(machines.Reconcile(), now, effects)
        if self.ready and now >= min(self._due_evaluations()):
            self._evaluate(now, effects)

    def _due_evaluations(self) -> Iterable[float]:
        yield self._evaluated_at + self.autoscaler.interval
        if self._evaluate_at is not None:
            yield self._evaluate_at
        if self.tasks.idle_since is not None:
            idle_at = self.tasks.idle_since + self.settings.idle_timeout + 0.001
            if idle_at > self._evaluated_at:
                yield idle_at

    def _check_readiness(self, message: PlaneMessage, now: float, effects: list[PlaneEffect]) -> None:
        """Report readiness, end tasks that can never run, or ask the policy about new tasks, after any message."""
        if not self.ready and self._enough():
            self.ready = True
            self.reconciler.opening = False
            self.autoscaler.begin(now)
            effects.append(ThresholdReached(cause=self.handled))
        if self.ready and not self.budget_exhausted and self.tasks.has_waiting_gangs:
            self._end_hopeless_gangs(now, effects)
        if self.budget_exhausted and self.tasks.waiting:
            effects.extend(self.tasks.handle(tasks.Abandon(self.failure, "unfunded"), now, self.handled))
        elif self.ready and self.tasks.waiting and self._is_limited() and (shapes := self._hopeless_shapes()):
            effects.extend(self.tasks.handle(tasks.Abandon(self.failure, shapes=shapes), now, self.handled))
        elif isinstance(message, Tick):
            pass  # only new tasks trigger an evaluation here; `_tick` does those that are due by time
        elif self.tasks.queued and self.policy.interval is None and self.ready and self.elastic:
            if now >= self._evaluated_at + self.settings.evaluation_gap:
                self._evaluate(now, effects)
            elif self._evaluate_at is None:
                self._evaluate_at = self._evaluated_at + self.settings.evaluation_gap

    def _enough(self) -> bool:
        if self.is_attached:
            known = [machine for machine in self.reconciler.table if not machine.adopted]
            return len(known) == len(self.reconciler.table.machines) and any(m.stage == "active" for m in known)
        return all(
            self.reconciler.table.count(group.name, "active") >= self._threshold(group)
            for group in self.groups.values()
        )

    # Queries.

    def snapshot(self, now: float) -> Snapshot:
        """Return the pool as a policy sees it."""
        return Snapshot(
            now=now,
            groups=self._scalable_groups(),
            counts={name: self._view.counts(name, self.desired.get(name, 0)) for name in self.groups},
            demands=self.tasks.demands(),
            gangs=self.tasks.gangs(),
            floor=self._floor,
            idle_for=self.tasks.idle_for(now),
            idle_timeout=self.settings.idle_timeout,
            max_nodes=self.settings.max_nodes,
            boot_seconds=self._boot_seconds,
            task_seconds=self.tasks.task_seconds,
            retained=self.retained(now),
            nodes=self._view.nodes(now),
        )

    def _scalable_groups(self) -> tuple[Group, ...]:
        """Return the groups; those that cannot launch nodes are limited to those they have, if others can grow."""
        closed = {name for name in self.groups if self.reconciler.is_closed(name) or not self.reconciler.can_have(name)}
        if self.tasks.has_waiting_gangs:
            closed |= self.reconciler.given_up_groups
        if not closed or len(closed) == len(self.groups):
            return tuple(self.groups.values())
        there = {name: self.reconciler.effective(name) for name in closed}
        return tuple(
            replace(group, min=min(group.min, there[name]), max=min(group.max, there[name]))
            if name in closed
            else group
            for name, group in self.groups.items()
        )

    def _log(
        self,
        by: Decider,
        before: Mapping[str, int],
        after: Mapping[str, int],
        reason: str,
        now: float,
        effects: list[PlaneEffect],
        held_back: str = "",
    ) -> None:
        cause = self._cause()
        if by == "policy" and not held_back:  # later effects follow from the policy's reason, not from the check
            self.causes.add(replace(cause, text=reason))
        inputs = self._view.inputs(now)
        event = DecisionEvent(now, by, self.policy.name, inputs, before, after, reason, held_back, str(cause))
        effects.append(Decided(self.decisions.add(event), cause=self.handled))
