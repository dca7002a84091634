"""A pool under random actions of hypothesis: work, faults, deaths and resizes, each step checked."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from skyward.control.decide.machines.messages import Allocated, Failed, Joined, Lost, Refused, Terminated
from skyward.control.decide.tasks.messages import Ended
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import Group
from skyward.simulator.faults import NO_FAULTS, Faults
from skyward.simulator.invariants import Invariants
from skyward.simulator.runner import Simulation
from skyward.simulator.scenario import Action, Scenario
from skyward.simulator.workload import Distribution, Task
from skyward.values.needs import NOTHING, Needs

pytestmark = pytest.mark.unit

GROUPS = (
    Group("nodes", 0, 4, 2, {"CPU": 4.0}, hourly_price=3.0),
    Group("gpu", 0, 2, 1, {"CPU": 4.0, "GPU": 1.0}, hourly_price=9.0),
)
TROUBLE = Faults(
    partial=0.5,
    api_errors=0.4,
    phantoms=0.5,
    lost_replies=0.3,
    lost_terminates=0.3,
    slow_terminate=60,
    duplicates=0.3,
    reordered=0.3,
    boot_failures=0.3,
    explained=0.5,
    throttled=0.2,
)


class Pool(RuleBasedStateMachine):
    """One pool. The watcher raises at the step that breaks an invariant; hypothesis shrinks the history."""

    @initialize(
        policy=st.sampled_from(POLICIES),
        least=st.integers(0, 2),
        groups=st.integers(1, 2),
        seed=st.integers(0, 9),
        budget=st.sampled_from([None, None, 1.0]),
    )
    def open(self, policy: str, least: int, groups: int, seed: int, budget: float | None) -> None:
        pools = (replace(GROUPS[0], min=least), *GROUPS[1:])[:groups]
        scenario = Scenario((), pools, policy, boot=Distribution(20, 10), seed=seed, budget=budget)
        self.runner = Simulation(scenario, Invariants(scenario))
        self.runner.start()

    @rule(count=st.integers(1, 9), seconds=st.sampled_from([0.5, 20.0, 200.0]), gpu=st.booleans())
    def submit(self, count: int, seconds: float, gpu: bool) -> None:
        needs = Needs({"GPU": 1}) if gpu else NOTHING
        self.runner.submit([Task(0.0, seconds, needs)] * count)

    @rule(seconds=st.sampled_from([0.01, 1.0, 10.0, 40.0, 200.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        until = self.runner.clock.now + seconds
        self.runner.advance(until)
        self.runner.clock.wait(until)

    @rule(kind=st.sampled_from(["cancel", "floor", "broadcast", "pin"]), most=st.integers(1, 3), rank=st.integers(0, 2))
    def act(self, kind: str, most: int, rank: int) -> None:
        self.runner.act(Action(0.0, kind, rank, most))

    @rule(
        kind=st.sampled_from(["keep", "keep", "drain", "use", "drop"]), rank=st.integers(0, 3), most=st.integers(0, 9)
    )
    def keep(self, kind: str, rank: int, most: int) -> None:
        self.runner.act(Action(0.0, kind, rank, most))

    @rule(least=st.integers(0, 3), more=st.integers(0, 3))
    def resize(self, least: int, more: int) -> None:
        self.runner.act(Action(0.0, "resize", least, max(1, least + more)))

    @rule(trouble=st.booleans())
    def change_faults(self, trouble: bool) -> None:
        self.runner.cloud.faults = TROUBLE if trouble else NO_FAULTS

    @precondition(lambda self: self.runner.cloud.living)
    @rule(which=st.integers(0, 5), silent=st.booleans())
    def kill(self, which: int, silent: bool) -> None:
        living = list(self.runner.cloud.living)
        cloud, weather = self.runner.cloud, self.runner.cloud.faults
        cloud.faults = replace(weather, silent=1.0 if silent else 0.0)
        cloud.kill(living[which % len(living)])
        cloud.faults = weather

    @precondition(lambda self: self.runner.cloud.living)
    @rule(which=st.integers(0, 5), seconds=st.sampled_from([5.0, 120.0]))
    def reclaim(self, which: int, seconds: float) -> None:
        living = list(self.runner.cloud.living)
        cloud, weather = self.runner.cloud, self.runner.cloud.faults
        cloud.faults = replace(weather, noticed=1.0, notice=seconds)
        cloud.reclaim(living[which % len(living)])
        cloud.faults = weather

    @rule(
        kind=st.sampled_from([Allocated, Joined, Terminated]),
        machine=st.integers(1, 12),
    )
    def send_late_report(self, kind: Any, machine: int) -> None:
        """Send an outdated but true report: reports may be late, not false."""
        known = self.runner.cloud.machines.get(machine)
        if known is None:
            return
        joined = known.installing and known.up_at <= self.runner.clock.now
        true = {Allocated: True, Joined: joined and known.alive, Terminated: not known.alive}[kind]
        if true:
            self.runner.send(kind(machine))

    @rule(machine=st.integers(50, 60))
    def send_report_of_unknown_machine(self, machine: int) -> None:
        known = self.runner.cloud.machines
        if machine not in known:
            for message in (Terminated(machine), Joined(machine), Failed(machine, "?"), Lost(machine, "?")):
                self.runner.send(message)
            self.runner.send(Refused((machine,), "?"))
            self.runner.send(Ended(10_000 + machine, 0, "value", 1.0))

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.cloud.end_faults()
            self.runner.close()


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30)


def test_node_drained_in_the_step_in_which_it_joins() -> None:
    pool = Pool()
    try:
        pool.open(policy="vanilla", least=0, groups=1, seed=6, budget=None)
        pool.act(kind="pin", most=1, rank=1)
        pool.wait(seconds=40)
    finally:
        pool.teardown()
