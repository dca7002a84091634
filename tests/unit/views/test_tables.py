"""Tables of pools and nodes as text."""

import pytest

from skyward.views.tables import node_table
from tests.unit.kernel.conftest import node, snapshot

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
