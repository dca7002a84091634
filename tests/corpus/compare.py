"""Comparison of two namespaces after the same cells: equal values, and the same objects in the same places.

Both are traversed in parallel, from the names inwards, breadth first. Two values in the same place must have the same
type and content. An object with an identity (a list, an array, an instance, a function, a class, a cell of a closure,
...) and its counterpart must be paired wherever either of them occurs: then two paths lead to one object in both
namespaces or in neither. Arrays must overlap in memory where those of the other namespace do.
"""

import array
import collections
import copy
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import pathlib
import re
import sys
import threading
import types
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

__all__ = ["Difference", "Names", "compare"]

_VALUES = (
    bool,
    bytes,
    complex,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    float,
    fractions.Fraction,
    int,
    np.dtype,
    np.generic,
    pathlib.PurePath,
    range,
    re.Pattern,
    slice,
    str,
    types.CodeType,
    types.EllipsisType,
    types.NoneType,
    types.NotImplementedType,
    uuid.UUID,
)
"""Types whose objects are compared by value only, because programs do not check their identity."""

_OF_CLASSES = {
    "__abstractmethods__",
    "__annotate__",
    "__annotate_func__",
    "__annotations_cache__",
    "__dict__",
    "__firstlineno__",
    "__module__",
    "__slotnames__",
    "__static_attributes__",
    "__weakref__",
    "_abc_impl",
}
"""Internal attributes of classes, set by the interpreter or pickle."""

_HIDDEN = re.compile(r"__\w+__|_+i+|_i\d+|_[id]h|_oh|In|exit|quit|open|get_ipython|display")
"""Names bound by IPython, except those of results."""

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Names:
    """A snapshot of a namespace.

    Attributes:
        names: the names that the user sees.
        namespace: the globals of the functions that were defined there.
        places: folders of the user's own modules.
        world: process-wide state that a program changes outside its names.
    """

    names: Mapping[str, Any]
    namespace: Mapping[str, Any]
    places: tuple[str, ...]
    world: Mapping[str, Any]

    @classmethod
    def of(cls, namespace: Mapping[str, Any], world: Mapping[str, Any], *places: str) -> "Names":
        """Take the names of an IPython shell."""
        names = {name: value for name, value in namespace.items() if not _HIDDEN.fullmatch(name)}
        names["Out"] = dict(names.get("Out", {}))
        return cls(names, namespace, places, world)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two namespaces.

    Attributes:
        roots: the names of the notebook that it concerns.
        text: a sentence.
    """

    roots: frozenset[str]
    text: str

    def __str__(self) -> str:
        return self.text


def compare(there: Names, here: Names) -> list[Difference]:
    """List the differences between `there` (under `%%sky`) and `here` (in the notebook)."""
    walk = _Walk(there, here)
    walk.names()
    walk.to_its_end()
    walk.memory()
    return walk.differences


@dataclass(slots=True)
class _Pair:
    """Two values in the same place."""

    there: Any
    here: Any
    path: str
    root: str


class _Walk:
    def __init__(self, there: Names, here: Names) -> None:
        self._there, self._here = there, here
        self._waiting: deque[_Pair] = deque()
        self._partner_of_there: dict[int, tuple[Any, _Pair]] = {}
        self._partner_of_here: dict[int, tuple[Any, _Pair]] = {}
        self._seen: dict[tuple[int, int], _Pair] = {}  # keeps the objects alive, so that their ids stay unique
        self._arrays: list[_Pair] = []
        self.differences: list[Difference] = []

    def names(self) -> None:
        """Queue the names, and the process-wide state."""
        there, here = self._there, self._here
        for name in sorted(there.names.keys() | here.names.keys()):
            if name not in there.names:
                self._differ(f"{name} is bound in the notebook, and not under %%sky", name)
            elif name not in here.names:
                self._differ(f"{name} is bound under %%sky, and not in the notebook", name)
            else:
                self._waiting.append(_Pair(there.names[name], here.names[name], name, name))
        for name in here.world:
            self._waiting.append(_Pair(there.world[name], here.world[name], name, name))

    def to_its_end(self) -> None:
        """Compare all queued pairs."""
        while self._waiting:
            self._look(self._waiting.popleft())

    def memory(self) -> None:
        """Compare the overlaps of arrays."""
        for one, two in itertools.combinations(self._arrays, 2):
            there = _overlap(one.there, two.there)
            here = _overlap(one.here, two.here)
            if there != here:
                both = f"{one.path} and {two.path}"
                text = f"{both} {_distance(here)} in the notebook and {_distance(there)} under %%sky"
                self._differ(text, one.root, two.root)

    def _differ(self, text: str, *roots: str) -> None:
        self.differences.append(Difference(frozenset(roots), text))

    def _unlike(self, pair: _Pair, what: str = "") -> None:
        shown = f"{_short(pair.here)} in the notebook and {_short(pair.there)} under %%sky"
        self._differ(f"{pair.path}{what} is {shown}", pair.root)

    def _push(self, pair: _Pair, there: Any, here: Any, suffix: str) -> None:
        self._waiting.append(_Pair(there, here, pair.path + suffix, pair.root))

    def _look(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        if (id(there), id(here)) in self._seen:
            return
        self._seen[id(there), id(here)] = pair
        if isinstance(here, _VALUES) and type(here).__module__ != "__main__" and not isinstance(here, enum.Enum):
            if type(there) is not type(here) or not _equal(there, here):
                self._unlike(pair)
            return
        if type(here) not in (tuple, frozenset, types.MethodType) and not self._are_partners(pair):
            return
        if there is here:
            return
        if isinstance(here, type):
            self._class(pair)
            return
        if type(there) is not type(here):
            if type(there).__qualname__ != type(here).__qualname__:
                self._unlike(pair)
                return
            self._push(pair, type(there), type(here), ".__class__")
        else:
            self._push(pair, type(there), type(here), ".__class__")
        for kinds, method in _METHODS:
            if isinstance(here, kinds):
                method(self, pair)
                return
        self._object(pair)

    def _are_partners(self, pair: _Pair) -> bool:
        """Return whether both objects are new, or are paired with each other."""
        there, here = pair.there, pair.here
        partner, first = self._partner_of_there.setdefault(id(there), (here, pair))
        if partner is not here:
            self._differ(
                f"{pair.path} and {first.path} are one object under %%sky, and two in the notebook",
                pair.root,
                first.root,
            )
            return False
        partner, first = self._partner_of_here.setdefault(id(here), (there, pair))
        if partner is not there:
            self._differ(
                f"{pair.path} is {first.path} in the notebook, and another object under %%sky", pair.root, first.root
            )
            return False
        return True

    # Contents.

    def _module(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        if there.__name__ != here.__name__:
            self._unlike(pair)
            return
        file = getattr(here, "__file__", None) or ""
        if not file or file.startswith(self._here.places):
            self._attributes(pair, _user_names(vars(there)), _user_names(vars(here)))

    def _class(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        if not isinstance(there, type) or there.__qualname__ != here.__qualname__:
            self._unlike(pair)
            return
        self._push(pair, type(there), type(here), ".__class__")
        self._push(pair, there.__bases__, here.__bases__, ".__bases__")
        self._attributes(pair, _of_class(there), _of_class(here))

    def _attributes(self, pair: _Pair, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        for name in dict.fromkeys([*here, *there]):
            if name not in there:
                self._differ(f"{pair.path}.{name} is there in the notebook, and not under %%sky", pair.root)
            elif name not in here:
                self._differ(f"{pair.path}.{name} is there under %%sky, and not in the notebook", pair.root)
            else:
                self._push(pair, there[name], here[name], f".{name}")

    def _object(self, pair: _Pair) -> None:
        """Compare the contents of any object: attributes, slots, items, and the state of types written in C."""
        there, here = pair.there, pair.here
        inside = False
        for kinds, method in _CONTAINERS:
            if isinstance(here, kinds):
                inside = True
                method(self, pair)
        one, two = _attributes_of(there), _attributes_of(here)
        self._attributes(pair, one, two)
        if isinstance(here, enum.Enum) or inside or one or two:
            return
        if type(here).__module__ == "itertools":
            self._push(pair, _next_of(there), _next_of(here), ".next()")
            return
        mine, yours = _reduced(there), _reduced(here)
        if mine is not None and yours is not None:
            self._push(pair, mine, yours, "!")

    def _list(self, pair: _Pair) -> None:
        there, here = list(_iterate(pair.there)), list(_iterate(pair.here))
        if len(there) != len(here):
            self._unlike(pair)
            return
        for i, (one, two) in enumerate(zip(there, here, strict=True)):
            self._push(pair, one, two, f"[{i}]")

    def _deque(self, pair: _Pair) -> None:
        self._push(pair, pair.there.maxlen, pair.here.maxlen, ".maxlen")
        self._list(pair)

    def _dict(self, pair: _Pair) -> None:
        kind = collections.OrderedDict if isinstance(pair.here, collections.OrderedDict) else dict
        there, here = kind.items(pair.there), kind.items(pair.here)
        if [_key(key) for key, _ in there] != [_key(key) for key, _ in here]:
            self._unlike(pair)
            return
        for (one, mine), (two, yours) in zip(there, here, strict=True):
            self._push(pair, one, two, f".key({_short(two)})")
            self._push(pair, mine, yours, f"[{_short(two)}]")
        if isinstance(pair.here, collections.defaultdict):
            self._push(pair, pair.there.default_factory, pair.here.default_factory, ".default_factory")

    def _set(self, pair: _Pair) -> None:
        there, here = sorted(pair.there, key=_key), sorted(pair.here, key=_key)
        if [_key(one) for one in there] != [_key(two) for two in here]:
            self._unlike(pair)
            return
        for one, two in zip(there, here, strict=True):
            self._push(pair, one, two, f"{{{_short(two)}}}")

    def _function(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        if _code(there.__code__) != _code(here.__code__) or there.__qualname__ != here.__qualname__:
            self._differ(f"{pair.path} is another function in the notebook than under %%sky", pair.root)
            return
        home = [there.__globals__ is self._there.namespace, here.__globals__ is self._here.namespace]
        if home[0] != home[1]:
            self._differ(f"{pair.path} has other globals in the notebook than under %%sky", pair.root)
        self._push(pair, there.__defaults__, here.__defaults__, ".__defaults__")
        self._push(pair, there.__kwdefaults__, here.__kwdefaults__, ".__kwdefaults__")
        self._attributes(pair, vars(there), vars(here))
        names = here.__code__.co_freevars
        for name, one, two in zip(names, there.__closure__ or (), here.__closure__ or (), strict=True):
            if name not in ("cache_token", "dispatch_cache"):  # of singledispatch: depends on previous calls
                self._push(pair, one, two, f".<{name}>")

    def _cell(self, pair: _Pair) -> None:
        there, here = _content(pair.there), _content(pair.here)
        if (there is _MISSING) != (here is _MISSING):
            self._unlike(pair)
        elif here is not _MISSING:
            self._push(pair, there, here, "")

    def _method(self, pair: _Pair) -> None:
        self._push(pair, pair.there.__func__, pair.here.__func__, ".__func__")
        self._push(pair, pair.there.__self__, pair.here.__self__, ".__self__")

    def _builtin(self, pair: _Pair) -> None:
        self._push(pair, pair.there.__name__, pair.here.__name__, ".__name__")
        self._push(pair, pair.there.__self__, pair.here.__self__, ".__self__")

    def _wrapper(self, pair: _Pair) -> None:
        """Compare a staticmethod or a classmethod."""
        self._push(pair, pair.there.__func__, pair.here.__func__, ".__func__")

    def _property(self, pair: _Pair) -> None:
        for name in ("fget", "fset", "fdel"):
            self._push(pair, getattr(pair.there, name), getattr(pair.here, name), f".{name}")

    def _cached(self, pair: _Pair) -> None:
        """Compare a function of `lru_cache`, without its cache, which only affects the duration of calls."""
        self._push(pair, pair.there.cache_parameters(), pair.here.cache_parameters(), ".cache_parameters()")
        self._attributes(pair, _own_attributes(pair.there), _own_attributes(pair.here))

    def _generator(self, pair: _Pair) -> None:
        there, here = pair.there.gi_frame, pair.here.gi_frame
        if (there is None) != (here is None) or (here is not None and there.f_lasti != here.f_lasti):
            self._differ(f"{pair.path} stands elsewhere in the notebook than under %%sky", pair.root)
        elif here is not None:
            self._attributes(pair, dict(there.f_locals), dict(here.f_locals))

    def _exception(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        self._push(pair, there.args, here.args, ".args")
        self._push(pair, str(there), str(here), ".__str__()")
        self._push(pair, there.__cause__, here.__cause__, ".__cause__")
        self._push(pair, there.__context__, here.__context__, ".__context__")
        self._attributes(pair, _attributes_of(there), _attributes_of(here))
        if isinstance(here, BaseExceptionGroup):
            self._push(pair, there.exceptions, here.exceptions, ".exceptions")

    def _reference(self, pair: _Pair) -> None:
        self._push(pair, pair.there(), pair.here(), "()")

    def _lock(self, pair: _Pair) -> None:
        if _is_locked(pair.there) != _is_locked(pair.here):
            self._unlike(pair)

    def _file(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        facts = [
            (
                file.closed,
                getattr(file, "name", None),
                getattr(file, "mode", None),
                None if file.closed else file.tell(),
            )
            for file in (there, here)
        ]
        if facts[0] != facts[1]:
            self._unlike(pair)

    def _member(self, pair: _Pair) -> None:
        """Compare a slot of a class."""
        if pair.there.__name__ != pair.here.__name__:
            self._unlike(pair)

    def _proxy(self, pair: _Pair) -> None:
        self._push(pair, dict(pair.there), dict(pair.here), "")

    def _view(self, pair: _Pair) -> None:
        """Compare a view of a dictionary."""
        self._push(pair, pair.there.mapping, pair.here.mapping, ".mapping")

    def _memoryview(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        if (there.format, there.shape, there.readonly, there.tobytes()) != (
            here.format,
            here.shape,
            here.readonly,
            here.tobytes(),
        ):
            self._unlike(pair)
        self._push(pair, there.obj, here.obj, ".obj")

    def _bytearray(self, pair: _Pair) -> None:
        if bytes(pair.there) != bytes(pair.here):
            self._unlike(pair)

    def _array(self, pair: _Pair) -> None:
        there, here = pair.there, pair.here
        for what in ("dtype", "shape"):
            if getattr(there, what) != getattr(here, what):
                self._unlike(pair, f" (by its {what})")
                return
        if there.flags.writeable != here.flags.writeable:
            words = {True: "can be written to", False: "is read-only"}
            self._differ(
                f"{pair.path} {words[here.flags.writeable]} in the notebook, and "
                f"{words[there.flags.writeable]} under %%sky",
                pair.root,
            )
        if isinstance(here, np.ma.MaskedArray):
            self._push(pair, np.ma.getmaskarray(there), np.ma.getmaskarray(here), ".mask")
            self._push(pair, there.fill_value, here.fill_value, ".fill_value")
            there, here = there.filled(0), here.filled(0)
        if here.dtype.hasobject and here.dtype.names is None:
            for i, (one, two) in enumerate(zip(there.flat, here.flat, strict=True)):
                self._push(pair, one, two, f".flat[{i}]")
        elif there.tobytes() != here.tobytes() and not _equal(there.tolist(), here.tolist()):
            self._unlike(pair)
        root = _owner(pair.here)
        if isinstance(root, (bytearray, array.array)):
            self._push(pair, _owner(pair.there), root, ".base")
        self._arrays.append(pair)

    def _pandas(self, pair: _Pair) -> None:
        import pandas as pd  # type: ignore[import-untyped]  # it has no types

        there, here = pair.there, pair.here
        try:
            if isinstance(here, pd.DataFrame):
                pd.testing.assert_frame_equal(there, here, check_exact=True)
            elif isinstance(here, pd.Series):
                pd.testing.assert_series_equal(there, here, check_exact=True)
            elif isinstance(here, pd.Index):
                pd.testing.assert_index_equal(there, here, exact=True)
            else:
                pd.testing.assert_extension_array_equal(there, here, check_exact=True)
        except AssertionError as error:
            self._differ(f"{pair.path} differs: {' '.join(str(error).split())}", pair.root)
            return
        if isinstance(here, (pd.DataFrame, pd.Series)):
            self._push(pair, there.attrs, here.attrs, ".attrs")
        columns = [(there[name], here[name]) for name in here] if isinstance(here, pd.DataFrame) else [(there, here)]
        for one, two in columns:
            if getattr(two, "dtype", None) == np.dtype(object):
                for i, (mine, yours) in enumerate(zip(one, two, strict=True)):
                    self._push(pair, mine, yours, f".flat[{i}]")

    def _grouped(self, pair: _Pair) -> None:
        """Compare a pandas group-by object; its other state is computed lazily."""
        self._push(pair, pair.there.obj, pair.here.obj, ".obj")
        self._push(pair, list(pair.there.groups), list(pair.here.groups), ".groups")

    def _artist(self, pair: _Pair) -> None:
        """Compare a figure or a part of one."""
        there, here = pair.there, pair.here
        for name in ("figure", "axes"):
            self._push(pair, getattr(there, name, None), getattr(here, name, None), f".{name}")
        for name in ("get_text", "get_label", "get_xydata", "get_color", "get_xscale"):
            if hasattr(here, name):
                self._push(pair, getattr(there, name)(), getattr(here, name)(), f".{name}()")
        if not isinstance(here, _classes("matplotlib.axis.Axis")):  # its ticks are created when it is drawn
            self._push(pair, list(there.get_children()), list(here.get_children()), ".get_children()")


def _classes(*names: str) -> tuple[type, ...]:
    """Return the classes with these names, of loaded modules."""
    parts = [name.rpartition(".") for name in names]
    return tuple(getattr(sys.modules[module], name) for module, _, name in parts if module in sys.modules)


class _Loaded:
    """Classes that are looked up lazily, because their package may be loaded later."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, _classes(*self._names))


_METHODS: tuple[tuple[Any, Callable[[_Walk, _Pair], None]], ...] = (
    (types.ModuleType, _Walk._module),
    (types.FunctionType, _Walk._function),
    (types.CellType, _Walk._cell),
    (types.MethodType, _Walk._method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _Walk._builtin),
    ((staticmethod, classmethod), _Walk._wrapper),
    (property, _Walk._property),
    (functools._lru_cache_wrapper, _Walk._cached),
    (types.GeneratorType, _Walk._generator),
    (BaseException, _Walk._exception),
    (weakref.ref, _Walk._reference),
    ((type(threading.Lock()), type(threading.RLock())), _Walk._lock),
    (io.IOBase, _Walk._file),
    ((types.MemberDescriptorType, types.GetSetDescriptorType), _Walk._member),
    (types.MappingProxyType, _Walk._proxy),
    ((type({}.keys()), type({}.values()), type({}.items())), _Walk._view),
    (memoryview, _Walk._memoryview),
    (
        _Loaded("pandas.DataFrame", "pandas.Series", "pandas.Index", "pandas.api.extensions.ExtensionArray"),
        _Walk._pandas,
    ),
    (_Loaded("pandas.api.typing.DataFrameGroupBy", "pandas.api.typing.SeriesGroupBy"), _Walk._grouped),
    (_Loaded("matplotlib.artist.Artist"), _Walk._artist),
)
"""The whole contents of objects of these types."""

_CONTAINERS: tuple[tuple[Any, Callable[[_Walk, _Pair], None]], ...] = (
    ((list, tuple), _Walk._list),
    (deque, _Walk._deque),
    (dict, _Walk._dict),
    ((set, frozenset), _Walk._set),
    ((weakref.WeakValueDictionary, weakref.WeakKeyDictionary), _Walk._list),
    (bytearray, _Walk._bytearray),
    (np.ndarray, _Walk._array),
)
"""The contents of objects of these types besides attributes."""


def _iterate(value: Any) -> Iterator[Any]:
    kinds: tuple[Any, ...] = (list, tuple, deque)
    for kind in kinds:
        if isinstance(value, kind):
            return cast("Iterator[Any]", kind.__iter__(value))
    return iter(sorted(value.items(), key=_key))


def _user_names(names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if not (name.startswith("__") and name.endswith("__"))}


def _of_class(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if name not in _OF_CLASSES}


def _own_attributes(function: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(function).items() if name != "cache_parameters"}


def _attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes and slots of an object, without calling its `__getattr__`."""
    if isinstance(value, (weakref.WeakValueDictionary, weakref.WeakKeyDictionary)):
        return {}
    try:
        found = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        found = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and "__slots__" in vars(kind):
                try:
                    found[name] = member.__get__(value, type(value))
                except AttributeError:
                    continue
    if type(value).__module__.startswith("pandas."):
        found.pop("_cache", None)
    return found


def _reduced(value: Any) -> Any:
    """Return the state of an object of a C type, as pickled; None if it cannot be pickled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickling of itertools will end with Python 3.14
        try:
            reduced = value.__reduce_ex__(4)
        except (TypeError, AttributeError):
            return None
    if not isinstance(reduced, tuple):
        return None
    return tuple(list(part) if isinstance(part, Iterator) and i > 2 else part for i, part in enumerate(reduced))


def _next_of(iterator: Any) -> list[Any]:
    """Return the next items of an iterator without advancing it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickling of itertools will end with Python 3.14
        return list(itertools.islice(copy.deepcopy(iterator), 20))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _is_locked(lock: Any) -> bool:
    return bool(lock.locked()) if hasattr(lock, "locked") else "unlocked" not in repr(lock)


def _code(code: types.CodeType) -> tuple[Any, ...]:
    constants = tuple(_code(const) if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts)
    return code.co_name, code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_flags


def _equal(there: Any, here: Any) -> bool:
    if isinstance(here, types.CodeType):
        return _code(there) == _code(here)
    return repr(there) == repr(here)


def _key(value: Any) -> str:
    """Return a string that pairs keys and elements of sets."""
    return f"{type(value).__qualname__} {_plain(value)}"


def _plain(value: Any) -> str:
    try:
        return re.sub(r"\b0x[0-9a-f]+", "0x", repr(value))
    except Exception as error:
        return f"<{type(value).__qualname__} whose repr raises {type(error).__name__}>"


def _short(value: Any) -> str:
    text = " ".join(_plain(value).split())
    return text if len(text) < 100 else f"{text[:80]}..."


def _owner(value: Any) -> Any:
    """Return the owner of the memory of an array."""
    while isinstance(value, (np.ndarray, memoryview)):
        inner = value.base if isinstance(value, np.ndarray) else value.obj
        if inner is None:
            return value
        value = inner
    return value


def _distance(apart: int | None) -> str:
    return "do not share memory" if apart is None else f"share memory, {apart} bytes apart,"


def _overlap(one: Any, two: Any) -> int | None:
    """Return the offset in bytes between two arrays that share memory; None if they do not."""
    if not np.may_share_memory(one, two) or not np.shares_memory(one, two):
        return None
    return int(two.__array_interface__["data"][0] - one.__array_interface__["data"][0])
