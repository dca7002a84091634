"""Globals used by the functions and classes of a cell, as Python itself resolves them."""

import symtable
from dataclasses import dataclass

__all__ = ["InnerScope", "Key", "inner_scopes"]


@dataclass(frozen=True, slots=True)
class InnerScope:
    """Globals that a function, class or comprehension reads and binds, including the scopes inside it."""

    reads: frozenset[str]
    binds: frozenset[str]


type Key = tuple[str, int]
"""Name and line of a scope."""


def inner_scopes(source: str, filename: str) -> dict[Key, InnerScope]:
    """Return the scopes inside the cell `source`, by name and line. Scopes with the same key are merged."""
    found: dict[Key, InnerScope] = {}

    def visit(table: symtable.SymbolTable) -> InnerScope:
        reads: set[str] = set()
        binds: set[str] = set()
        for symbol in table.get_symbols():
            if not symbol.is_global():
                continue
            bound = symbol.is_assigned() or symbol.is_imported()
            if symbol.is_referenced() or bound:
                reads.add(symbol.get_name())  # `global n; n += 1` reads n too, which the table omits
            if bound:
                binds.add(symbol.get_name())
        for child in table.get_children():
            inside = visit(child)
            reads |= inside.reads
            binds |= inside.binds
        key = (table.get_name(), table.get_lineno())
        before = found.get(key, InnerScope(frozenset(), frozenset()))
        found[key] = InnerScope(before.reads | reads, before.binds | binds)
        return InnerScope(frozenset(reads), frozenset(binds))

    for child in symtable.symtable(source, filename, "exec").get_children():
        visit(child)
    return found
