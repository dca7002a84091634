"""The cell of a notebook that runs, or ran last: lines that belong to no cell are shown below it.

A front end shows a line at the cell in whose context it is written. The cell that opened a pool has ended long before
most lines about its nodes, and a reader looks at the latest one.
"""

import sys
from contextvars import Context, copy_context
from typing import Any

__all__ = ["follow_cells", "latest_cell", "notebook_shell"]

_latest: Context | None = None


def notebook_shell() -> Any:
    """Return IPython's shell in a notebook kernel; None elsewhere."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    return None if getattr(shell, "kernel", None) is None else shell


def follow_cells() -> None:
    """Note each cell that begins from now on, if this is a notebook kernel. Idempotent."""
    if (shell := notebook_shell()) is not None:
        shell.events.register("pre_run_cell", _begin)


def latest_cell(otherwise: Context) -> Context:
    """Return a context of the latest cell, for one use; of `otherwise` before the first cell, and in no notebook."""
    return (_latest or otherwise).copy()  # a context cannot be entered by two threads at once


def _begin(_: object) -> None:
    """Note the cell that begins. Called in its context."""
    global _latest
    _latest = copy_context()
