"""Links from code in texts, such as `sky.Compute` or `%sky down`, to the entries of the reference."""

import re
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.util.nodes import make_refnode

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["connect_links"]

_NAME: Final = re.compile(r"(?:sky|skyward)\.([A-Za-z_][\w.]*)(?:\(.*\))?$")
_METHOD: Final = re.compile(r"pool\.([a-z_]+)(?:\(.*\))?$")
_ERROR: Final = re.compile(r"([A-Z]\w+Error)$")
_MAGIC: Final = re.compile(r"(%sky [a-z]+)(?: .*)?$")
_COMMAND: Final = re.compile(r"(?:sky|skyward) ([a-z]+(?: [a-z]+)?)(?: .*)?$")


def connect_links(app: "Sphinx") -> None:
    """Add the links once all pages are read."""
    app.connect("doctree-resolved", _link)


def _link(app: "Sphinx", tree: nodes.document, page: str) -> None:
    for literal in list(tree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.reference | nodes.title) or literal.children[1:]:
            continue
        place = _place(app.env, literal.astext())
        if place is not None and place[0] != page:
            literal.replace_self(make_refnode(app.builder, page, *place, literal.deepcopy()))


def _place(env: Any, text: str) -> tuple[str, str] | None:
    """Return page and anchor of the entry that a text names; None if it names none."""
    if found := _NAME.match(text) or _ERROR.match(text):
        return _python(env, f"skyward.{found[1]}")
    if found := _METHOD.match(text):
        return _python(env, f"skyward.Compute.{found[1]}")
    entries: dict[tuple[str, str], tuple[str, str]] = env.domains["sky"].entries
    if found := _MAGIC.match(text):
        return entries.get(("magic", found[1]))
    if found := _COMMAND.match(text):
        both = (found[1], found[1].partition(" ")[0])
        return next((place for name in both if (place := entries.get(("command", f"skyward {name}")))), None)
    return None


def _python(env: Any, name: str) -> tuple[str, str] | None:
    entry = env.domains["py"].objects.get(name)
    return None if entry is None else (entry.docname, entry.node_id)
