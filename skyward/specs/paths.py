"""Fields of a pool by dotted path, as in command lines and files."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from skyward.specs.image import Image
from skyward.specs.nodes import Worker

__all__ = ["compute_fields", "field_paths"]

_GROUPS: Mapping[str, Callable[..., object]] = {"image": Image, "worker": Worker}


def compute_fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return `asked` as keywords for `Compute`.

    Args:
        asked: values by dotted path of a field of `Compute`, such as "nodes" or "image.pip": "image.pip" becomes part
            of `image`, "worker.executor" of `worker`.
    """
    fields: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for path, value in asked.items():
        group, dot, name = path.partition(".")
        if dot:
            groups.setdefault(group, {})[name] = value
        else:
            fields[path] = value
    return fields | {group: _GROUPS[group](**values) for group, values in groups.items()}


def field_paths(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of `Compute` by path, as `compute_fields` takes them: `image` and `worker` field by field."""
    paths: dict[str, Any] = {}
    for name, value in given.items():
        if name in _GROUPS:
            paths |= {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
        else:
            paths[name] = value
    return paths
