"""Display of a node's values in the notebook: represented on the node, so the client needs none of their types."""

import sys
import uuid
from collections.abc import Mapping
from typing import Any

from skyward.worker.display.represent import MimeBundle, represent, shows_itself
from skyward.worker.events.context import current_task

__all__ = [
    "CLEAR_MIME",
    "DisplayHandle",
    "clear_output",
    "display",
    "publish",
    "publish_display_data",
    "update_display",
]

CLEAR_MIME = "application/vnd.skyward.clear+json"
"""Type of the display that requests to clear the cell's output; its data is ``{"wait": bool}``."""


class DisplayHandle:
    """A display that can be updated later."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = uuid.uuid4().hex if display_id is None else display_id

    def display(self, value: object, **options: Any) -> None:
        """Show `value` again, under this id."""
        display(value, display_id=self.display_id, **options)

    def update(self, value: object, **options: Any) -> None:
        """Replace the display of this id by `value`."""
        update_display(value, display_id=self.display_id, **options)

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"


def display(
    *values: Any,
    include: Any = None,
    exclude: Any = None,
    metadata: Mapping[str, Any] | None = None,
    transient: Mapping[str, Any] | None = None,
    display_id: str | bool | None = None,
    raw: bool = False,
    clear: bool = False,
    **_: Any,
) -> DisplayHandle | None:
    """Show `values` in the cell, as IPython's `display` does; return a handle if a `display_id` is requested."""
    if clear:
        clear_output(wait=True)
    name: str | None = None
    if display_id:
        name = uuid.uuid4().hex if display_id is True else str(display_id)
    elif transient:
        name = transient.get("display_id")
    for value in values:
        publish(value, include, exclude, metadata, name, raw=raw)
    return DisplayHandle(name) if display_id else None


def update_display(value: Any, *, display_id: str, **options: Any) -> None:
    """Replace the display of `display_id` by `value`."""
    publish(
        value,
        options.get("include"),
        options.get("exclude"),
        options.get("metadata"),
        display_id,
        update=True,
        raw=bool(options.get("raw")),
    )


def clear_output(wait: bool = False) -> None:
    """Clear the output of the cell; with `wait`, only when new output replaces it."""
    _send({CLEAR_MIME: {"wait": bool(wait)}}, {}, None, False)


def publish_display_data(
    data: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    *_: Any,
    transient: Mapping[str, Any] | None = None,
    update: bool = False,
    **__: Any,
) -> None:
    """Show a ready-made MIME bundle."""
    _send(dict(data), dict(metadata or {}), (transient or {}).get("display_id"), update)


def publish(
    value: Any,
    include: Any = None,
    exclude: Any = None,
    metadata: Mapping[str, Any] | None = None,
    display_id: str | None = None,
    *,
    update: bool = False,
    raw: bool = False,
) -> None:
    """Show one value, unless its own `_ipython_display_` does so."""
    if not raw and shows_itself(value):
        return
    bundle: MimeBundle = (dict(value), {}) if raw else represent(value, include, exclude)
    _send(bundle[0], {**bundle[1], **(metadata or {})}, display_id, update)


def _send(data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool) -> None:
    if not data:
        return
    task = current_task()
    if task is not None:
        task.publish_display(data, metadata, display_id, update)
    elif "text/plain" in data:  # code outside any task, such as a thread that outlived its task
        sys.stdout.write(f"{data['text/plain']}\n")
