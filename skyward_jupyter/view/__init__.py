"""Live views of pools in notebooks: the widget and its updates. Registered as an entry point of `skyward.views`.

Imports `skyward_kernel` and the static views of the library.
"""

import sys
from typing import TYPE_CHECKING, Any

from skyward.frontends.views import mime_bundle

if TYPE_CHECKING:
    from skyward.frontends.pools import Compute

__all__ = ["show", "watch"]


def show(pool: "Compute") -> bool:
    """Show a live view of the pool in this notebook.

    Return False if there is no notebook, anywidget is not installed, or the pool is not open.
    """
    shell = _notebook()
    if shell is None or pool.snapshot().state in ("new", "closed"):
        return False
    try:
        from skyward_jupyter.view.widget import show as show_widget
    except ImportError:  # anywidget is an extra
        return False
    show_widget(pool, shell)
    return True


def watch(pool: "Compute") -> bool:
    """Show the pool in this notebook, live or as a snapshot; return False if there is no notebook."""
    if _notebook() is None:
        return False
    if not show(pool):
        from IPython.display import display

        display(mime_bundle(pool.report()), raw=True)  # type: ignore[no-untyped-call]  # as IPython has it
    return True


def _notebook() -> Any:
    """Return the shell of the Jupyter kernel that this process is; None elsewhere."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    return shell if getattr(getattr(shell, "kernel", None), "comm_manager", None) is not None else None
