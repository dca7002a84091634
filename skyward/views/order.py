"""Order in which views list nodes and tasks. The panel has the same in TypeScript: `tests/cases/order.json`."""

from collections.abc import Iterable
from typing import Final

from skyward.views.rows import NodeRow, TaskRow

__all__ = ["nodes_in_order", "tasks_in_order"]

_FIRST: Final = {"running": 0, "queued": 1}
_ENDED: Final = 2


def tasks_in_order(tasks: Iterable[TaskRow]) -> list[TaskRow]:
    """Sort tasks: running, queued, then those that have ended, the latest first."""

    def place(task: TaskRow) -> tuple[int, int]:
        group = _FIRST.get(task.state, _ENDED)
        return group, -task.number if group == _ENDED else task.number

    return sorted(tasks, key=place)


def nodes_in_order(nodes: Iterable[NodeRow]) -> list[NodeRow]:
    """Sort nodes by rank, those that are stopping last."""
    return sorted(nodes, key=lambda node: (node.state == "stopping", node.rank, node.machine))
