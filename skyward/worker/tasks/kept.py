"""Values that a node keeps for later tasks: see `skyward.kept.keep`."""

import contextlib
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock, Thread  # tasks may replace the attributes of the module
from types import BuiltinFunctionType, ModuleType
from typing import Any, NoReturn

from skyward.errors import RERUN, KeptLostError, UsageError
from skyward.kept.handles import kept_value, record_handles
from skyward.kept.keep import CONTAINERS, KeepingContext, KeptInfo
from skyward.wire.payloads.payload import Packed, pack
from skyward.wire.protocol.messages import ValueKept, WorkerEvent
from skyward.wire.protocol.text import encodable
from skyward.worker.events.context import current_task_number
from skyward.worker.tasks.forked import ForkedProcessError, is_forked

__all__ = ["KeptOnNode", "NoValueStore", "StoredValue", "ValueStore", "keeping_for", "nbytes_of", "noting_uses"]

_SHARED = (int, float, complex, str, bytes, type(None), type, BuiltinFunctionType, ModuleType)
"""Types whose equal values share one object, or that travel by themselves: such an object is not recognised by its
identity, and is returned as it is unless the user names it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeptOnNode:
    """Stand-in for a value that this node keeps, until it reaches the client: there it is a `sky.Kept`.

    Attributes:
        info: the client's description of it.
        value: the object itself.
        keys: keys of the handle at the client, which may stand for values on several nodes.
    """

    info: KeptInfo
    value: Any
    keys: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the value."""
        return self.info.name

    def fetch(self) -> Any:
        """Return the object itself."""
        return self.value

    def __reduce__(self) -> tuple[Any, ...]:
        record_handles([self])
        return kept_value, (self.keys, self.info.name)

    def __repr__(self) -> str:
        return f"<Kept {self.info.name}: {self.info.kind}, on this node>"


@dataclass(slots=True, eq=False)
class StoredValue:
    """A kept value.

    Attributes:
        info: the client's description of it.
        value: the object itself.
        keys: keys of the handle that was sent here last.
        cell: what the value needs of the cell that has kept it; None if it was a function.
    """

    info: KeptInfo
    value: Any
    keys: tuple[str, ...]
    cell: KeepingContext | None = None


class ValueStore:
    """Values kept on a node whose tasks run as threads of one process.

    Args:
        node: rank of the node.
        emit: sends an event to the client.
    """

    def __init__(self, node: int, emit: Callable[[WorkerEvent], None]) -> None:
        self._node = node
        self._emit = emit
        self._lock = Lock()
        self._entries: dict[str, StoredValue] = {}
        self._keys: dict[int, list[str]] = {}

    def keep(self, value: object, name: str, keep_for: float, cell: KeepingContext | None = None) -> Any:
        """Keep a value, and report it to the client; return its stand-in.

        Raises:
            ForkedProcessError: a process that a task has forked cannot keep anything.
        """
        if is_forked():
            raise ForkedProcessError("sky.keep")
        if cell is None and (made := _cell.get()) is not None:
            cell = made()
        key, kind = secrets.token_hex(16), encodable(_kind_of(value))
        needs = ((), ()) if cell is None else cell.needs(value)
        info = KeptInfo(key, encodable(name), kind, nbytes_of(value), keep_for, *needs)
        with self._lock:
            self._entries[key] = StoredValue(info, value, (key,), cell)
            if not _is_shared(value):
                self._keys.setdefault(id(value), []).append(key)
        self._emit(ValueKept(info, current_task_number()))
        return KeptOnNode(info, value, (key,))

    def get(self, keys: tuple[str, ...], name: str) -> Any:
        """Return the value of the first of these keys that is kept here.

        Raises:
            KeptLostError: no such value is kept here.
        """
        entry = self._entry(keys, name)
        entry.keys = keys
        used = _used.get()
        if used is not None:
            used[entry.info.key] = entry
        return entry.value

    def pack(self, keys: Iterable[str], name: str, known: Collection[str] = ()) -> Packed:
        """Pack a kept value, for a process that has the classes of the ids `known`.

        Raises:
            KeptLostError: no such value is kept here.
            NotPicklableError: it cannot be pickled.
        """
        entry = self._entry(keys, name)
        token = _whole.set(True)
        try:
            if entry.cell is not None:
                return entry.cell.pack(entry.value, name, known)
            return pack(entry.value, name, "back from the node")
        finally:
            _whole.reset(token)

    def _entry(self, keys: Iterable[str], name: str) -> StoredValue:
        with self._lock:
            for key in keys:
                if (entry := self._entries.get(key)) is not None:
                    return entry
        raise KeptLostError(f"{name} is not kept on node {self._node}. {RERUN}")

    def stand_in(self, value: object) -> Any:
        """Return the stand-in for a value that is kept here, by its identity; None for any other."""
        keys = self._keys.get(id(value))
        if keys is None or _whole.get():
            return None
        with self._lock:
            entry = self._entries.get(keys[-1]) if keys else None
        return KeptOnNode(entry.info, value, entry.keys) if entry is not None and entry.value is value else None

    def keeps_containers(self) -> bool:
        """Return whether a container is kept here that a pickler would write without calling a reducer."""
        with self._lock:
            return any(type(entry.value) in CONTAINERS for entry in self._entries.values())

    def entries(self) -> list[StoredValue]:
        """Return the kept values, the oldest first."""
        with self._lock:
            return list(self._entries.values())

    def forget(self, keys: Iterable[str]) -> None:
        """Forget these values. They are freed on a thread of their own: a finalizer may be slow, and may raise."""
        gone: list[StoredValue] = []
        with self._lock:
            for key in keys:
                if (entry := self._entries.pop(key, None)) is not None:
                    gone.append(entry)
                    if (same_value := self._keys.get(id(entry.value))) is not None:
                        same_value.remove(key)
                        if not same_value:
                            del self._keys[id(entry.value)]
        if gone:
            Thread(target=gone.clear, name="skyward-forget", daemon=True).start()

    def report(self) -> tuple[KeptInfo, ...]:
        """Return descriptions of the kept values, for a client that has not received them."""
        return tuple(entry.info for entry in self.entries())


class NoValueStore:
    """Shelf that refuses all values, on a node whose tasks run in separate processes."""

    def keep(self, value: object, name: str, keep_for: float, cell: KeepingContext | None = None) -> NoReturn:
        """Refuse to keep a value.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{name} cannot be kept: the tasks of this pool run in separate processes. To keep values on its nodes, "
            "open it without `executor='process'`, and without plugins that need processes, such as `torch`."
        )

    def get(self, keys: tuple[str, ...], name: str) -> NoReturn:
        """Refuse: nothing is kept here.

        Raises:
            KeptLostError: always.
        """
        raise KeptLostError(f"{name} is not kept on this node. {RERUN}")

    def pack(self, keys: Iterable[str], name: str, known: Collection[str] = ()) -> NoReturn:
        """Refuse, as `get` does."""
        self.get(tuple(keys), name)

    def stand_in(self, value: object) -> None:
        """Return None: nothing is kept here."""

    def keeps_containers(self) -> bool:
        """Return False: nothing is kept here."""
        return False


_whole: ContextVar[bool] = ContextVar("skyward_whole_values", default=False)
"""True while kept values are pickled as they are."""


_cell: "ContextVar[Callable[[], KeepingContext] | None]" = ContextVar("skyward_keeping_cell", default=None)


@contextmanager
def keeping_for(context: Callable[[], KeepingContext]) -> Iterator[None]:
    """Attribute values that are kept meanwhile to a cell."""
    token = _cell.set(context)
    try:
        yield
    finally:
        _cell.reset(token)


_used: "ContextVar[dict[str, StoredValue] | None]" = ContextVar("skyward_used_values", default=None)


@contextmanager
def noting_uses() -> Iterator[dict[str, StoredValue]]:
    """Record, by key, the values that are requested meanwhile."""
    found: dict[str, StoredValue] = {}
    token = _used.set(found)
    try:
        yield found
    finally:
        _used.reset(token)


def _is_shared(value: object) -> bool:
    return isinstance(value, _SHARED) or (isinstance(value, (tuple, frozenset)) and not value)


def _kind_of(value: object) -> str:
    kind = type(value)
    if isinstance(value, ModuleType):
        return "module"  # whatever its class is
    module = (kind.__module__ or "").partition(".")[0]
    name = kind.__qualname__.rpartition("<locals>.")[2]
    return name if module in ("builtins", "__main__") else f"{module} {name}"


def nbytes_of(value: Any) -> int:
    """Return the size of a value in bytes, as far as it is known: the data of arrays, frames, tensors and models."""
    for measure in (_array, _frame, _module):
        with contextlib.suppress(Exception):  # user objects may raise anything
            if nbytes := measure(value):
                return nbytes
    with contextlib.suppress(Exception):
        if isinstance(value, (list, tuple, set, frozenset)):
            return sys.getsizeof(value) + sum(map(nbytes_of, value))
        if isinstance(value, Mapping):
            return sys.getsizeof(value) + sum(map(nbytes_of, value.values()))
        return sys.getsizeof(value)
    return 0


def _array(value: Any) -> int:
    """Return the bytes of an array or a tensor."""
    return int(value.nbytes)


def _frame(value: Any) -> int:
    """Return the bytes of a data frame or a series of pandas."""
    used = value.memory_usage()
    return int(used.sum() if hasattr(used, "sum") else used)


def _module(value: Any) -> int:
    """Return the bytes of the parameters and buffers of a module of torch."""
    return sum(int(each.nbytes) for each in (*value.parameters(), *value.buffers()))
