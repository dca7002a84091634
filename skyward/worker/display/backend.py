"""A matplotlib backend, loaded by name: figures are drawn without a screen and shown in the notebook."""

from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

from skyward.worker.display.figures import show_figures

__all__ = ["FigureCanvas", "show"]


def show(*_: Any, **__: Any) -> None:
    """Show the open figures: `plt.show()` calls this."""
    show_figures()
