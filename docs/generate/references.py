"""References that a build resolves by itself: names of Python, and types that have no entry."""

import builtins
import importlib
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAliasType

from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import find_pending_xref_condition

import skyward as sky

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx

__all__ = ["OURS", "connect_references", "is_internal"]

_VARIABLE: Final = re.compile(r"(?:[\w.]+\.)?[A-Z](?:_co|_contra)?$")
"""A type variable, such as `T` or `skyward.functions.pending.T_co`."""

OURS: Final = ("skyward", "skyward_providers", "skyward_kernel", "skyward_jupyter")

_BARE: Final = frozenset({"Future", "PathLike", "Unknown"})
"""Names in annotations that are texts: of Python's library, and of a type that only overloads have."""

_KEYWORDS: Final = {
    "skyward.specs.spec.SpecFields": "skyward.Spec",
    "skyward.specs.options.OptionFields": "skyward.Options",
}
"""Typed dictionaries of keywords, and the class that has their fields."""


def connect_references(app: "Sphinx") -> None:
    """Handle references before and after their search."""
    app.connect("doctree-read", _show_names_of_python)
    app.connect("missing-reference", _missing)


def is_internal(name: str) -> bool:
    """Return whether a dotted name is that of a type of ours that is not public."""
    return name.partition(".")[0] in OURS and "." in name and _find(name) not in (None, *_public())


@cache
def _public() -> tuple[int, ...]:
    from docs.generate import names

    found = [getattr(sky, name) for name in sky.__all__]
    found += [getattr(getattr(sky, module), name) for module in names.MODULES for name in names.public_members(module)]
    return tuple(map(id, found))


@cache
def _find(name: str) -> int | None:
    """Return the identity of what a dotted name stands for; None if it is not found, or a module."""
    module, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError, ValueError):
        return None
    return id(found) if isinstance(found, type) else None


def _show_names_of_python(app: "Sphinx", tree: nodes.document) -> None:
    """Show names of Python's library and type variables as they are: `dict` in an annotation is not `skyward.dict`."""
    for node in list(tree.findall(addnodes.pending_xref)):
        target = node.get("reftarget", "")
        if node.get("refdomain") == "py" and (_is_of_python(target) or _VARIABLE.match(target) or target in _BARE):
            short = find_pending_xref_condition(node, "resolved")
            node.replace_self(node.children if short is None else short.children)


def _is_of_python(target: str) -> bool:
    first = target.partition(".")[0].partition("[")[0]
    return first in sys.stdlib_module_names or hasattr(builtins, target.partition("[")[0])


def _missing(app: "Sphinx", env: Any, node: "Element", shown: "Element") -> "Element | None":
    """Find types by their public names, and show internal ones as they are; everything else is reported."""
    if node.get("refdomain") != "py":
        return None
    target = node.get("reftarget", "")
    if public := _public_names().get(target):
        found: Element | None = env.domains["py"].resolve_xref(
            env, node["refdoc"], app.builder, "obj", public, node, shown
        )
        return found
    return shown if is_internal(target) else None


@cache
def _public_names() -> Mapping[str, str]:
    """Return the public name of types that have another name where they are defined."""
    from docs.generate import names

    found = {}
    for module in names.MODULES:
        for name in names.public_members(module):
            value = getattr(getattr(sky, module), name)
            if isinstance(value, type | TypeAliasType):
                found[f"{value.__module__}.{value.__name__}"] = f"skyward.{module}.{name}"
    return found | _KEYWORDS
