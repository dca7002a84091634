"""Sphinx domain for what is not Python: options, magics, commands, and keys of `skyward.toml`."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from docutils import nodes
from docutils.nodes import make_id
from sphinx import addnodes
from sphinx.directives import ObjectDescription
from sphinx.domains import Domain, ObjType
from sphinx.roles import XRefRole
from sphinx.util.nodes import make_refnode

__all__ = ["KINDS", "SkywardDomain"]

KINDS = {
    "option": "option of a cell or a command",
    "magic": "command of %sky",
    "command": "command of a terminal",
    "key": "key of skyward.toml",
}
"""Kinds of entries, and their descriptions in the index and the search."""


class Entry(ObjectDescription[str]):
    """An entry: `NAME | REST`, such as `%%sky --nodes | NODES`. The name identifies it; the rest is only shown."""

    def handle_signature(self, sig: str, signode: addnodes.desc_signature) -> str:
        """Add the name and the rest to the heading of the entry; return the name."""
        name, _, rest = (part.strip() for part in sig.partition(" | "))
        shown = name.rpartition(" ")[2] if self.objtype == "option" else name
        signode += addnodes.desc_name(shown, shown)
        if rest:
            signode += addnodes.desc_sig_space()
            signode += addnodes.desc_addname(rest, rest)
        return name

    def add_target_and_index(self, name: str, sig: str, signode: addnodes.desc_signature) -> None:
        """Make the entry a target of references, and add it to the index."""
        anchor = make_id(f"{self.objtype}-{name.replace('%', 'sky')}")
        signode["ids"].append(anchor)
        self.state.document.note_explicit_target(signode)
        domain = self.env.domains["sky"]
        assert isinstance(domain, SkywardDomain)
        domain.entries[self.objtype, name] = (self.env.docname, anchor)
        self.indexnode["entries"].append(("single", f"{name} ({KINDS[self.objtype]})", anchor, "", None))


class SkywardDomain(Domain):
    """Entries that are not Python, by kind and name."""

    name = "sky"
    label = "Skyward"
    object_types: ClassVar[dict[str, ObjType]] = {kind: ObjType(kind, kind) for kind in KINDS}
    directives: ClassVar[dict[str, Any]] = dict.fromkeys(KINDS, Entry)
    roles: ClassVar[dict[str, Any]] = {
        kind: XRefRole(innernodeclass=nodes.literal, warn_dangling=True) for kind in KINDS
    }
    initial_data: ClassVar[dict[str, Any]] = {"entries": {}}

    @property
    def entries(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Page and anchor of each entry, by kind and name."""
        found: dict[tuple[str, str], tuple[str, str]] = self.data.setdefault("entries", {})
        return found

    def clear_doc(self, docname: str) -> None:
        """Forget the entries of a page."""
        for key in [key for key, (page, _) in self.entries.items() if page == docname]:
            del self.entries[key]

    def merge_domaindata(self, docnames: Iterable[str], otherdata: dict[str, Any]) -> None:
        """Take over the entries that another process has read."""
        pages = set(docnames)
        self.entries.update({key: place for key, place in otherdata["entries"].items() if place[0] in pages})

    def resolve_xref(
        self, env: Any, fromdocname: str, builder: Any, typ: str, target: str, node: Any, contnode: Any
    ) -> nodes.reference | None:
        """Return the link to an entry; None if there is no such entry, which the build reports."""
        place = self.entries.get((typ, target))
        return None if place is None else make_refnode(builder, fromdocname, *place, contnode, target)

    def resolve_any_xref(
        self, env: Any, fromdocname: str, builder: Any, target: str, node: Any, contnode: Any
    ) -> list[tuple[str, nodes.reference]]:
        """Return the links to the entries of a name, of any kind."""
        links = [
            (f"sky:{kind}", self.resolve_xref(env, fromdocname, builder, kind, target, node, contnode))
            for kind in KINDS
        ]
        return [(role, link) for role, link in links if link is not None]

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Yield the entries for `objects.inv` and the search."""
        for (kind, name), (page, anchor) in self.entries.items():
            yield name, name, kind, page, anchor, 1
