"""Handles of values that nodes keep: see `skyward.kept.keep`.

A handle goes to a node as keys, and what arrives there is the object itself; what a node keeps comes home as a handle.
While a handle is part of what is pickled here, it is noted, so that the task is sent to a node that has the object.
"""

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

from cloudpickle import cloudpickle as inner

from skyward.errors import KeptElsewhereError, KeptLostError, UsageError
from skyward.formatting import nodes_text, size_text
from skyward.kept.keep import KeptInfo, shelf, the_shelf

if TYPE_CHECKING:
    from skyward.functions.pending import PendingFunction
    from skyward.kept.book import KeptEntry
    from skyward.wire.payloads.payload import (
        Packed,  # circular: a payload knows handles, and a handle is fetched as one
    )

__all__ = ["Kept", "Owner", "call", "forget", "kept_value", "note", "noted", "noting", "open_with", "renew"]


class Owner(Protocol):
    """The pool whose nodes keep values. Its methods may be called from any thread."""

    def drop_kept(self, keys: Sequence[str]) -> None:
        """Have the nodes forget values, without waiting."""

    def drop_kept_now(self, keys: Sequence[str]) -> None:
        """Have the nodes forget values, and return when they are no more on record."""

    def run_for_kept(self, pending: "PendingFunction[Any]", node: int) -> Any:
        """The result of a task that runs on a node."""


class _Part:
    """Our end of a value on one node, which forgets it when nothing here refers to it any more."""

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
    """Have copies of values opened with `opener` from now on: a notebook knows the classes of what it has made."""
    global _opener
    _opener = opener


def note(entry: "KeptEntry", owner: Owner) -> None:
    """Note that a node of a pool keeps a value, before a handle of it comes."""
    with _lock:
        _entries[entry.key] = entry, owner


def forget(keys: Iterable[str]) -> None:
    """Forget values that are not kept any more; handles of them that there are know why."""
    with _lock:
        for key in keys:
            _entries.pop(key, None)


def renew(infos: Iterable[KeptInfo]) -> None:
    """Note what nodes tell anew of values that they keep."""
    with _lock:
        for info in infos:
            if (known := _entries.get(info.key)) is not None:
                known[0].info = info


def _part(key: str, name: str) -> _Part:
    """Return our end of a value, the same for all handles of it."""
    part = _parts.get(key)
    if part is None:
        known = _entries.get(key)
        part = _parts[key] = _Part(*known) if known is not None else _Part(_gone(key, name), None)
    return part


def _gone(key: str, name: str) -> "KeptEntry":
    """Return the entry of a value that was lost before its handle was looked at."""
    from skyward.kept.book import KeptEntry

    return KeptEntry(KeptInfo(key, name, "value", 0, 0.0), 0, "", lost="its node is gone, or its pool is closed")


def kept_value(keys: tuple[str, ...], name: str) -> Any:
    """Return what a handle becomes where it is unpickled: on a node its value, and elsewhere a handle."""
    here = the_shelf()
    return Kept.of(keys, name) if here is None else here.get(keys, name)


class Noted(Protocol):
    """A handle, at home or on a node."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of what it stands for."""

    @property
    def name(self) -> str:
        """What that is called."""


_noted: "ContextVar[dict[int, Any] | None]" = ContextVar("skyward_noted_handles", default=None)


@contextmanager
def noting() -> Iterator[dict[int, Any]]:
    """Note the handles that are pickled meanwhile, by their identity."""
    found: dict[int, Any] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def noted(handles: Iterable[Noted]) -> None:
    """Note handles that are part of what is pickled, in a form that was made before."""
    found = _noted.get()
    if found is not None:
        found.update((id(handle), handle) for handle in handles)


class Kept[T]:
    """Stands for a value that stays on its node, or for one on each of several nodes.

    A cell or a task that uses it runs where the value is, and has the object itself. When nothing here refers to it any
    more, the node forgets the value.
    """

    __slots__ = ("__weakref__", "_expression", "_parts")

    _parts: tuple[_Part, ...]
    _expression: str

    def __init__(self, parts: tuple[_Part, ...]) -> None:
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "_expression", "")

    @classmethod
    def of(cls, keys: Iterable[str], name: str) -> "Kept[T]":
        """Return the handle of what is kept under these keys, the same one while there is any."""
        keys = tuple(keys)
        with _lock:
            handle = _handles.get(keys)
            if handle is None:
                handle = _handles[keys] = cls(tuple(_part(key, name) for key in keys))
            return handle

    @classmethod
    def join(cls, handles: "Iterable[Kept[T]]") -> "Kept[T]":
        """Return one handle for what several nodes keep, such as the list that `keep_shard() @ pool` gives.

        Raises:
            UsageError: there is none, or two of them are on one node.
        """
        handles = list(handles)
        entries = {entry.key: entry for handle in handles for entry in handle.entries}
        nodes = {(entry.pool, entry.node) for entry in entries.values()}
        if not entries or len(nodes) < len(entries):
            raise UsageError(
                f"`sky.Kept.join` takes handles of what different nodes of a pool keep, and got {len(handles)} on "
                f"{len(nodes)} nodes."
            )
        return cls.of(sorted(entries, key=lambda key: entries[key].node), handles[0].name)

    @property
    def keys(self) -> tuple[str, ...]:
        """What the nodes number it by."""
        return tuple(part.entry.key for part in self._parts)

    @property
    def entries(self) -> "tuple[KeptEntry, ...]":
        """What is known of it, for each of its nodes."""
        return tuple(part.entry for part in self._parts)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._expression or self.entries[0].name

    @property
    def kind(self) -> str:
        """The type of the value."""
        return self.entries[0].info.kind

    @property
    def nbytes(self) -> int:
        """Bytes of the value on all its nodes, as far as that can be told."""
        return sum(entry.info.nbytes for entry in self.entries)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ranks of the nodes that keep it."""
        return tuple(entry.node for entry in self.entries if not entry.lost)

    @property
    def pool(self) -> str:
        """Name of the pool that they are of."""
        return self.entries[0].pool

    @property
    def where(self) -> str:
        """Where it is, for people: `kept on node 0`."""
        return f"kept on {nodes_text(self.nodes)}" if self.nodes else "lost"

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the notebook that functions in the value use."""
        return tuple(dict.fromkeys(name for entry in self.entries for name in entry.info.needs))

    @property
    def classes(self) -> tuple[str, ...]:
        """Ids of the classes of the notebook that the value refers to."""
        return tuple(dict.fromkeys(key for entry in self.entries for key in entry.info.classes))

    @property
    def lost(self) -> str:
        """Why it is not kept any more; empty while a node keeps it."""
        return "" if self.nodes else self.entries[0].lost

    @property
    def until(self) -> float:
        """Unix time from which scaling down may take one of its nodes, if it is not used before."""
        ends = [entry.until for entry in self.entries if not entry.lost]
        return min(ends, default=0.0) - time.monotonic() + time.time() if ends else 0.0

    def fetch(self) -> T:
        """Bring a copy of the value here; of several nodes a list, by rank. The nodes go on keeping it.

        Raises:
            KeptLostError: a node does not keep it any more.
            NotPicklableError: it cannot travel.
        """
        from skyward.functions.pending import PendingFunction

        for entry in self.entries:
            if entry.lost:
                raise KeptLostError(f"{entry.name} is not kept any more: {entry.lost}. Run what made it again.")
        copies = []
        known = tuple(inner._DYNAMIC_CLASS_TRACKER_BY_ID)
        for part in self._parts:
            assert part.owner is not None  # as it is not lost
            whole = part.owner.run_for_kept(
                PendingFunction(_fetch, ((part.entry.key,), self.name, known)), part.entry.node
            )
            copies.append(whole.unpack() if _opener is None else _opener(whole))
        return copies[0] if len(copies) == 1 else copies  # type: ignore[return-value]  # of several, a list

    def drop(self) -> None:
        """Have its nodes forget it now, whoever refers to it here. Idempotent."""
        for part in self._parts:
            if part.owner is not None and not part.entry.lost:
                part.owner.drop_kept_now((part.entry.key,))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        noted([self])
        return kept_value, (self.keys, self.name)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __repr__(self) -> str:
        what = f"{self.name}: {self.kind}, {size_text(self.nbytes)}"
        if self.lost:
            return f"<Kept {what}; not kept any more: {self.lost}>"
        over, at = self.until <= time.time(), time.strftime("%H:%M", time.localtime(self.until))
        stays = "which scaling down may take" if over else f"which scaling down leaves alone until {at}"
        gone = [entry.node for entry in self.entries if entry.lost]
        rest = f"; what {nodes_text(gone)} kept is lost" if gone else ""
        return f"<Kept {what}, on {nodes_text(self.nodes)} of pool {self.pool!r}, {stays}{rest}>"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        if self.lost:
            raise KeptLostError(f"{self.name} is not kept any more: {self.lost}. Run what made it again.")
        raise KeptElsewhereError(
            f"{self.name} is kept on {nodes_text(self.nodes)}. Use it in a %%sky cell or in a task, or bring it here "
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
        if name.startswith(("__", "_repr_", "_ipython_")):  # asked by machinery, not by the user
            raise AttributeError(name)
        self._refuse()


def call(handle: Kept[Any], expression: str) -> None:
    """Let a handle go by the expression that stands for it, where that is not the name of the value."""
    object.__setattr__(handle, "_expression", expression)


def _fetch(keys: tuple[str, ...], name: str, known: tuple[str, ...]) -> Any:
    """Return a copy of a value that this node keeps, as it travels to where the classes of the ids `known` are."""
    return shelf().pack(keys, name, known)
