"""Live views of pools in notebooks: the widget, and what it is sent. Registered as an entry point of `skyward.views`.

Imports `skyward_kernel` and the static views of the library.
"""

import sys
from typing import TYPE_CHECKING, Any

from skyward.views.static import bundle

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["show", "watch"]


def show(pool: "Compute") -> bool:
    """Show the pool live in this notebook; False where there is none, or no widgets, or nothing yet to see live."""
    shell = _notebook()
    if shell is None or pool.snapshot().state in ("idle", "closed"):
        return False
    try:
        from skyward_jupyter.view.widget import show as show_widget
    except ImportError:  # anywidget is an extra
        return False
    show_widget(pool, shell)
    return True


def watch(pool: "Compute") -> bool:
    """Show the pool in this notebook, live or as it is now; False where there is none."""
    if _notebook() is None:
        return False
    if not show(pool):
        from IPython.display import display

        display(bundle(pool.report()), raw=True)  # type: ignore[no-untyped-call]  # as IPython has it
    return True


def _notebook() -> Any:
    """The shell of the kernel that this runs in; None elsewhere."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    return shell if getattr(getattr(shell, "kernel", None), "comm_manager", None) is not None else None
