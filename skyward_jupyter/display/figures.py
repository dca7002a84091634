"""Rendering of matplotlib figures that come from nodes, also where no matplotlib backend is active in the notebook."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["draw_figures", "leave_figures"]

_FIGURE = "matplotlib.figure.Figure"


def draw_figures(shell: "InteractiveShell") -> None:
    """Register a PNG formatter for figures in `shell`, unless there is one. `%matplotlib inline` replaces it."""
    formatter = _formatter(shell)
    if _current(formatter) is None:
        formatter.for_type(_FIGURE, _png)


def leave_figures(shell: "InteractiveShell") -> None:
    """Unregister the PNG formatter. Idempotent."""
    formatter = _formatter(shell)
    if _current(formatter) is _png:
        formatter.pop(_FIGURE)


def _formatter(shell: "InteractiveShell") -> Any:
    display: Any = shell.display_formatter
    return display.formatters["image/png"]


def _current(formatter: Any) -> object:
    try:
        return formatter.lookup_by_type(_FIGURE)
    except KeyError:
        return None


def _png(figure: Any) -> Any:
    from IPython.core.pylabtools import print_figure

    return print_figure(figure, fmt="png", base64=True)  # type: ignore[no-untyped-call]  # IPython's
