"""The kept indices of a pool's machines equal a scan of them, and a message does not visit all of them."""

import sys
from collections import Counter
from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.instance import INSTANCE, InstanceState
from skyward.control.decide.machines.messages import Allocated, Desired, Joined, Reconcile, Terminated
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.machines.table import Machine, MachineTable, Stage
from skyward.control.decide.messages import Resize
from skyward.control.decide.tasks import messages as tasks
from skyward.control.decide.tasks.slots import SlotTable
from skyward.scaling.snapshot import Group
from skyward.values.needs import NOTHING, Needs
from tests.unit.control.decide.plane_world import World

pytestmark = pytest.mark.unit

GROUPS = ("nodes", "gpu")
STAGES: tuple[Stage, ...] = ("booting", "active", "leaving")
STATES: tuple[InstanceState, ...] = tuple(INSTANCE)


def by_rank(machine: Machine) -> tuple[int, int]:
    return machine.rank, machine.id


class Indices(RuleBasedStateMachine):
    """A table of machines under random legal moves."""

    def __init__(self) -> None:
        super().__init__()
        self.table = MachineTable()
        self.now = 0.0

    def machine(self, which: int) -> Machine:
        known = list(self.table)
        return known[which % len(known)]

    @rule(group=st.sampled_from(GROUPS), rank=st.integers(0, 9), wait=st.sampled_from([0.0, 0.0, 5.0, 50.0]))
    def add(self, group: str, rank: int, wait: float) -> None:
        if rank not in self.table.assignments:
            self.table.add(group, rank, self.now + wait, self.now)

    @rule(group=st.sampled_from(GROUPS), most=st.integers(1, 4))
    def add_at_free_ranks(self, group: str, most: int) -> None:
        for rank in self.table.free_ranks(most):
            self.table.add(group, rank, self.now, self.now)

    @precondition(lambda self: self.table.machines)
    @rule(which=st.integers(0, 99), to=st.integers(0, 9))
    def move(self, which: int, to: int) -> None:
        machine = self.machine(which)
        has_rank = self.table.machine_of(machine.rank, machine.state) is machine
        legal = sorted(INSTANCE[machine.state])
        if not machine.wanted:
            legal = [state for state in legal if state != "QUEUED"]
        elif not has_rank:
            legal = [state for state in legal if state not in ("QUEUED", "RUNNING")]
        if legal:
            self.table.move(machine, legal[to % len(legal)], self.now)

    @precondition(lambda self: self.table.machines)
    @rule(which=st.integers(0, 99))
    def turn_surplus_or_wanted(self, which: int) -> None:
        machine = self.machine(which)
        if machine.state != "REQUESTED":
            return
        if machine.wanted:
            self.table.vacate(machine, self.now, "surplus")
            self.table.mark_surplus(machine)
        elif machine.rank not in self.table.assignments:
            self.table.unmark_surplus(machine, self.now)

    @precondition(lambda self: self.table.machines)
    @rule(which=st.integers(0, 99), forget=st.booleans())
    def vacate(self, which: int, forget: bool) -> None:
        machine = self.machine(which)
        if forget or machine.state not in ("QUEUED", "REQUESTED", "ALLOCATED", "INSTALLING", "RUNNING"):
            self.table.vacate(machine, self.now, "gone")
        if forget:
            self.table.forget(machine)

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def stages_and_states_are_those_of_a_scan(self) -> None:
        found = list(self.table)
        stages = Counter((machine.group, machine.stage) for machine in found)
        assert {(group, stage): self.table.count(group, stage) for group in GROUPS for stage in STAGES} == {
            (group, stage): stages[group, stage] for group in GROUPS for stage in STAGES
        }
        for group in GROUPS:
            assert self.table.has(group) == any(machine.group == group for machine in found)
            for stage in STAGES:
                scan = [machine for machine in found if (machine.group, machine.stage) == (group, stage)]
                assert self.table.of(group, stage) == sorted(scan, key=by_rank)
        for state in STATES:
            assert self.table.in_states(state) == [machine for machine in found if machine.state == state]
            counts = Counter(machine.group for machine in found if machine.state == state)
            assert self.table.counts_in(state) == counts
        assert self.table.in_states("REQUESTED", "RUNNING") == [
            machine for machine in found if machine.state in ("REQUESTED", "RUNNING")
        ]

    @invariant()
    def due_machines_are_those_of_a_scan(self) -> None:
        for group in GROUPS:
            queued = [machine for machine in self.table.of(group, "booting") if machine.state == "QUEUED"]
            due = [machine for machine in queued if machine.not_before <= self.now]
            later = [machine.not_before for machine in queued if machine.not_before > self.now]
            assert self.table.queued(group) == queued
            assert self.table.due(group, self.now) == len(due)
            assert self.table.first_due(group, 3) == due[:3]
            assert self.table.first_due(group, 99) == due
            assert self.table.next_due(group) == min(later, default=None)

    @invariant()
    def free_ranks_are_those_of_a_scan(self) -> None:
        for without in (set[int](), {0, 3}, {1, 2, 12}):
            free = (rank for rank in count() if rank not in self.table.assignments and rank not in without)
            assert self.table.free_ranks(7, without) == list(islice(free, 7))


class Slots(RuleBasedStateMachine):
    """The nodes that take tasks, under random joins, tasks and departures."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable()
        self.taking: set[int] = set()
        self.last = -1
        self.numbers = count(1)

    @rule(rank=st.integers(0, 9), slots=st.integers(1, 3))
    def join(self, rank: int, slots: int) -> None:
        self.table.join(rank, "nodes", slots, {"CPU": 4.0}, frozenset(), 0.0)
        self.taking.add(rank)

    @rule(rank=st.integers(0, 9))
    def retire(self, rank: int) -> None:
        self.table.retire(rank)
        self.taking.discard(rank)

    @rule(rank=st.integers(0, 9))
    def remove(self, rank: int) -> None:
        self.table.remove(rank)
        self.taking.discard(rank)

    @precondition(lambda self: self.table.nodes)
    @rule(which=st.integers(0, 99), needs=st.sampled_from([NOTHING, Needs({"CPU": 1}), Needs({"CPU": 2})]))
    def assign(self, which: int, needs: Needs) -> None:
        rank = sorted(self.table.nodes)[which % len(self.table.nodes)]
        self.table.assign(rank, next(self.numbers), needs, 0.0)
        self.last = rank

    @precondition(lambda self: any(node.tasks for node in self.table.nodes.values()))
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        held = [(rank, task) for rank, node in sorted(self.table.nodes.items()) for task in node.tasks]
        rank, task = held[which % len(held)]
        self.table.release(rank, task, 0.0)

    @invariant()
    def indices_are_those_of_a_scan(self) -> None:
        nodes = self.table.nodes
        assert self.table.ranks == tuple(sorted(self.taking))
        assert all(self.table.takes(rank) == (rank in self.taking) for rank in range(10))
        assert self.table.occupied == {rank for rank, node in nodes.items() if node.tasks}
        shapes = Counter(needs for node in nodes.values() for needs in node.tasks.values() if needs.resources)
        assert self.table.shapes_in.get("nodes", {}) == shapes
        assert self.table.busy == self.table.busy_in.get("nodes", 0) == sum(node.busy for node in nodes.values())
        free = [rank for rank in sorted(self.taking) if nodes[rank].spare > 0]
        in_turn = [rank for rank in free if rank > self.last] or free
        assert self.table.next_free() == (in_turn[0] if in_turn else None)


TestIndices = Indices.TestCase
TestIndices.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)

TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


# Work per message.


def calls_of(handle: Callable[[Any, float], object], message: Any, now: float) -> int:
    """Return the number of calls, of Python and of C functions, that one message takes."""
    calls = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        handle(message, now)
    finally:
        sys.setprofile(before)
    return calls


def booting(nodes: int, launches: int = 10) -> Reconciler:
    """Return a pool of which `nodes` boot; `launches` may be requested at a time."""
    source = MachineSource("cloud")
    reconciler = Reconciler({"nodes": (source,)}, Ledger(), Limits(concurrent_launches=launches))
    reconciler.handle(Desired({"nodes": nodes}), 0.0)
    return reconciler


@pytest.mark.parametrize("launches", [10, 10_000])
def test_an_answer_of_one_machine_does_not_visit_the_others(launches: int) -> None:
    few: list[int] = []
    many: list[int] = []
    for nodes, calls in ((200, few), (2000, many)):
        reconciler = booting(nodes, launches)
        for number in range(1, 6):
            calls.append(calls_of(reconciler.handle, Allocated(number), 1.0))
            calls.append(calls_of(reconciler.handle, Joined(number), 2.0))
    assert max(many) <= 1.2 * max(few)


def test_the_loss_of_a_node_does_not_visit_the_others() -> None:
    few: list[int] = []
    many: list[int] = []
    for nodes, calls in ((200, few), (2000, many)):
        reconciler = booting(nodes, nodes)
        for number in range(1, nodes + 1):
            reconciler.handle(Allocated(number), 1.0)
            reconciler.handle(Joined(number), 2.0)
        calls += [calls_of(reconciler.handle, Terminated(number), 3.0) for number in range(nodes - 50, nodes - 40)]
    assert max(many) <= 1.2 * max(few)


def test_a_regular_check_does_not_visit_nodes_that_run() -> None:
    counts: list[int] = []
    for nodes in (200, 2000):
        reconciler = booting(nodes, nodes)
        for number in range(1, nodes + 1):
            reconciler.handle(Allocated(number), 1.0)
            reconciler.handle(Joined(number), 2.0)
        counts.append(calls_of(reconciler.handle, Reconcile(), 3.0))
    assert counts[1] <= 1.2 * counts[0]


def test_the_end_of_a_task_does_not_visit_the_other_nodes_that_drain() -> None:
    few: list[int] = []
    many: list[int] = []
    for nodes, calls in ((50, few), (500, many)):
        pool = World(Group("nodes", 0, nodes), policy="no", desired={"nodes": nodes}, limits=Limits()).open()
        running = pool.submit(nodes)
        pool.tell(Resize({"nodes": (0, 1)}))
        assert len(pool.plane.draining) == nodes - 1
        ends = [tasks.Ended(task, pool.sent[task], "value", 1.0) for task in running if pool.sent[task]]
        calls += [calls_of(pool.plane.handle, end, pool.now) for end in ends[:5]]
    assert max(many) <= 1.2 * max(few)
