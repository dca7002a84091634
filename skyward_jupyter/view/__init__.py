"""A pool as a person sees it, in any front end: live where that can be done, and as what a saved notebook keeps."""

import sys
from typing import TYPE_CHECKING, Any

from skyward_jupyter.view.static import describe, page
from skyward_jupyter.view.terminal import watch_here

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["bundle", "show_live", "watch"]


def bundle(pool: "Compute") -> dict[str, Any]:
    """The pool at this moment, as HTML and as text: what needs no kernel and no script."""
    report = pool.report()
    return {"text/html": page(report), "text/plain": describe(report)}


def show_live(pool: "Compute") -> bool:
    """Show the pool live in this notebook; False where there is none, or no widgets, or nothing yet to see live."""
    shell = _notebook()
    if shell is None or pool.snapshot().state in ("idle", "closed"):
        return False
    try:
        from skyward_jupyter.view.widget import show
    except ImportError:  # anywidget is an extra
        return False
    show(pool, shell)
    return True


def watch(pool: "Compute", every: float) -> None:
    """Show the pool as it changes; see `sky.watch`."""
    if _notebook() is None:
        watch_here(pool, sys.stdout, every)
    elif not show_live(pool):
        from IPython.display import display

        display(bundle(pool), raw=True)  # type: ignore[no-untyped-call]  # as IPython has it


def _notebook() -> Any:
    """The shell of the kernel that this runs in; None elsewhere."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    return shell if getattr(getattr(shell, "kernel", None), "comm_manager", None) is not None else None
