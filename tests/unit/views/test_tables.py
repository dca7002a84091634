"""Tables of pools and nodes as text."""

import pytest

from skyward.views.tables import node_table, task_table
from tests.unit.kernel.conftest import node, snapshot, task

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("groups", [("cpu", "gpu"), ("cpu", "cpu"), ("default", "gpu")])
def test_nodes_of_a_pool_with_named_groups_have_their_group(groups: tuple[str, str]) -> None:
    nodes = tuple(node(rank, group=group) for rank, group in enumerate(groups))
    head, *lines = node_table(snapshot(nodes=nodes)).splitlines()
    assert head.split()[:3] == ["node", "group", "state"]
    assert [line.split()[:3] for line in lines] == [["0", groups[0], "idle"], ["1", groups[1], "idle"]]


def test_nodes_of_a_pool_without_named_groups_have_none() -> None:
    assert "default" not in (text := node_table(snapshot(nodes=(node(0, group="default"),))))
    assert "group" not in text


def test_reason_that_several_tasks_in_a_row_have_is_shown_once() -> None:
    reasons = ["no", "too few nodes", "too few nodes", "too few nodes", "no"]
    table = task_table([task(number, state="failed", reason=reason) for number, reason in enumerate(reasons, 1)])
    shown = [line.rstrip().split("  ")[-1].strip() for line in table.splitlines()[1:]]
    assert sorted(shown) == ["as above", "as above", "no", "no", "too few nodes"]
