"""Rolling updates: nodes of a group that were launched from an earlier spec are replaced one by one. Decides only.

While a group has such outdated nodes, one node more than desired is launched from the present spec. Once it is active,
one outdated node is drained: an idle one before a busy one, and node 0 last. Its successor gets its rank once it has
left, so that the ranks stay as they are; then the next one follows. The additional node goes last. Where there is no
room for one, the outdated nodes are drained without it: in the whole pool, only one of them is gone at a time before
its successor is active. A node that keeps values stays until they may go; one with streams whose readers may wait for
other tasks takes tasks until the streams have ended.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.machines.table import Machine
from skyward.control.decide.prospects.groups import Prospects, VainWait
from skyward.control.decide.tasks.manager import TaskManager
from skyward.control.decide.tasks.queries import InfeasibleTask
from skyward.formatting import count_text, first_line, money_text
from skyward.scaling.snapshot import Counts, Group
from skyward.values.needs import Needs

__all__ = ["GroupUpdate", "OutdatedNode", "PlannedStep", "RollingUpdates", "UpdateStep", "next_step"]


@dataclass(frozen=True, slots=True)
class OutdatedNode:
    """An active node that was launched from an earlier spec.

    Attributes:
        keeps: names of the values for which it stays.
        has_streams: True if it stays for streams that are not read while tasks wait.
    """

    rank: int
    is_idle: bool
    keeps: str = ""
    has_streams: bool = False

    @property
    def stays(self) -> str:
        """The reason for which it stays for now; empty if it may go."""
        if self.keeps:
            return f"node {self.rank} keeps {self.keeps}"
        streams = f"node {self.rank} runs streams that are not read while tasks wait, so it takes tasks until they end"
        return streams if self.has_streams else ""


@dataclass(frozen=True, slots=True)
class GroupUpdate:
    """State of the update of one group.

    Attributes:
        desired: desired nodes.
        active, booting: active nodes, and those that start, of any spec.
        outdated: active nodes of an earlier spec.
        starting: number of nodes of an earlier spec that still start.
        leaving: rank of the outdated node that drains, or whose successor is not active yet beside an additional node;
            else None.
        extra: True if one node more than desired is wanted already.
        full: why there is no room for one node more; empty if there is.
        failed: why no node can be launched from the present spec, now or for good; empty if one can.
        others_first: why no node may go before its successor now, because of other groups; empty if one may.
    """

    desired: int
    active: int
    booting: int = 0
    outdated: tuple[OutdatedNode, ...] = ()
    starting: int = 0
    leaving: int | None = None
    extra: bool = False
    full: str = ""
    failed: str = ""
    others_first: str = ""


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """The next step of an update.

    Attributes:
        extra: True if one node more than desired is wanted.
        remove: rank of the outdated node that is drained now; None for none.
        waits: why outdated nodes stay for now; empty if the update goes on.
        is_over: True if no outdated node is left, and none is missing.
    """

    extra: bool = False
    remove: int | None = None
    waits: str = ""
    is_over: bool = False


def next_step(state: GroupUpdate) -> UpdateStep:
    """Return the next step of the update of a group."""
    if state.leaving is not None:
        waits = state.failed if state.outdated else ""
        return UpdateStep(extra=state.extra and not state.full, waits=waits)
    if not state.outdated:
        return UpdateStep(is_over=not state.starting and state.active >= state.desired)
    if state.failed:
        return UpdateStep(waits=state.failed)
    able = sorted((node for node in state.outdated if not node.stays), key=_order)
    if not able:
        return UpdateStep(waits="; ".join(node.stays for node in state.outdated))
    first = able[0]
    if not state.full:
        if state.extra and state.active > state.desired:
            return UpdateStep(extra=True, remove=first.rank)
        return UpdateStep(extra=True)
    if state.booting:
        return UpdateStep()
    if state.active < state.desired:
        return UpdateStep(waits=f"{state.full}, and {count_text(state.desired - state.active)} of it cannot start")
    if state.others_first:
        return UpdateStep(waits=state.others_first)
    return UpdateStep(remove=first.rank)


def _order(node: OutdatedNode) -> tuple[bool, bool, int]:
    """Return the order in which nodes go: node 0 last, idle ones first, and otherwise the highest rank first."""
    return node.rank == 0, not node.is_idle, -node.rank


@dataclass(slots=True)
class _Update:
    """An update that is under way.

    Attributes:
        failed: why no node could be started from the present spec; empty if none has failed.
        made_room: True while a node is missing that went before its successor.
        rank: rank of the latest node that was drained; None for none.
        before: sources from which the nodes were launched before; none if a former process did not record them.
        present: sources of the present spec.
        fell_back: True if nodes are launched from the sources `before` again.
        waits: True if its outdated nodes stay for now.
        streams: by machine, the streams for which its drain was cancelled.
        said: the reason that was logged last.
    """

    failed: str = ""
    made_room: bool = False
    rank: int | None = None
    before: tuple[MachineSource, ...] = ()
    present: tuple[MachineSource, ...] = ()
    fell_back: bool = False
    waits: bool = False
    streams: dict[int, frozenset[int]] = field(default_factory=dict)
    said: str = ""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """The next step of the update of a group, for the control plane.

    Attributes:
        says: what the decision log gets; empty for nothing.
        message: what the reconciler is told; None for nothing.
    """

    says: str = ""
    message: machines.ReplaceOutdated | machines.SetSources | None = None


@dataclass
class RollingUpdates:
    """The updates of a pool's groups that are under way.

    Attributes:
        groups: the groups, by name, as their nodes are launched now.
        max_nodes: maximum over all groups; None for no limit but theirs.
        earlier: the groups as they were, by name and by the position of the source of a machine.
    """

    groups: Mapping[str, Group]
    tasks: TaskManager
    reconciler: Reconciler
    ledger: Ledger
    prospects: Prospects
    max_nodes: int | None = None
    earlier: dict[tuple[str, int], Group] = field(default_factory=dict)
    _updates: dict[str, _Update] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._updates)

    def begin(self, group: str, before: tuple[MachineSource, ...]) -> int:
        """Begin to replace the outdated nodes of a group; return their number, with those that start or drain.

        Args:
            before: sources from which its nodes were launched before.
        """
        outdated = [machine for machine in self.launched(group) if self._is_old(machine)]
        earlier = self._updates.pop(group, _Update())
        if outdated or group in self.reconciler.extra:
            proven = earlier.before or before  # the sources of an update that is under way may not work
            present = self.reconciler.sources[group]
            self._updates[group] = _Update("", earlier.made_room, earlier.rank, proven, present)
        return len(outdated)

    def launched(self, group: str) -> list[Machine]:
        """Return the machines of a group that are requested, with those that drain and have successors."""
        table = self.reconciler.table
        there = [machine for machine in table.of(group, "active", "booting") if machine.state != "QUEUED"]
        return [*there, *table.refills(group)]

    def resume(self, before: Mapping[str, tuple[MachineSource, ...]], fell_back: Collection[str]) -> None:
        """Resume the updates of a former process, which may have drained a node whose successor is missing.

        Args:
            before: sources from which the nodes of a group were launched before, by group.
            fell_back: groups whose nodes are launched from these again.
        """
        sources = self.reconciler.sources
        for name, earlier in before.items():
            update = _Update(made_room=True, before=earlier, present=sources[name], fell_back=name in fell_back)
            self._updates[name] = update
            if update.fell_back:
                sources[name] = earlier
                update.failed = "could launch no node of the changed spec before its former process ended"

    @property
    def origins(self) -> dict[str, tuple[MachineSource, bool]]:
        """Preferred source of the nodes before each update, by group, and True if these are launched from it again."""
        return {name: (each.before[0], each.fell_back) for name, each in self._updates.items() if each.before}

    def gap(self, name: str, now: float) -> str:
        """Return what follows if the only node of the pool is replaced without another one; empty if it is not."""
        update = self._updates.get(name)
        is_only = sum(map(self.reconciler.effective, self.groups)) == 1
        if update is None or update.waits or not is_only or not (full := self._full(name, now)):
            return ""
        return (
            f"its only node is replaced without another one beside it, since {full}: tasks wait meanwhile, and what is "
            "in collections is lost, which room for one node more would avoid."
        )

    def retry(self) -> Iterator[PlannedStep]:
        """Launch nodes of the present spec again for updates that ended because these could not be launched."""
        for name, update in self._updates.items():
            update.failed, update.said = "", ""
            if update.fell_back:
                update.fell_back = False
                yield self._launch_from(name, update.present)

    def fallbacks(self, now: float) -> Iterator[PlannedStep]:
        """Yield the steps of the updates for which a node went, and its successor cannot be launched.

        A node of the spec before takes its place, and the update ends.
        """
        for name, update in self._updates.items():
            if not update.made_room or not update.before or update.fell_back:
                continue
            obstacle = self.prospects.obstacles(now).get(name)
            if obstacle is None or not (self.reconciler.has_given_up(name) or obstacle.kind == "sold out"):
                continue
            update.fell_back, update.failed = True, obstacle.why
            yield self._launch_from(
                name,
                update.before,
                f"a node of the earlier spec of group {name!r} takes the place of the one that made room, and the "
                f"update ends: the pool {first_line(obstacle.why)}",
            )

    def falls_back(self, name: str) -> bool:
        """Return whether a node of the spec before is launched in this step in place of one that made room."""
        update = self._updates.get(name)
        if update is None or not update.made_room or not update.before or update.fell_back:
            return False
        return self.reconciler.has_given_up(name)

    def _launch_from(self, name: str, sources: tuple[MachineSource, ...], says: str = "") -> PlannedStep:
        return PlannedStep(says, machines.SetSources(name, sources, self.reconciler.positions[name], 0.0))

    def in_vain(self, shapes: Iterable[Needs]) -> dict[Needs, VainWait]:
        """Return how the tasks of those of these waiting shapes end that only nodes could hold which cannot start."""
        found = {}
        for needs in shapes:
            able = [name for name, group in self.groups.items() if group.can_hold(needs)]
            ended = [name for name in able if name in self._updates and self._ended_without(name, needs)]
            if ended and len(ended) == len(able) and not self._is_held(needs):
                found[needs] = VainWait(self._updates[ended[0]].failed, "abandoned")
        return found

    def _ended_without(self, name: str, needs: Needs) -> bool:
        """Return whether the nodes that are launched again after a failed update of a group could not hold a task."""
        update = self._updates[name]
        if not update.fell_back:
            return False
        group = self.earlier.get((name, update.before[0].position))
        return group is not None and not group.can_hold(needs)

    def started(self, machine: int) -> None:
        """Note that the node of a machine is active.

        If it is outdated, its group is updated from now on: it was attached to, or drained and is needed again. If not,
        nodes of the present spec can start.
        """
        known = self.reconciler.table.machines[machine]
        if self._is_old(known):
            self._updates.setdefault(known.group, _Update())
        elif (update := self._updates.get(known.group)) is not None and not update.fell_back:
            update.failed = ""

    def remember(self, group: Group) -> None:
        """Remember the group as it was for the machines that were launched or requested from its present spec."""
        for machine in self.reconciler.table:
            if machine.group == group.name and machine.source is not None and not self._is_old(machine):
                self.earlier[group.name, machine.source.position] = group

    def group_of(self, machine: Machine) -> Group:
        """Return the group of a machine, as it was when the machine was launched."""
        present = self.groups[machine.group]
        if machine.source is None or not self._is_old(machine):
            return present
        return self.earlier.get((machine.group, machine.source.position), present)

    def _is_old(self, machine: Machine) -> bool:
        return self.reconciler.is_outdated(machine)

    def steps(self, kept: Mapping[int, str], now: float) -> Iterator[PlannedStep]:
        """Yield the next steps of all updates. Each is to be taken before the next one is asked for.

        Args:
            kept: names of the values for which nodes stay, by rank.
        """
        for name, update in tuple(self._updates.items()):
            self._note_failure(name, update, now)
            update.streams = {each: streams for each, streams in update.streams.items() if self._runs(each, streams)}
            state = self._state(name, update, kept, now)
            step = next_step(state)
            if step.is_over and update.fell_back:
                step = UpdateStep()  # it goes on if it is retried
            is_missing = state.active < state.desired or state.leaving == 0
            goes_first = step.remove is not None and (not state.extra or step.remove == 0)
            update.made_room = (update.made_room and is_missing) or goes_first
            says = self._says(name, state, step)
            if step.is_over:
                del self._updates[name]
            news = says if says != update.said else ""
            update.said = says or update.said
            changes = step.extra != state.extra or step.remove is not None
            update.waits = bool(step.waits) or update.fell_back
            update.rank = update.rank if step.remove is None else step.remove
            message = machines.ReplaceOutdated(name, step.extra, step.remove) if changes else None
            yield PlannedStep(news, message)

    # For the policies, which know nothing of updates: they would count the additional node as one of theirs.

    def without_extra(self, name: str, counts: Counts) -> Counts:
        """Return the counts of a group without the additional node of its update, if there is one."""
        if not self.has_extra(name):
            return counts
        if counts.booting:
            return replace(counts, booting=counts.booting - 1)
        return replace(counts, active=counts.active - 1)

    def without_room(self, groups: Iterable[Group]) -> tuple[Group, ...]:
        """Return groups without the room that their updates need for an additional node: it comes before growth."""
        return tuple(replace(each, max=each.max - 1) if self._needs_room(each) else each for each in groups)

    def total_without_room(self, groups: Iterable[Group]) -> int | None:
        """Return the maximum over all groups without the room that updates need; None for no maximum."""
        if self.max_nodes is None:
            return None
        spare = max(0, self.max_nodes - sum(self.reconciler.desired.values()))
        return self.max_nodes - min(spare, sum(map(self._needs_room, groups)))

    def note_on_successors(self, after: Mapping[str, int]) -> str:
        """Return a note on nodes that leave for an update, and get no successors with a decision; empty for none.

        To the policy, these successors are booting nodes like others.
        """
        table, found = self.reconciler.table, list[str]()
        for name, update in self._updates.items():
            machine = None if update.rank is None else table.assignments.get(update.rank)
            is_awaited = machine is not None and machine.machine in (*table.refills(name), *table.of(name, "booting"))
            desired = self.reconciler.desired.get(name, 0)
            if is_awaited and after.get(name, 0) <= min(table.count(name, "active"), desired - 1):
                found.append(f"; node {update.rank}, which leaves for the update, gets no successor")
        return "".join(found)

    def _needs_room(self, group: Group) -> bool:
        """Return whether an update goes on that needs a node more than desired, and the group may have it."""
        update = self._updates.get(group.name)
        return update is not None and not update.waits and self.reconciler.desired.get(group.name, 0) < group.max

    def has_extra(self, name: str) -> bool:
        """Return whether a group has the additional node of its update."""
        effective = self.reconciler.effective(name)
        return name in self.reconciler.extra and effective > self.reconciler.desired.get(name, 0)

    def extra_machines(self) -> frozenset[int]:
        """Return the machines of the additional nodes that still start."""
        table, found = self.reconciler.table, set[int]()
        for name in self.reconciler.extra:
            booting = table.of(name, "booting")
            if booting and self.has_extra(name):
                found.add(max(machine.id for machine in booting))
        return frozenset(found)

    def _note_failure(self, name: str, update: _Update, now: float) -> None:
        """Remember that nodes of the present spec fail to start, unless waiting tasks need one after the pause."""
        obstacle = self.prospects.obstacles(now).get(name)
        if obstacle is not None and obstacle.kind in ("failed", "closed"):
            update.failed = obstacle.why
        elif update.failed and not update.fell_back and self._is_needed(name):
            update.failed = ""

    def _is_needed(self, name: str) -> bool:
        """Return whether waiting tasks need a node of the present spec: no other node could hold them."""
        return any(self.groups[name].can_hold(needs) and not self._is_held(needs) for needs in self.tasks.shapes())

    def infeasible_end(self, rank: int, task: InfeasibleTask, now: float) -> VainWait | None:
        """Return how tasks end that are pinned to an active node which can never hold them; None while they wait.

        They wait for its successor, if that could hold them and may come. The end has no reason if none could.
        """
        assignment = self.reconciler.table.assignments.get(rank)
        machine = None if assignment is None else assignment.machine
        update = None if machine is None else self._updates.get(machine.group)
        if task.bound or machine is None or update is None or not self._is_old(machine):
            return VainWait("", "abandoned")
        name = machine.group
        if not task.fits(self.groups[name]):
            return VainWait("", "abandoned")
        if update.fell_back or update.failed:
            return VainWait(self._failed(name, update, now), "abandoned")
        too_dear = self._too_dear(name, now)
        return VainWait(too_dear, "unfunded") if too_dear else None

    def _is_held(self, needs: Needs) -> bool:
        """Return whether an active node could hold a task."""
        table = self.reconciler.table
        there = (machine for group in self.groups for machine in table.of(group, "active"))
        return any(self.group_of(machine).can_hold(needs) for machine in there)

    def _state(self, name: str, update: _Update, kept: Mapping[int, str], now: float) -> GroupUpdate:
        table = self.reconciler.table
        active = table.of(name, "active")
        outdated = tuple(
            OutdatedNode(
                machine.rank,
                self.tasks.has_no_work(machine.rank),
                kept.get(machine.rank, ""),
                machine.id in update.streams,
            )
            for machine in active
            if self._is_old(machine) and not machine.adopted
        )
        booting = table.of(name, "booting")
        return GroupUpdate(
            self.reconciler.desired.get(name, 0),
            len(active),
            len(booting),
            outdated,
            sum(map(self._is_old, (*booting, *(machine for machine in active if machine.adopted)))),
            self._leaving(name, update),
            name in self.reconciler.extra,
            self._full(name, now),
            self._failed(name, update, now),
            self._others_first(name),
        )

    def _others_first(self, name: str) -> str:
        """Return why a node of a group may not go before its successor now, because of other groups; empty if it may.

        Without another active node, what is in collections would be lost.
        """
        reconciler, others = self.reconciler, [other for other in self.groups if other != name]
        for other in others:
            update, active = self._updates.get(other), reconciler.table.count(other, "active")
            is_short = active < min(reconciler.desired.get(other, 0), reconciler.effective(other))
            if update is not None and update.made_room and is_short and other not in reconciler.extra:
                return f"group {other!r} has one node less until the successor of its node {update.rank} is active"
        is_last = reconciler.table.count(name, "active") + sum(reconciler.table.count(o, "active") for o in others) == 1
        starting = next(filter(reconciler.has_machine, others), None) if is_last else None
        return "" if starting is None else f"no other node is active before one of group {starting!r} has started"

    def _leaving(self, name: str, update: _Update) -> int | None:
        """Return the rank of the outdated node that drains, or whose successor starts beside an additional node."""
        table = self.reconciler.table
        leaving = (machine for machine in table.of(name, "leaving") if machine.state == "STOP_REQUESTED")
        draining = (machine.rank for machine in leaving if machine.replaced or self._is_old(machine))
        if (rank := next(draining, None)) is not None:
            return rank
        if update.rank is None or name not in self.reconciler.extra:
            return None
        starts = table.machine_of(update.rank, "QUEUED", "REQUESTED", "ALLOCATED", "INSTALLING")
        return update.rank if starts is not None and starts.group == name else None

    def _full(self, name: str, now: float) -> str:
        """Return why there is no room for one node more than desired; empty if there is."""
        reconciler = self.reconciler
        if why := self._over_bounds(name, reconciler.desired, len(reconciler.extra - {name})):
            return why
        is_waiting = name not in reconciler.extra or reconciler.unrequested(name)
        if is_waiting and self.ledger.room(reconciler.price_now(name, now), now) == 0:
            return "the budget covers no further node"
        return ""

    def _over_bounds(self, name: str, desired: Mapping[str, int], others: int) -> str:
        """Return which maximum one node more than desired would exceed; empty for none.

        Args:
            others: number of additional nodes of other groups.
        """
        group = self.groups[name]
        if desired.get(name, 0) >= group.max:
            return f"group {name!r} may have at most {count_text(group.max)}"
        if self.max_nodes is not None and sum(desired.values()) + others >= self.max_nodes:
            return f"the pool may have at most {count_text(self.max_nodes)} in total (max_nodes)"
        return ""

    def full_groups(self, nodes: Mapping[str, int]) -> frozenset[str]:
        """Return the groups that have an additional node, and no room for it beside these desired nodes."""
        desired, extra = {**self.reconciler.desired, **nodes}, sorted(self.reconciler.extra)
        full: set[str] = set()
        for name in extra:
            if self._over_bounds(name, desired, len(extra) - len(full) - 1):
                full.add(name)
        return frozenset(full)

    def may_go_again(self, rank: int) -> bool:
        """Return whether a node is outdated whose drain was cancelled, and has nothing to do now, or no streams."""
        assignment = self.reconciler.table.assignments.get(rank)
        update = None if assignment is None else self._updates.get(assignment.machine.group)
        if assignment is None or update is None:
            return False
        streams = update.streams.get(assignment.machine.id)
        if streams is not None and not self._runs(assignment.machine.id, streams):
            return True
        if update.rank != rank:
            return False
        return self._is_old(assignment.machine) and self.tasks.has_no_work(rank)

    def spare(self, rank: int, streams: frozenset[int]) -> bool:
        """Let a node that drains for an update stay until its streams have ended; return False for any other node."""
        machine = self.reconciler.table.machine_of(rank, "STOP_REQUESTED")
        if machine is None or not machine.replaced:
            return False
        if (update := self._updates.get(machine.group)) is not None:
            update.streams[machine.id], update.made_room = streams, False
        return True

    def _runs(self, number: int, streams: Iterable[int]) -> bool:
        """Return whether any of these streams is on a machine."""
        machine = self.reconciler.table.machines.get(number)
        return machine is not None and any(self.tasks.node_of(task) == machine.rank for task in streams)

    def draining(self) -> list[int]:
        """Return the ranks of the nodes that drain for updates."""
        found = (machine for group in self.groups for machine in self.reconciler.table.refills(group))
        return [machine.rank for machine in found if machine.replaced and not machine.reclaimed]

    def successors(self) -> dict[int, Group]:
        """Return the ranks of the active and draining nodes that are to be replaced, with their present groups."""
        table, found = self.reconciler.table, dict[int, Group]()
        for name in self._updates:
            there = (*table.of(name, "active"), *table.refills(name))
            found |= {machine.rank: self.groups[name] for machine in there if self._is_old(machine)}
        return found

    def _failed(self, name: str, update: _Update, now: float) -> str:
        """Return why no node of the present spec can be launched, now or for good; empty if one can."""
        if update.fell_back:
            return "the update has ended, because no node of the present spec could be launched"
        if update.failed:
            return f"the pool {first_line(update.failed)}"
        obstacle = self.prospects.obstacles(now).get(name)
        if obstacle is not None and obstacle.kind == "sold out":
            return f"the group {obstacle.why}"
        return self._too_dear(name, now)

    def _too_dear(self, name: str, now: float) -> str:
        """Return why the budget would not cover a successor, even once an outdated node is gone; empty if it would."""
        reconciler, ledger = self.reconciler, self.ledger
        price = reconciler.price_now(name, now)
        is_requested = name in reconciler.extra and not reconciler.unrequested(name)
        if is_requested or not price or ledger.room(price, now) != 0:
            return ""
        outdated = (machine for machine in reconciler.table.of(name, "active") if self._is_old(machine))
        if all(ledger.could_replace((machine.id,), price, now) for machine in outdated):
            return ""
        return f"the budget does not cover a node of the present spec at {money_text(price)}/h, even in its place"

    def _says(self, name: str, state: GroupUpdate, step: UpdateStep) -> str:
        """Return the sentence of the decision log about a step; empty if there is nothing new to say."""
        if step.is_over:
            return f"the update of group {name!r} is complete: no node of an earlier spec is left"
        if step.waits:
            left = count_text(len(state.outdated))
            stay = "stays" if len(state.outdated) == 1 else "stay"
            return f"{left} of an earlier spec of group {name!r} {stay} for now: {step.waits}"
        if step.remove is not None:
            return self._replaced_text(name, state, step.remove)
        if step.extra and not state.extra:
            left = count_text(len(state.outdated))
            return f"one node more is launched from the present spec of group {name!r}, to replace {left} one by one"
        return ""

    def _replaced_text(self, name: str, state: GroupUpdate, rank: int) -> str:
        busy = next((not node.is_idle for node in state.outdated if node.rank == rank), False)
        after = " once its tasks have ended" if busy else ""
        launched = f"node {rank} was launched from an earlier spec of group {name!r}"
        if not state.extra:
            goes = f"{launched} and goes{after}, before its successor starts: {state.full}"
            others = sum(self.reconciler.table.count(group, "active") for group in self.groups) - 1
            return goes if others else f"{goes}; tasks wait meanwhile, and what is in collections is lost"
        present = [machine.rank for machine in self.reconciler.table.of(name, "active") if not self._is_old(machine)]
        takes = f"node {max(present)}" if present else "another node"
        return f"{launched}; {takes} takes its place{after}, until a new node {rank} is active"
