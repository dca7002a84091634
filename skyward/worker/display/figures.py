"""Figures of pyplot on a node: shown in the notebook by `plt.show()`, or when the cell ends.

Nothing here imports matplotlib before the user's code does.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any

from skyward.worker.display.publishing import publish

__all__ = ["close_figures", "open_figures", "show_figures", "use_backend"]

_BACKEND = "module://skyward.worker.display.backend"
_REPLACED = ("", "agg", "module://matplotlib_inline.backend_inline", "module://ipykernel.pylab.backend_inline")


def use_backend() -> None:
    """Select this backend, unless the user's environment names another."""
    if os.environ.get("MPLBACKEND", "").lower() not in (*_REPLACED, _BACKEND):
        return
    os.environ["MPLBACKEND"] = _BACKEND
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is not None and "matplotlib.pyplot" not in sys.modules:
        matplotlib.rcParams["backend"] = _BACKEND


def open_figures() -> frozenset[int]:
    """Return the numbers of the figures that are open in pyplot."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return frozenset() if pyplot is None else frozenset(pyplot.get_fignums())


def show_figures(before: Iterable[int] = (), shown: Any = None) -> None:
    """Show the open figures, oldest first, and close them.

    Args:
        before: numbers of figures that are not the cell's.
        shown: a figure that was displayed already, to be closed only.
    """
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in sorted(set(pyplot.get_fignums()) - set(before)):
        figure = pyplot.figure(number)
        try:
            if figure is not shown:
                publish(figure)
        finally:
            pyplot.close(figure)


def close_figures(before: Iterable[int] = ()) -> None:
    """Close the open figures without showing them, after a cell failed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        for number in set(pyplot.get_fignums()) - set(before):
            pyplot.close(number)
