"""Table of built images, as a grid to draw."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyward.formatting import money_text
from skyward.views.drawing import grid

if TYPE_CHECKING:
    from rich.table import Table

    from skyward.journal.images import BuiltImage

__all__ = ["image_grid"]

_LONGEST = 60
"""Characters of the contents that are shown."""


def image_grid(images: Sequence["BuiltImage"]) -> "Table":
    """Return a grid with one line for each image, to draw."""
    rows = [
        (
            each.id,
            " ".join(filter(None, (each.provider, each.region if each.region != each.provider else ""))),
            each.architecture,
            f"{each.built.astimezone():%Y-%m-%d}",
            f"{each.size_gb:.1f} GB" if each.size_gb else "",
            _price(each.monthly_price),
            each.environment,
            each.contents if len(each.contents) <= _LONGEST else f"{each.contents[: _LONGEST - 3]}...",
        )
        for each in images
    ]
    return grid(("image", "at", "CPU", "built", "size", "per month", "environment", "contents"), rows)


def _price(monthly: float | None) -> str:
    if monthly is None:
        return "unknown"
    return f"at most {money_text(monthly)}" if monthly else "free"
