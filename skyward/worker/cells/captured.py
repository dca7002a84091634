"""Values of the notebook in a cell on a node: unpickled before the cell runs, compared after it.

Objects that refer to one another travel in one pickle. To find which of them a cell has changed, they are pickled
again: the pickle, its buffers and the objects in it either match the originals or do not. Cheaper tests go first, where
a type has one.
"""

import types
from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from skyward.errors import PayloadError
from skyward.wire.kinds.arrays import is_array
from skyward.wire.objects.attributes import OF_FUNCTIONS, of_user, registered_with
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.mutability import is_fixed, parts_of
from skyward.wire.objects.pickling import Shared, pack_shared
from skyward.wire.objects.process_wide import name_of, state_test, title_of
from skyward.wire.objects.unpickling import unpack_tracked
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.finalizers import SuppressedFinalizers
from skyward.worker.cells.object_identity import (
    can_be_replaced,
    count_references,
    has_other_objects,
    identifiable,
    origins,
    visible_objects,
)
from skyward.worker.cells.write_detection import Watch, address_of, watch_writes

__all__ = ["Captured", "Memory", "Part", "Root", "Span"]


_ATTEMPTS = 2
"""Attempts to open a part. A class may need a part that is already being opened and that needs the class in turn."""


@dataclass(frozen=True, slots=True)
class Root:
    """A value that was captured.

    Attributes:
        names: names in the notebook; empty for a class that only another value refers to.
        key: id of a class of the notebook; empty for any other value.
    """

    names: tuple[str, ...]
    key: str = ""


@dataclass
class Part:
    """Values that travelled in one pickle.

    Attributes:
        roots: description of each value.
        packed: the pickle.
        values: the values, in the order of `roots`; empty until `open`.
        memo: the memo of the unpickler.
        references: number of references to each identifiable object in the memo, once the part was open.
        watches: write detection for each buffer.
        unchanged: test for unchanged values that needs no pickling; None if there is none.
        other: for a part that is opened only for comparison, the end that it is opened on.
        fresh: the part opened a second time; None if that has not been done, or failed.
        is_reopened: True once a second opening has been tried.
        finalizers: collects the objects that must not be finalized on the node.
    """

    roots: tuple[Root, ...]
    packed: Packed
    values: tuple[Any, ...] = ()
    memo: Any = None
    references: Sequence[int] = ()
    watches: tuple[Watch, ...] = ()
    unchanged: Callable[[], bool] | None = None
    other: CellEnd | None = None
    fresh: "Part | None" = None
    is_reopened: bool = False
    finalizers: SuppressedFinalizers = field(default_factory=SuppressedFinalizers)

    @property
    def keys(self) -> frozenset[str]:
        """Ids of the classes among the values."""
        return frozenset(root.key for root in self.roots if root.key)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the values; for a class without one, its qualified name; for settings, their title."""
        named = [name for root in self.roots for name in root.names]
        own = (value.__qualname__ if isinstance(value, type) else title_of(value) for value in self.values)
        return tuple(named) or tuple(filter(None, own))

    def open(self, side: CellEnd) -> None:
        """Unpack the values, and record their state."""
        value, memo = unpack_tracked(self.packed, side)
        self.finalizers.add(side, lambda: memo.copy().values())
        if self.memo is not None:
            return  # opened meanwhile, by a class that one of its classes needed
        self.memo = memo
        self.values = (value,) if len(self.roots) == 1 else tuple(value)
        if self.other is None:
            self.watches = tuple(map(watch_writes, self.packed.buffers))
            self.unchanged = self._cheap_comparison()
            if self.unchanged is None:
                del value  # the list of several values is an intermediate object
                self.references = count_references(identifiable(self.objects()))

    def _cheap_comparison(self) -> Callable[[], bool] | None:
        """Return a test for unchanged values that needs no pickling; None if a value has none."""
        if all(map(is_fixed, self.values)):
            return lambda: True
        tests: list[Callable[[], bool] | None] = []
        for value in self.values:
            if is_array(value) and not value.dtype.hasobject and self.packed.buffers:
                tests.append(_layout_test(value))
            elif name_of(value):
                tests.append(state_test(value))
            elif isinstance(value, types.FunctionType):
                tests.append(_function_test(value))
            elif isinstance(value, type):
                tests.append(_class_test(value))
            elif not is_fixed(value):
                return None
        known = [test for test in tests if test is not None]
        if len(known) < len(tests):
            return None
        watches = self.watches
        return lambda: not any(each.written() for each in watches) and all(test() for test in known)

    def pack(self, side: CellEnd) -> Shared:
        """Pack the current values.

        Raises:
            NotPicklableError: they cannot be pickled.
        """
        value = self.values[0] if len(self.values) == 1 else list(self.values)
        return pack_shared(value, side, self.names[0] if self.names else "the value", whole=self.keys)

    def changed(self, side: CellEnd) -> Shared | None:
        """Pack the current values; None if they are unchanged.

        Raises:
            NotPicklableError: they cannot be pickled any more.
        """
        if self.memo is None:
            return None
        if self.unchanged is not None:
            return None if self.unchanged() else self.pack(side)
        now = self.pack(side)
        if any(each.written() for each in self.watches):
            return now
        if _is_same(now.packed, self.packed) and not self._has_other_objects(now):
            return None
        # A round trip alone may change the pickle of a value: compare with a copy that has just made it, too.
        fresh = self.reopened(side)
        try:
            again = None if fresh is None or fresh.other is None else fresh.pack(fresh.other)
        except Exception:  # user code, which succeeded the first time
            again = None
        if fresh is None or again is None:
            return now
        if not _is_same(now.packed, again.packed, set(map(_span, self.packed.buffers))):
            return now
        objects = origins(_identifiable_in(now), identifiable(self.objects()))
        return None if objects == origins(_identifiable_in(again), identifiable(fresh.objects())) else now

    def _has_other_objects(self, now: Shared) -> bool:
        """Return whether an equal pickle may have other objects than those that arrived."""
        arrived = visible_objects(identifiable(self.objects()), self.references)
        return can_be_replaced(arrived.values(), self.values) and has_other_objects(_identifiable_in(now), arrived)

    def objects(self) -> dict[int, Any]:
        """Return the objects of the pickle by their memo numbers."""
        return self.memo.copy()  # type: ignore[no-any-return]  # untyped

    def reopened(self, side: CellEnd) -> "Part | None":
        """Return the values as they arrived, except for memory that was written to; None if opening them again fails.

        Their functions have a namespace of their own, see `other`.
        """
        if not self.is_reopened:
            self.is_reopened = True
            fresh = Part(self.roots, self.packed, finalizers=self.finalizers)
            fresh.other = side.without(self.keys)
            with suppress(Exception):  # user code, which succeeded the first time
                fresh.open(fresh.other)
                self.fresh = fresh
        return self.fresh

    def memory(self) -> "Memory":
        """Return the state of the buffers. Called after the cell has ended."""
        spans = [(*_span(buffer), watch) for buffer, watch in zip(self.packed.buffers, self.watches, strict=True)]
        spans.sort(key=lambda each: each[:2])
        return Memory([Span(start, end, each.written(), each.before, each.address) for start, end, each in spans])


@dataclass(frozen=True, slots=True)
class Span:
    """The address range of one buffer.

    Attributes:
        start: address of the first byte.
        end: address after the last byte.
        is_written: True if the buffer was written to.
        before: returns the original bytes; None if no copy exists.
        address: content address of the original bytes; None if unknown.
    """

    start: int
    end: int
    is_written: bool
    before: Callable[[], bytes | memoryview | None]
    address: bytes | None


class Memory:
    """Buffers of a part, in order of their addresses."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._starts = [each.start for each in spans]

    def at(self, start: int, end: int) -> Span | None:
        """Return the buffer that contains this address range."""
        number = bisect_right(self._starts, start) - 1
        found = self._spans[number] if number >= 0 else None
        return found if found is not None and end <= found.end else None


class Captured:
    """The captured values of a cell.

    Attributes:
        parts: the values, one part for each pickle.
        finalizers: objects that must not be finalized on the node; call its `release` when the cell has ended.
    """

    def __init__(self, roots: Sequence[tuple[Root, ...]], packed: Sequence[Packed]) -> None:
        self.finalizers = SuppressedFinalizers()
        self.parts = [Part(each, one, finalizers=self.finalizers) for each, one in zip(roots, packed, strict=True)]

    @property
    def titles(self) -> set[str]:
        """Titles of the settings among the values, for messages."""
        return {title for part in self.parts for value in part.values if (title := title_of(value))}

    def open(self, side: CellEnd, node: int) -> None:
        """Bind the values in the namespace of `side`, on node `node`.

        Raises:
            PayloadError: a value cannot be unpickled.
            ModuleNotFoundError: a value needs a module that is not installed on the node.
        """
        begun = [0] * len(self.parts)

        def open_part(number: int) -> None:
            begun[number] += 1
            if self.parts[number].memo is None and begun[number] <= _ATTEMPTS:
                self._open(self.parts[number], side, node)

        for number, part in enumerate(self.parts):
            for key in part.keys:
                side.notebook_classes.add(key)
                side.pending_classes[key] = partial(open_part, number)
        for number in range(len(self.parts)):
            open_part(number)

    def _open(self, part: Part, side: CellEnd, node: int) -> None:
        try:
            part.open(side)
        except (ModuleNotFoundError, PayloadError):
            raise
        except Exception as error:
            name = next(iter(part.names), "a value")
            what = f"{name} cannot be read on node {node} ({type(error).__name__}: {error})"
            own = _raised_in(error, side)
            if own:
                why = (
                    f"{own} raised it while the value was copied to the node. It runs while unpickling, before the "
                    "object's attributes and the notebook's globals exist: avoid them in it, or create the object in "
                    "the cell."
                )
            else:
                why = (
                    "the node may have a different version of its package. "
                    "Pin the version with --pip, or create the value on the node."
                )
            raise PayloadError(f"{what}; {why}") from error
        for root, value in zip(part.roots, part.values, strict=True):
            for name in root.names:
                side.namespace[name] = value


def _raised_in(error: Exception, side: CellEnd) -> str:
    """Return the qualified name of the notebook's function that raised `error`; empty if none did."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals is side.namespace:
            found = trace.tb_frame.f_code.co_qualname
        trace = trace.tb_next
    return found


def _layout_test(array: Any) -> Callable[[], bool]:
    shape, dtype, is_writable = array.shape, array.dtype, array.flags.writeable
    return lambda: bool(array.shape == shape and array.dtype == dtype and array.flags.writeable == is_writable)


def _function_test(function: types.FunctionType) -> Callable[[], bool] | None:
    """Return a test for an unchanged function; None if the function refers to mutable objects."""
    held = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if function.__closure__ or function.__dict__ or not all(map(is_fixed, held)):
        return None
    settings = [getattr(function, name) for name in OF_FUNCTIONS]
    annotations = dict(function.__annotations__)

    def test() -> bool:
        same = all(getattr(function, name) is part for name, part in zip(OF_FUNCTIONS, settings, strict=True))
        return same and not function.__dict__ and function.__annotations__ == annotations

    return test


def _class_test(kind: type) -> Callable[[], bool] | None:
    before = of_user(vars(kind))
    structure = _structure(kind)
    tests = []
    for value in before.values():
        parts = None if isinstance(value, types.FunctionType) else parts_of(value)
        for part in (value,) if parts is None else parts:
            test = _function_test(part) if isinstance(part, types.FunctionType) else None
            if test is not None:
                tests.append(test)
            elif not is_fixed(part):
                return None

    def test_class() -> bool:
        now = of_user(vars(kind))
        same = now.keys() == before.keys() and all(now[name] is before[name] for name in now)
        return same and _structure(kind) == structure and all(test() for test in tests)

    return test_class


def _structure(kind: type) -> tuple[object, ...]:
    """Return the name, bases, registered subclasses and annotations of a class."""
    annotations = dict(vars(kind).get("__annotations__", ()))
    return kind.__name__, kind.__qualname__, kind.__bases__, set(registered_with(kind)), annotations


def _identifiable_in(packed: Shared) -> dict[int, Any]:
    """Return the identifiable objects in a pickle by their memo numbers."""
    return identifiable(dict(packed.objects().values()))


def _span(buffer: Any) -> tuple[int, int]:
    view = memoryview(buffer).cast("B")
    start = address_of(view)
    return start, start + view.nbytes


def _is_same(one: Packed, other: Packed, arrived: Set[tuple[int, int]] | None = None) -> bool:
    """Return whether two pickles are equal and use the same memory.

    Args:
        one: a pickle.
        other: another one.
        arrived: address ranges of the buffers that the values arrived in. Memory that values have allocated since may
            differ in its addresses, if its bytes are equal.
    """
    if bytes(one.data) != bytes(other.data) or len(one.buffers) != len(other.buffers):
        return False
    return all(
        (span := _span(mine)) == (place := _span(its))
        or (arrived is not None and arrived.isdisjoint((span, place)) and bytes(mine) == bytes(its))
        for mine, its in zip(one.buffers, other.buffers, strict=True)
    )
