"""Values that a cell keeps on its node, and their use by later cells: `%%sky --keep`.

A kept value is an instance of a class of the cell that kept it, and its functions look up names in that cell's
namespace. A later cell that uses the value brings the notebook's current versions of these classes and names. The
class objects are updated in place, so that the value stays an instance of them; the names are rebound in the namespace
where the functions look them up.
"""

import gc
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock  # tasks may replace the attributes of the module
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakValueDictionary

from cloudpickle import cloudpickle as inner

from skyward.errors import SkywardError
from skyward.kept.keep import KeptInfo, current_store, require_store, stand_in
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.pickling import pack_shared
from skyward.wire.payloads.code import looked_up
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.captured import Part
from skyward.worker.cells.returned_state import Unreturned
from skyward.worker.tasks.kept import KeptOnNode, StoredValue, ValueStore

__all__ = [
    "KeepingCell",
    "after_open",
    "inspect_kept",
    "keep_names",
    "note_classes",
    "registered_cell",
    "release_namespace",
    "share_classes",
]

_SEARCHED = 100_000
"""Limit on the objects of a value that are searched for functions and classes."""


_REFLECTIVE = frozenset({"globals", "exec", "eval", "vars", "__globals__", "__main__"})
"""Names through which code can reach any global."""


class KeepingCell:
    """The cell that has kept a value, as the value needs it later.

    Args:
        side: the node's side of the cell.

    Attributes:
        held: ids of the objects in the value at the end of the cell.
    """

    def __init__(self, side: CellEnd) -> None:
        self.side = side
        self.held: frozenset[int] = frozenset()

    def needs(self, value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the notebook that functions in a value use, and ids of the classes in it."""
        search = Search(value, self.side)
        self.held = search.held
        return tuple(sorted(search.names)), tuple(sorted(search.classes))

    def pack(self, value: object, name: str, known: Collection[str]) -> Packed:
        """Pack a value for a receiver that has the classes with the ids `known`.

        Raises:
            NotPicklableError: the value cannot be pickled.
        """
        side = CellEnd(
            self.side.namespace, salt=self.side.salt, notebook_classes=set(known), cell_namespaces=_namespaces()
        )
        for key, kind in (*self.side.classes.items(), *_classes.items()):
            side.remember(key, kind)
        packed = pack_shared(value, side, name).packed
        note_classes(side)
        return packed


_lock = Lock()
_classes: "WeakValueDictionary[str, type]" = WeakValueDictionary()
"""By id, the classes of the notebook that kept objects may be instances of."""
_sent: dict[str, bytes] = {}
"""By id of such a class, the digest of its last version from the notebook."""
_running: dict[int, tuple[CellEnd, bool]] = {}
"""The running cells, and whether each keeps values, by the `id` of their sides."""


@contextmanager
def registered_cell(side: CellEnd, *, keeps: bool) -> Iterator[None]:
    """Register a running cell, because its classes may be shared with running cells and with kept values.

    Args:
        side: the node's side of the cell.
        keeps: True if the cell keeps values.
    """
    with _lock:
        _running[id(side)] = side, keeps
    try:
        yield
    finally:
        with _lock:
            del _running[id(side)]


def _has_kept() -> bool:
    here = current_store()
    keeps = isinstance(here, ValueStore) and bool(here.entries())
    return keeps or any(keeps for _, keeps in tuple(_running.values()))


def note_classes(side: CellEnd) -> None:
    """Record the classes of a cell for later cells, if kept values may have instances of them."""
    if not _has_kept():
        return
    with _lock:
        for key, kind in tuple(side.classes.items()):
            _classes.setdefault(key, kind)


def _namespaces() -> dict[int, dict[str, Any]]:
    """Return the namespaces of cells that run or have kept values, and those of methods of kept values."""
    sides = [side for side, _ in tuple(_running.values())] + [cell.side for _, cell in _kept_by_cells()]
    found = [side.namespace for side in sides]
    for kind in tuple(_classes.values()):
        methods = (getattr(value, "__func__", value) for value in tuple(vars(kind).values()))
        found += (each.__globals__ for each in methods if isinstance(each, FunctionType))
    return {id(each): each for each in found if each.get("__name__") == "__main__"}


def keep_names(names: Collection[str], keep_for: float, side: CellEnd) -> tuple[dict[str, Any], dict[str, Unreturned]]:
    """Keep the values of these names; return a stand-in for each, and the reasons for those that failed, by name."""
    kept: dict[str, Any] = {}
    failed: dict[str, Unreturned] = {}
    for name in names:
        if name not in side.namespace:
            failed[name] = Unreturned("there is nothing to keep, because the cell did not bind it", "nothing to keep")
            continue
        value = side.namespace[name]
        try:
            here = value if isinstance(value, KeptOnNode) else stand_in(value)
            kept[name] = here or require_store().keep(value, name, keep_for, KeepingCell(side))
        except SkywardError as error:
            failed[name] = Unreturned(str(error).rstrip("."))
    return kept, failed


def _kept_by_cells() -> list[tuple[StoredValue, KeepingCell]]:
    here = current_store()
    entries = here.entries() if isinstance(here, ValueStore) else []
    return [(entry, entry.cell) for entry in entries if isinstance(entry.cell, KeepingCell)]


def share_classes(side: CellEnd, parts: Iterable[Part]) -> None:
    """Tell a cell which classes kept values use, before its captured values are opened.

    A class is updated to its version in the notebook. A class that another running cell uses is updated only if the
    notebook has changed it, so that changes by the running cell survive.
    """
    if not _has_kept():
        with _lock:
            _classes.clear()
            _sent.clear()
        return
    side.cell_namespaces = _namespaces()
    with _lock:
        known = dict(_classes)
        others = [other for other, _ in _running.values() if other is not side]
        in_use = {id(kind) for other in others for kind in tuple(other.classes.values())}
        for key, kind in known.items():
            side.remember(key, kind)
            side.outdated.add(id(kind))
        for part in parts:
            digest = part.packed.addresses().whole if part.keys else b""
            for key in part.keys:
                if key in known and id(known[key]) in in_use and _sent.get(key) == digest:
                    side.outdated.discard(id(known[key]))
                _sent[key] = digest


def after_open(side: CellEnd, used: Iterable[StoredValue]) -> None:
    """Record the classes of a cell, and rebind names in the namespaces of cells that have kept values.

    A name that no longer exists in the notebook, say after a restart, is copied from the cell that kept the value.
    """
    note_classes(side)
    for entry, cell in _kept_by_cells():
        if cell.side is not side:
            cell.side.namespace.update(
                (name, side.namespace[name]) for name in entry.info.needs if name in side.namespace
            )
    for entry in used:
        if isinstance(entry.cell, KeepingCell):
            before = entry.cell.side.namespace
            for name in before.keys() & set(entry.info.needs) - side.namespace.keys():
                side.namespace[name] = before[name]


def inspect_kept(used: Iterable[StoredValue], side: CellEnd) -> tuple[tuple[KeptInfo, ...], dict[str, frozenset[int]]]:
    """Inspect kept values at the end of a cell: those that the cell has kept, and those that it has used.

    Returns:
        New metadata of the values that now refer to other names and classes; and by name of each value, the ids of the
        objects in it.
    """
    found: list[KeptInfo] = []
    held: dict[str, frozenset[int]] = {}
    own = [entry for entry, cell in _kept_by_cells() if cell.side is side]  # may have changed since they were kept
    for entry in dict.fromkeys((*own, *used)):
        if isinstance(entry.cell, KeepingCell):
            cell = KeepingCell(side)
            needs, classes = cell.needs(entry.value)
            held[entry.info.name] = cell.held
            if (needs, classes) != (entry.info.needs, entry.info.classes):
                entry.info = replace(entry.info, needs=needs, classes=classes)
                found.append(entry.info)
    return tuple(found), held


def release_namespace(side: CellEnd) -> None:
    """Drop everything of a finished cell, except what functions that are still referenced may use.

    A cell's namespace lives as long as any of its functions, in a kept value or in a class of one.
    """
    if not _has_kept():
        return
    side.pending_classes.clear()
    side.nested.clear()
    side.packed_in_notebook.clear()
    side.cell_namespaces = {}
    namespace = side.namespace
    found = gc.get_referrers(namespace)
    names = set().union(*(looked_up(each.__code__) for each in found if isinstance(each, FunctionType)))
    del found
    if names.isdisjoint(_REFLECTIVE):
        for name, value in tuple(namespace.items()):
            if (
                name not in names
                and not name.startswith("__")
                and not isinstance(value, (FunctionType, type, ModuleType))
            ):
                del namespace[name]


class Search:
    """Search of a value for functions and classes of a cell. The value need not be picklable.

    Attributes:
        names: names of the notebook that the functions use.
        classes: the classes, by id.
        held: ids of the objects that the value refers to, without those of its classes.
    """

    def __init__(self, value: object, side: CellEnd) -> None:
        self._side = side
        self._namespaces = {id(side.namespace): side.namespace, **side.cell_namespaces}
        self.names: set[str] = set()
        self.classes: dict[str, type] = {}
        self._seen = {id(vars(module)) for module in tuple(sys.modules.values()) if isinstance(module, ModuleType)}
        self._seen |= self._namespaces.keys()
        self._kinds: dict[int, type] = {}
        before = len(self._seen)
        self._look(value, before)
        self.held = frozenset(self._seen)
        while self._kinds:
            _, kind = self._kinds.popitem()
            if id(kind) not in self._seen:
                self._seen.add(id(kind))
                self._class(kind, before)

    def _look(self, value: object, before: int) -> None:
        waiting: deque[object] = deque([value])
        while waiting and len(self._seen) - before < _SEARCHED:
            each = waiting.popleft()
            if isinstance(each, type):
                self._kinds[id(each)] = each
            elif id(each) not in self._seen and not isinstance(each, ModuleType):
                self._seen.add(id(each))
                if isinstance(each, FunctionType):
                    self._function(each, waiting)
                else:
                    waiting.append(type(each))
                    waiting.extend(gc.get_referents(each))

    def _class(self, kind: type, before: int) -> None:
        if kind.__module__ != "__main__" and id(kind) not in self._side.ids:
            return  # class of an installed module
        self.classes[self._side.id_of(kind, "")] = kind
        self._look([*kind.__bases__, *vars(kind).values()], before)

    def _function(self, function: FunctionType, waiting: deque[object]) -> None:
        namespace = self._namespaces.get(id(function.__globals__))
        if namespace is None:
            return
        self.names |= looked_up(function.__code__) & namespace.keys()
        self.names |= inner._extract_code_globals(function.__code__).keys()
        waiting.extend((function.__defaults__, function.__kwdefaults__, function.__dict__))
        waiting.extend(function.__closure__ or ())
