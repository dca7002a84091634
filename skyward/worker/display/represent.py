"""Representations of a value by MIME type, without IPython's formatters."""

import base64
import io
import json
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

__all__ = ["MimeBundle", "represent", "shows_itself"]

type MimeBundle = tuple[dict[str, Any], dict[str, Any]]
"""Data and metadata, both by MIME type."""

_METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}

_WIDGET = "application/vnd.jupyter.widget-view+json"
"""Type of the view of a widget, which is useless without its model."""

_NOT_PRETTY = (bool, int, float, complex, bytes, type(None))
"""Types whose `repr` is also IPython's output."""


def represent(value: Any, include: Collection[str] | None = None, exclude: Collection[str] | None = None) -> MimeBundle:
    """Return the representations of `value`: plain text always, and each rich one that the value, or its type, offers.

    A representation that fails is omitted: plain text then stands for it.
    """
    data: dict[str, Any] = {"text/plain": plain_text(value)}
    metadata: dict[str, Any] = {}
    if not isinstance(value, type):
        for found in (_own_methods(value), _known_type(value), _own_bundle(value, include, exclude)):
            data |= found[0]
            metadata |= found[1]
    if data.pop(_WIDGET, None) is not None:  # the model stays here, where no front end finds it
        data |= _static(value)
    if "image/png" in data:
        data.pop("image/jpeg", None)  # one image is enough
    kept = {
        kind: _as_json(part)
        for kind, part in data.items()
        if (not include or kind in include) and (not exclude or kind not in exclude)
    }
    return kept, {kind: part for kind, part in metadata.items() if kind in kept}


def shows_itself(value: Any) -> bool:
    """Return whether `value` has shown itself, by its own `_ipython_display_`.

    That of a library may need the notebook's own process: it is called only if the value has no rich representation.
    """
    if isinstance(value, type) or (show := _method(value, "_ipython_display_")) is None:
        return False
    if getattr(show, "__module__", None) != "__main__" and len(represent(value)[0]) > 1:
        return False
    try:
        show()
    except Exception:
        return False
    return True


def plain_text(value: Any) -> str:
    """Return the text that IPython prints for `value`."""
    if type(value) not in _NOT_PRETTY:
        try:
            return str(import_module("IPython.lib.pretty").pretty(value))
        except Exception:  # IPython is missing, or the value's own code failed: repr then shows the error
            pass
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__qualname__} whose repr() fails: {type(error).__name__}: {error}>"


def _own_methods(value: Any) -> MimeBundle:
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for method, kind in _METHODS.items():
        found = _call(_method(value, method))
        if isinstance(found, tuple) and len(found) == 2:
            found, metadata[kind] = found
        if found is not None:
            data[kind] = found
    return data, {kind: part for kind, part in metadata.items() if part}


def _own_bundle(value: Any, include: Collection[str] | None, exclude: Collection[str] | None) -> MimeBundle:
    method = _method(value, "_repr_mimebundle_")
    found = None if method is None else _call(lambda: method(include=include, exclude=exclude))
    if isinstance(found, tuple) and len(found) == 2:
        return dict(found[0]), dict(found[1])
    return (dict(found), {}) if isinstance(found, dict) else ({}, {})


def _static(widget: Any) -> dict[str, Any]:
    """Return the present state of a widget, where it is HTML, text or an image; {} for any other."""
    shown = getattr(widget, "value", None)
    match type(widget).__name__, shown:
        case "HTML" | "HTMLMath", str():
            return {"text/html": shown}
        case "Label", str():
            return {"text/plain": shown}
        case "Image", bytes() | memoryview() if getattr(widget, "format", "") in ("png", "jpeg"):
            return {f"image/{widget.format}": bytes(shown)}
    return {}


def _known_type(value: Any) -> MimeBundle:
    """Return the representation of a matplotlib figure, which has no `_repr_` method of its own."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if figure is None or not isinstance(value, figure) or not (value.axes or value.lines or value.patches):
        return {}, {}

    def draw() -> bytes:
        sink = io.BytesIO()
        value.savefig(sink, format="png", dpi=value.dpi, bbox_inches="tight", facecolor=value.get_facecolor())
        return sink.getvalue()

    png = _call(draw)
    return ({}, {}) if png is None else ({"image/png": png}, {})


def _method(value: Any, name: str) -> Callable[..., Any] | None:
    """Return the method, unless the value has every attribute that is asked for."""
    try:
        if getattr(value, "_ipython_canary_method_should_not_exist_", None) is not None:
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def _call(method: Callable[[], Any] | None) -> Any:
    try:
        return None if method is None else method()
    except Exception:
        return None


def _as_json(part: Any) -> Any:
    """Return `part` in a form that a Jupyter message can hold."""
    if isinstance(part, (bytes, bytearray, memoryview)):
        return base64.b64encode(part).decode()
    if isinstance(part, str):
        return part
    try:
        json.dumps(part)
    except (TypeError, ValueError):
        return str(part)
    return part
