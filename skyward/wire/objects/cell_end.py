"""The two ends of a cell, between which values are pickled: the notebook and a node."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.wire.payloads.payload import Packed

__all__ = ["CellEnd", "at_end", "current_end"]


@dataclass(slots=True)
class CellEnd:
    """One end of a cell.

    Attributes:
        namespace: the globals of the functions that live here.
        is_notebook: True in the notebook, whose classes are the originals; False on a node.
        classes: the classes known here, by id, kept alive so that ids are not reused.
        ids: the id of each class made here, by its identity.
        unfinished: identities of classes that were made and wait for their content.
        salt: identifies this run of the cell; it makes the ids of the classes defined in it the same on all nodes.
        notebook_classes: ids of classes of the notebook. They are sent once, on their own, and referred to.
        pending_classes: by id, functions that make a class of the notebook that is still packed.
        other_layout: identities of arrays whose memory layout here differs from that in the notebook.
        outdated: identities of classes that existed here, and take over their current state in the notebook.
        cell_namespaces: by identity, namespaces of other cells that ran here; their functions are the notebook's too.
        nested: by identity of its pickle, each value that was unpickled here and cannot be in the notebook.
        packed_in_notebook: by identity, values that are still packed in the notebook.
        is_trial: True if values are unpacked only for inspection, and must not touch process-wide state.
    """

    namespace: dict[str, Any]
    is_notebook: bool = False
    classes: dict[str, type] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    salt: str = ""
    notebook_classes: set[str] = field(default_factory=set)
    pending_classes: dict[str, Callable[[], object]] = field(default_factory=dict)
    other_layout: set[int] = field(default_factory=set)
    outdated: set[int] = field(default_factory=set)
    cell_namespaces: dict[int, dict[str, Any]] = field(default_factory=dict)
    nested: dict[int, tuple[Packed, Any]] = field(default_factory=dict)
    packed_in_notebook: dict[int, Any] = field(default_factory=dict)
    is_trial: bool = False

    def id_of(self, kind: type, tracked: str) -> str:
        """Return the id under which `kind` is sent; in the notebook, the one assigned by cloudpickle."""
        if self.is_notebook:
            return tracked
        key = self.ids.get(id(kind))
        if key is None:
            key = f"{self.salt}:{kind.__qualname__}"
            if not self.salt or "<locals>" in key or key in self.classes:
                key = uuid.uuid4().hex
            self.remember(key, kind)
        return key

    def remember(self, key: str, kind: type) -> None:
        """Register `kind` as the class of id `key`."""
        self.classes[key] = kind
        self.ids[id(kind)] = key

    def find(self, key: str) -> type | None:
        """Return the class of id `key`, if it is known here."""
        known = self.classes.get(key)
        if known is None and self.is_notebook:
            known = inner._DYNAMIC_CLASS_TRACKER_BY_ID.get(key)
        return known

    def without(self, keys: Iterable[str]) -> "CellEnd":
        """Return a copy for a trial unpickling: an empty namespace, and the same classes except those of `keys`."""
        classes = {key: kind for key, kind in self.classes.items() if key not in keys}
        ids = {id(kind): key for key, kind in classes.items()}
        return CellEnd(
            {},
            classes=classes,
            ids=ids,
            salt=self.salt,
            notebook_classes=self.notebook_classes,
            cell_namespaces=self.cell_namespaces,
            is_trial=True,
        )


current_end: ContextVar[CellEnd] = ContextVar("skyward_side")
"""The end at which values are being unpickled, for the functions that pickles call."""


@contextmanager
def at_end(side: CellEnd) -> Iterator[None]:
    """Unpickle at this end of a cell in the block."""
    token = current_end.set(side)
    try:
        yield
    finally:
        current_end.reset(token)
