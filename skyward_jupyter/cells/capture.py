"""Capture of the names that a cell reads, packed to be sent."""

import builtins
import difflib
import linecache
import os
import sys
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from skyward.errors import NotPicklableError, TooLargeError, UsageError
from skyward.formatting import joined, size_text
from skyward.functions.pending import PendingFunction
from skyward.kept.handles import Kept
from skyward.kept.keep import KEEP_FOR
from skyward.values.validation import shown
from skyward.wire.kinds.arrays import Extent, View, extent_of, shared_views, view_in_bytes
from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.objects.mutability import is_plain, is_shared_visibly
from skyward.wire.objects.pickling import Shared, pack_shared
from skyward.wire.objects.process_wide import generators_used_by, settings_used_by, title_of
from skyward.wire.payloads.modules import is_local_file
from skyward.wire.payloads.payload import Packed, pack
from skyward.wire.payloads.sources import ModuleSource, imports_of, source_bundle
from skyward.worker.cells.cell import CellRequest, Root, run_cell, stream_cell
from skyward.worker.cells.program import PROVIDED
from skyward_jupyter.cells.cell import CellCode
from skyward_jupyter.cells.history import HISTORY
from skyward_jupyter.cells.lookups import Lookups, lookups_of, texts_in, words_in
from skyward_jupyter.cells.manifest import Entry, Manifest
from skyward_jupyter.cells.originals import Originals, not_shared
from skyward_jupyter.cells.placeholders import LazyModule, PackedValue
from skyward_jupyter.failures.presentation import as_sentence

__all__ = ["CAPTURE_LIMIT", "Capture", "capture", "elements_of", "refuse_binding"]

_REMEMBERED = 1 << 20
"""Most bytes of arrays that are copied, to detect changes by the notebook while a cell runs."""

CAPTURE_LIMIT = 1 << 30
"""Default limit on the bytes that a cell sends, and on those that it returns."""

_MOST_TEXT = 256 << 10
"""Limit on the characters of function sources that are sent with a cell."""
_NO_LOCALS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Capture:
    """A cell with everything that it needs, ready to be sent.

    Attributes:
        manifest: the contents, for the user.
        request: the request to the node.
        values: the packed values, in the order of `request.roots`.
        originals: the objects in them.
        notices: sentences to show before the cell is sent.
        is_stream: True if the cell yields.
        each: with `--map`, the name and its values, one for each run.
    """

    manifest: Manifest
    request: CellRequest
    values: tuple[Packed, ...]
    originals: Originals = field(default_factory=Originals)
    notices: tuple[str, ...] = ()
    is_stream: bool = False
    each: tuple[str, tuple[Packed, ...]] | None = None

    @property
    def captured(self) -> Mapping[str, Packed]:
        """The packed values, by the joined names of the values in them."""
        named = (", ".join(name for root in roots for name in root.names) for roots in self.request.roots)
        return {names: packed for names, packed in zip(named, self.values, strict=True) if names}

    @cached_property
    def pending(self) -> PendingFunction[Any]:
        """The call to send: of `run_cell`, or of `stream_cell` for a cell that yields."""
        return PendingFunction(stream_cell if self.is_stream else run_cell, (self.request, self.values))

    @cached_property
    def pendings(self) -> list[PendingFunction[Any]]:
        """The calls to send: one for each element with `--map`, otherwise only `pending`."""
        if self.each is None:
            return [self.pending]
        name, values = self.each
        function = stream_cell if self.is_stream else run_cell
        request = replace(self.request, roots=(*self.request.roots, (Root((name,)),)))
        return [PendingFunction(function, (request, (*self.values, value))) for value in values]


def capture(
    code: CellCode,
    user_ns: dict[str, Any],
    *,
    limit: int = CAPTURE_LIMIT,
    holds: Callable[[bytes], Collection[int]] = lambda _: (),
    nodes: Collection[int] = (),
    map_name: str | None = None,
    in_place: bool = True,
    is_next: bool = False,
    keep: Sequence[str] = (),
    keep_for: float = KEEP_FOR,
    local: Mapping[str, Any] = _NO_LOCALS,
) -> Capture:
    """Pack the cell `code` with the values of `user_ns` that it reads.

    Args:
        code: the cell.
        user_ns: the names of the notebook.
        limit: most bytes to send, and to return.
        holds: returns the nodes that hold a blob.
        nodes: ranks of the nodes of the pool.
        map_name: the name that is bound to one element in each run (`--map`).
        in_place: apply changes to the objects of the notebook; not possible for several runs.
        is_next: the notebook waits for this one run, so the cell continues the notebook's random numbers.
        keep: names whose values the node keeps after the cell (`--keep`).
        keep_for: seconds after the last use of a kept value for which scaling down spares the node.
        local: the variables of the function that the cell is in; they take precedence over the notebook's names.

    Raises:
        NameError: the cell reads a name that does not exist.
        UsageError: a name must not be captured, or a name in an option does not exist.
        NotPicklableError: a value cannot be pickled; the message names it and the path inside it.
        TooLargeError: the values exceed `limit`; the message names the largest one.
    """
    shared_elsewhere = _shared_elsewhere(keep, user_ns)
    refuse_binding(code.assigned, code.deletes, local)
    collector = _Collector(user_ns, local)
    code = replace(code, captures=(*code.captures, *_only_kept(keep, code, collector.scope)))
    each = None
    if map_name is not None:
        values = _elements(map_name, code, collector.scope)
        each = (map_name, tuple(collector.pack(f"{map_name}[{i}]", value) for i, value in enumerate(values)))
        collector.entries.append(Entry(map_name, f"{len(values)} elements", each[1], "one for each run"))
        code = code.narrow(without=(map_name,))
    collector.names(code, frozenset() if map_name is None else frozenset({map_name}))
    sources = source_bundle(sorted({*code.imports, *collector.local, *collector.uses}))
    collector.process_wide({*code.imports, *imports_of(sources)}, with_generators=is_next)
    parts = collector.parts()
    is_in_place = in_place and each is None
    assigned = (*code.assigned, *code.changes) if is_in_place else code.assigned
    outputs = dict.fromkeys(assigned if code.only is None else code.only)
    manifest = Manifest(
        entries=tuple(
            sorted(
                [*collector.entries, *(part.entry for part in parts if part.is_named)], key=lambda entry: -entry.nbytes
            )
        ),
        modules=tuple(collector.modules.items()),
        sources=tuple(name for name, module in sources.items() if module.filename),
        outputs=tuple(name for name in outputs if name not in code.deletes or code.only is not None),
        holds=holds,
        nodes=tuple(nodes),
    )
    _check_size(manifest, limit)
    request = CellRequest(
        source=code.source,
        filename=code.filename,
        roots=tuple(part.roots for part in parts),
        assigned=code.assigned,
        only=code.only,
        deletes=code.deletes,
        incidental=code.incidental,
        modules=collector.modules,
        sources=pack(sources) if sources else None,
        limit=limit,
        run=uuid.uuid4().hex,
        definitions=code.definitions,
        in_place=is_in_place,
        shows=each is None,
        keep=tuple(keep),
        shared_elsewhere=(*shared_elsewhere, *collector.parts_of_others(keep)),
        keep_for=keep_for,
        texts=_texts_of(collector.files),
    )
    packed = tuple(part.shared.packed for part in parts)
    apart = collector.apart
    taken = {name: value for name, value in local.items() if name in collector.taken}
    originals = Originals(
        [part.shared.memo for part in parts],
        taken,
        apart,
        [{name: each.value for each in part.values for name in each.names} for part in parts],
        {name: user_ns[name] for name in (*collector.taken, *collector.modules, *code.deletes) if name in user_ns},
        [part.is_as_sent for part in parts],
    )
    notices = (*map(not_shared, () if is_in_place else apart), *collector.missed(code), *_changed_modules(sources))
    return Capture(manifest, request, packed, originals, notices, code.is_stream, each)


def _texts_of(files: Collection[str]) -> dict[str, str]:
    """Return the source files of captured functions, for `inspect.getsource`; the smallest first."""
    own = [file for file in sorted(files) if is_local_file(file) or not os.path.isfile(file)]
    texts = [("".join(linecache.getlines(file)), file) for file in own]
    found: dict[str, str] = {}
    total = 0
    for text, file in sorted(texts, key=lambda pair: len(pair[0])):
        total += len(text)
        if text and total <= _MOST_TEXT:
            found[file] = text
    return found


def _changed_modules(sources: Mapping[str, ModuleSource]) -> Iterator[str]:
    """Yield a sentence for each variable of a local module that was assigned to since its import."""
    for name, source in sources.items():
        module = sys.modules.get(name)
        for variable, written in {} if module is None else source.constants.items():
            value = vars(module).get(variable, written)
            if type(value) is not type(written) or value != written:
                yield (
                    f"{name}.{variable} is {shown(value)} here, but {shown(written)} on the node, which takes it from "
                    f"{os.path.basename(source.filename)}. Pass it as a variable, or assign it in the cell."
                )


@dataclass(slots=True)
class _Value:
    """A captured value, packed on its own at first.

    Attributes:
        names: its names.
        value: the value.
        shared: its pickle.
        reason: the reason for its capture, unless the cell simply reads it.
        key: id of a class of the notebook; empty for any other value.
    """

    names: list[str]
    value: object
    shared: Shared
    reason: str = ""
    key: str = ""

    @property
    def root(self) -> Root:
        """The description of the value for the node."""
        return Root(tuple(self.names), self.key)


@dataclass(frozen=True, slots=True)
class _Part:
    """Values that travel in one pickle.

    Attributes:
        values: the values.
        shared: the pickle.
        pack: pickles the current values again.
        memory: the bytes of arrays as they were sent; None if they exceed `_REMEMBERED`.
    """

    values: tuple[_Value, ...]
    shared: Shared
    pack: "Callable[[tuple[_Value, ...]], Shared]"
    memory: tuple[bytes, ...] | None

    def is_as_sent(self) -> bool:
        """Return whether the values are still as they were sent; False if unknown."""
        if self.memory is None:
            return False
        try:
            now = self.pack(self.values).packed
        except NotPicklableError:
            return False
        return now.data == self.shared.packed.data and _bytes_of(now) == self.memory

    @property
    def is_named(self) -> bool:
        """True unless it only has process-wide state, such as settings of libraries."""
        return any(each.names or each.key for each in self.values)

    @property
    def roots(self) -> tuple[Root, ...]:
        return tuple(each.root for each in self.values)

    @property
    def entry(self) -> Entry:
        """The line of the manifest for this part."""
        names = [", ".join(each.names) or getattr(each.value, "__qualname__", "") for each in self.values]
        kinds = dict.fromkeys(_kind(each.value) for each in self.values)
        reason = next((each.reason for each in self.values if each.reason), "") if len(self.values) == 1 else ""
        where = joined(each.value.where for each in self.values if isinstance(each.value, Kept))
        return Entry(", ".join(names), ", ".join(kinds), (self.shared.packed,), reason, where)


def _pack_together(values: Sequence[_Value], side: CellEnd, views: Mapping[int, View]) -> Shared:
    value = values[0].value if len(values) == 1 else [each.value for each in values]
    name = next((name for each in values for name in each.names), "the value")
    return pack_shared(value, side, name, whole={each.key for each in values if each.key}, views=views)


def _bytes_of(packed: Packed) -> tuple[bytes, ...]:
    return tuple(map(bytes, packed.buffers))


@dataclass
class _Collector:
    """The values captured from the notebook so far."""

    user_ns: dict[str, Any]
    variables: Mapping[str, Any] = _NO_LOCALS
    entries: list[Entry] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    _values: list[_Value] = field(default_factory=list)
    _seen: dict[int, _Value] = field(default_factory=dict)
    _classes: dict[str, _Value] = field(default_factory=dict)
    _waiting: list[tuple[str, str]] = field(default_factory=list)
    _functions: list[FunctionType] = field(default_factory=list)
    _lookups: list[Lookups] = field(default_factory=list)
    _left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scope: Mapping[str, Any] = {**self.user_ns, **self.variables} if self.variables else self.user_ns
        self._side = CellEnd(self.user_ns, is_notebook=True)

    def names(self, code: CellCode, given: Collection[str]) -> None:
        """Capture the names that `code` reads, and those that functions among them use."""
        _check_unbound(code, self.scope, given)
        explicit = code.withheld == "-i"
        for name in (*code.captures, *code.shadowing):
            if name in self.scope and not _is_machinery(name, self.scope[name]):
                if not explicit and HISTORY.fullmatch(name):
                    raise UsageError(
                        f"{name} is part of the notebook's own history, which is not sent. "
                        f"Bind the value to another name, or send it with `-i {name}`."
                    )
                self._take(name, "")
        self._take_dependencies(given)
        if code.withheld is None:
            self._take_by_string(code, given)

    def _take_dependencies(self, given: Collection[str]) -> None:
        """Capture the names that captured functions use."""
        done: set[str] = set()
        while self._waiting:
            name, user = self._waiting.pop()
            if name in self.variables and name in self.user_ns and self.variables[name] is not self.user_ns[name]:
                raise UsageError(
                    f"{user} uses the notebook's {name}, but {name} is also a variable of the function here: rename "
                    "one of them."
                )
            fresh = name not in done and name in self.user_ns and name not in given
            done.add(name)
            if fresh and not _is_machinery(name, self.user_ns[name]) and not HISTORY.fullmatch(name):
                self._take(name, f"used by {user}")

    def _take_by_string(self, code: CellCode, given: Collection[str]) -> None:
        """Capture the names that the cell, or a captured function, may look up by a string."""
        tried = {*given, *self.taken, *self.modules}
        while new := [name for name in sorted(self._words(code)) if name in self.scope and name not in tried]:
            tried.update(new)
            for name in new:
                if not _is_machinery(name, self.scope[name]) and not HISTORY.fullmatch(name):
                    self._take_if_possible(name, given)

    def _words(self, code: CellCode) -> set[str]:
        """Return possible names in strings by which the cell, or a captured function, looks up variables."""
        for function in self._functions[len(self._lookups) :]:
            self._lookups.append(lookups_of(function))
        lookups = [code.lookups, *self._lookups]
        in_namespace = any(each.in_namespace for each in lookups)
        words = {word for each in lookups if in_namespace or each.by_method for word in each.words}
        given = self.taken if in_namespace else code.lookups.arguments  # a function may be called with any of them
        values = (self.scope[name] for name in given if name in self.scope)
        return words.union(*(words_in(text) for value in values for text in texts_in(value) or ()))

    def _take_if_possible(self, name: str, given: Collection[str]) -> None:
        """Capture a name found in a string, with everything it uses, unless a part of it cannot be sent."""
        state = ("taken", "_values", "_seen", "_classes", "_waiting", "_functions", "local", "modules")
        before = {each: copy(getattr(self, each)) for each in state}
        try:
            self._take(name, "named in a string")
            self._take_dependencies(given)
        except (NotPicklableError, UsageError) as error:
            for each, value in before.items():
                setattr(self, each, value)
            self._left.append(f"{name}, which is named in a string, was not sent to the node: {error}")

    def missed(self, code: CellCode) -> Iterator[str]:
        """Yield a sentence for each name in a string that cannot be sent, and one if some names are unknown."""
        yield from self._left
        if code.withheld is not None:
            return
        there = {*self.taken, *self.modules}
        others = (name for name, value in self.user_ns.items() if name not in there and not _is_machinery(name, value))
        if all(name.startswith("_") or HISTORY.fullmatch(name) for name in others):
            return
        for blind in (each for lookups in (code.lookups, *self._lookups) for each in lookups.blind):
            if not blind.unless or any(texts_in(self.scope.get(name)) is None for name in blind.unless):
                yield (
                    f"{blind.what} finds only those variables of the notebook that the cell reads or names in a "
                    "string. List all the names that it needs with `-i NAMES`."
                )
                return

    def _take(self, name: str, reason: str) -> None:
        if name in self.taken or name in self.modules:
            return
        value = self.scope[name]
        if isinstance(value, ModuleType) and _is_by_name(value):
            self.modules[name] = value.__name__
            self.local.add(value.__name__)
            return
        self.taken.add(name)
        if isinstance(value, PackedValue):
            self._waiting += ((other, name) for other in value.others(self.user_ns))
        known = self._seen.get(id(value))
        if known is not None:
            known.names.append(name)
            return
        shared = self._shared(name, value)
        own = next((each for each in self._classes.values() if each.value is value), None)
        if own is None:
            own = _Value([], value, shared)
            self._values.append(own)
        own.reason = reason
        own.names.append(name)
        self._seen[id(value)] = own

    def _class(self, key: str, kind: type, user: str) -> None:
        """Capture a class of the notebook. It is sent once, not with each of its instances."""
        if key in self._classes:
            return
        known = self._classes[key] = _Value(
            [], kind, Shared(_NOTHING, frozenset(), frozenset()), f"used by {user}", key
        )
        self._values.append(known)
        known.shared = self._shared(kind.__qualname__, kind, whole={key})

    def process_wide(self, imported: Iterable[str], *, with_generators: bool) -> None:
        """Capture process-wide state that the cell may use: settings of libraries, random number generators.

        Args:
            imported: modules that the cell or local modules import.
            with_generators: capture the random number generators too.
        """
        modules = [*self.modules.values(), *imported, *self.uses]
        modules += [str(getattr(each.value, "__module__", None) or "") for each in self._values]
        modules += [type(each.value).__module__ for each in self._values]
        if any(value is warnings for value in self.user_ns.values()):
            modules.append("warnings")  # its filters apply to all code
        packages = {module.partition(".")[0] for module in modules}
        generators = generators_used_by(packages) if with_generators else ()
        for each in (*settings_used_by(packages), *generators):
            self._values.append(_Value([], each, self._shared(title_of(each), each)))

    @property
    def uses(self) -> set[str]:
        """Modules of the objects in the values, and modules that functions in them import."""
        return {module for each in self._values for module in each.shared.uses}

    @property
    def apart(self) -> list[tuple[str, str]]:
        """Pairs of names whose values share memory here, but not on the node; one name twice for one value."""
        if not any(each.shared.apart or each.shared.inside for each in self._values):
            return []
        known = [
            (extent_of(array), id(array), each, form)
            for each in self._values
            for form, arrays in enumerate((each.shared.arrays, each.shared.apart, each.shared.inside))
            for array in arrays
        ]
        found: set[tuple[str, str]] = set()
        reaching: list[tuple[Extent, int, _Value, int]] = []
        for extent, key, each, form in sorted(known, key=lambda one: one[0].start):
            reaching = [one for one in reaching if one[0].end > extent.start]
            for _, other_key, other, other_form in reaching:
                is_reported = key != other_key and (_APART in (form, other_form) or form != other_form)
                if each is other and _INSIDE in (form, other_form):
                    is_reported = False  # pandas handles this
                if is_reported and extent.end > extent.start and each.names and other.names:
                    one, two = sorted([other.names[0], each.names[0]])
                    found.add((one, two))
            reaching.append((extent, key, each, form))
        return sorted(found)

    def parts_of_others(self, names: Collection[str]) -> list[str]:
        """Return the names whose values refer to values of other names of the notebook."""
        mine = {id(each.value) for each in self._values if not set(each.names).isdisjoint(names)}
        others = {id(value) for name, value in self.user_ns.items() if not name.startswith("_")} - mine
        return [
            each.names[0]
            for each in self._values
            if id(each.value) in mine
            and any(is_shared_visibly(value) for key, (_, value) in each.shared.objects().items() if key in others)
        ]

    def parts(self) -> list[_Part]:
        """Pack all values; those that refer to the same objects or share memory go into one pickle."""
        groups, views = _joined(self._values)
        parts = []
        pack = partial(_pack_together, side=self._side, views=views)
        for group in map(tuple, groups):
            is_apart = len(group) == 1 and not any(id(array) in views for array in group[0].shared.arrays)
            shared = group[0].shared if is_apart else pack(group)
            few = sum(memoryview(buffer).nbytes for buffer in shared.packed.buffers) <= _REMEMBERED
            parts.append(_Part(group, shared, pack, _bytes_of(shared.packed) if few else None))
        return parts

    def pack(self, name: str, value: Any) -> Packed:
        """Pack `value`, and record what else it needs."""
        return self._shared(name, value).packed

    def _shared(self, name: str, value: Any, whole: Collection[str] = ()) -> Shared:
        if any(kind.__name__ == "InteractiveShell" for kind in type(value).__mro__):
            raise NotPicklableError(
                f"{name} cannot be sent to a node: it is the IPython shell of this notebook. Leave it out of the cell."
            )
        shared = pack_shared(value, self._side, name, whole=whole)
        self._waiting += ((need, name) for need in sorted(shared.needs))
        for handle in shared.packed.kept:
            self._used_by(handle)
        self.local |= shared.modules
        self.files |= shared.files
        self._functions += shared.functions
        for key, kind in shared.classes.items():
            self._class(key, kind, name)
        return shared

    def _used_by(self, handle: Kept[Any]) -> None:
        """Capture what a value kept on a node uses."""
        self._waiting += ((need, handle.name) for need in handle.needs)
        for key in handle.classes:
            if (kind := self._side.find(key)) is not None:
                self._class(key, kind, handle.name)


_NOTHING = Packed(b"")
_APART, _INSIDE = 1, 2
"""Indexes of a value's lists of arrays: `arrays`, `apart`, `inside`."""


def _joined(values: Sequence[_Value]) -> tuple[list[list[_Value]], dict[int, View]]:
    """Return groups of values that share objects or memory, and the arrays that are views of shared memory."""
    leaders = list(range(len(values)))

    def leader(number: int) -> int:
        while leaders[number] != number:
            number = leaders[number]
        return number

    owner_of: dict[int, int] = {}
    known = [(number, each) for number, each in enumerate(values) if not is_plain(each.value)]
    known.sort(key=lambda pair: pair[1].shared.packed.nbytes)
    for number, each in known if len(known) > 1 else ():
        mine = each.shared.objects()
        for key in mine.keys() & owner_of.keys():
            if leader(owner_of[key]) != leader(number) and is_shared_visibly(mine[key][1]):
                leaders[leader(number)] = leader(owner_of[key])
        if number != known[-1][0]:
            owner_of.update(dict.fromkeys(mine, number))
    views: dict[int, View] = {}
    arrays = {id(array): (number, array) for number, each in enumerate(values) for array in each.shared.arrays}
    for group in shared_views(array for _, array in arrays.values()):
        views |= group
        first, *others = (arrays[key][0] for key in group)
        for other in others:
            leaders[leader(other)] = leader(first)
    lent = [(*each, extent_of(each[1]).owner) for each in arrays.values()]
    lent = [each for each in lent if isinstance(each[2], bytearray)]
    lenders = {id(owner) for _, _, owner in lent}
    holders = {
        key: other for other, each in enumerate(values) if lent for key in lenders & each.shared.objects().keys()
    }
    for number, array, owner in lent:
        if id(owner) in holders:
            views[id(array)] = view_in_bytes(array, owner)
            leaders[leader(holders[id(owner)])] = leader(number)
    groups: dict[int, list[_Value]] = {}
    for number, each in enumerate(values):
        groups.setdefault(leader(number), []).append(each)
    return list(groups.values()), views


def _is_by_name(module: ModuleType) -> bool:
    """Return whether importing its name gives `module`; a module created in the notebook is sent by value."""
    return isinstance(module, LazyModule) or sys.modules.get(module.__name__) is module


def _is_machinery(name: str, value: Any) -> bool:
    """Return whether IPython has bound the name, and a node has its own or does not need it."""
    if name in PROVIDED and name != "display":
        return True
    owner = getattr(value, "__module__", None) or type(value).__module__
    return name in ("display", "exit", "open", "quit") and str(owner).startswith(("IPython", "ipykernel"))


def _kind(value: object) -> str:
    kind = type(value)
    if isinstance(value, PackedValue):
        return "value of a node"
    if isinstance(value, Kept):
        return value.kind
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module} {kind.__qualname__}"


def _shared_elsewhere(names: Iterable[str], user_ns: Mapping[str, Any]) -> list[str]:
    """Return the names whose objects have references other than names of the notebook."""
    found = []
    for name in names:
        if name in user_ns and is_shared_visibly(user_ns[name]):
            value = user_ns[name]
            known = sum(other is value for other in user_ns.values()) + 2  # `value`, and the argument
            if sys.getrefcount(value) > known:
                found.append(name)
    return found


def _only_kept(keep: Sequence[str], code: CellCode, user_ns: Mapping[str, Any]) -> list[str]:
    """Return the names of `--keep` that the cell does not mention, whose values are sent to be kept."""
    found = []
    for name in keep:
        if name not in code.assigned and name not in code.captures:
            if name not in user_ns:
                raise UsageError(f"--keep {name}: the cell does not assign {name}, and {_not_there(name, user_ns)}")
            found.append(name)
    return found


def _elements(name: str, code: CellCode, user_ns: Mapping[str, Any]) -> list[Any]:
    """Return the elements for `--map name`."""
    if name not in user_ns:
        raise UsageError(f"--map {name}: {_not_there(name, user_ns)}")
    if name not in code.captures:
        raise UsageError(
            f"--map {name}: the cell does not read {name}, so every run would be the same. "
            f"Use {name} in the cell, where it is bound to one element."
        )
    return elements_of(name, user_ns)


def refuse_binding(assigned: Iterable[str], deletes: Iterable[str], local: Mapping[str, Any]) -> None:
    """Check that the cell binds no variable of the function that it is in, which only the function can do.

    Raises:
        UsageError: the cell binds one of `local`.
    """
    for name in (*assigned, *deletes):
        if name in local:
            raise UsageError(
                f"{name} is a variable of the function, which %sky! cannot bind: assign it the value of the "
                f"expression, `{name} = %sky! ...`."
            )


def elements_of(name: str, user_ns: Mapping[str, Any]) -> list[Any]:
    """Return the elements of a value of the notebook.

    Raises:
        UsageError: the name does not exist, or its value is not iterable.
    """
    if name not in user_ns:
        raise UsageError(f"--map {name}: {_not_there(name, user_ns)}")
    try:
        return list(user_ns[name])
    except TypeError:
        kind = type(user_ns[name]).__qualname__
        raise UsageError(f"--map {name}: {name} is of type {kind}, which has no elements. Give it a list.") from None


def _check_unbound(code: CellCode, user_ns: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise for names that the cell certainly needs and that do not exist, before anything is sent."""
    if code.withheld == "-i":
        for name in code.captures:
            if name not in user_ns:
                raise UsageError(f"-i {name}: {_not_there(name, user_ns)}")
    for name, line in code.unbound:
        if name in given or hasattr(builtins, name):
            continue
        if name not in user_ns:
            raise as_sentence(
                NameError(f"line {line}: the cell reads {name}, but {_not_there(name, user_ns)}", name=name)
            )
        if code.withheld is not None and name not in code.captures:
            fix = f"Add {name} to -i" if code.withheld == "-i" else "Leave out --no-capture"
            raise UsageError(
                f"line {line}: the cell reads {name}, which {code.withheld} excludes. {fix}, or assign it in the cell."
            )


def _not_there(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [other for other in names if not other.startswith("_")], n=1)
    fix = f"Did you mean {close[0]}?" if close else "Run the cell that defines it first."
    return f"the notebook has no name {name}. {fix}"


def _check_size(manifest: Manifest, limit: int) -> None:
    if manifest.nbytes > limit:
        largest = manifest.entries[0]
        raise TooLargeError(
            f"the cell sends {size_text(manifest.nbytes)}, which is over the limit of {size_text(limit)}; "
            f"the largest value is {largest.name} ({largest.kind}, {size_text(largest.nbytes)}). Make it on the node, "
            "leave it out with -i, or raise the limit with --capture-limit."
        )
