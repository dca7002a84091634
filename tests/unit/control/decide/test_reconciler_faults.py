"""The reconciler in a world with late, duplicate and missing answers: never too many nodes, and no orphans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skyward.control.decide.machines.messages import (
    Activate,
    Allocated,
    Desired,
    Drain,
    DrainRefused,
    Emptied,
    Failed,
    GiveUp,
    Install,
    Joined,
    Launch,
    Lost,
    NodeGone,
    Reconcile,
    ReconcilerMessage,
    Refused,
    TakenOver,
    Terminate,
    Terminated,
)
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import Backoff, MachineSource

pytestmark = pytest.mark.unit

PLACES = {
    "a": (MachineSource("cloud", "first"), MachineSource("cloud", "second")),
    "b": (MachineSource("cloud", "other"),),
}
LIMITS = Limits(launches=3, refusals=3, request=30.0, boot=60.0, drain=60.0, terminate=60.0, concurrent_launches=3)


class Cloud(RuleBasedStateMachine):
    """Applies the reconciler's effects at any time, and checks them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.reconciler = Reconciler(PLACES, limits=LIMITS, may_empty=True)
        self.requested: set[int] = set()
        self.alive: set[int] = set()
        self.installing: dict[int, int] = {}
        self.active: dict[int, int] = {}
        self.draining: set[int] = set()
        self.terminating: set[int] = set()
        self.failures: dict[int, int] = {}
        self.given_up: set[int] = set()
        self.refused = False

    def tell(self, message: ReconcilerMessage) -> None:
        ended = {message.machine} if isinstance(message, Failed | Lost | Terminated) else set()
        if isinstance(message, Emptied):
            ended = {machine for machine, rank in self.active.items() if rank == message.rank}
        self.refused = isinstance(message, DrainRefused)  # the node stays for now, even as surplus
        gave_up = set()
        for effect in self.reconciler.handle(message, self.now):
            match effect:
                case Launch(group, place, machines):
                    assert place in PLACES[group]
                    assert not {*machines} & self.alive, "an existing machine is not requested again"
                    self.requested |= {*machines}
                    asked = [m for m in self.reconciler.table if m.state == "REQUESTED"]
                    assert len(asked) <= LIMITS.concurrent_launches
                case Install(machine, rank):
                    assert machine in self.alive
                    assert rank not in self.given_up, "a rank that was given up is not retried"
                    self.installing[machine] = rank
                case Activate(machine, rank):
                    assert machine in self.alive
                    assert rank not in [r for m, r in self.active.items() if m != machine], "two nodes of one rank"
                    self.active[machine] = rank
                    self.draining.discard(rank)
                case Drain(rank):
                    assert rank in self.active.values()
                    assert rank or not any(self.reconciler.desired.values()), "the head goes last"
                    self.draining.add(rank)
                case NodeGone(rank):
                    self.draining.discard(rank)
                case Terminate(machine):
                    assert machine not in self.active or machine in ended, "a node is drained before it goes"
                    self.active.pop(machine, None)
                    self.installing.pop(machine, None)
                    self.terminating.add(machine)
                case GiveUp(_, rank):
                    gave_up.add(rank)
        if isinstance(message, Failed):
            assert all(count < LIMITS.launches or rank in gave_up for rank, count in self.failures.items())
        self.given_up |= gave_up
        for rank in gave_up:
            self.failures.pop(rank, None)

    @initialize(a=st.integers(1, 4))
    def open(self, a: int) -> None:
        self.tell(Desired({"a": a, "b": 0}))

    @rule(
        a=st.integers(0, 4),
        b=st.integers(0, 3),
        victims=st.lists(st.integers(0, 6), max_size=3),
        retry_given_up=st.booleans(),
    )
    def want(self, a: int, b: int, victims: list[int], retry_given_up: bool) -> None:
        self.given_up.clear()  # with fewer nodes, ranks that were given up are no longer missing
        if retry_given_up:
            self.failures.clear()
        self.tell(Desired({"a": a, "b": b}, tuple(victims), retry_given_up))

    @precondition(lambda self: self.requested)
    @rule(data=st.data(), comes=st.booleans())
    def answer(self, data: st.DataObject, comes: bool) -> None:
        machine = data.draw(st.sampled_from(sorted(self.requested)))
        self.requested.discard(machine)
        if comes:
            self.alive.add(machine)
            self.tell(Allocated(machine))
        else:
            self.tell(Refused((machine,), "none left"))

    @precondition(lambda self: self.installing)
    @rule(data=st.data(), works=st.booleans())
    def install(self, data: st.DataObject, works: bool) -> None:
        machine = data.draw(st.sampled_from(sorted(self.installing)))
        rank = self.installing.pop(machine)
        if works:
            self.failures.pop(rank, None)
            self.tell(Joined(machine))
            assert machine in self.active
        else:
            self.failures[rank] = self.failures.get(rank, 0) + 1
            self.tell(Failed(machine, "broken"))

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.tell(Lost(data.draw(st.sampled_from(sorted(self.active))), "crash"))

    @precondition(lambda self: self.draining)
    @rule(data=st.data(), empty=st.booleans())
    def drain(self, data: st.DataObject, empty: bool) -> None:
        rank = data.draw(st.sampled_from(sorted(self.draining)))
        self.tell(Emptied(rank) if empty else DrainRefused(rank))
        assert rank not in self.draining or not empty

    @precondition(lambda self: self.terminating - self.requested)
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        machine = data.draw(st.sampled_from(sorted(self.terminating - self.requested)))
        self.terminating.discard(machine)
        self.alive.discard(machine)
        self.tell(Terminated(machine))

    @rule(data=st.data())
    def late_report(self, data: st.DataObject) -> None:
        """A late report about a machine changes nothing."""
        machine = data.draw(st.integers(1, 30))
        if machine in self.terminating or machine not in self.alive | self.requested:
            before = dict(self.active)
            news: tuple[ReconcilerMessage, ...] = (
                Joined(machine),
                Failed(machine, "late"),
                Refused((machine,), "late"),
            )
            self.tell(data.draw(st.sampled_from(news)))
            assert self.active == before

    @rule(seconds=st.sampled_from([0.5, 5.0, 40.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        table = self.reconciler.table
        late = {m.rank for m in table if m.state == "INSTALLING" and self.now - m.since > LIMITS.boot}
        for rank in late:
            self.failures[rank] = self.failures.get(rank, 0) + 1
        self.tell(Reconcile())

    # Invariants.

    @invariant()
    def no_more_nodes_than_desired(self) -> None:
        head = next((m.group for m in self.reconciler.table if m.rank == 0 and m.stage != "leaving"), None)
        for group, desired in self.reconciler.desired.items():
            most = max(desired, 1) if group == head else desired
            assert self.refused or self.reconciler.effective(group) <= most

    @invariant()
    def no_rank_is_used_twice(self) -> None:
        occupied = [machine.rank for machine in self.reconciler.table if machine.stage in ("active", "booting")]
        assert len(occupied) == len(set(occupied))
        assert len(set(self.active.values())) == len(self.active)

    @invariant()
    def there_are_no_orphans(self) -> None:
        assert self.alive <= set(self.reconciler.table.machines) | self.terminating
        assert set(self.active) | set(self.installing) <= self.alive

    @invariant()
    def counts_are_consistent(self) -> None:
        table = self.reconciler.table
        for group in PLACES:
            for stage in ("booting", "active", "leaving"):
                there = [machine for machine in table if machine.group == group and machine.stage == stage]
                assert table.count(group, stage) == len(there)
        assert {machine.id for machine in table if machine.state == "RUNNING"} == {
            machine for machine, rank in self.active.items() if rank not in self.draining
        }

    def teardown(self) -> None:
        """Without desired nodes, every machine is terminated, in any state."""
        self.tell(Desired({"a": 0, "b": 0}))
        for _ in range(20):
            for machine in sorted(self.requested):
                self.requested.discard(machine)
                self.alive.add(machine)
                self.tell(Allocated(machine))
            for rank in sorted(self.draining):
                self.tell(Emptied(rank))
            for machine in sorted(self.terminating):
                self.terminating.discard(machine)
                self.alive.discard(machine)
                self.tell(Terminated(machine))
            self.now += 1000.0
            self.tell(Reconcile())
        assert not self.alive
        assert self.reconciler.empty
        assert not self.reconciler._orphans


TestCloud = Cloud.TestCase
TestCloud.settings = settings(max_examples=100, stateful_step_count=40)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=15))
def test_backoff_of_a_failing_source_grows_up_to_the_longest(waits: list[float]) -> None:
    place, backoff, now, last = PLACES["a"][0], Backoff(first=1.0, longest=60.0), 0.0, 0.0
    for wait in waits:
        asked = now = max(now, backoff.ready_at(place)) + wait
        backoff.failed(place, asked, now)
        pause = backoff.ready_at(place) - now
        assert last <= pause + 1e-6
        assert 1.0 - 1e-6 <= pause <= 60.0 + 1e-6
        last = pause
    assert last == pytest.approx(min(60.0, 2.0 ** (len(waits) - 1)))


def test_failures_of_concurrent_requests_count_once() -> None:
    place, backoff = PLACES["a"][0], Backoff()
    for now in (1.0, 1.5, 2.0):
        backoff.failed(place, 0.5, now)
    assert backoff.ready_at(place) == 2.0


def test_success_decrements_backoff_and_launches_use_another_source_after_several_failures() -> None:
    (first, second), backoff = PLACES["a"], Backoff(patience=2)
    backoff.failed(first, 0.0, 0.0)
    assert backoff.choose(PLACES["a"], 0.9) is None
    assert backoff.retry_at(PLACES["a"], 0.9) == 1.0
    backoff.failed(first, 1.0, 1.0)
    assert backoff.choose(PLACES["a"], 2.9) == second
    backoff.failed(second, 2.9, 2.9)
    assert backoff.choose(PLACES["a"], 2.9) is None
    assert backoff.choose(PLACES["a"], 3.0) == first
    backoff.succeeded(first)
    backoff.failed(first, 3.0, 3.0)
    assert backoff.ready_at(first) == 5.0


def test_drain_of_the_head_is_cancelled_when_another_group_scales_up() -> None:
    reconciler = Reconciler(PLACES, limits=LIMITS, may_empty=True)
    reconciler.handle(Desired({"a": 1, "b": 0}), 0.0)
    reconciler.handle(Allocated(1), 0.0)
    reconciler.handle(Joined(1), 0.0)
    assert reconciler.handle(Desired({"a": 0, "b": 0}), 1.0) == [Drain(0, machine=1)]
    effects = reconciler.handle(Desired({"a": 0, "b": 1}), 2.0)
    assert effects == [Activate(1, 0, "a"), Launch("b", PLACES["b"][0], (2,))]


def fail_boots(reconciler: Reconciler, rank: int, now: float) -> float:
    """Let every boot of a rank fail until the rank is given up; return the time after that."""
    while rank not in reconciler.given_up:
        machine = reconciler.table.assignments[rank].machine
        if machine.state == "QUEUED":
            now = max(now, machine.not_before)
            reconciler.handle(Reconcile(), now)
        reconciler.handle(Allocated(machine.id), now)
        reconciler.handle(Failed(machine.id, "it does not boot"), now)
    return now


def test_lost_head_is_replaced_while_machines_of_a_former_process_exceed_the_desired_number() -> None:
    source = MachineSource("cloud")
    reconciler = Reconciler({"nodes": (source,)}, existing={"nodes": {source: 3}})
    reconciler.handle(Desired({"nodes": 3}), 0.0)
    for number in (1, 2, 3):
        reconciler.handle(Allocated(number), 0.0)
    reconciler.handle(Desired({"nodes": 1}), 1.0)
    reconciler.handle(Joined(1, reports=True), 2.0)
    reconciler.handle(TakenOver(1), 3.0)
    effects = reconciler.handle(Lost(1, "it did not answer"), 4.0)
    assert [(gone.rank, gone.again) for gone in effects if isinstance(gone, NodeGone)] == [(0, True)]
    assert Launch("nodes", source, (4,)) in effects
    assert reconciler.head == "nodes"
    for number in (2, 3):  # nothing runs there, so they leave once that is known
        reconciler.handle(Joined(number, reports=True), 5.0)
        effects = reconciler.handle(TakenOver(number), 6.0)
        assert [each.machine for each in effects if isinstance(each, Drain)] == [number]
    assert reconciler.effective("nodes") == 1


def test_given_up_head_is_replaced_when_its_group_is_to_have_fewer_nodes() -> None:
    reconciler = Reconciler(PLACES, limits=LIMITS, opening=False, may_empty=True)
    reconciler.handle(Desired({"a": 2, "b": 0}), 0.0)
    booting = reconciler.table.assignments[1].machine
    now = fail_boots(reconciler, 0, 0.0)
    reconciler.handle(Desired({"a": 1, "b": 0}), now)
    assert list(reconciler.table.assignments) == [0]
    assert booting.stage == "leaving", "node 0 takes its place"


@pytest.mark.parametrize("groups", [("a", "b"), ("b", "a")], ids=["failing group first", "failing group last"])
def test_group_that_takes_the_place_of_a_failing_one_launches_the_head(groups: tuple[str, str]) -> None:
    reconciler = Reconciler(PLACES, limits=LIMITS, opening=False, may_empty=True)
    reconciler.handle(Desired({group: int(group == "a") for group in groups}), 0.0)
    now = fail_boots(reconciler, 0, 0.0)
    reconciler.handle(Desired({"a": 0, "b": 1}), now)
    assert {rank: each.machine.group for rank, each in reconciler.table.assignments.items()} == {0: "b"}


def test_group_that_is_complete_launches_the_head_that_another_one_gives_up() -> None:
    reconciler = Reconciler(PLACES, limits=LIMITS, opening=False, may_empty=True)
    reconciler.handle(Desired({"a": 1, "b": 1}), 0.0)
    other = reconciler.table.assignments[1].machine
    reconciler.handle(Allocated(other.id), 0.0)
    reconciler.handle(Joined(other.id), 0.0)
    now = fail_boots(reconciler, 0, 0.0)
    effects = reconciler.handle(Desired({"a": 0, "b": 1}), now)
    assert Drain(1, machine=other.id) in effects, "it makes room for node 0, and keeps its tasks until they end"
    assert reconciler.table.assignments[0].machine.group == "b"


def test_head_stays_given_up_while_no_wanted_group_can_launch_one() -> None:
    reconciler = Reconciler(PLACES, limits=LIMITS, opening=False, may_empty=True)
    reconciler.handle(Desired({"a": 2, "b": 0}), 0.0)
    other = reconciler.table.assignments[1].machine
    reconciler.handle(Allocated(other.id), 0.0)
    reconciler.handle(Joined(other.id), 0.0)
    now = fail_boots(reconciler, 0, 0.0)
    for source in PLACES["a"]:
        reconciler.requester.backoff.failed(source, now, now, "impossible")
    reconciler.handle(Desired({"a": 1, "b": 0}), now)
    assert reconciler.given_up == {0}
    assert other.state == "RUNNING"
