"""Handles of values that nodes keep: see `skyward.kept.keep`.

A handle is sent to a node as keys, and becomes the object itself there; a kept value returns to the client as a handle.
Pickling records the handles it meets, so that the task is placed on a node that has the objects.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

from cloudpickle import cloudpickle as inner

from skyward.errors import RERUN, KeptElsewhereError, KeptLostError, UsageError
from skyward.formatting import nodes_text, size_text
from skyward.kept.keep import KeptInfo, current_store, require_store
from skyward.values.validation import shown

if TYPE_CHECKING:
    from skyward.functions.pending import PendingFunction
    from skyward.kept.registry import KeptEntry
    from skyward.wire.payloads.payload import (
        Packed,  # circular: a payload knows handles, and a handle is fetched as one
    )

__all__ = [
    "Kept",
    "Owner",
    "call",
    "forget",
    "kept_value",
    "note",
    "open_with",
    "record_handles",
    "recording_handles",
    "renew",
]


class Owner(Protocol):
    """The pool whose nodes keep values. Its methods may be called from any thread."""

    def drop_kept(self, keys: Sequence[str]) -> None:
        """Have the nodes forget values, without waiting."""

    def drop_kept_now(self, keys: Sequence[str]) -> None:
        """Drop values, and wait until the registry no longer lists them."""

    def run_for_kept(self, pending: "PendingFunction[Any]", node: int) -> Any:
        """Run a task on a node and return its result."""


class _Part:
    """Local reference to a value on one node; the node forgets the value when the last such reference is collected."""

    __slots__ = ("__weakref__", "entry", "owner")

    def __init__(self, entry: "KeptEntry", owner: Owner | None) -> None:
        self.entry = entry
        self.owner = owner
        if owner is not None:
            weakref.finalize(self, owner.drop_kept, (entry.key,)).atexit = False


_lock = threading.Lock()
_entries: "dict[str, tuple[KeptEntry, Owner]]" = {}
_parts: "weakref.WeakValueDictionary[str, _Part]" = weakref.WeakValueDictionary()
_handles: "weakref.WeakValueDictionary[tuple[str, ...], Kept[Any]]" = weakref.WeakValueDictionary()
_opener: "Callable[[Packed], Any] | None" = None


def open_with(opener: "Callable[[Packed], Any] | None") -> None:
    """Set the function that opens fetched copies of values: a notebook knows the classes of the values it created."""
    global _opener
    _opener = opener


def note(entry: "KeptEntry", owner: Owner) -> None:
    """Register that a node of a pool keeps a value, before a handle of it arrives."""
    with _lock:
        _entries[entry.key] = entry, owner


def forget(keys: Iterable[str]) -> None:
    """Forget values that are no longer kept; existing handles of them know the reason."""
    with _lock:
        for key in keys:
            _entries.pop(key, None)


def renew(infos: Iterable[KeptInfo]) -> None:
    """Update the descriptions of values that nodes keep."""
    with _lock:
        for info in infos:
            if (known := _entries.get(info.key)) is not None:
                known[0].info = info


def _part(key: str, name: str) -> _Part:
    """Return the local reference to a value, the same for all handles of it."""
    part = _parts.get(key)
    if part is None:
        known = _entries.get(key)
        part = _parts[key] = _Part(*known) if known is not None else _Part(_lost_entry(key, name), None)
    return part


def _lost_entry(key: str, name: str) -> "KeptEntry":
    """Return the entry of a value that was lost before its handle was first used."""
    from skyward.kept.registry import KeptEntry

    return KeptEntry(KeptInfo(key, name, "value", 0, 0.0), 0, "", lost="its node is gone, or its pool is closed")


def kept_value(keys: tuple[str, ...], name: str) -> Any:
    """Return what a handle is unpickled as: its value on a node, a handle elsewhere."""
    here = current_store()
    return Kept.of(keys, name) if here is None else here.get(keys, name)


class HandleLike(Protocol):
    """A handle, on the client or on a node."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the values."""

    @property
    def name(self) -> str:
        """Name of the values."""


_noted: "ContextVar[dict[int, Any] | None]" = ContextVar("skyward_noted_handles", default=None)


@contextmanager
def recording_handles() -> Iterator[dict[int, Any]]:
    """Record the handles that are pickled inside the context, by identity."""
    found: dict[int, Any] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def record_handles(handles: Iterable[HandleLike]) -> None:
    """Record handles that are part of what is pickled, in a form that was made earlier."""
    found = _noted.get()
    if found is not None:
        found.update((id(handle), handle) for handle in handles)


class Kept[T]:
    """Handle of a value that stays on its node, or of one value on each of several nodes.

    A cell or a task that uses the handle runs on the node of the value, and gets the object itself. When the last
    reference on the client is collected, the node forgets the value.

    Example:
        model: sky.Kept[Model] = load() >> pool
        model.nodes  # (0,)
        weights = model.fetch()
    """

    __slots__ = ("__weakref__", "_expression", "_parts")

    _parts: tuple[_Part, ...]
    _expression: str

    def __init__(self, parts: tuple[_Part, ...]) -> None:
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "_expression", "")

    @classmethod
    def of(cls, keys: Iterable[str], name: str) -> "Kept[T]":
        """Return the handle for these keys: the existing one, if there is any."""
        keys = tuple(keys)
        with _lock:
            handle = _handles.get(keys)
            if handle is None:
                handle = _handles[keys] = cls(tuple(_part(key, name) for key in keys))
            return handle

    @classmethod
    def join(cls, handles: "Iterable[Kept[T]]") -> "Kept[T]":
        """Return one handle for values on several nodes, such as the list that `keep_shard() @ pool` returns.

        Raises:
            UsageError: there is no handle, or two are on the same node.
            TypeError: not all of them are handles.
        """
        handles = list(handles) if isinstance(handles, Iterable) and not isinstance(handles, Kept) else [handles]
        if wrong := [handle for handle in handles if not isinstance(handle, Kept)]:
            raise TypeError(
                f"`sky.Kept.join` takes a list of handles, such as `keep_shard() @ pool` returns, but got "
                f"{shown(wrong[0])}."
            )
        entries = {entry.key: entry for handle in handles for entry in handle._entries}
        nodes = {(entry.pool, entry.node) for entry in entries.values()}
        if not entries or len(nodes) < len(entries):
            raise UsageError(
                f"`sky.Kept.join` takes one handle per node, but got {len(handles)} on {len(nodes)} nodes."
            )
        return cls.of(sorted(entries, key=lambda key: entries[key].node), handles[0].name)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the values on their nodes."""
        return tuple(part.entry.key for part in self._parts)

    @property
    def _entries(self) -> "tuple[KeptEntry, ...]":
        return tuple(part.entry for part in self._parts)

    @property
    def name(self) -> str:
        """Name of the value."""
        return self._expression or self._entries[0].name

    @property
    def kind(self) -> str:
        """The type of the value."""
        return self._entries[0].info.kind

    @property
    def nbytes(self) -> int:
        """Bytes of the value on all its nodes, as far as they can be estimated."""
        return sum(entry.info.nbytes for entry in self._entries)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ranks of the nodes that keep the value."""
        return tuple(entry.node for entry in self._entries if not entry.lost)

    @property
    def pool(self) -> str:
        """Name of the pool of these nodes."""
        return self._entries[0].pool

    @property
    def where(self) -> str:
        """Location as text for users, such as `kept on node 0`."""
        return f"kept on {nodes_text(self.nodes)}" if self.nodes else "lost"

    @property
    def needs(self) -> tuple[str, ...]:
        """Notebook names that functions in the value use."""
        return tuple(dict.fromkeys(name for entry in self._entries for name in entry.info.needs))

    @property
    def classes(self) -> tuple[str, ...]:
        """Ids of the notebook classes that the value refers to."""
        return tuple(dict.fromkeys(key for entry in self._entries for key in entry.info.classes))

    @property
    def lost(self) -> str:
        """The reason why no node keeps the value any more; empty while one does. See `nodes` for which ones do."""
        return "" if self.nodes else self._entries[0].lost

    @property
    def until(self) -> float:
        """Unix time from which scaling down may take one of its nodes, if the value is not used before."""
        ends = [entry.until for entry in self._entries if not entry.lost]
        return min(ends, default=0.0) - time.monotonic() + time.time() if ends else 0.0

    def fetch(self) -> T:
        """Return a copy of the value; from several nodes, a list in order of rank. The nodes keep the value.

        Raises:
            KeptLostError: a node no longer keeps it.
            NotPicklableError: it cannot be pickled.
        """
        from skyward.functions.pending import PendingFunction

        for entry in self._entries:
            if entry.lost:
                raise KeptLostError(f"{entry.name} is no longer kept: {entry.lost}. {RERUN}")
        copies = []
        known = tuple(inner._DYNAMIC_CLASS_TRACKER_BY_ID)
        for part in self._parts:
            assert part.owner is not None  # because the value is not lost
            packed = part.owner.run_for_kept(
                PendingFunction(fetch, ((part.entry.key,), self.name, known)), part.entry.node
            )
            copies.append(packed.unpack() if _opener is None else _opener(packed))
        return copies[0] if len(copies) == 1 else copies  # type: ignore[return-value]  # a list for several nodes

    def drop(self) -> None:
        """Have its nodes forget the value now, even if other references exist here. Idempotent."""
        for part in self._parts:
            if part.owner is not None and not part.entry.lost:
                part.owner.drop_kept_now((part.entry.key,))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        record_handles([self])
        return kept_value, (self.keys, self.name)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __repr__(self) -> str:
        title = f"{self.name}: {self.kind}, {size_text(self.nbytes)}"
        if self.lost:
            return f"<Kept {title}; no longer kept: {self.lost}>"
        over, at = self.until <= time.time(), time.strftime("%H:%M", time.localtime(self.until))
        protection = "no longer protected from scale-down" if over else f"protected from scale-down until {at}"
        gone = [entry.node for entry in self._entries if entry.lost]
        losses = f"; lost on {nodes_text(gone)}" if gone else ""
        return f"<Kept {title}, on {nodes_text(self.nodes)} of pool {self.pool!r}, {protection}{losses}>"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        if self.lost:
            raise KeptLostError(f"{self.name} is no longer kept: {self.lost}. {RERUN}")
        raise KeptElsewhereError(
            f"{self.name} is kept on {nodes_text(self.nodes)}. Use it in a %%sky cell or in a task, or copy it here "
            f"with `{self.name}.fetch()`."
        )

    __call__ = __getitem__ = __setitem__ = __delitem__ = __iter__ = __next__ = __reversed__ = _refuse
    __len__ = __contains__ = __bool__ = __int__ = __float__ = __complex__ = __index__ = __round__ = __array__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __pos__ = __abs__ = __invert__ = _refuse
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rmatmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = _refuse
    __rpow__ = __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = _refuse
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = _refuse
    __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, Kept) else self._refuse()

    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        return self._refuse() if spec else repr(self)

    def __setattr__(self, name: str, value: object) -> None:
        self._refuse()

    def __delattr__(self, name: str) -> None:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith(("__", "_repr_", "_ipython_")):  # looked up by Python or IPython, not by the user
            raise AttributeError(name)
        self._refuse()


def call(handle: Kept[Any], expression: str) -> None:
    """Set the expression by which a handle is called, where that is not the name of the value."""
    object.__setattr__(handle, "_expression", expression)


def fetch(keys: tuple[str, ...], name: str, known: tuple[str, ...]) -> Any:
    """Return a copy of a value that this node keeps, for a client that has the classes of the ids `known`."""
    return require_store().pack(keys, name, known)
