"""What a cell keeps on its node, and what it finds kept there: `%%sky --keep`.

A value that an earlier cell has kept is of a class of that cell, and its functions use the names of that cell. A later
cell that uses it brings along what these classes and names are in the notebook by then: the classes take it over, and
stay the same, so that the value is an instance of them; and the names are bound anew where its functions look them up.
"""

import gc
import sys
from collections import deque
from collections.abc import Collection
from types import FunctionType, ModuleType
from typing import Any

from skyward.errors import SkywardError
from skyward.shelf import shelf, stand_in, the_shelf
from skyward.wire.code import looked_up
from skyward.wire.notebook import Side, pack_shared
from skyward.wire.payload import Packed
from skyward.worker.kept import Entry, ValueShelf

__all__ = ["CellSurroundings", "find_kept", "keep_names", "renew_names"]

_LOOKED_AT = 100_000
"""Objects in a value that are looked at for what functions and classes it refers to."""


class CellSurroundings:
    """The cell that has kept a value.

    Args:
        side: the node's end of it.
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        self.classes: dict[str, type] = {}

    def needs(self, value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the notebook that functions in a value use, and ids of the classes in it."""
        search = _Search(self.side)
        search.look(value)
        self.classes = search.classes
        return tuple(sorted(search.names)), tuple(search.classes)

    def pack(self, value: object, name: str) -> Packed:
        """A copy of a value, as it travels.

        Raises:
            NotPicklableError: it cannot travel.
        """
        return pack_shared(value, self.side, name).packed


def keep_names(names: Collection[str], keep_for: float, side: Side) -> tuple[dict[str, Any], dict[str, str]]:
    """Keep the values of these names of a cell; by name, what stands for one, or why it cannot be kept."""
    kept: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in names:
        if name not in side.namespace:
            failed[name] = "there is nothing to keep, as the cell did not bind it"
            continue
        value = side.namespace[name]
        try:
            kept[name] = stand_in(value) or shelf().keep(value, name, keep_for, CellSurroundings(side))
        except SkywardError as error:
            failed[name] = str(error).rstrip(".")
    return kept, failed


def _kept_by_cells() -> list[tuple[Entry, CellSurroundings]]:
    here = the_shelf()
    entries = here.entries() if isinstance(here, ValueShelf) else []
    return [(entry, entry.cell) for entry in entries if isinstance(entry.cell, CellSurroundings)]


def find_kept(side: Side) -> None:
    """Let a cell that is about to begin know the classes of what earlier ones have kept."""
    for _, cell in _kept_by_cells():
        for key, kind in cell.classes.items():
            side.remember(key, kind)
            side.renewed.add(id(kind))


def renew_names(side: Side) -> None:
    """Let functions in what earlier cells have kept see what the names that they use are in this one."""
    for entry, cell in _kept_by_cells():
        if cell.side is not side:
            cell.side.namespace.update(
                (name, side.namespace[name]) for name in entry.info.needs if name in side.namespace
            )


class _Search:
    """Looks for the functions and classes of a cell in a value, which need not be one that can be pickled."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._namespace = side.namespace
        self.names: set[str] = set()
        self.classes: dict[str, type] = {}
        self._seen = {id(vars(module)) for module in tuple(sys.modules.values()) if isinstance(module, ModuleType)}
        self._seen.add(id(side.namespace))

    def look(self, value: object) -> None:
        """Look at a value and at what it refers to."""
        waiting: deque[object] = deque([value])
        while waiting and len(self._seen) < _LOOKED_AT:
            each = waiting.popleft()
            if id(each) in self._seen or isinstance(each, ModuleType):
                continue
            self._seen.add(id(each))
            if isinstance(each, type):
                self._class(each, waiting)
            elif isinstance(each, FunctionType):
                self._function(each, waiting)
            else:
                waiting.append(type(each))
                waiting.extend(gc.get_referents(each))

    def _class(self, kind: type, waiting: deque[object]) -> None:
        if kind.__module__ != "__main__" and id(kind) not in self._side.ids:
            return  # of an installed module
        self.classes[self._side.id_of(kind, "")] = kind
        waiting.extend(kind.__bases__)
        waiting.extend(vars(kind).values())

    def _function(self, function: FunctionType, waiting: deque[object]) -> None:
        if function.__globals__ is not self._namespace:
            return
        self.names |= looked_up(function.__code__) & self._namespace.keys()
        waiting.extend((function.__defaults__, function.__kwdefaults__, function.__dict__))
        waiting.extend(function.__closure__ or ())
