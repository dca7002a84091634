"""The manifest of a cell: what is sent with it, shown beforehand."""

import html
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from skyward.frontends.cells import Addresses, Packed
from skyward.frontends.views import size_text

__all__ = ["SHOWN_FROM", "Manifest", "ManifestEntry"]

SHOWN_FROM = 16 << 20
"""Bytes from which a manifest is shown without a request."""

type HolderLookup = Callable[[bytes], Collection[int]]


@dataclass(frozen=True)
class ManifestEntry:
    """One captured value.

    Attributes:
        name: its name in the notebook.
        kind: its type.
        packed: the pickled value; several for a name whose elements are sent one by one.
        reason: the reason for its capture, unless the cell simply reads it.
        where: the node that keeps it, in words; empty if none does.
    """

    name: str
    kind: str
    packed: tuple[Packed, ...]
    reason: str = ""
    where: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the pickled value."""
        return sum(packed.nbytes for packed in self.packed)

    @cached_property
    def addresses(self) -> tuple[Addresses, ...]:
        """The content addresses of the values. Computed from every byte."""
        return tuple(packed.addresses() for packed in self.packed)

    @property
    def digest(self) -> str:
        """The start of the content address, in hexadecimal; empty for several values."""
        return self.addresses[0].whole.hex()[:12] if len(self.packed) == 1 else ""

    def held_by(self, holds: HolderLookup) -> frozenset[int] | None:
        """Return the ranks of the nodes that hold all its blobs; None for a small value, which is sent each time."""
        keys = [key for addresses in self.addresses for key in addresses.keys]
        if not keys:
            return None
        return frozenset.intersection(*(frozenset(holds(key)) for key in keys))


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that is sent with a cell.

    Attributes:
        entries: the captured values, largest first.
        modules: by name in the cell, the modules that the node imports.
        sources: names of the local modules whose sources are sent.
        outputs: names to return.
        files: the files to send, in words.
        holds: returns the nodes that hold a blob.
        nodes: ranks of the nodes of the pool.
    """

    entries: tuple[ManifestEntry, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    files: str = ""
    holds: HolderLookup = lambda _: ()
    nodes: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(entry.nbytes for entry in self.entries)

    @property
    def to_send(self) -> int:
        """Bytes of the values that not every node holds."""
        return sum(entry.nbytes for entry in self.entries if not self._is_everywhere(entry))

    @property
    def worth_showing(self) -> bool:
        """True if the values are so large that the user should see the manifest."""
        return self.nbytes > SHOWN_FROM

    def _is_everywhere(self, entry: ManifestEntry) -> bool:
        held = entry.held_by(self.holds)
        return bool(self.nodes) and held is not None and held >= set(self.nodes)

    def _where(self, entry: ManifestEntry) -> str:
        held = entry.held_by(self.holds)
        if entry.where:
            return entry.where
        if held is None:
            return "sent each time"
        if not held:
            return "to send"
        return "held" if self._is_everywhere(entry) else "held by " + ", ".join(map(str, sorted(held)))

    def _to_the_holder(self) -> str:
        """Return the bytes to send to the node that holds the most, if they are fewer than for another node."""
        least, rank = min(((self._missing_on(rank), rank) for rank in self.nodes), default=(self.to_send, 0))
        return f" ({size_text(least)} to node {rank})" if least < self.to_send else ""

    def _missing_on(self, rank: int) -> int:
        return sum(entry.nbytes for entry in self.entries if rank not in (entry.held_by(self.holds) or ()))

    def _rows(self) -> list[Sequence[str]]:
        return [
            (e.name, e.kind + (f" ({e.reason})" if e.reason else ""), size_text(e.nbytes), e.digest, self._where(e))
            for e in self.entries
        ]

    def _notes(self) -> list[str]:
        notes = [f"{size_text(self.nbytes)} in all, {size_text(self.to_send)} to send{self._to_the_holder()}"]
        if self.modules:
            imports = (name if name == module else f"{module} as {name}" for name, module in self.modules)
            notes.append("imported on the node: " + ", ".join(imports))
        if self.sources:
            notes.append("local modules, sent as source: " + ", ".join(self.sources))
        if self.files:
            notes.append(f"files: {self.files}")
        if self.outputs:
            notes.append("returned: " + ", ".join(self.outputs))
        return notes

    def __str__(self) -> str:
        table = [_HEADINGS, *self._rows()]
        widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
        lines = []
        for row in table if self.entries else []:
            cells = (
                text.rjust(width) if column == _SIZE else text.ljust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(row: Sequence[str], tag: str) -> str:
            aligned = (
                f'<{tag} style="text-align:{"right" if column == _SIZE else "left"}">{html.escape(text)}</{tag}>'
                for column, text in enumerate(row)
            )
            return f"<tr>{''.join(aligned)}</tr>"

        table = ""
        if self.entries:
            rows = "".join(line(row, "td") for row in self._rows())
            table = f"<table><thead>{line(_HEADINGS, 'th')}</thead><tbody>{rows}</tbody></table>"
        return table + "<br>".join(html.escape(note) for note in self._notes())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}


_HEADINGS = ("name", "type", "size", "digest", "on the nodes")
_SIZE = 2
