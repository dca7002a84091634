"""Support of the magics for the JupyterLab side panel: its connection, and the origin of tasks."""

from typing import TYPE_CHECKING, Any

from skyward.frontends.calls import Origin, current_origin
from skyward_kernel.panel.bridge import PanelBridge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.pools import Orphan
    from skyward_kernel.pools import PoolManager

__all__ = ["CellMarks", "connect"]

_LONGEST = 80


def connect(shell: "InteractiveShell", pools: "PoolManager") -> PanelBridge | None:
    """Return a bridge between the pools and the panels that watch this kernel; None in a terminal."""
    kernel: Any = getattr(shell, "kernel", None)
    if getattr(kernel, "comm_manager", None) is None:
        return None
    return PanelBridge(kernel, pools, _orphans)


def _orphans() -> "Iterable[Orphan]":
    from skyward.frontends.pools import orphans  # loads the engine, so it is imported late

    return orphans()


class CellMarks:
    """Tracker of the current cell, which is recorded as the origin of the tasks that it sends.

    IPython counts a cell before or after it runs, depending on its version. The final number of a finished cell tells
    which; the first one is the cell of `%load_ext`.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._counted: int = shell.execution_count
        self._ahead = 0

    def before(self, info: Any) -> None:
        """Set the origin to the cell that begins. Called in its context."""
        self._counted = self._shell.execution_count
        lines = (line.strip() for line in (getattr(info, "raw_cell", None) or "").splitlines())
        code = next((line for line in lines if line and not line.startswith("%%")), "")
        cell = getattr(info, "cell_id", None) or ""
        current_origin.set(Origin(self._counted - self._ahead, cell, code[:_LONGEST]))

    def after(self, result: Any) -> None:
        """Compare the number of the finished cell with the predicted one."""
        if number := getattr(result, "execution_count", None):
            self._ahead = self._counted - number
