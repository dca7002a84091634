"""Thousands of random runs with every fault, each checked after every step; and tests of the checks themselves."""

import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.sources import Backoff
from skyward.control.decide.machines.table import MachineTable
from skyward.control.decide.messages import PlaneEffect, PlaneMessage
from skyward.control.decide.plane import ControlPlane
from skyward.simulator.invariants import InvariantError
from skyward.simulator.runner import simulate
from tests.scaling.scenarios import scenario_of
from tests.scaling.seeds import failure_of, run_seeds, shrink

pytestmark = pytest.mark.unit

SEEDS = Path(__file__).with_name("seeds.py")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "first"), [(1700, 0), (300, secrets.randbelow(10**9))], ids=["fixed", "fresh"])
def test_seeds_violate_no_invariant(count: int, first: int) -> None:
    print(f"\n{count} seeds from {first} on")  # of the fresh ones, CI shows it
    command = [sys.executable, str(SEEDS), "--seeds", str(count), "--first", str(first), "--minutes", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"from seed {first} on: {done.stdout}{done.stderr}"
    assert f"{count} seeds" in done.stdout
    assert ": 0 failed" in done.stdout


def test_any_exception_of_a_seed_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(scenario: object) -> None:
        raise ZeroDivisionError("in the simulator itself")

    monkeypatch.setattr("tests.scaling.seeds.simulate", fail)
    assert run_seeds(5, 8, 1.0) == (0, [5, 6, 7])
    error = failure_of(scenario_of(5, 1.0))
    assert isinstance(error, ZeroDivisionError)


def test_faults_meet_every_feature() -> None:
    scenarios = [scenario_of(seed, 10.0) for seed in range(300)]
    kinds = {action.kind for scenario in scenarios for action in scenario.actions}
    assert {"budget", "drain", "keep", "resize", "collective", "floor"} <= kinds
    assert any(scenario.max_nodes for scenario in scenarios)
    assert any(scenario.existing for scenario in scenarios)
    assert any(scenario.faults.sold_out for scenario in scenarios)
    assert any(scenario.sources > 1 and scenario.markup > 1 for scenario in scenarios)


def test_seeds_are_reproducible() -> None:
    first, again = (simulate(scenario_of(11, 10)).row() for _ in range(2))
    del first["wall_seconds"], again["wall_seconds"]
    assert first == again


def broken(monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    """Replace the effects of the control plane by `spoil(plane, message, effects)`."""
    handle = ControlPlane.handle

    def spoilt(self: ControlPlane, message: PlaneMessage, now: float) -> list[PlaneEffect]:
        return list(spoil(self, message, handle(self, message, now)))

    monkeypatch.setattr(ControlPlane, "handle", spoilt)


def first_failure(first: int = 0, last: int = 300) -> InvariantError:
    """Return the first failure among these seeds."""
    for seed in range(first, last):
        try:
            simulate(scenario_of(seed, 10))
        except InvariantError as error:
            return error
    pytest.fail("no seed detects the defect")


def named(effects: list[PlaneEffect], name: str) -> list[Any]:
    return [effect for effect in effects if type(effect).__name__ == name]


def test_task_that_ends_twice_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda plane, message, effects: [*effects, *named(effects, "Settle")])
    assert first_failure().rule == "each task ends once"


def test_lost_task_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda plane, message, effects: [e for e in effects if type(e).__name__ != "Settle"])
    assert first_failure().rule in ("every task ends", "each task ends once")


def test_orphan_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(plane: ControlPlane, message: PlaneMessage, effects: list[PlaneEffect]) -> list[PlaneEffect]:
        return [effect for effect in effects if type(effect).__name__ != "Terminate"]

    broken(monkeypatch, forget)
    assert first_failure().rule in ("no orphans", "no leftovers", "every state has a deadline")


def test_pool_above_its_maximum_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def widen(plane: ControlPlane, message: PlaneMessage, effects: list[PlaneEffect]) -> list[PlaneEffect]:
        plane.reconciler.desired = {name: group.max + 1 for name, group in plane.groups.items()}
        return effects

    broken(monkeypatch, widen)
    assert first_failure().rule == "effective <= max"


def test_termination_of_a_busy_node_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from skyward.control.decide.machines.messages import Terminate

    def take(plane: ControlPlane, message: PlaneMessage, effects: list[PlaneEffect]) -> list[PlaneEffect]:
        sent = named(effects, "Dispatch")
        assignment = plane.reconciler.table.assignments.get(sent[0].rank) if sent else None
        held = plane.tasks.node(assignment.machine.rank) if assignment is not None else None
        if type(message).__name__ == "Ended" and assignment is not None and held is not None and len(held.tasks) > 1:
            return [Terminate(assignment.machine.id, "it is no longer needed"), *effects]
        return effects

    broken(monkeypatch, take)
    assert first_failure().rule == "busy nodes stay"


def test_removal_of_a_node_that_keeps_values_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "keeping", property(lambda self: frozenset(), lambda self, ranks: None))
    assert first_failure(350, 900).rule == "nodes with kept values stay"


def test_drain_that_ends_kept_values_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlPlane, "_spare_keeping", lambda self, now, effects: None)
    assert first_failure().rule == "nodes with kept values stay"


def test_ignored_notice_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciler, "_reclaim", lambda self, number, now, effects: None)
    assert first_failure().rule == "reclaimed nodes drain"


def test_reclaimed_head_without_a_successor_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MachineTable, "refills", lambda self, group: [])
    assert first_failure(0, 200).rule == "node 0 is replaced"


def test_request_within_the_pause_of_a_source_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "ready_at", lambda self, source: 0.0)
    assert first_failure().rule == "refused requests rest"


def test_exceeded_budget_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    from skyward.control.decide.machines.budget import Ledger

    monkeypatch.setattr(Ledger, "room", lambda self, price, now: None)
    monkeypatch.setattr(Ledger, "affordable", lambda self, machines, price, now: list(machines))
    monkeypatch.setattr(Ledger, "exhausted_at", lambda self, ahead: float("inf"))
    assert first_failure().rule == "spend <= budget"


def test_failure_is_shrunk_to_its_shortest_history(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, lambda plane, message, effects: [*effects, *named(effects, "Settle")])
    failing = next(seed for seed in range(60) if run_seeds(seed, seed + 1, 10)[1])
    scenario, error = shrink(scenario_of(failing, 10))
    assert isinstance(error, InvariantError)
    assert error.rule == "each task ends once"
    assert len(scenario.work) == 1  # type: ignore[arg-type]  # a tuple of tasks, not a workload
    assert not scenario.actions
    assert len(error.history) < 40
    assert f"seed {failing}" in str(error)
    assert "ended twice" in str(error)
