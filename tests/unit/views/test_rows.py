"""Statuses, titles and order of rows, which every view draws."""

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from skyward.control.observe.origin import Origin
from skyward.control.observe.snapshot import KeptView
from skyward.views.order import nodes_in_order, tasks_in_order
from skyward.views.projection import node_row, pool_row, task_row
from skyward.views.rows import TaskRow
from skyward.views.status import (
    NODE_STATUSES,
    POOL_STATUSES,
    TASK_STATUSES,
    NodeStatus,
    PoolStatus,
    node_label,
)
from tests.unit.kernel.conftest import node, snapshot, task

pytestmark = pytest.mark.unit

ORDER = json.loads((Path(__file__).parents[2] / "cases" / "order.json").read_text())
KEPT = KeptView("key", "model", "Net", 1, 0, 0.0, False)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"state": "new"}, "new"),
        ({"state": "requesting"}, "starting"),
        ({"state": "provisioning", "failure": "no capacity"}, "starting"),
        ({}, "ready"),
        ({"failure": "no capacity"}, "failing"),
        ({"budget_exhausted": True, "failure": "no capacity"}, "budget_reached"),
        ({"state": "stopping", "budget_exhausted": True}, "stopping"),
        ({"state": "closed", "failure": "no capacity"}, "closed"),
    ],
)
def test_pool_has_one_status(fields: dict[str, Any], status: PoolStatus) -> None:
    assert pool_row(snapshot(**fields)).status == status


@pytest.mark.parametrize(
    ("fields", "status", "word"),
    [
        ({"state": "waiting", "phase": "queued"}, "queued", "queued"),
        ({"state": "waiting", "phase": "requested"}, "requested", "requested"),
        ({"state": "waiting", "phase": "deps"}, "starting", "deps"),
        ({"state": "waiting", "phase": "volumes"}, "starting", "attaching volumes"),
        ({}, "idle", "idle"),
        ({"kept": (KEPT,)}, "keeping", "keeps"),
        ({"busy": 1, "kept": (KEPT,)}, "busy", "busy"),
        ({"state": "draining", "busy": 1}, "draining", "draining"),
        ({"state": "stopping"}, "stopping", "stopping"),
    ],
)
def test_node_has_one_status(fields: dict[str, Any], status: NodeStatus, word: str) -> None:
    row = node_row("p", node(0, **fields))
    assert row.status == status
    assert node_label(row.status, row.phase, outdated=row.outdated).word == word


def test_node_of_an_earlier_spec_is_shown_as_outdated() -> None:
    row = node_row("p", node(0, busy=1, outdated=True))
    assert node_label(row.status, row.phase, outdated=row.outdated).word == "busy, outdated"


def test_every_status_has_a_label() -> None:
    assert set(POOL_STATUSES) == set(get_args(PoolStatus.__value__))
    assert set(NODE_STATUSES) == set(get_args(NodeStatus.__value__))
    assert set(TASK_STATUSES) == set(get_args(get_type_hints(TaskRow)["state"]))
    for labels in (POOL_STATUSES, NODE_STATUSES, TASK_STATUSES):
        assert len({label.word for label in labels.values()}) == len(labels), "a word has one meaning"


def test_title_of_a_task_is_its_function_or_the_first_line_of_its_cell() -> None:
    assert task_row("p", task(1)).title == "train"
    assert task_row("p", task(1, name="run_cell")).title == "train(1)"
    assert task_row("p", task(1, name="run_cell", origin=None)).title == "run_cell"
    assert task_row("p", task(1, name="run_cell", origin=Origin(7, "cell-id", ""))).title == "run_cell"


def test_tasks_are_sorted_as_in_the_panel() -> None:
    rows = [task_row("p", task(each["number"], state=each["state"])) for each in ORDER["tasks"]]
    places = {each["number"]: each["place"] for each in ORDER["tasks"]}
    assert [places[row.number] for row in tasks_in_order(rows)] == list(range(len(rows)))


def test_nodes_are_sorted_as_in_the_panel() -> None:
    places = {each["machine"]: each["place"] for each in ORDER["nodes"]}
    fields = [{name: value for name, value in each.items() if name != "place"} for each in ORDER["nodes"]]
    rows = [node_row("p", node(**each)) for each in fields]
    assert [places[row.machine] for row in nodes_in_order(rows)] == list(range(len(rows)))
