"""Nodes are named in one way wherever a sentence names them."""

import pytest

from skyward.formatting import asked_to_stop, nodes_text

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("ranks", "text"), [((3,), "node 3"), ((1, 0), "nodes 0 and 1"), ({4, 0, 10}, "nodes 0, 4 and 10"), ((), "")]
)
def test_nodes_in_a_sentence(ranks: tuple[int, ...], text: str) -> None:
    assert nodes_text(ranks) == text


def test_nodes_that_were_asked_to_stop() -> None:
    assert asked_to_stop({2}) == "node 2 was asked to stop the work, and has not confirmed it yet"
    assert asked_to_stop({2, 0}) == "nodes 0 and 2 were asked to stop the work, and have not confirmed it yet"
