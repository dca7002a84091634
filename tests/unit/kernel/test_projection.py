"""Projection of pools to rows, and differences between states."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.observe.costs import CellCost
from skyward.control.observe.snapshot import KeptView, OutputView, PoolReport, StartupFailureView
from skyward.events.metrics import GPUMetrics, NodeMetrics
from skyward.views.projection import PoolTables, project
from skyward.views.rows import (
    KEPT,
    LOGS,
    CellRow,
    DecisionRow,
    GaugeRow,
    NodeRow,
    PointRow,
    PoolRow,
    Row,
    StartupFailureRow,
    TaskRow,
)
from skyward_kernel.panel.encoding import changes, encode
from tests.unit.kernel.conftest import CELL, decision, node, snapshot, task

pytestmark = pytest.mark.unit


def test_pool_is_projected_to_all_tables() -> None:
    report = PoolReport(
        snapshot(running=1, queued=1),
        (decision(1),),
        (task(3, state="running", node=1, started_at=995.0), task(4)),
        (OutputView(1, 1, 3, "stdout", "epoch 1\n"),),
    )
    state = project(report)
    assert set(state["nodes"]) == {"p/1", "p/2"}
    assert set(state["tasks"]) == {"p/3", "p/4"}
    row = state["tasks"]["p/3"]
    assert isinstance(row, TaskRow)
    assert (row.cell, row.cell_id, row.code, row.node) == (7, "cell-id", "train(1)", 1)
    assert isinstance(state["decisions"]["p/1"], DecisionRow)
    assert (state["decisions"]["p/1"].before, state["decisions"]["p/1"].after) == (1, 2)
    assert encode(state["output"]["p/1"])["text"] == "epoch 1\n"
    assert (state.last_decision, state.last_output) == (1, 1)


def test_pool_row_has_accelerators_lease_and_budget() -> None:
    (row,) = project(PoolReport(snapshot(accelerators="A100:2", lease=600.0, budget_exhausted=True)))["pools"].values()
    assert isinstance(row, PoolRow)
    assert (row.accelerators, row.lease, row.budget_exhausted) == ("A100:2", 600.0, True)


def test_failed_start_is_a_row_until_the_node_is_up() -> None:
    view = StartupFailureView(3, "gpu", "deps", "it failed", ("a", "b"), 990.0, 2, 3, 1010.0, gave_up=False)
    state = project(PoolReport(snapshot(startup_failures=(view,))))
    row = StartupFailureRow("p", 3, "gpu", "deps", "it failed", ("a", "b"), 990.0, 2, 3, 1010.0, gave_up=False)
    assert state["startup_failures"] == {"p/3": row}
    up = project(PoolReport(snapshot()), state)
    assert changes({"p": state}, {"p": up}) == ({}, {"startup_failures": ("p/3",)})


def test_costs_are_rounded_as_they_are_shown() -> None:
    over = task(3, state="done", ended_at=999.0, cost=0.0123456)
    report = PoolReport(snapshot(), (), (over, task(4, state="running", cost=0.5)), (), (CellCost(CELL, 2, 1.2345678),))
    state = project(report)
    assert state["cells"] == {"p/7.cell-id": CellRow("p", 7, "cell-id", "train(1)", False, 2, 1.23)}
    costs = [row.cost for row in state["tasks"].values() if isinstance(row, TaskRow)]
    assert costs == [0.0123, 0.0], "the cost of a running task is left to the panel"


def test_utilization_is_a_share_of_capacity() -> None:
    gpus = (GPUMetrics("A100", 0.5, 10 * 2**30, 40 * 2**30), GPUMetrics("A100", 1.0, 30 * 2**30, 40 * 2**30))
    used = NodeMetrics("machine", 2.0, 8.0, 3_200_000_000, 4 * 2**30, gpus=gpus)
    small = NodeMetrics("processes", 0.1, 8.0, 31_900_000)
    state = project(PoolReport(snapshot(nodes=(node(0, metrics=used), node(1, metrics=small), node(2)))))
    assert state["gauges"] == {
        "p/1": GaugeRow("p", 1, 0.25, 0.75, 0.75, 0.5, 40 * 2**30, 3 * 2**30, 4 * 2**30),
        "p/2": GaugeRow("p", 2, 0.01, None, None, None, None, 30 * 2**20, None),
    }


def test_kept_values_are_listed_by_name_and_size() -> None:
    def value(name: str) -> KeptView:
        return KeptView(f"key-{name}", name, "Net", 3 * 2**20, 1, 4600.0, False)

    before = project(PoolReport(snapshot()))
    keeps = project(PoolReport(snapshot(nodes=(node(0), node(1, kept=(value("model"), value("optimizer")))))))
    rows, _ = changes({"p": before}, {"p": keeps})
    (row,) = rows["nodes"].values()
    assert isinstance(row, NodeRow)
    assert (row.rank, row.kept) == (1, ("model 3.0 MiB", "optimizer 3.0 MiB"))
    assert encode(row)["kept"] == row.kept
    used = replace(value("model"), until=9999.0, in_use=True), value("optimizer")
    assert project(PoolReport(snapshot(nodes=(node(0), node(1, kept=used)))))["nodes"] == keeps["nodes"]
    many = project(PoolReport(snapshot(nodes=(node(0, kept=tuple(value(f"v{n}") for n in range(50))),))))
    row = many["nodes"]["p/1"]
    assert isinstance(row, NodeRow)
    assert (row.kept[-1], len(row.kept)) == ("30 more", 21)


def test_time_alone_is_not_a_change() -> None:
    first = project(PoolReport(snapshot(per_hour=3.6, spent=1.0)))
    later = project(PoolReport(snapshot(per_hour=3.6, spent=1.01, at=1010.0)), first)
    assert changes({"p": first}, {"p": later}) == ({}, {})
    dearer = project(PoolReport(snapshot(per_hour=7.2, spent=1.01, at=1010.0)), later)
    rows, _ = changes({"p": later}, {"p": dearer})
    assert set(rows) == {"pools"}
    assert isinstance(rows["pools"]["p"], PoolRow)
    assert rows["pools"]["p"].spent == 1.01


def test_only_changes_are_sent() -> None:
    first = project(PoolReport(snapshot(), (decision(1),), (task(1), task(2))))
    then = project(PoolReport(snapshot(nodes=(node(0, busy=1),)), (), (task(2), task(3))), first)
    rows, gone = changes({"p": first}, {"p": then})
    assert {table: set(there) for table, there in rows.items()} == {
        "nodes": {"p/1"},
        "tasks": {"p/3"},
        "pools": {"p"},
    } | ({"points": set(rows["points"])} if "points" in rows else {})
    assert gone == {"nodes": ("p/2",), "tasks": ("p/1",)}


def test_removed_pool_is_sent_without_its_rows() -> None:
    states = {name: project(PoolReport(snapshot(name))) for name in "ab"}
    assert changes(states, {"a": states["a"]}) == ({}, {"pools": ("b",)})


def test_repeated_decision_replaces_its_row() -> None:
    first = project(PoolReport(snapshot(), (decision(1, held_back="cooldown"),)))
    again = project(PoolReport(snapshot(), (decision(1, held_back="cooldown", times=2),)), first)
    rows, _ = changes({"p": first}, {"p": again})
    assert [row.times for row in rows["decisions"].values() if isinstance(row, DecisionRow)] == [2]


def test_append_only_tables_are_bounded() -> None:
    state = None
    for number in range(1, 700):
        shown = snapshot(queued=number, at=1000.0 + 2 * number)
        state = project(PoolReport(shown, (decision(number),), (), (OutputView(number, 0, 0, "stdout", "x"),)), state)
    assert state is not None
    assert {table: len(state[table]) for table in LOGS} == dict(KEPT)
    assert state.last_decision == 699


def test_chart_has_a_point_per_interval_and_none_without_changes() -> None:
    state = project(PoolReport(snapshot(queued=1)))
    state = project(PoolReport(snapshot(queued=5, at=1001.0)), state)
    assert [(row.at, row.queued) for row in state["points"].values() if isinstance(row, PointRow)] == [(1000.0, 5)]
    for at in (1100.0, 1200.0):
        state = project(PoolReport(snapshot(queued=5, at=at)), state)
    assert len(state["points"]) == 1


REPORTS = st.lists(
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(1, 9)), st.integers(0, 3)),
        max_size=3,
    ),
    max_size=8,
)


@given(REPORTS)
def test_changes_add_up_to_the_snapshot(moments: list[dict[str, tuple[set[int], set[int], int]]]) -> None:
    """A panel that applies every delta has the rows of a snapshot, except for dropped rows of append-only tables."""
    states: dict[str, PoolTables] = {}
    panel: dict[str, dict[str, Row]] = {}
    for at, pools in enumerate(moments):
        after = {
            name: project(
                PoolReport(
                    snapshot(name, nodes=tuple(node(rank) for rank in sorted(ranks)), queued=queued, at=2.0 * at),
                    (),
                    tuple(task(number) for number in sorted(tasks)),
                ),
                states.get(name),
            )
            for name, (ranks, tasks, queued) in pools.items()
        }
        rows, gone = changes(states, after)
        apply(panel, rows, gone)
        states = after
        whole: dict[str, dict[str, Row]] = {}
        apply(whole, changes({}, states)[0], {})
        assert {table: there for table, there in panel.items() if there} == whole


def apply(panel: dict[str, dict[str, Row]], rows: dict[str, dict[str, Row]], gone: dict[str, tuple[str, ...]]) -> None:
    """Apply changes as the panel does."""
    for table, keys in gone.items():
        for key in keys:
            panel[table].pop(key)
    for name in gone.get("pools", ()):
        for table, there in panel.items():
            panel[table] = {key: row for key, row in there.items() if not key.startswith(f"{name}/")}
    for table, there in rows.items():
        panel.setdefault(table, {}).update(there)


def test_rows_are_values() -> None:
    state = project(PoolReport(snapshot()))
    (pool,) = state["pools"].values()
    assert pool == replace(pool)
