"""Collection of the values that a cell needs: those that it reads, and those that they use in turn."""

import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from skyward.errors import NotPicklableError, UsageError
from skyward.frontends.calls import Kept
from skyward.frontends.cells import (
    PROVIDED,
    CellEnd,
    Packed,
    Shared,
    generators_used_by,
    is_shared_visibly,
    pack_shared,
    settings_used_by,
    title_of,
)
from skyward_jupyter.cells.cell import CellCode
from skyward_jupyter.cells.lookups import Lookups, lookups_of, texts_in, words_in
from skyward_jupyter.cells.manifest import ManifestEntry
from skyward_jupyter.cells.name_checks import check_unbound
from skyward_jupyter.cells.parts import NOTHING, CapturedPart, CapturedValue, pack_parts, sharing_memory
from skyward_jupyter.cells.placeholders import LazyModule, PackedValue

__all__ = ["HISTORY", "Collector"]

HISTORY = re.compile(r"_+|_i+|_i?\d+|In|Out|_[iod]h")
"""Names under which IPython keeps its inputs and outputs, which cells do not capture."""


@dataclass
class Collector:
    """The values captured from the notebook so far.

    Attributes:
        user_ns: the names of the notebook.
        variables: the variables of the function that the cell is in; they take precedence.
        entries: lines of the manifest, besides those of the values.
        modules: captured modules, by their names in the notebook.
        local: modules whose sources the cell needs, if they are local.
        files: file names of the code of captured functions.
        taken: names of captured values.
    """

    user_ns: dict[str, Any]
    variables: Mapping[str, Any]
    entries: list[ManifestEntry] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    _values: list[CapturedValue] = field(default_factory=list)
    _seen: dict[int, CapturedValue] = field(default_factory=dict)
    _classes: dict[str, CapturedValue] = field(default_factory=dict)
    _waiting: list[tuple[str, str]] = field(default_factory=list)
    _functions: list[FunctionType] = field(default_factory=list)
    _lookups: list[Lookups] = field(default_factory=list)
    _unsent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scope: Mapping[str, Any] = {**self.user_ns, **self.variables} if self.variables else self.user_ns
        self._side = CellEnd(self.user_ns, is_notebook=True)

    def names(self, code: CellCode, given: Collection[str]) -> None:
        """Capture the names that `code` reads, and those that functions among them use."""
        check_unbound(code, self.scope, given)
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
            self._unsent.append(f"{name}, which is named in a string, was not sent to the node: {error}")

    def notices(self, code: CellCode) -> Iterator[str]:
        """Yield a sentence for each name in a string that cannot be sent, and one if some names are unknown."""
        yield from self._unsent
        if code.withheld is not None:
            return
        there = {*self.taken, *self.modules}
        others = (name for name, value in self.user_ns.items() if name not in there and not _is_machinery(name, value))
        if all(name.startswith("_") or HISTORY.fullmatch(name) for name in others):
            return
        for lookup in (each for lookups in (code.lookups, *self._lookups) for each in lookups.unresolved):
            if not lookup.unless or any(texts_in(self.scope.get(name)) is None for name in lookup.unless):
                yield (
                    f"{lookup.what} finds only those variables of the notebook that the cell reads or names in a "
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
            own = CapturedValue([], value, shared)
            self._values.append(own)
        own.reason = reason
        own.names.append(name)
        self._seen[id(value)] = own

    def _class(self, key: str, kind: type, user: str) -> None:
        """Capture a class of the notebook. It is sent once, not with each of its instances."""
        if key in self._classes:
            return
        known = self._classes[key] = CapturedValue(
            [], kind, Shared(NOTHING, frozenset(), frozenset()), f"used by {user}", key
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
            self._values.append(CapturedValue([], each, self._shared(title_of(each), each)))

    @property
    def uses(self) -> set[str]:
        """Modules of the objects in the values, and modules that functions in them import."""
        return {module for each in self._values for module in each.shared.uses}

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

    def parts(self) -> list[CapturedPart]:
        """Pack all values; those that refer to the same objects or share memory go into one pickle."""
        return pack_parts(self._values, self._side)

    @property
    def apart(self) -> list[tuple[str, str]]:
        """Pairs of names whose values share memory here, but not on the node; one name twice for one value."""
        return sharing_memory(self._values)

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


def _is_by_name(module: ModuleType) -> bool:
    """Return whether importing its name gives `module`; a module created in the notebook is sent by value."""
    return isinstance(module, LazyModule) or sys.modules.get(module.__name__) is module


def _is_machinery(name: str, value: Any) -> bool:
    """Return whether IPython has bound the name, and a node has its own or does not need it."""
    if name in PROVIDED and name != "display":
        return True
    if isinstance(value, FunctionType):  # its `__module__` may be that of a function that it wraps, as for `open`
        owner = value.__globals__.get("__name__")
    else:
        owner = getattr(value, "__module__", None) or type(value).__module__
    return name in ("display", "exit", "open", "quit") and str(owner).startswith(("IPython", "ipykernel"))
