"""Pickling of notebook values: the notebook's functions and classes by value, all on one shared namespace.

cloudpickle alone gives every pickled function a private copy of the globals that it uses. A cell would then not see the
changes of its functions, nor they those of the cell, and a large array would be sent once for each function that names
it. So a function of the notebook is pickled without its globals and rebuilt on the namespace of the other `CellEnd`;
the names that it needs are reported, to be sent once each. A class that is sent and returned is the same, unchanged
class.

Values of installed and local modules are pickled by reference: the sources of local modules are sent along
(`skyward.wire.payloads.sources`), so that a captured object and the cell's own import share one class.

Both ends number the objects in a pickle in the same way: by its memo. So the node can say which objects of the notebook
a cell has changed, and refer to those that it has not (`seeds`).
"""

import importlib
import io
import pickle
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

from blake3 import blake3

from skyward.kept.handles import recording_handles
from skyward.kept.keep import CONTAINERS, keeps_containers, stand_in
from skyward.wire.kinds.arrays import (
    ArrayView,
    arrays_in_index,
    arrays_owned_by,
    attributes_of_array,
    is_array,
    is_derived_array,
)
from skyward.wire.kinds.caches import reduce_cached, was_cleared
from skyward.wire.kinds.identities import NanKeys, has_nan
from skyward.wire.kinds.stateless import CACHED
from skyward.wire.objects.attributes import set_attributes
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.contents import rebuilt
from skyward.wire.objects.mutability import behind_proxy
from skyward.wire.objects.process_wide import name_of, set_state, state_of
from skyward.wire.objects.unpickling import (
    NestedPickle,
    array_like,
    class_of_id,
    fill_cell,
    make_cached,
    make_cell,
    make_class,
    make_function,
    process_wide_object,
    restore_class,
    restore_function,
    with_cause,
)
from skyward.wire.payloads.modules import imported_by, local_modules
from skyward.wire.payloads.payload import Buffer, Packed
from skyward.wire.payloads.pickler import Pickler
from skyward.wire.payloads.unpicklable import not_picklable

__all__ = ["Shared", "digest_of", "objects_used", "pack_shared"]


_NO_VIEWS: Mapping[int, ArrayView] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Shared:
    """A packed value and its requirements.

    Attributes:
        packed: the value.
        needs: names of the namespace that its functions use.
        modules: local modules that it refers to.
        classes: classes of the notebook that it refers to, by id.
        arrays: the NumPy arrays in it.
        apart: arrays that share no memory with others after they are sent: those of subclasses, and of objects.
        inside: arrays inside pandas frames and indexes, which share no memory after they are sent either.
        uses: modules of the objects in it, and those that the code of functions in it imports.
        memo: the memo of its pickle, see `objects`.
        files: file names of the code of its functions.
        functions: the functions of the namespace that it contains.
    """

    packed: Packed
    needs: frozenset[str]
    modules: frozenset[str]
    classes: Mapping[str, type] = field(default_factory=dict)
    arrays: Sequence[Any] = ()
    apart: Sequence[Any] = ()
    inside: Sequence[Any] = ()
    uses: Collection[str] = ()
    memo: Any = None
    files: frozenset[str] = frozenset()
    functions: Sequence[FunctionType] = ()

    def objects(self) -> dict[int, tuple[int, Any]]:
        """Return the objects in the value by identity, each with its number in the pickle, equal on both ends."""
        return {} if self.memo is None else self.memo.copy()


def pack_shared(
    value: object,
    side: CellEnd,
    name: str,
    *,
    whole: Collection[str] = (),
    views: Mapping[int, ArrayView] = _NO_VIEWS,
    seeds: Sequence[object] = (),
) -> Shared:
    """Pickle `value` on its own, its functions without their globals.

    Args:
        value: what to pack.
        side: this end of the cell.
        name: name of the value in errors.
        whole: ids of classes of the notebook that are part of it, rather than references.
        views: arrays that share memory with others in the value, by identity (`skyward.wire.kinds.arrays`).
        seeds: objects that the other end has: `unpack_shared` is given its own in their places.

    Raises:
        NotPicklableError: it cannot be pickled. The message names `name` and the path inside the value.
    """
    if (handle := stand_in(value)) is not None:
        value = handle
    for make in (_SlowPickler,) if keeps_containers() else (_Pickler, _SlowPickler):
        buffers: list[pickle.PickleBuffer] = []
        sink = io.BytesIO()
        pickler = make(sink, side, buffers.append, whole, views)
        if seeds:
            pickler.memo = {id(seed): (number, seed) for number, seed in enumerate(seeds)}
        try:
            with recording_handles() as kept:
                pickler.dump(value)
        except Exception as error:
            raise not_picklable(
                value, name, error, "to a node" if side.is_notebook else "back from the node"
            ) from error
        data = sink.getvalue()
        if not has_nan(data):
            break
    packed = Packed(data, tuple(buffer.raw() for buffer in buffers), tuple(kept.values()))
    return Shared(
        packed,
        frozenset(pickler.needs),
        frozenset(pickler.modules),
        pickler.classes,
        pickler.arrays,
        pickler.apart,
        list(pickler.inside.values()),
        pickler.uses,
        pickler.memo,
        frozenset(pickler.files),
        pickler.functions,
    )


def objects_used(
    value: object,
    side: CellEnd,
    name: str,
    is_there: Callable[[Any], bool],
    *,
    views: Mapping[int, ArrayView] = _NO_VIEWS,
) -> list[object]:
    """Return the objects in `value` that the other end has, according to `is_there`: the `seeds` for `pack_shared`.

    Raises:
        NotPicklableError: see `pack_shared`.
    """
    pickler = _SeedFinder(io.BytesIO(), side, lambda _: None, (), views)
    pickler.is_there = is_there
    try:
        with recording_handles():
            pickler.dump(value)
    except Exception as error:
        raise not_picklable(value, name, error, "back from the node") from error
    return list(pickler.found.values())


def digest_of(
    value: object,
    side: CellEnd,
    number_of: Callable[[Any], int | None],
    content_of: Callable[[memoryview], Buffer | None],
) -> bytes | None:
    """Return a digest of the content of `value`, the same at both ends; None if there is none.

    Args:
        value: the value.
        side: this end of the cell.
        number_of: returns the number of an object that both ends have, which replaces it.
        content_of: returns a replacement for the bytes of a buffer, or None.
    """
    buffers: list[pickle.PickleBuffer] = []
    sink = io.BytesIO()
    pickler = _DigestPickler(sink, side, buffers.append, (), _NO_VIEWS)
    pickler.root = id(value)
    pickler.number_of = number_of
    pickler.fast = True  # write repeated objects again: sharing must not affect the digest
    try:
        with recording_handles():
            pickler.dump(value)
    except Exception:
        return None
    found = blake3(sink.getvalue())
    for buffer in buffers:
        content = content_of(buffer.raw())
        if content is None:
            return None
        found.update(content)
    return found.digest()


class _Pickler(Pickler):
    def __init__(
        self,
        sink: io.BytesIO,
        side: CellEnd,
        collect: Callable[[pickle.PickleBuffer], object],
        whole: Collection[str],
        views: Mapping[int, ArrayView],
    ) -> None:
        super().__init__(sink, collect)
        self._side = side
        self._local = {module.__name__ for module in local_modules()}
        self._whole = whole
        self._views = views
        self._linked: set[int] = set()
        self.needs: set[str] = set()
        self.modules: set[str] = set()
        self.uses: set[str] = set()
        self.classes: dict[str, type] = {}
        self.arrays: list[Any] = []
        self.apart: list[Any] = []
        self.inside: dict[int, Any] = {}
        self.files: set[str] = set()
        self.functions: list[FunctionType] = []

    def reducer_override(self, obj: Any) -> Any:
        if (kept := stand_in(obj)) is not None:
            return kept.__reduce__()
        if isinstance(obj, NestedPickle):
            self.needs |= obj.needs
            self.classes |= {key: kind for key in obj.classes if (kind := self._side.find(key)) is not None}
            return obj.__reduce__()
        if isinstance(obj, ModuleType):
            return self._module(obj)
        if isinstance(obj, BaseException) and obj.__cause__ is not None and id(obj) not in self._linked:
            self._linked.add(id(obj))  # it is then pickled as an argument, and is the same object after that
            return with_cause, (obj, obj.__cause__, obj.__context__ is obj.__cause__)
        if isinstance(obj, MappingProxyType) and type(shown := behind_proxy(obj)) is dict and "__module__" not in shown:
            return MappingProxyType, (shown,)
        if name := name_of(obj):
            return process_wide_object, (name,), state_of(obj), None, None, set_state
        if isinstance(obj, memoryview) and _can_change(obj):
            raise TypeError("a memoryview of writable memory cannot share it with a node")
        if isinstance(obj, CellType):
            return make_cell, (), _held(obj), None, None, fill_cell
        if is_array(obj):
            return self._array(obj)
        if is_derived_array(obj):
            self.apart.append(obj)
            if vars_of_array := attributes_of_array(obj):
                return rebuilt, (obj.__reduce_ex__(5),), vars_of_array, None, None, set_attributes
        self.inside.update((id(array), array) for array in (*arrays_owned_by(obj), *arrays_in_index(obj)))
        by_name = isinstance(obj, (FunctionType, type))
        module = getattr(obj, "__module__", None)
        if isinstance(module, str):
            self.uses.add(module)
        if module in self._local and (not by_name or _is_importable(obj)):
            self.modules.add(module)
            if by_name:
                return NotImplemented  # by reference
        if type(obj) is CACHED:
            return reduce_cached(obj, make_cached, was_cleared(obj))
        reduced = super().reducer_override(obj)
        if isinstance(obj, FunctionType) and isinstance(reduced, tuple):
            self.files.add(obj.__code__.co_filename)
            if self._side.is_notebook:
                self.uses |= imported_by(obj.__code__)
            return self._function(obj, reduced)
        return reduced

    def _module(self, module: ModuleType) -> Any:
        name = module.__name__
        if sys.modules.get(name) is not module:
            return NotImplemented
        self.uses.add(name)
        if name in self._local:
            self.modules.add(name)
        return importlib.import_module, (name,)

    def _array(self, array: Any) -> Any:
        view = self._views.get(id(array))
        if view is not None:
            return view.reduced()
        if id(array) in self.inside:
            return NotImplemented
        if array.dtype.hasobject:
            self.apart.append(array)
            return NotImplemented
        self.arrays.append(array)
        is_contiguous = array.flags.c_contiguous or not self._side.is_notebook  # irrelevant in the notebook
        if not (array.flags.writeable and is_contiguous):
            packed = array if array.flags.forc else array.copy(order="C")  # out of band, as other buffers
            return array_like, (packed.__reduce_ex__(5), array.flags.writeable, is_contiguous)
        return NotImplemented

    def _function(self, function: FunctionType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        namespace = function.__globals__
        if namespace is not self._side.namespace and id(namespace) not in self._side.cell_namespaces:
            return reduced
        self.functions.append(function)
        _, _, (attributes, slots), *rest, _ = reduced
        self.needs |= slots["__globals__"].keys()
        self.needs |= _class_body_names(function.__code__) & namespace.keys()
        slots = {**slots, "__globals__": {}, "__closure__": None}
        return make_function, (function.__code__, function.__closure__), (attributes, slots), *rest, restore_function

    def reduce_sentinel(self, module: str, name: str) -> tuple[Any, ...]:
        """Return how to find a sentinel that is a variable of a module."""
        if module in self._local:
            self.modules.add(module)
        return super().reduce_sentinel(module, name)

    def reduce_class(self, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return how to rebuild a class on the other side."""
        make, (*arguments, tracked, extra), state, *rest, _ = reduced
        key = self._side.id_of(kind, tracked)
        if key not in self._whole and (self._side.is_notebook or key in self._side.notebook_classes):
            self.classes[key] = kind
            return class_of_id, (key,)
        attributes, more = state
        state = {name: value for name, value in attributes.items() if name not in _CACHES_OF_CLASSES}, more
        return make_class, (make, tuple(arguments), key, extra), state, *rest, restore_class


class _SeedFinder(_Pickler):
    """Finds the objects that the other end has, without descending into them."""

    is_there: Callable[[Any], bool]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.found: dict[int, object] = {}

    def persistent_id(self, obj: Any) -> bool | None:
        if self.is_there(obj):
            self.found[id(obj)] = obj
            return True
        return True if type(obj) in CONTAINERS and stand_in(obj) is not None else None


class _DigestPickler(_Pickler):
    """Writes numbers in the place of objects that both ends have, except for the first one."""

    root: int
    number_of: Callable[[Any], int | None]

    def persistent_id(self, obj: Any) -> int | None:
        if id(obj) == self.root or id(obj) in self.inside:
            return None
        return self.number_of(obj)


class _SlowPickler(_Pickler):
    """Preserves the identities of NaN, and pickles kept containers, for which `reducer_override` is not called.

    It is slower: it makes a call for each object.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._key_of = NanKeys().of
        self._keeps = keeps_containers()

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is float:
            return self._key_of(obj) if obj != obj else None
        return stand_in(obj) if self._keeps and kind in CONTAINERS else None


_CACHES_OF_CLASSES = frozenset({"__slotnames__", "__annotations_cache__"})
"""Attributes that Python adds to a class when an object of it is pickled, or its annotations are read: no change."""


def _can_change(view: memoryview) -> bool:
    """Return whether the memory of `view` is writable, through it or through another view."""
    owner = view.obj
    return not view.readonly or not (
        isinstance(owner, bytes) or getattr(getattr(owner, "flags", None), "writeable", None) is False
    )


def _is_importable(obj: FunctionType | type) -> bool:
    """Return whether `obj` can be imported by its name from its module; otherwise it can only be pickled by value."""
    found: Any = sys.modules.get(obj.__module__)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


def _class_body_names(code: CodeType) -> set[str]:
    """Return the names that the bodies of classes inside `code` may read from the globals."""
    names: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if not constant.co_flags & 0x1:  # not optimised: the body of a class
                names |= set(constant.co_names)
            names |= _class_body_names(constant)
    return names


def _held(cell: CellType) -> tuple[Any, ...]:
    """Return the value of the variable of a closure, as a tuple; empty if it is unset."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
