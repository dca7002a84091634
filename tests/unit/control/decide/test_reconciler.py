"""Launches, drains and cancelled drains of the reconciler, from any state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.machines.messages import Activate, Desired, Drain, Launch
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.sources import MachineSource

pytestmark = pytest.mark.unit


@st.composite
def pools(draw: st.DrawFn) -> tuple[set[int], set[int], set[int], int]:
    ranks = draw(st.integers(0, 12))
    stage = draw(st.lists(st.sampled_from("cpd"), min_size=ranks, max_size=ranks))
    current = {rank for rank in range(ranks) if stage[rank] != "p"}
    leaving = {rank for rank in range(1, ranks) if stage[rank] == "d"}
    return current, set(range(ranks)) - current, leaving, draw(st.integers(1, 14))


def reconciler_of(current: set[int], pending: set[int], leaving: set[int]) -> Reconciler:
    """Return a reconciler with active, booting and draining nodes."""
    reconciler = Reconciler({"nodes": (MachineSource("cloud"),)})
    table = reconciler.table
    for rank in sorted(current | pending):
        machine = table.add("nodes", rank, 0.0, 0.0)
        table.move(machine, "REQUESTED", 0.0)
        if rank in current:
            for state in ("ALLOCATED", "INSTALLING", "RUNNING"):
                table.move(machine, state, 0.0)
        if rank in leaving:
            table.move(machine, "STOP_REQUESTED", 0.0)
    return reconciler


@given(pools())
def test_nodes_converge_to_the_desired_number(pool: tuple[set[int], set[int], set[int], int]) -> None:
    current, pending, leaving, desired = pool
    reconciler = reconciler_of(current, pending, leaving)
    effects = reconciler.handle(Desired({"nodes": desired}), 0.0)
    launched = sum(len(effect.machines) for effect in effects if isinstance(effect, Launch))
    drained = [effect.rank for effect in effects if isinstance(effect, Drain)]
    back = [effect.rank for effect in effects if isinstance(effect, Activate)]
    assert 0 not in drained, "the head stays"
    assert set(drained) <= current - leaving
    assert drained == sorted(drained, reverse=True), "the highest rank goes first"
    assert back == sorted(leaving)[: len(back)], "the drain of the lowest rank is cancelled first"
    assert not (launched and drained)
    assert not (back and drained)
    assert not launched or set(back) == leaving, "nothing is launched while a drain can be cancelled"
    assert reconciler.effective("nodes") == desired


@given(pools())
def test_reconciliation_is_idempotent(pool: tuple[set[int], set[int], set[int], int]) -> None:
    current, pending, leaving, desired = pool
    reconciler = reconciler_of(current, pending, leaving)
    reconciler.handle(Desired({"nodes": desired}), 0.0)
    assert reconciler.handle(Desired({"nodes": desired}), 0.0) == []
