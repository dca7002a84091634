"""The reconciler: converges the actual nodes to the desired nodes. Decides only; no I/O.

A node is known by its rank, a machine by its number. Freed ranks are reused, lowest first, so that ranks stay
`0 .. n-1`; rank 0 is the head, which is removed only with every node, and replaced while any is wanted. Booting
machines count as nodes, so nothing is launched twice; leaving nodes count neither as nodes nor as surplus.

Machines follow Ray's lifecycle (`skyward.control.decide.machines.instance`). Source: spec/ "Provision controllers"
and "Autoscaler v2".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.instance import after_request_timeout
from skyward.control.decide.machines.messages import (
    Activate,
    Allocated,
    Departure,
    Desired,
    Drain,
    DrainRefused,
    Emptied,
    Evict,
    Failed,
    GiveUp,
    Install,
    Joined,
    Lost,
    NodeGone,
    Priced,
    Reclaimed,
    Reconcile,
    ReconcilerEffect,
    ReconcilerMessage,
    Refused,
    ReplaceOutdated,
    SetSources,
    TakenOver,
    Terminate,
    Terminated,
)
from skyward.control.decide.machines.requests import Limits, Requester
from skyward.control.decide.machines.sources import MachineSource, RefusalKind
from skyward.control.decide.machines.table import Machine, MachineTable
from skyward.control.lifecycle import RECONCILER, Lifecycle, ReconcilerState

__all__ = ["Reconciler"]

NOT_NEEDED = "it is no longer needed"
RECLAIMED = "its provider takes it back"
OUTDATED = "it was launched from an earlier spec, and another node takes its place"


LONGEST_FAILING_PAUSE = 3600.0


@dataclass(frozen=True, slots=True)
class _Failing:
    """A group of which a node was given up: until when other groups are preferred, and the pause, in seconds."""

    until: float
    pause: float


@dataclass
class Reconciler:
    """The machines of one pool. `handle` is the only entry point; it returns effects.

    Attributes:
        sources: sources of machines of each group, the preferred one first.
        positions: positions of the sources of each group's spec; machines of other positions are outdated. Groups
            without an entry have had one spec only.
        extra: groups that are to have one node more than desired, while their outdated nodes are replaced.
        opening: True until the pool is ready.
        closing: True once every machine is to be terminated.
        may_empty: True if the head, too, is removed when no node is desired.
        keeping: ranks of nodes that keep values for later tasks, which are not removed as surplus.
        desired: desired nodes, by group.
        existing: machines of a former process, by group and source: they become the first nodes.
        ranks: ranks that their nodes keep, by group and source: of the first machines of each.
    """

    sources: dict[str, tuple[MachineSource, ...]]
    ledger: Ledger = field(default_factory=Ledger)
    limits: Limits = field(default_factory=Limits)
    opening: bool = True
    closing: bool = False
    may_empty: bool = False
    keeping: frozenset[int] = frozenset()
    desired: dict[str, int] = field(default_factory=dict)
    positions: dict[str, range] = field(default_factory=dict)
    extra: set[str] = field(default_factory=set)
    existing: Mapping[str, Mapping[MachineSource, int]] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[MachineSource, tuple[int, ...]]] = field(default_factory=dict)
    table: MachineTable = field(default_factory=MachineTable)
    _life: Lifecycle[ReconcilerState] = field(
        default_factory=lambda: Lifecycle("the reconciler", RECONCILER, "watching")
    )
    _failures: dict[int, int] = field(default_factory=dict)
    _refusals: dict[int, int] = field(default_factory=dict)
    _rounds: dict[int, int] = field(default_factory=dict)
    _given_up: dict[int, str] = field(default_factory=dict)
    _failing: dict[str, _Failing] = field(default_factory=dict)
    _last_refusals: dict[str, str] = field(default_factory=dict)
    _orphans: dict[int, float] = field(default_factory=dict)
    _victims: tuple[int, ...] = ()
    _final_refusal: str = "no provider takes requests"

    def __post_init__(self) -> None:
        self.requester = Requester(self.table, self.sources, self.ledger, self.limits, self.existing)
        self._backoff = self.requester.backoff

    @property
    def state(self) -> ReconcilerState:
        """The current state."""
        return self._life.state

    @property
    def given_up(self) -> frozenset[int]:
        """Ranks that were given up."""
        return frozenset(self._given_up)

    @property
    def empty(self) -> bool:
        """True if there is no machine, in any state."""
        return not self.table.machines

    @property
    def head(self) -> str | None:
        """Group of node 0; None if its machine is not requested yet."""
        head = self.table.assignments.get(0)
        return None if head is None or head.machine.state == "QUEUED" else head.machine.group

    def can_have(self, group: str) -> bool:
        """Return whether a node of the group exists, or may be launched and was not given up."""
        if self.table.has(group):
            return True
        return group not in self._given_up.values() and not self.is_closed(group)

    def is_closed(self, group: str) -> bool:
        """Return whether no source of the group will ever be asked again."""
        return all(self._backoff.ready_at(source) == inf for source in self.sources[group])

    def has_given_up(self, group: str) -> bool:
        """Return whether a node of the group was given up."""
        return group in self._given_up.values()

    @property
    def has_failed(self) -> bool:
        """True if a node of any group was given up, and none of it has started since."""
        return bool(self._failing)

    def failing_until(self, group: str) -> float:
        """Return the end of the pause in the launches of a group of which a node was given up."""
        failing = self._failing.get(group)
        return -inf if failing is None else failing.until

    def last_refusal(self, group: str) -> str:
        """Return why the latest refused request for a machine of the group was refused."""
        return self._last_refusals.get(group, self._final_refusal)

    def has_machine(self, group: str) -> bool:
        """Return whether a node of the group is active, or a machine for one is allocated."""
        booting = self.table.count(group, "booting") - self.requested(group) - self.unrequested(group)
        return self.table.count(group, "active") + booting > 0

    def requested(self, group: str) -> int:
        """Return the number of nodes of a group whose machines are requested, without an answer so far."""
        return sum(machine.wanted for machine in self.table.of_state(group, "REQUESTED"))

    def lowest_price(self, group: str) -> float:
        """Return the lowest price of the sources of a group that may be asked again, USD an hour."""
        sources = self.sources[group]
        usable = [source for source in sources if self._backoff.ready_at(source) < inf]
        return min(source.hourly_price for source in usable or sources)

    def price_now(self, group: str, now: float) -> float:
        """Return the price of the source that the next request is made to, USD an hour; of the first while none is."""
        sources = self.sources[group]
        return (self._backoff.choose(sources, now) or sources[0]).hourly_price

    def paused_until(self, group: str, now: float) -> float:
        """Return when the next request for a machine of the group may be made; `now` if at once, infinity for never.

        A source that has failed to answer a few times only is still waited for: it counts as ready.
        """
        sources = self.sources[group]
        if self._backoff.is_clear or self._backoff.choose(sources, now) is not None:
            return now
        if self._backoff.awaits(sources, now):
            return now
        return self._backoff.retry_at(sources, now)

    def unrequested(self, group: str) -> int:
        """Return the number of nodes of a group that wait to be requested."""
        return self.table.counts_in("QUEUED").get(group, 0)

    def attempts(self, rank: int) -> tuple[int, int]:
        """Return the consecutive failed machines and refused requests of a rank."""
        return self._failures.get(rank, 0), self._refusals.get(rank, 0)

    def effective(self, group: str) -> int:
        """Return the number of nodes that take tasks, or will, with those that get the ranks of draining ones."""
        successors = len(self.table.refills(group)) if self.desired.get(group) else 0
        return self.table.count(group, "active") + self.table.count(group, "booting") + successors

    def wanted(self, group: str) -> int:
        """Return the number of nodes that a group is to have: those desired, and one more while it is updated."""
        desired = self.desired.get(group, 0)
        return desired + (group in self.extra and desired > 0)

    def is_outdated(self, machine: Machine) -> bool:
        """Return whether a machine was launched, or is requested, from an earlier spec of its group."""
        positions = self.positions.get(machine.group)
        if positions is None or machine.source is None or machine.state == "QUEUED":
            return False
        return machine.source.position not in positions

    def handle(self, message: ReconcilerMessage, now: float, cause: int = 0) -> list[ReconcilerEffect]:
        """Handle `message` at time `now`; return effects, in order.

        Args:
            cause: number of the control plane's message that led to this one.
        """
        self.table.cause = cause
        effects: list[ReconcilerEffect] = []
        match message:
            case Desired(nodes, victims, retry_given_up, drain, full):
                self.desired.update(nodes)
                self.extra -= full
                self._victims = victims
                self._add_existing(now)
                if retry_given_up:
                    self._retry_given_up()
                if drain is not None and (machine := self.table.machine_of(drain, "RUNNING")) is not None:
                    machine.expelled = True
                    self._drain(machine, now, effects)
            case SetSources(group, sources, positions, boot):
                self.sources[group], self.positions[group] = sources, positions
                self.limits = replace(self.limits, boot=max(boot, self.limits.boot))
                self._retry_given_up_of(group)
            case ReplaceOutdated(group, extra, drain):
                self._victims = ()
                (self.extra.add if extra else self.extra.discard)(group)
                if drain is not None and (machine := self.table.machine_of(drain, "RUNNING")) is not None:
                    machine.replaced = machine.refilled = True
                    self._drain(machine, now, effects)
            case Allocated(number):
                self._allocated(number, now, effects)
            case Priced(number, price):
                self.ledger.set_price(number, price, now)
            case Refused(numbers, reason, kind, retry_after):
                for number in numbers:
                    self._refused(number, reason, now, effects, kind, retry_after)
            case Joined(number, _, reports):
                self._joined(number, reports, now, effects)
            case TakenOver(number):
                if (machine := self.table.machines.get(number)) is not None:
                    machine.adopted = False
            case Failed(number, reason, is_final):
                self._died(number, reason, now, effects, is_final=is_final)
            case Lost(number, reason):
                self._died(number, reason, now, effects, lost=True)
            case Reclaimed(number):
                self._reclaim(number, now, effects)
            case Emptied(rank):
                if (machine := self.table.machine_of(rank, "STOP_REQUESTED")) is not None:
                    self.table.move(machine, "STOPPING", now)
                    self.table.move(machine, "STOPPED", now)
                    why = RECLAIMED if machine.reclaimed else OUTDATED if machine.replaced else NOT_NEEDED
                    self._terminate(machine, why, now, effects)
                    if machine.refilled and self.effective(machine.group) < self.wanted(machine.group):
                        self.table.add(machine.group, rank, now, now)
            case DrainRefused(rank):
                machine = self.table.machine_of(rank, "STOP_REQUESTED")
                if machine is not None and not machine.reclaimed:
                    self._reactivate(machine, "it has work again", now, effects)
            case Terminated(number):
                self._terminated(number, now, effects)
            case Evict(reason):
                self._evict(reason, now, effects)
            case Reconcile():
                self._check_deadlines(now, effects)
        if not self.closing and not isinstance(message, DrainRefused):
            self._converge(now, effects)
            self.requester.request(self.desired, now, effects)
            self._give_up_hopeless(now, effects)
        self._update_state(now)
        return [self._completed(effect) for effect in effects]

    def close(self, now: float, cause: int = 0) -> list[ReconcilerEffect]:
        """Terminate every machine, in any state; nothing is launched any more."""
        self.closing, self.table.cause = True, cause
        effects: list[ReconcilerEffect] = []
        self._evict("the pool is closing", now, effects)
        return effects

    def _retry_given_up(self) -> None:
        for record in (self._given_up, self._failures, self._refusals, self._rounds, self._failing):
            record.clear()

    def _retry_given_up_of(self, group: str) -> None:
        given_up = [rank for rank, owner in self._given_up.items() if owner == group]
        there = [rank for rank, each in self.table.assignments.items() if each.machine.group == group]
        for rank in (*given_up, *there):
            for record in (self._given_up, self._failures, self._refusals, self._rounds):
                record.pop(rank, None)
        self._failing.pop(group, None)

    def _evict(self, reason: str, now: float, effects: list[ReconcilerEffect]) -> None:
        for machine in self.table:
            match machine.state:
                case "QUEUED" if not machine.requested_at:
                    self._drop(machine, reason, now, effects)
                case "QUEUED" | "REQUESTED":
                    self._orphan(machine, reason, now, effects)
                case "STOP_REQUESTED":
                    self.table.move(machine, "STOPPING", now)
                    self._terminate(machine, reason, now, effects)
                case "TERMINATING":
                    pass
                case _:
                    self._terminate(machine, reason, now, effects)

    # Transitions of one machine.

    def _allocated(self, number: int, now: float, effects: list[ReconcilerEffect]) -> None:
        machine = self.table.machines.get(number)
        if machine is None:
            self._orphans[number] = now
            effects.append(Terminate(number, NOT_NEEDED, cause=self.table.cause))
            return
        if machine.state == "QUEUED" and machine.requested_at:  # a late answer
            self.table.move(machine, "REQUESTED", now)
        if machine.state != "REQUESTED":
            return
        self.table.move(machine, "ALLOCATED", now)
        self.ledger.bill(number, now)
        if machine.source is not None:
            self._backoff.answered(machine.source, now)
            self._forgive(machine.group)
        if machine.wanted:
            self.table.move(machine, "INSTALLING", now)
            effects.append(Install(number, machine.rank, cause=self.table.cause))
        else:
            self._terminate(machine, NOT_NEEDED, now, effects)

    def _refused(
        self,
        number: int,
        reason: str,
        now: float,
        effects: list[ReconcilerEffect],
        kind: RefusalKind = "unknown",
        retry_after: float | None = None,
    ) -> None:
        machine = self.table.machines.get(number)
        if machine is None or machine.state not in ("QUEUED", "REQUESTED"):
            return
        self._last_refusals[machine.group] = reason
        if machine.source is not None:
            self._backoff.failed(machine.source, machine.requested_at[-1], now, kind, retry_after)
            if self._backoff.ready_at(machine.source) == inf:
                self._final_refusal = reason
        if machine.state == "QUEUED":
            return  # a late answer: the machine is requested again
        self.table.move(machine, "ALLOCATION_FAILED", now, reason)
        self._orphan(machine, reason, now, effects, "refused")
        if machine.wanted and self._is_hopeless(machine, kind, now):
            offers = len(self.sources[machine.group])
            whole = reason if offers == 1 else f"none of {offers} offers has a machine; the last one: {reason}"
            self._give_up(machine, whole if kind != "unknown" else reason, now, effects)

    def _is_hopeless(self, machine: Machine, kind: RefusalKind, now: float) -> bool:
        """Count a refusal, and return whether the rank of its machine is to be given up.

        While another source can be asked at once, or one is waited for, a refusal for a known reason does not count;
        nor does one in an answer that gave some of the machines asked for.
        """
        rank, counts, sources = machine.rank, self._refusals, self.sources[machine.group]
        if machine.source is not None and self._backoff.gave_since(machine.source, machine.requested_at[-1]):
            return False
        if kind in ("unknown", "rate"):
            counts[rank] = counts.get(rank, 0) + 1
            most = self.limits.refusals * min(self.limits.failing_sources, len(sources))
            return self.opening and counts[rank] >= most
        if self._backoff.choose(sources, now) is not None or self._backoff.awaits(sources, now):
            return False
        if self.is_closed(machine.group):
            return True
        rounds = self._rounds[rank] = self._rounds.get(rank, 0) + 1
        return self.opening and rounds >= self.limits.rounds

    def _forgive(self, group: str) -> None:
        """Forget the refusals of the ranks of a group that was given a machine."""
        for counts in (self._refusals, self._rounds):
            for rank in tuple(counts):
                assignment = self.table.assignments.get(rank)
                if assignment is None or assignment.machine.group == group:
                    del counts[rank]

    def _give_up_hopeless(self, now: float, effects: list[ReconcilerEffect]) -> None:
        """Give up the queued machines of groups of which no source will ever be asked again."""
        for group in self.desired:
            if self.is_closed(group):
                for machine in self.table.queued(group):
                    if machine.requested_at:
                        self._orphan(machine, self._final_refusal, now, effects, "refused")
                    else:
                        self._drop(machine, self._final_refusal, now, effects)
                    self._give_up(machine, self._final_refusal, now, effects)

    def _joined(self, number: int, reports: bool, now: float, effects: list[ReconcilerEffect]) -> None:
        machine = self.table.machines.get(number)
        if machine is None or machine.state != "INSTALLING":
            return
        machine.adopted = machine.adopted and reports
        self.table.move(machine, "RUNNING", now)
        self._failures.pop(machine.rank, None)
        self._refusals.pop(machine.rank, None)
        self._rounds.pop(machine.rank, None)
        self._failing.pop(machine.group, None)
        if machine.source is not None:
            self._backoff.succeeded(machine.source)
        effects.append(Activate(number, machine.rank, machine.group, cause=self.table.cause))
        if machine.reclaimed:
            self._drain(machine, now, effects)

    def _died(
        self,
        number: int,
        reason: str,
        now: float,
        effects: list[ReconcilerEffect],
        *,
        lost: bool = False,
        is_final: bool = False,
    ) -> None:
        """Handle a machine that failed to become a node, or died: `lost`, which does not count against its source."""
        machine = self.table.machines.get(number)
        match machine.state if machine is not None else None:
            case "REQUESTED":
                self._refused(number, reason, now, effects)
            case "INSTALLING" if machine is not None:
                self.table.move(machine, "INSTALL_FAILED", now, reason)
                self._terminate(machine, reason, now, effects, "failed")
                self._failures[machine.rank] = self._failures.get(machine.rank, 0) + (not lost)
                if is_final or self._failures[machine.rank] >= self.limits.launches:
                    self._give_up(machine, reason, now, effects)
            case "RUNNING" | "STOP_REQUESTED" if machine is not None:
                self.table.move(machine, "STOPPED", now, reason)
                self._terminate(machine, reason, now, effects, "lost")
            case _:
                pass  # a late report

    def _terminated(self, number: int, now: float, effects: list[ReconcilerEffect]) -> None:
        self._orphans.pop(number, None)
        self._died(number, "its machine is gone", now, effects, lost=True)
        machine = self.table.machines.get(number)
        if machine is not None and machine.state == "TERMINATING":
            self.table.move(machine, "TERMINATED", now)
            self.table.forget(machine)
        if number not in self.table.machines:
            self.ledger.close_account(number, now)

    def _terminate(
        self,
        machine: Machine,
        reason: str,
        now: float,
        effects: list[ReconcilerEffect],
        departure: Departure = "removed",
    ) -> None:
        self._leave(machine, reason, now, effects, departure)
        self.table.move(machine, "TERMINATING", now, reason)
        effects.append(Terminate(machine.id, reason, cause=self.table.cause))

    def _leave(
        self,
        machine: Machine,
        reason: str,
        now: float,
        effects: list[ReconcilerEffect],
        departure: Departure = "removed",
    ) -> None:
        cause = self.table.cause
        origin = machine.cause if departure == "removed" and machine.state in ("STOPPING", "STOPPED") else cause
        if self.table.vacate(machine, now, reason):
            gone = NodeGone(machine.rank, reason, False, machine.id, departure, origin=origin, cause=cause)
            effects.append(gone)

    def _drop(self, machine: Machine, reason: str, now: float, effects: list[ReconcilerEffect]) -> None:
        """Forget a machine that was never requested."""
        self._leave(machine, reason, now, effects)
        self.table.forget(machine)
        self.ledger.close_account(machine.id, now)

    def _orphan(
        self,
        machine: Machine,
        reason: str,
        now: float,
        effects: list[ReconcilerEffect],
        departure: Departure = "removed",
    ) -> None:
        """Forget a machine that should not exist, and terminate it: a request that failed or was not answered may have
        succeeded, and the orphan costs money until it is known to be gone."""
        self._leave(machine, reason, now, effects, departure)
        self.table.forget(machine)
        self.ledger.bill(machine.id, now)
        self._orphans[machine.id] = now
        effects.append(Terminate(machine.id, reason, cause=self.table.cause))

    def _give_up(self, machine: Machine, reason: str, now: float, effects: list[ReconcilerEffect]) -> None:
        self._given_up[machine.rank] = machine.group
        known = self._failing.get(machine.group)
        if known is None or now >= known.until:
            pause = self.limits.failing_pause if known is None else min(2 * known.pause, LONGEST_FAILING_PAUSE)
            self._failing[machine.group] = _Failing(now + pause, pause)
        origin, cause = machine.cause, self.table.cause
        effects.append(GiveUp(machine.group, machine.rank, reason, machine.id, origin=origin, cause=cause))

    def _reactivate(self, machine: Machine, why: str, now: float, effects: list[ReconcilerEffect]) -> None:
        self.table.move(machine, "RUNNING", now, why)
        machine.cause = self.table.cause
        machine.expelled = machine.replaced = machine.refilled = False
        effects.append(Activate(machine.id, machine.rank, machine.group, cause=self.table.cause))

    def _check_deadlines(self, now: float, effects: list[ReconcilerEffect]) -> None:
        limits = self.limits
        for machine in self.table.in_states("REQUESTED", "INSTALLING", "STOP_REQUESTED", "TERMINATING"):
            stayed = now - machine.since
            match machine.state:
                case "REQUESTED":
                    self._check_request(machine, now, effects)
                case "INSTALLING" if stayed > limits.boot:
                    self._died(machine.id, f"it was not ready within {limits.boot:g} s", now, effects)
                case "STOP_REQUESTED" if stayed > limits.drain:  # repeat the effect; only new demand cancels a drain
                    machine.since = now
                    effects.append(Drain(machine.rank, machine.id, cause=self.table.cause))
                case "TERMINATING" if stayed > limits.terminate:
                    self.table.move(machine, "TERMINATION_FAILED", now)
                    self.table.move(machine, "TERMINATING", now)
                    why = "it still exists after it was terminated"
                    effects.append(Terminate(machine.id, why, cause=self.table.cause))
                case _:
                    pass
        for number, since in self._orphans.items():
            if now - since > limits.terminate:
                self._orphans[number] = now
                effects.append(Terminate(number, NOT_NEEDED, cause=self.table.cause))

    def _check_request(self, machine: Machine, now: float, effects: list[ReconcilerEffect]) -> None:
        limits = self.limits
        match after_request_timeout(now, limits.request, limits.refusals, machine.requested_at):
            case "QUEUED" if machine.wanted:
                self.table.move(machine, "QUEUED", now, "no answer")
            case "QUEUED" | "ALLOCATION_FAILED":
                self._refused(machine.id, f"the provider did not answer within {limits.request:g} s", now, effects)
            case None:
                pass

    # Scaling.

    def _converge(self, now: float, effects: list[ReconcilerEffect]) -> None:
        everything_goes = self._everything_goes(self.desired)
        head = self.table.machine_of(0, "STOP_REQUESTED")
        if not everything_goes and head is not None and not (head.reclaimed or head.replaced):
            self._reactivate(head, "it is the head, and nodes are wanted again", now, effects)
        self._move_queued_head(now, effects)
        for group in self.desired:  # of every group first: another one may launch the head
            self._release_given_up(group)
        for group in self.desired:
            there, wanted = self.effective(group), self.wanted(group)
            missing = wanted - there - self.count_given_up(group)
            if missing > 0:
                missing -= self._keep_leaving(group, missing, now, effects)
                for rank in self.table.free_ranks(missing, self._given_up):
                    self._add(group, rank, now)
            elif there > wanted:
                excess = there - wanted - self._refill_fewer(group, there - wanted)
                self._shrink(group, excess, everything_goes, now, effects)
        self._replace_missing_head(now, effects)

    def _add_existing(self, now: float) -> None:
        """Add the nodes of a former process with their ranks. A machine whose rank another one has gets another."""
        ranks, self.ranks = self.ranks, {}
        for group, sources in ranks.items():
            for source, wanted in sources.items():
                found = self.requester.known[group, source] = []
                for rank in wanted:
                    is_free = rank not in self.table.assignments
                    found.append(self.table.add(group, rank, now, now) if is_free else None)

    def _refill_fewer(self, group: str, excess: int) -> int:
        """Fill the ranks of up to `excess` fewer draining nodes again; return the number. The head's is filled."""
        others = [machine for machine in self.table.refills(group) if machine.rank][:excess]
        for machine in others:
            machine.refilled = False
        return len(others)

    def _add(self, group: str, rank: int, now: float) -> None:
        """Add a queued machine for a rank, which waits longer after each failed one."""
        failures = self._failures.get(rank, 0)
        self.table.add(group, rank, now + self._backoff.first * 2 ** (failures - 1) if failures else now, now)

    def _release_given_up(self, group: str) -> None:
        """Forget the given-up ranks of a group that are not wanted any more, the highest first.

        The head is wanted as long as any node is: it stays given up unless a group can launch another one.
        """
        given_up = sorted((rank for rank, owner in self._given_up.items() if owner == group), reverse=True)
        surplus = max(0, self.effective(group) + len(given_up) - self.wanted(group))
        for rank in given_up[:surplus]:
            if rank or not any(self.desired.values()) or self._groups_for_head():
                del self._given_up[rank]

    def _groups_for_head(self) -> list[str]:
        """Return the wanted groups that can launch the head."""
        return [group for group in self.desired if self.wanted(group) and not self.is_closed(group)]

    def _replace_missing_head(self, now: float, effects: list[ReconcilerEffect]) -> None:
        """Launch the head if no group has launched it, because each has as many nodes as it is to have.

        A node of its group leaves in exchange, unless all of them must stay.
        """
        able = self._groups_for_head()
        if 0 in self.table.assignments or 0 in self._given_up or not able:
            return
        group = min(able, key=lambda name: now < self.failing_until(name))  # the first one that does not fail
        self._add(group, 0, now)
        if (excess := self.effective(group) - self.wanted(group)) > 0:
            self._shrink(group, excess, False, now, effects)

    def _move_queued_head(self, now: float, effects: list[ReconcilerEffect]) -> None:
        """Drop a head that was not launched yet, if its group is to have no node and one of another group starts."""
        head = self.table.machine_of(0, "QUEUED")
        if head is None or self.desired.get(head.group):
            return
        others = {group: desired for group, desired in self.desired.items() if group != head.group}
        if any(desired > self.effective(group) + self.count_given_up(group) for group, desired in others.items()):
            if head.requested_at:
                self._orphan(head, NOT_NEEDED, now, effects)
            else:
                self._drop(head, NOT_NEEDED, now, effects)

    def count_given_up(self, group: str) -> int:
        """Return the number of nodes of a group that were given up."""
        return sum(owner == group for owner in self._given_up.values())

    def _everything_goes(self, desired: Mapping[str, int]) -> bool:
        return self.may_empty and not any(desired.values())

    def _keep_leaving(self, group: str, wanted: int, now: float, effects: list[ReconcilerEffect]) -> int:
        """Keep up to `wanted` leaving nodes instead of launching others; return the number."""
        leaving = self.table.of(group, "leaving")
        unwanted = [m for m in leaving if m.state == "REQUESTED" and m.rank not in self.table.assignments]
        heads = unwanted[:1] if unwanted and not unwanted[0].rank else []
        others = wanted - (0 not in self.table.assignments and 0 not in self._given_up)  # one of them is the head
        draining = [
            m for m in leaving if m.state == "STOP_REQUESTED" and not (m.expelled or m.reclaimed or m.replaced)
        ][:others]
        for machine in draining:
            self._reactivate(machine, "it is needed again", now, effects)
        kept = [*heads, *unwanted[len(heads) :][: others - len(draining)]]
        for machine in kept:
            self.table.unmark_surplus(machine, now)
        return len(draining) + len(kept)

    def would_drain(self, desired: Mapping[str, int], victims: tuple[int, ...]) -> list[int]:
        """Return the ranks of the running nodes that would be drained for these desired numbers."""
        found: list[int] = []
        for group, count in desired.items():
            excess = self.effective(group) - count - (group in self.extra and count > 0)
            excess -= sum(machine.rank > 0 for machine in self.table.refills(group))
            if excess > 0:
                going = self._going_first(group, victims, self._everything_goes(desired))[:excess]
                found += (machine.rank for machine in going if machine.state == "RUNNING")
        return found

    def _going_first(self, group: str, victims: tuple[int, ...], everything: bool) -> list[Machine]:
        """Return the removable nodes, the first to go first: queued, then booting, then running ones.

        Within each stage `victims` go first, then outdated nodes, then the highest ranks. Nodes that keep values are
        not removable.
        """
        chosen = {rank: order for order, rank in enumerate(victims)}
        stages = {"QUEUED": 0, "REQUESTED": 1, "ALLOCATED": 2, "INSTALLING": 2, "RUNNING": 3}

        def order(machine: Machine) -> tuple[int, int, bool, int]:
            by_choice = chosen.get(machine.rank, len(chosen))
            return stages[machine.state], by_choice, not self.is_outdated(machine), -machine.rank

        there = [machine for machine in self.table.of(group, "active", "booting") if everything or machine.rank]
        return sorted((machine for machine in there if machine.rank not in self.keeping), key=order)

    def _shrink(self, group: str, excess: int, everything: bool, now: float, effects: list[ReconcilerEffect]) -> None:
        """Remove surplus nodes of a group."""
        for machine in self._going_first(group, self._victims, everything)[:excess]:
            match machine.state:
                case _ if machine.adopted:
                    pass  # its tasks may run, and its results wait
                case "QUEUED" if not machine.requested_at:
                    self._drop(machine, NOT_NEEDED, now, effects)
                case "QUEUED":
                    self._orphan(machine, NOT_NEEDED, now, effects)
                case "REQUESTED":
                    self._leave(machine, NOT_NEEDED, now, effects)
                    self.table.mark_surplus(machine)
                case "RUNNING":
                    self._drain(machine, now, effects)
                case _:
                    self._terminate(machine, NOT_NEEDED, now, effects)

    def _drain(self, machine: Machine, now: float, effects: list[ReconcilerEffect]) -> None:
        self.table.move(machine, "STOP_REQUESTED", now)
        machine.cause = self.table.cause
        effects.append(Drain(machine.rank, machine.id, cause=self.table.cause))

    def _reclaim(self, number: int, now: float, effects: list[ReconcilerEffect]) -> None:
        """Drain a machine that its provider takes back; another one is launched now, unless it is the head.

        A machine that does not run yet is ended at once, unless tasks and results of a former process wait there.
        """
        machine = self.table.machines.get(number)
        if machine is None or machine.state not in ("INSTALLING", "RUNNING", "STOP_REQUESTED"):
            return
        machine.reclaimed = True
        if machine.state == "RUNNING":
            self._drain(machine, now, effects)
        elif machine.state == "INSTALLING" and not machine.adopted:
            self._died(number, RECLAIMED, now, effects, lost=True)

    # State.

    def _update_state(self, now: float) -> None:
        booting = any(self.table.count(group, "booting") for group in self.desired)
        leaving = any(self.table.count(group, "leaving") for group in self.desired)
        draining = leaving and bool(self.table.counts_in("STOP_REQUESTED"))
        target: ReconcilerState = "scaling_up" if booting else "draining" if draining else "watching"
        if target != self.state:
            if target not in RECONCILER[self.state]:
                self._life.move("watching", now, cause=self.table.cause)
            self._life.move(target, now, cause=self.table.cause)

    def _completed(self, effect: ReconcilerEffect) -> ReconcilerEffect:
        """Complete a report of a removed node: only the end of the step decides whether its rank is filled again."""
        if isinstance(effect, NodeGone) and effect.rank in self.table.assignments:
            return replace(effect, again=True)
        return effect
