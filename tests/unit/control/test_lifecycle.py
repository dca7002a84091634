"""Lifecycles follow their tables, and an illegal transition reports its history."""

from collections.abc import Mapping

import pytest

from skyward.control.decide.machines.instance import INSTANCE
from skyward.control.lifecycle import AUTOSCALER, NODE, POOL, RECONCILER, TASK, Lifecycle
from skyward.errors import IllegalTransitionError

pytestmark = pytest.mark.unit

TABLES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "autoscaler": AUTOSCALER,  # type: ignore[dict-item]  # a table of its own states
    "machine": INSTANCE,  # type: ignore[dict-item]  # a table of its own states
    "node": NODE,  # type: ignore[dict-item]  # a table of its own states
    "pool": POOL,  # type: ignore[dict-item]  # a table of its own states
    "reconciler": RECONCILER,  # type: ignore[dict-item]  # a table of its own states
    "task": TASK,  # type: ignore[dict-item]  # a table of its own states
}


@pytest.mark.parametrize("name", TABLES)
def test_every_transition_of_a_table_leads_to_a_state_of_the_table(name: str) -> None:
    table = TABLES[name]
    assert {state for targets in table.values() for state in targets} <= table.keys()


def test_illegal_transition_is_an_error_with_the_history() -> None:
    life = Lifecycle("task 5", TASK, "queued")
    life.move("sent", 1.0, "to node 0")
    life.move("cancelling", 2.5)
    with pytest.raises(IllegalTransitionError, match=r"^task 5 cannot go from cancelling to queued\n") as caught:
        life.move("queued", 3.0)
    assert caught.value.history == ("1.000 queued -> sent to node 0", "2.500 sent -> cancelling")
    assert life.state == "cancelling"


def test_history_is_bounded() -> None:
    life = Lifecycle("task 5", TASK, "queued")
    for turn in range(100):
        life.move("sent", 2.0 * turn)
        life.move("queued", 2.0 * turn + 1)
    assert len(life.history()) == 12
    assert life.history()[-1] == "199.000 sent -> queued"
