"""Figures of matplotlib as pictures, also where no backend of the notebook is in use: a figure may come from a node."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["draw_figures", "leave_figures"]

_FIGURE = "matplotlib.figure.Figure"


def draw_figures(shell: "InteractiveShell") -> None:
    """Have `shell` show figures as PNG, unless something else is set. `%matplotlib inline` takes its place."""
    formatter = _formatter(shell)
    if _current(formatter) is None:
        formatter.for_type(_FIGURE, _png)


def leave_figures(shell: "InteractiveShell") -> None:
    """Take it back. Twice does no harm."""
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
