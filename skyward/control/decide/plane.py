"""The control plane of one pool: composes task manager, autoscaler and reconciler, and passes messages between them.

One pure step, `message, now -> effects`. The asyncio pool (`skyward.control.act.pool`) and the simulator
(`skyward.simulator`) drive this same class; they differ in the clock, and in what executes the effects.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from skyward.control.decide.autoscaler import Autoscaler, BlockedNodes, GrowthLimits
from skyward.control.decide.causes import Cause, CauseLog, describe, resized_text
from skyward.control.decide.checking import failure_text
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
    SpareStreams,
    ThresholdReached,
    Tick,
    UpdateGroup,
)
from skyward.control.decide.plane_view import PlaneView
from skyward.control.decide.policy_time import PolicyStopwatch
from skyward.control.decide.prospects.first_nodes import FirstNodes
from skyward.control.decide.prospects.gangs import GangEnd, GangProspects
from skyward.control.decide.prospects.groups import RAISE_BUDGET, GroupObstacle, Prospects, VainWait
from skyward.control.decide.prospects.room import RoomMaker
from skyward.control.decide.prospects.total import over_total, within_total
from skyward.control.decide.recorded_autoscaler import RecordedAutoscaler
from skyward.control.decide.removal import after_drain, at_least, retained_nodes
from skyward.control.decide.settings import PlaneSettings
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.updating import PlannedStep, RollingUpdates
from skyward.errors import IllegalTransitionError
from skyward.events.decisions import UNUSABLE, Decider, DecisionEvent, DecisionLog
from skyward.formatting import count_text, money_text
from skyward.kept.registry import KeptRegistry
from skyward.scaling.registry import is_custom
from skyward.scaling.snapshot import DEFAULT_IDLE_TIMEOUT, Demand, Group, Policy, RetainedNodes, Snapshot
from skyward.scaling.snapshot.bundles import floor_nodes
from skyward.scaling.snapshot.gang_placement import gang_nodes
from skyward.values.needs import NOTHING, Needs

__all__ = ["ControlPlane"]

RECALL_TICK = 0.05
"""Seconds between checks of prefetched tasks, which wait on a node without a slot."""

COLLECTION_USE = 5.0
"""Seconds for which a client needs a node after it has said that it uses a collection; it says so every second."""

_SAME_MACHINES = frozenset({"image", "volumes", "capabilities"})
"""Fields of a spec that do not change the hardware of its nodes."""


class ControlPlane:
    """The state of one pool. `handle` is the only entry point; it returns effects, in order.

    Args:
        clock: seconds of a clock that runs while a policy decides, to point out a slow one; None in virtual time.

    Attributes:
        decisions: the latest decisions.
        causes: the latest messages that changed machines or decisions, by number.
        kept: the values that nodes keep for later tasks.
        ready: True once enough nodes were active.
        handled: number of the latest message, from 1 on.
        failure: why nodes cannot be launched; empty while they can.
        policy_time: how long a policy of the user decides; None without a clock.
    """

    def __init__(self, settings: PlaneSettings, policy: Policy, clock: Callable[[], float] | None = None) -> None:
        self.settings = settings
        self.policy = policy
        self._is_custom = is_custom(policy)
        self.policy_time = PolicyStopwatch(policy.name, clock) if self._is_custom and clock is not None else None
        self.groups = {group.name: group for group in settings.groups}
        self.tasks = TaskManager(settings.retries, settings.groups, settings.max_nodes)
        self.ledger = Ledger(settings.budget)
        self.tasks.packs = self._packs
        self.reconciler = Reconciler(
            dict(settings.sources), self.ledger, settings.limits, existing=settings.existing, ranks=settings.ranks
        )
        self.autoscaler = (RecordedAutoscaler if settings.recorded else Autoscaler)(policy, settings.cooldown)
        self.decisions = DecisionLog()
        self.causes = CauseLog()
        self.kept = KeptRegistry()
        self.prospects = Prospects(self.groups, self.reconciler, self.ledger, settings.max_nodes)
        self.gang_prospects = GangProspects(self.prospects)
        parts = self.groups, self.tasks, self.reconciler, self.prospects
        self._first_nodes = FirstNodes(*parts, settings.max_nodes)
        self._room_maker = RoomMaker(*parts, self.kept, settings.max_nodes)
        self.updates = RollingUpdates(
            self.groups, self.tasks, self.reconciler, self.ledger, self.prospects, settings.max_nodes,
            dict(settings.earlier),
        )  # fmt: skip  # in the order of the fields
        self.reconciler.positions.update(settings.positions)
        self.updates.resume(settings.before, settings.fell_back)
        if settings.earlier:
            self.prospects.group_of = self.updates.group_of
        self._view = PlaneView(self.groups, self.tasks, self.reconciler.table, self.ledger)
        self.ready = False
        self.failure = ""
        self.budget_exhausted = False
        self._is_budget_changed = False
        self._stopped = False
        self._evicted = False
        self._floor: tuple[Demand, ...] = ()
        self._draining: set[int] = set()
        self._is_continued = False
        self._uses: dict[int, tuple[str, ...]] = {}
        self._found: dict[int, Mapping[str, float]] = {}
        self._boot_seconds: float | None = None
        self._boots: dict[str, float] = {}
        self._collection_used_at = float("-inf")
        self._evaluated_at = float("-inf")
        self._had_waiting = False
        self._evaluate_at: float | None = None
        self._evaluate_for = ""
        self._policy_failure = ""
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
        head = self._place_of_head
        match message:
            case tasks.Submitted(target=target) if target is not None and self._takes_again(target, message.needs):
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
                self._is_continued = True
                self._continue_size(wanted, draining, now, effects)
            case DrainNode(rank):
                kept = self.kept.busy_nodes(now)
                if after := after_drain(self.reconciler.table, self.groups, self.desired, kept, rank):
                    self._decide("user", after, f"node {rank} is drained", now, effects, drain=rank)
            case UpdateGroup():
                self._update(message, now, effects)
            case SetFloor(demands):
                self._floor = demands
                self._evaluate(now, effects)
            case SetBudget(budget):
                self._set_budget(budget, now, effects)
                self._look_for_others(now)
            case CollectionUsed():
                self._collection_used_at = now
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
            case SpareStreams(rank, streams):
                if self._drain_can_end(rank) and self.updates.spare(rank, streams):
                    self._cancel_drain(rank, now, effects)
                    self._reconcile(machines.Reconcile(), now, effects)
            case Tick():
                self._tick(now, effects)
            case _:
                self._cause()
                self._record_resources(message)
                self._record_boot(message, now)
                self._reconcile(message, now, effects)
                if isinstance(message, machines.TakenOver):
                    self._remove_emptied(now, effects)
                if isinstance(message, machines.Refused | machines.Failed | machines.Lost):
                    self._look_for_others(now)
        if self.ledger.budget is not None:
            self._watch_budget(now, effects)
        if self.updates and not self.budget_exhausted:
            self._take(self.updates.fallbacks(now), now, effects)
        self._check_readiness(message, now, effects)
        if self.updates and self._moves_updates(message, effects):
            self._advance_updates(now, effects)
        if self._uses:
            self._end_uses(effects, now)
        if self._place_of_head not in (head, None):  # node 0 stays as long as one that keeps values, in any group
            self._spare_keeping(now, effects)
        return effects

    @property
    def _place_of_head(self) -> str | None:
        """Group that node 0 is to be launched in, or was; None if there is none."""
        head = self.reconciler.table.assignments.get(0)
        return None if head is None else head.machine.group

    def close(self, now: float) -> list[PlaneEffect]:
        """Terminate every machine, whatever runs there; each must still be reported as `Terminated`."""
        self.handled += 1
        return [*self.reconciler.close(now, self.handled)]

    def _cause(self) -> Cause:
        """Return the message that is being handled as a cause, recorded for later."""
        if (cause := self.causes.get(self.handled)) is None:
            text = describe(self._message, self.groups, self._rank_of)
            cause = Cause(self.handled, text, self._follows_from(self._message))
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
        if isinstance(message, tasks.SubmitGang):
            if self.ready and not self.budget_exhausted:
                self._end_hopeless_gangs(now, effects)
            if not any(self.desired.values()):
                self._wake_for_gangs(now, effects)
        if new is not None and new.kept:
            self._spare_keeping(now, effects)
        self._remove_emptied(now, effects)

    def _remove_emptied(self, now: float, effects: list[PlaneEffect]) -> None:
        occupied = self.tasks.occupied
        for rank in [rank for rank in self._draining if rank not in occupied and self._is_emptied(rank, now)]:
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
        first = self._first_nodes.for_task(needs, now)
        if first is not None and not self.budget_exhausted:
            after, because = first
            self._decide("policy", after, reason + because, now, effects)

    @property
    def _may_adapt(self) -> bool:
        """True if the number of nodes may follow what waits."""
        return not self.budget_exhausted and self.elastic and self.policy.name != "no"

    @property
    def _may_wake(self) -> bool:
        """True if the policy may launch the first node of a pool that has none."""
        return self._may_adapt and self.head is None

    def _wake_for_gangs(self, now: float, effects: list[PlaneEffect]) -> bool:
        """Launch the nodes that the waiting gangs need, for a pool that has none; return whether it does."""
        if self.budget_exhausted or self.policy.name == "no":
            return False
        first = self._first_nodes.for_gangs(self.snapshot(now))
        if first is None:
            return False
        self._decide("policy", *first, now, effects)
        return True

    def _end_hopeless_gangs(self, now: float, effects: list[PlaneEffect]) -> None:
        """End the waiting gangs for which the pool can never have enough nodes at once."""
        fixed = self.desired if self.policy.name == "no" else None
        waiting = self.tasks.waiting_gangs
        for number, end in self.gang_prospects.ends(waiting, self.tasks.fresh_gangs(), fixed, now).items():
            if (gang := waiting.get(number)) is None:
                continue  # it has started on what another one had reserved
            if infeasible := self.tasks.gang_infeasible(gang):
                end = GangEnd("infeasible", infeasible)
            if end.outcome != "infeasible":
                ended = f"a waiting gang ends: the pool {end.reason}"
                self._log("reconciler", self.desired, self.desired, ended, now, effects)
            message = tasks.EndGang(number, end.outcome, end.reason)
            effects.extend(self.tasks.handle(message, now, self.handled))

    def _blocked(self, now: float) -> dict[str, GroupObstacle]:
        """Return the obstacles of the groups in place of which others are to be launched."""
        if self.prospects.are_clear:
            return {}
        shapes = self.tasks.shapes()
        if self.tasks.has_waiting_gangs:
            shapes |= self.gang_prospects.replaceable(self.tasks.waiting_gangs, now)
        blocked = self.prospects.blocked(shapes, now)
        if not self._floor or self.policy.name == "no":
            return blocked
        reserved = self.prospects.blocked(shapes | {demand.needs for demand in self._floor}, now)
        # a reservation that does not fit without the blocked groups waits for them: it is kept as a whole or not at all
        return reserved if floor_nodes(self.prospects.limited(reserved), self._floor, {}) else blocked

    # Machines.

    def _reconcile(self, message: machines.ReconcilerMessage, now: float, effects: list[PlaneEffect]) -> None:
        before = dict(self.desired)
        if isinstance(message, machines.Desired) and self.reconciler.extra:
            message = replace(message, full=self.updates.full_groups(message.nodes))
        self.reconciler.may_empty = self.budget_exhausted or not any(group.min for group in self.groups.values())
        self.reconciler.keeping = frozenset() if self.budget_exhausted else frozenset(self.kept.busy_nodes(now))
        for effect in self.reconciler.handle(message, now, self.handled):
            match effect:
                case machines.NodeGone():
                    if self.budget_exhausted and effect.departure == "removed":
                        effect = replace(effect, reason=f"the pool {self.failure}")
                    self._draining.discard(effect.rank)
                    self._node_gone(effect, now, effects)
                case machines.GiveUp(group, rank, reason, origin=origin):
                    self.failure = f"could not start node {rank}{self.causes.because(origin)}: {reason}"
                    self.prospects.failures[group] = self.failure
                case _:
                    pass
            effects.append(effect)
            match effect:
                case machines.NodeGone(rank, reason, _, machine, departure):
                    if departure == "removed" and not self.budget_exhausted:
                        reason += self.causes.because(effect.origin)
                    if gone := self.kept.node_lost(rank, reason):
                        effects.append(KeptValuesLost(rank, machine, gone, reason, cause=self.handled))
                case machines.Activate(machine, rank):
                    if not self.budget_exhausted:
                        self.failure = ""
                    self._draining.discard(rank)
                    self.updates.started(machine)
                    self._joined(machine, rank, now, effects)
                case machines.Drain(rank):
                    self._draining.add(rank)
                    self._tell_tasks(tasks.RankDraining(rank), now, effects)
                case _:
                    pass
        if self.reconciler.requester.over_budget and self.cannot_start and not self.reconciler.given_up:
            per_hour = sum(count * self.groups[group].hourly_price for group, count in self.first.items())
            self.failure = unaffordable(self.ledger.budget or 0.0, per_hour, self.ledger.spent(now))
        if isinstance(message, machines.Lost) and any(self._is_short(group) for group in before):
            self._log("reconciler", before, before, f"a node was lost ({message.reason}); replacing it", now, effects)

    def _record_resources(self, message: machines.ReconcilerMessage) -> None:
        """Record the resources found on a machine. Its group is given the most that any of its nodes has."""
        match message:
            case machines.Terminated(number):
                self._found.pop(number, None)
            case machines.Joined(number, found) if found and (machine := self.reconciler.table.machines.get(number)):
                self._found[number] = found
                if self.reconciler.is_outdated(machine):
                    return
                group = self.groups[machine.group]
                most = {name: max(had, group.resources.get(name, 0.0)) for name, had in found.items()}
                self.groups[group.name] = replace(group, resources={**group.resources, **most})
                self.tasks.groups = tuple(self.groups.values())
            case _:
                pass

    def _record_boot(self, message: machines.ReconcilerMessage, now: float) -> None:
        """Record how long a machine took from its latest request until it joined, if this pool has launched it."""
        if not isinstance(message, machines.Joined):
            return
        machine = self.reconciler.table.machines.get(message.machine)
        if machine is None or machine.state != "INSTALLING" or not machine.requested_at or machine.adopted:
            return
        source = machine.source
        if source is None or source.lender or source in self.settings.existing.get(machine.group, {}):
            return
        took = now - machine.requested_at[-1]
        self._boot_seconds = _averaged(self._boot_seconds, took)
        self._boots[machine.group] = _averaged(self._boots.get(machine.group), took)

    def _is_short(self, group: str) -> bool:
        return self.reconciler.table.count(group, "active") < self.desired.get(group, 0)

    def _joined(self, number: int, rank: int, now: float, effects: list[PlaneEffect]) -> None:
        group = self.updates.group_of(self.reconciler.table.machines[number])
        resources = {**group.resources, **self._found.get(number, {})}
        is_extra = self.updates.has_extra(group.name)
        joined = tasks.RankJoined(rank, group.slots, group.name, resources, group.capabilities, is_extra=is_extra)
        self._tell_tasks(joined, now, effects)

    def _node_gone(self, gone: machines.NodeGone, now: float, effects: list[PlaneEffect]) -> None:
        """Pass the end of a node on to its tasks."""
        rank, reason = gone.rank, gone.reason
        machine = self.reconciler.table.machines.get(gone.machine)
        falls_back = machine is not None and not self.budget_exhausted and self.updates.falls_back(machine.group)
        if gone.again or falls_back:
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
        if not self.ready and self.is_unfunded and not (self.is_attached and self._is_coming()):
            return True
        if not self.reconciler.given_up:
            return False
        if self.ready or self.is_attached:
            return self.reconciler.empty
        return any(
            self.desired.get(name, 0) - self.reconciler.count_given_up(name) < self._threshold(group)
            for name, group in self.groups.items()
        )

    def _is_coming(self) -> bool:
        """Return whether any node is active, or a machine for one is requested or allocated."""
        return any(self.reconciler.has_machine(name) or self.reconciler.requested(name) for name in self.groups)

    def may_gain_nodes(self, *, after_drains: bool = True) -> bool:
        """Return whether nodes are booting, or more can be launched.

        Args:
            after_drains: False to leave out those that come in place of nodes which drain for updates.
        """
        wanted = sum(self.desired.values())
        active = sum(self.reconciler.table.count(group, "active") for group in self.groups)
        active += 0 if after_drains else len(self.updates.draining())
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
        if reason := over_total(self.groups, bounds, self.head, self.settings.max_nodes):
            self._log("user", self.desired, self.desired, f"not resized: {reason}", now, effects)
            return
        for name, (least, most) in bounds.items():
            self.groups[name] = replace(self.groups[name], min=least, max=most)
        self.tasks.groups = tuple(self.groups.values())
        after = dict(self.desired)
        for name, (least, most) in bounds.items():
            after[name] = max(least, min(most, nodes.get(name, after.get(name, least))))
        after = self._within_total(after, bounds)
        self.tasks.packs = self._packs
        if not self.budget_exhausted:
            self._take(self.updates.retry(), now, effects)
            self._decide("user", after, resized_text(bounds, self.groups), now, effects, retry_given_up=True)

    def _update(self, new: UpdateGroup, now: float, effects: list[PlaneEffect]) -> None:
        """Launch the nodes of a group from another spec, and begin to replace those of earlier ones."""
        name, had = new.group.name, self.groups[new.group.name]
        before = self.reconciler.sources[name]
        self.updates.remember(had)
        self.prospects.group_of = self.updates.group_of
        resources = new.group.resources
        if _SAME_MACHINES.issuperset(new.fields):  # what was measured on machines holds for the next ones
            resources = {**had.resources, **resources}
        self.groups[name] = replace(new.group, min=had.min, max=had.max, resources=resources)
        self.tasks.groups = tuple(self.groups.values())
        self._boots.pop(name, None)
        sources = machines.SetSources(name, new.sources, new.positions, new.boot)
        self._reconcile(sources, now, effects)
        count = self.updates.begin(name, before)
        there = len(self.updates.launched(name))
        they = "its node is replaced" if there == 1 else f"its {count_text(there)} are replaced one by one"
        if not count:
            they = "no node is replaced, since none is of another spec" if there else "it has no node yet"
        elif count < there:
            verb = "is replaced" if count == 1 else "are replaced one by one"
            they = f"{count} of its {count_text(there)} {verb}"
        reason = f"group {name!r} has another spec ({', '.join(new.fields)}): {they}"
        self._log("user", self.desired, self.desired, reason, now, effects)

    def refuses_update(self, group: Group, now: float) -> str:
        """Return why a group cannot be updated; empty if it can.

        Tasks or a floor need what its nodes would not have, or the budget does not cover these.
        """
        after = tuple(replace(group, min=g.min, max=g.max) if g.name == group.name else g for g in self.groups.values())
        for needs in sorted(self.tasks.unfinished_shapes(), key=str):
            if needs and not any(each.max and each.can_hold(needs) for each in after):
                return (
                    f"tasks that have not ended need {needs}, which no node would have: wait for them, or cancel them"
                )
        if self._floor and not floor_nodes(after, self._floor, {}):
            return "what `request_resources` has asked for would not fit any more: call it again with other amounts"
        return self._unpayable_update(group, now)

    def _unpayable_update(self, group: Group, now: float) -> str:
        """Return that the budget does not cover the nodes of an updated group; empty if it does."""
        table, budget, price = self.reconciler.table, self.ledger.budget, group.hourly_price
        if budget is None or not price:
            return ""
        existing = [each for each in table.of(group.name, "active", "booting") if each.state != "QUEUED"]
        replaced = (machine.id for machine in (*existing, *table.of(group.name, "leaving")))
        count = max(1, len(existing) - (group.name in self.reconciler.extra))
        if self.ledger.could_replace(replaced, count * price, now):
            return ""
        return (
            f"its budget of {money_text(budget)}, of which {money_text(self.ledger.spent(now))} is spent, does not "
            f"cover {DRAIN_RESERVE:g} s of {count_text(count)} at {money_text(price)}/h: raise it first, with "
            "`pool.set_budget(USD)`"
        )

    def _moves_updates(self, message: PlaneMessage, effects: Iterable[PlaneEffect]) -> bool:
        """Return whether a message may change the next step of an update; most messages about tasks do not."""
        match message:
            case tasks.Ended(rank=rank) | tasks.UniqueResults(rank=rank) | tasks.Withheld(rank=rank):
                has_gone = any(isinstance(effect, machines.Terminate | machines.NodeGone) for effect in effects)
                return has_gone or self.updates.may_go_again(rank)
            case tasks.Submitted() | tasks.StartedOnNode() | tasks.Stored() | tasks.Dropped() | tasks.Delivered():
                return False
            case _:
                return True

    def _advance_updates(self, now: float, effects: list[PlaneEffect]) -> None:
        """Take the next step of each update that is under way, unless the pool is not ready or drains."""
        if not self.ready or self.budget_exhausted or (self.is_attached and not self._is_continued):
            return
        self._take(self.updates.steps(self.kept.busy_nodes(now), now), now, effects)

    def _take(self, steps: Iterable[PlannedStep], now: float, effects: list[PlaneEffect]) -> None:
        """Take steps of updates, one after the other."""
        for step in steps:
            if step.says:
                self._log("reconciler", self.desired, self.desired, step.says, now, effects)
            if step.message is not None:
                self._reconcile(step.message, now, effects)

    def _within_total(self, wanted: Mapping[str, int], first: Iterable[str]) -> dict[str, int]:
        """Return the wanted nodes within the maximum over all groups, if the minimums are; `first`: reduced last."""
        least = {name: group.min for name, group in self.groups.items()}
        return within_total(wanted, least, first, self.settings.max_nodes)

    def _continue_size(
        self, nodes: Mapping[str, int], draining: tuple[int, ...], now: float, effects: list[PlaneEffect]
    ) -> None:
        if not nodes:
            return
        retained = self.retained(now)
        kept = {name: each.nodes for name, each in retained.items()}
        after = {name: max(nodes.get(name, count), kept.get(name, 0)) for name, count in self.desired.items()}
        after = self._within_total(after, ())
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
            after, stay = self._with_retained(after, now)
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
        after, stay = self._with_retained(self.desired, now)
        if stay:
            self._decide("reconciler", after, stay, now, effects)
        elif draining:
            self._reconcile(machines.Reconcile(), now, effects)

    def _with_retained(self, wanted: Mapping[str, int], now: float) -> tuple[Mapping[str, int], str]:
        """Return the wanted nodes, by group, with those that keep values, and the reason if a number was raised.

        Others make room for them in a full pool, down to their minimums.
        """
        retained = self.retained(now)
        after, stay = at_least(wanted, retained)
        if stay:
            least = {name: group.min for name, group in self.groups.items()}
            least |= {name: max(least[name], nodes.nodes) for name, nodes in retained.items()}
            if (head := self.head) is not None:
                least[head] = max(1, least[head])
            after = within_total(after, least, (), self.settings.max_nodes)
        return after, stay

    def _drain_can_end(self, rank: int) -> bool:
        """Return whether a node drains, and may take tasks again: its provider does not take it back."""
        return rank in self._draining and not self._is_reclaimed(rank)

    def _takes_again(self, rank: int, needs: Needs) -> bool:
        """Return whether a node drains that may take tasks again, and could run such a task before its successor."""
        return (
            self._drain_can_end(rank)
            and self.tasks.could_hold(rank, needs)
            and self.tasks.infeasible_pinned(rank) is None
        )

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
        is_surplus = self.reconciler.effective(group.name) > self.reconciler.wanted(group.name)
        if has_room and is_surplus and not self.budget_exhausted:
            after = {**self.desired, group.name: self.desired[group.name] + 1}
            self._decide("reconciler", after, reason, now, effects)

    def _evaluate(self, now: float, effects: list[PlaneEffect]) -> None:
        """Evaluate the policy, and apply what is due now."""
        self._evaluated_at, self._evaluate_at = now, None
        self._had_waiting = self.tasks.waiting
        if not self.ready or self.budget_exhausted or not self.elastic:
            self.autoscaler.look_at = None
            return
        room = {name: self.ledger.room(self.reconciler.price_now(name, now), now) for name in self.groups}
        obstacles = self._blocked(now)
        blocked = {name: BlockedNodes(self._not_waited_for(name), each.why) for name, each in obstacles.items()}
        snapshot = self._snapshot(obstacles, now)
        try:
            needed = {} if self.policy.name == "no" else self._first_nodes.overlooked(snapshot.groups)
            limits = GrowthLimits(room, self.ledger.budget, blocked, needed, self._for_gangs(snapshot))
            with self.policy_time or nullcontext():
                verdict = self.autoscaler.evaluate(snapshot, limits)
        except (Exception, SystemExit) as error:  # of a policy that the user wrote; the pool stays as it is
            failed = failure_text(error)
            if self._is_custom and gang_nodes(snapshot).launch:
                failed += "; a gang waits that gets no nodes before the policy decides, or `pool.resize` adds them"
            if failed != self._policy_failure:
                self._policy_failure = failed
                self._log("policy", dict(self.desired), dict(self.desired), failed, now, effects, UNUSABLE)
            return
        self._policy_failure = ""
        if verdict is None:
            return
        before, after = verdict.before, verdict.after
        notes = self._note_on_lost_values(after, verdict.victims), self.updates.note_on_successors(after)
        reason = "".join((verdict.reason, *notes))
        self._log("policy", before, after, reason, now, effects, verdict.held_back)
        if verdict.changed:
            self._reconcile(machines.Desired(after, verdict.victims), now, effects)

    def _for_gangs(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the nodes that the waiting gangs need, by group, for a policy that may not count gangs."""
        if not self._is_custom or not snapshot.gangs:
            return {}
        plan = gang_nodes(snapshot)
        return {name: least for name in self.groups if (least := plan.least(name))}

    def _not_waited_for(self, group: str) -> int:
        """Return the number of nodes of a blocked group that need not be waited for: those over its minimum."""
        over = self.desired.get(group, 0) - self.groups[group].min
        return max(0, min(self.reconciler.unrequested(group), over))

    def _look_for_others(self, now: float) -> None:
        """Ask the policy soon, if nodes cannot be launched now of which others could take the place."""
        blocked = self._blocked(now) if self.tasks.queued or self._floor else {}
        if any(map(self.reconciler.unrequested, blocked)) or self.reconciler.given_up:
            self._evaluate_soon(max(now, self._evaluated_at + self.settings.evaluation_gap))

    def _evaluate_soon(self, at: float) -> None:
        """Evaluate the policy at a time, for the message that is handled now, unless that is due earlier."""
        if self._evaluate_at is None or isinstance(self._message, tasks.Submitted | tasks.SubmitGang):
            self._evaluate_for = describe(self._message, self.groups, self._rank_of)
        self._evaluate_at = at if self._evaluate_at is None else min(at, self._evaluate_at)

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

    @property
    def _packs(self) -> bool:
        """True if tasks go to the fullest nodes: the number of nodes may change, and the policy removes idle ones."""
        return any(group.max > group.min for group in self.groups.values()) and getattr(self.policy, "packs", False)

    # Budget.

    def _watch_budget(self, now: float, effects: list[PlaneEffect]) -> None:
        """Drain every node in time for the budget; then stop the tasks that still run; then terminate every node."""
        if not self.budget_exhausted and now >= self.ledger.exhausted_at(DRAIN_RESERVE):
            self._exhaust_budget(now, effects)
        if self._is_budget_changed and now < self.ledger.exhausted_at(DRAIN_RESERVE):
            gone = f"enough nodes have gone for the budget of {money_text(self.ledger.budget or 0.0)}"
            self._resume(gone, now, effects)
        elif now >= self.ledger.exhausted_at(0.0):
            self._is_budget_changed = False
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
        if self._is_budget_changed:
            return f"has to drain its nodes before it can continue with its budget of {budget}: {spent} is spent"
        drains = not self._stopped and self.ledger.per_hour
        left = f", and its nodes need up to {DRAIN_RESERVE:g} s more to drain" if drains else ""
        return f"has reached its budget of {budget}: {spent} is spent{left}; {RAISE_BUDGET}"

    @property
    def _next_reserve(self) -> float:
        """Reserve of the next step: draining, stopping tasks, or terminating nodes."""
        if not self.budget_exhausted:
            return DRAIN_RESERVE
        return TERMINATION_RESERVE if self._stopped else STOP_RESERVE

    def _exhaust_budget(self, now: float, effects: list[PlaneEffect]) -> None:
        self.budget_exhausted = True
        spent, rate, budget = self.ledger.spent(now), self.ledger.per_hour, self.ledger.budget or 0.0
        if spent >= budget or not rate:
            why = f"the budget of {money_text(budget)} is used up: {money_text(spent)} is spent"
        else:
            why = (
                f"the rest of the budget of {money_text(budget)} is needed to drain the nodes: {money_text(spent)} is "
                f"spent, and they cost {money_text(rate * DRAIN_RESERVE / 3600)} in the {DRAIN_RESERVE:g} s that it "
                f"takes, at {money_text(rate)} per hour"
            )
        reason = f"{why}, so all nodes are drained"
        self.failure = self._unfunded(now)
        self._decide("budget", dict.fromkeys(self.groups, 0), reason, now, effects)

    def _set_budget(self, budget: float | None, now: float, effects: list[PlaneEffect]) -> None:
        self.ledger.budget = budget
        if not self.budget_exhausted:
            return
        to = "the budget was removed" if budget is None else f"the budget was changed to {money_text(budget)}"
        if now < self.ledger.exhausted_at(DRAIN_RESERVE):
            self._resume(to, now, effects)
            return
        self._is_budget_changed = now < self.ledger.exhausted_at(0.0)
        spent, rate = self.ledger.spent(now), self.ledger.per_hour
        but = f"{to}, but {money_text(spent)} is spent"
        if self._is_budget_changed:
            but += (
                f", and {DRAIN_RESERVE:g} s of the nodes that drain cost {money_text(rate * DRAIN_RESERVE / 3600)}: "
                "the pool continues once enough of them have gone"
            )
        else:
            but += f"; {RAISE_BUDGET}"
        self._log("budget", self.desired, self.desired, but, now, effects)

    def _resume(self, why: str, now: float, effects: list[PlaneEffect]) -> None:
        """Launch nodes again: the budget, which was reached, allows it."""
        self.budget_exhausted, self._stopped, self._evicted, self.failure = False, False, False, ""
        self._is_budget_changed = False
        after = {group.name: group.min for group in self.groups.values()}
        least = sum(after.values())
        starts = f"starts its minimum of {count_text(least)} again" if least else "launches nodes for tasks again"
        self._decide("budget", after, f"{why}, so the pool {starts}", now, effects, retry_given_up=True)
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
            if self._evaluate_at is not None and now >= self._evaluate_at:
                self.causes.add(Cause(self.handled, self._evaluate_for))
            self._evaluate(now, effects)

    def _due_evaluations(self) -> Iterable[float]:
        yield self._evaluated_at + self.autoscaler.interval
        if self._evaluate_at is not None:
            yield self._evaluate_at
        if (due := self.autoscaler.due_at) is not None and due > self._evaluated_at:
            yield due
        if self.autoscaler.look_at is not None:
            yield max(self.autoscaler.look_at, self._evaluated_at + self.settings.evaluation_gap)
        if (idle_from := self.tasks.idle_from) is not None:
            idle_at = idle_from + self._idle_timeout + 0.001
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
        if not self.budget_exhausted and (ranks := self.tasks.awaited_ranks):
            if self.ready:
                self._end_pinned_in_vain(ranks, now, effects)
            self._end_infeasible(ranks, now, effects)
        if self.tasks.waiting:
            self._had_waiting = True
        else:
            self.prospects.forget_waits()
        if self._is_budget_changed:
            pass  # what waits is looked at once enough nodes have gone
        elif self.budget_exhausted and self.tasks.waiting:
            effects.extend(self.tasks.handle(tasks.Abandon(self.failure, "unfunded"), now, self.handled))
        elif self.ready and self.tasks.waiting and (vain := self._vain_waits(now)):
            self._end_vain_waits(vain, now, effects)
        elif any(isinstance(effect, machines.Drain) for effect in effects):
            pass  # what waits is looked at once the node has gone
        elif (
            self.ready
            and self.tasks.waiting
            and not any(self.desired.values())
            and self._may_wake
            and (shapes := self._first_nodes.possible(now))
        ):
            self._wake(shapes[0], "tasks wait and the pool has no nodes", now, effects)
        elif self.ready and self.tasks.queued and self._adjust_for_waiting(now, effects):
            pass
        elif isinstance(message, Tick):
            pass  # only new tasks trigger an evaluation here; `_tick` does those that are due by time
        elif self._waiting_concerns_policy and self._looks_at(message) and self.ready and self.elastic:
            if now >= self._evaluated_at + self.settings.evaluation_gap:
                self._evaluate(now, effects)
            else:
                self._evaluate_soon(self._evaluated_at + self.settings.evaluation_gap)

    @property
    def _waiting_concerns_policy(self) -> bool:
        """True if tasks wait, or if none does any more while nodes boot, and the policy has not been asked since."""
        if self.tasks.queued:
            return True
        has_ended = self._had_waiting and not self.tasks.waiting
        return has_ended and any(self.reconciler.table.count(group, "booting") for group in self.groups)

    def _adjust_for_waiting(self, now: float, effects: list[PlaneEffect]) -> bool:
        """Launch the first nodes for gangs, or make room for waiting tasks in a full pool; return whether it did."""
        if self.tasks.has_waiting_gangs and not any(self.desired.values()) and self._may_wake:
            return self._wake_for_gangs(now, effects)
        room = self._room_maker.for_tasks(now)
        if room is None and self.tasks.has_waiting_gangs and self._may_adapt:
            room = self._room_maker.for_gang(lambda obstacles: self._snapshot(obstacles, now), now)
        if room is None:
            return False
        self._decide("reconciler", room.after, room.reason, now, effects, victims=room.victims)
        if not any(self.desired.values()) and self.head is None:  # at once: the policy may want the former nodes again
            if room.needs is None:
                self._wake_for_gangs(now, effects)
            else:
                self._wake(room.needs, "tasks wait and the pool has no nodes", now, effects)
        return True

    def _vain_waits(self, now: float) -> dict[Needs, VainWait]:
        """Return how the waiting tasks end for which no node can come, by shape."""
        found = self.prospects.in_vain(self.tasks.shapes(), now)
        return found | self.updates.in_vain(self.tasks.shapes()) if self.updates else found

    def _end_vain_waits(self, vain: Mapping[Needs, VainWait], now: float, effects: list[PlaneEffect]) -> None:
        """End the waiting tasks for which no node can come."""
        ends: dict[VainWait, set[Needs]] = {}
        for needs, end in vain.items():
            ends.setdefault(end, set()).add(needs)
        for end, shapes in ends.items():
            self._log("reconciler", self.desired, self.desired, f"waiting tasks end: the pool {end.why}", now, effects)
            message = tasks.Abandon(end.why, end.outcome, frozenset(shapes))
            effects.extend(self.tasks.handle(message, now, self.handled))

    def _end_pinned_in_vain(self, ranks: Iterable[int], now: float, effects: list[PlaneEffect]) -> None:
        """End the tasks that wait for certain nodes which cannot come."""
        for rank, end in self.prospects.pinned_in_vain(ranks, now).items():
            reason = f"tasks that wait for node {rank} end: the pool {end.why}"
            self._log("reconciler", self.desired, self.desired, reason, now, effects)
            effects.extend(self.tasks.handle(tasks.EndPinned(rank, end.outcome, end.why), now, self.handled))

    def _end_infeasible(self, ranks: Iterable[int], now: float, effects: list[PlaneEffect]) -> None:
        """End the tasks pinned to nodes that can never hold them, unless a successor is to come that could."""
        for rank in ranks:
            while (pinned := self.tasks.infeasible_pinned(rank)) is not None:
                if (end := self.updates.infeasible_end(rank, pinned, now)) is None:
                    break
                outcome = end.outcome if end.why else "infeasible"
                why = f"node {rank} stays as it is, and can never hold {pinned.needs}: {end.why}" if end.why else ""
                message = tasks.EndInfeasible(rank, pinned.needs, pinned.bound, outcome, why)
                effects.extend(self.tasks.handle(message, now, self.handled))

    def _looks_at(self, message: PlaneMessage) -> bool:
        """Return whether a message about tasks triggers an evaluation.

        It does under a policy without an interval, unless the last one failed; and a gang does under a policy of the
        user, whatever its interval is.
        """
        if self._is_custom and isinstance(message, tasks.SubmitGang):
            return True
        return self.policy.interval is None and not self._policy_failure

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
        return self._snapshot(self._blocked(now), now)

    def _snapshot(self, blocked: Mapping[str, GroupObstacle], now: float) -> Snapshot:
        pauses = self._pauses(now)
        counts = {
            name: self._view.counts(name, self.desired.get(name, 0), is_paused=name in pauses) for name in self.groups
        }
        counts |= {name: self.updates.without_extra(name, counts[name]) for name in self.reconciler.extra}
        for name in blocked:  # its machines that cannot be requested are not waited for
            booting = max(0, counts[name].booting - self.reconciler.unrequested(name))
            counts[name] = replace(counts[name], booting=booting, unrequested=0)
        groups, most = self.prospects.limited(blocked), self.settings.max_nodes
        if self.updates:
            groups, most = self.updates.without_room(groups), self.updates.total_without_room(self.groups.values())
        if most is not None:  # no other group may take the place of the minimum of a blocked one
            most -= sum(self.groups[group.name].min - group.min for group in groups)
        return Snapshot(
            now=now,
            groups=groups,
            counts=counts,
            demands=self.tasks.demands(now),
            pinned=self.tasks.pinned,
            running=self.tasks.run_times.running(now),
            submitted=self.tasks.submitted,
            gangs=self.tasks.gangs(),
            floor=self._floor,
            idle_for=self.tasks.idle_for(now),
            idle_timeout=self._idle_timeout,
            idle_timeout_given=self.settings.idle_timeout is not None,
            target_wait=self.settings.target_wait,
            waiting_cost=self.settings.waiting_cost,
            consolidate_within=self.settings.consolidate_within,
            max_nodes=most,
            boot_seconds=self._boot_seconds,
            boots=self._boots,
            pauses=pauses,
            prices={name: self.reconciler.price_now(name, now) for name in self.groups},
            task_seconds=self.tasks.task_seconds,
            retained=self.retained(now),
            head=self.head,
            head_boots=self._view.booting_head,
            collection_used=now - self._collection_used_at <= COLLECTION_USE,
            nodes=self._view.nodes(now, self.updates.extra_machines()),
            idle=self._view.idle(now),
            work=() if self.updates else self._view.work(now),  # one reason at a time to replace nodes
        )

    @property
    def head(self) -> str | None:
        """Group of node 0; None if its machine is not requested yet."""
        return self.reconciler.head

    @property
    def _idle_timeout(self) -> float:
        return DEFAULT_IDLE_TIMEOUT if self.settings.idle_timeout is None else self.settings.idle_timeout

    def _pauses(self, now: float) -> dict[str, float]:
        """Return the seconds until a source may be asked for machines, by group; without those that may be now."""
        found = {name: self.reconciler.paused_until(name, now) - now for name in self.groups}
        return {name: pause for name, pause in found.items() if pause > 0}

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
        sizes = dict(before), dict(after)  # copies: the desired sizes are changed in place
        event = DecisionEvent(now, by, self.policy.name, inputs, *sizes, reason, held_back, str(cause))
        effects.append(Decided(self.decisions.add(event), cause=self.handled))


def _averaged(mean: float | None, latest: float) -> float:
    """Return a mean of the latest values."""
    return latest if mean is None else 0.7 * mean + 0.3 * latest
