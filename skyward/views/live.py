"""Registry of live views: entry points of the group `skyward.views`, provided by front ends."""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

__all__ = ["View", "show_live", "watch_live"]


class View(Protocol):
    """Live view of a front end."""

    def show(self, pool: Any) -> bool:
        """Show a pool live; return False if this front end is not in use, or cannot."""

    def watch(self, pool: Any) -> bool:
        """Show a pool as well as this front end can; return False if it is not in use."""


def show_live(pool: object) -> bool:
    """Show a pool live; return False if no front end can."""
    return any(view.show(pool) for view in _views())


def watch_live(pool: object) -> bool:
    """Show a pool in the front end in use; return False if there is none."""
    return any(view.watch(pool) for view in _views())


@cache
def _views() -> tuple[View, ...]:
    return tuple(cast("View", each.load()) for each in entry_points(group="skyward.views"))
