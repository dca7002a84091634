"""Taking the names that a cell reads out of the notebook, ready to travel."""

import builtins
import difflib
import re
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

from skyward.errors import NotPicklableError, TooLargeError, UsageError
from skyward.pending import PendingFunction
from skyward.wire.notebook import Shared, Side, pack_shared
from skyward.wire.payload import Packed, pack
from skyward.wire.sources import source_bundle
from skyward.worker.cell import CellRequest, run_cell, stream_cell
from skyward.worker.program import PROVIDED
from skyward_jupyter.cell import CellCode
from skyward_jupyter.kept import KeptValue, LazyModule
from skyward_jupyter.manifest import Entry, Manifest, size_text
from skyward_jupyter.present import stated

__all__ = ["CAPTURE_LIMIT", "Capture", "capture"]

CAPTURE_LIMIT = 1 << 30
"""Bytes that a cell may take along, and bring back, unless the user raises it."""

_HISTORY = re.compile(r"_+|_i+|_i?\d+|In|Out|_[iod]h")
"""Names under which IPython keeps inputs and outputs."""


@dataclass(frozen=True)
class Capture:
    """A cell with everything that goes with it. Nothing has been sent.

    Attributes:
        manifest: what goes along.
        request: what the node is asked to run.
        captured: by name, the values.
        is_stream: the cell yields.
        each: with `--map`, the name and its values, one run for each.
    """

    manifest: Manifest
    request: CellRequest
    captured: Mapping[str, Packed]
    is_stream: bool = False
    each: tuple[str, tuple[Packed, ...]] | None = None

    @cached_property
    def pending(self) -> PendingFunction[Any]:
        """The call to send: of `run_cell`, or of `stream_cell` for a cell that yields."""
        return PendingFunction(stream_cell if self.is_stream else run_cell, (self.request, dict(self.captured)))

    @cached_property
    def pendings(self) -> list[PendingFunction[Any]]:
        """The calls to send: one for each element with `--map`, and otherwise only `pending`."""
        if self.each is None:
            return [self.pending]
        name, values = self.each
        function = stream_cell if self.is_stream else run_cell
        return [PendingFunction(function, (self.request, {**self.captured, name: value})) for value in values]


def capture(
    code: CellCode,
    user_ns: dict[str, Any],
    *,
    limit: int = CAPTURE_LIMIT,
    holds: Callable[[bytes], Collection[int]] = lambda _: (),
    nodes: Collection[int] = (),
    map_name: str | None = None,
) -> Capture:
    """The cell `code` with the values of `user_ns` that it reads.

    Args:
        code: the cell.
        user_ns: the names of the notebook.
        limit: bytes that may go along, and that may come back.
        holds: tells which nodes hold a blob.
        nodes: ranks of the nodes of the pool.
        map_name: the name that stands for one element after the other (`--map`).

    Raises:
        NameError: the cell reads a name that is not there.
        UsageError: a name may not be taken along, or one of the options is not there.
        NotPicklableError: a value cannot travel; the message names it and the path inside it.
        TooLargeError: it is more than `limit`; the message names the largest value.
    """
    taking = _Taking(user_ns)
    each = None
    if map_name is not None:
        values = _elements(map_name, code, user_ns)
        each = (map_name, tuple(taking.pack(f"{map_name}[{i}]", value) for i, value in enumerate(values)))
        taking.entries.append(Entry(map_name, f"{len(values)} elements", each[1], "one for each run"))
        code = code.narrow(without=(map_name,))
    taking.names(code, frozenset() if map_name is None else frozenset({map_name}))
    sources = source_bundle([*code.imports, *sorted(taking.local)])
    outputs = code.outputs if code.only is None else code.only
    manifest = Manifest(
        entries=tuple(sorted(taking.entries, key=lambda entry: -entry.nbytes)),
        modules=tuple(taking.modules.items()),
        sources=tuple(name for name, module in sources.items() if module.filename),
        outputs=tuple(name for name in outputs if name not in code.deletes or code.only is not None),
        holds=holds,
        nodes=tuple(nodes),
    )
    _check_size(manifest, limit)
    request = CellRequest(
        source=code.source,
        filename=code.filename,
        outputs=code.outputs,
        touched=tuple(name for name in code.touched if name in taking.captured),
        only=code.only,
        deletes=code.deletes,
        modules=taking.modules,
        aliases=taking.aliases,
        sources=pack(sources) if sources else None,
        limit=limit,
        run=uuid.uuid4().hex,
        definitions=code.definitions,
    )
    return Capture(manifest, request, taking.captured, code.is_stream, each)


@dataclass
class _Taking:
    """What has been taken out of the notebook so far."""

    user_ns: dict[str, Any]
    captured: dict[str, Packed] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    _seen: dict[int, str] = field(default_factory=dict)
    _waiting: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._side = Side(self.user_ns, is_home=True)

    def names(self, code: CellCode, given: Collection[str]) -> None:
        """Take the names that `code` reads, and those that functions among them use."""
        _check_unbound(code, self.user_ns, given)
        explicit = code.withheld == "-i"
        for name in (*code.captures, *code.shadowing):
            if name in self.user_ns and not _is_machinery(name, self.user_ns[name]):
                if not explicit and _HISTORY.fullmatch(name):
                    raise UsageError(
                        f"{name} is part of the notebook's own history, which stays here. "
                        f"Give the value a name of its own, or take it along with `-i {name}`."
                    )
                self._take(name, "")
        done: set[str] = set()
        while self._waiting:
            name, user = self._waiting.pop()
            fresh = name not in done and name in self.user_ns and name not in given
            done.add(name)
            if fresh and not _is_machinery(name, self.user_ns[name]) and not _HISTORY.fullmatch(name):
                self._take(name, f"used by {user}")

    def _take(self, name: str, reason: str) -> None:
        if name in self.captured or name in self.modules or name in self.aliases:
            return
        value = self.user_ns[name]
        if isinstance(value, ModuleType) and _is_by_name(value):
            self.modules[name] = value.__name__
            self.local.add(value.__name__)
            return
        first = self._seen.setdefault(id(value), name)
        if first != name:
            self.aliases[name] = first
            return
        packed = self.captured[name] = self.pack(name, value)
        self.entries.append(Entry(name, _kind(value), (packed,), reason))

    def pack(self, name: str, value: Any) -> Packed:
        """`value`, packed; what it needs beside itself is noted."""
        if any(kind.__name__ == "InteractiveShell" for kind in type(value).__mro__):
            raise NotPicklableError(
                f"{name} cannot be sent to a node: it is the shell of this notebook. Leave it out of the cell."
            )
        if isinstance(value, KeptValue):
            shared = Shared(value.packed, value.needs, frozenset())
        else:
            shared = pack_shared(value, self._side, name)
        self._waiting += ((need, name) for need in sorted(shared.needs))
        self.local |= shared.modules
        return shared.packed


def _is_by_name(module: ModuleType) -> bool:
    """Whether importing its name gives `module`; a module made in the notebook travels by value."""
    return isinstance(module, LazyModule) or sys.modules.get(module.__name__) is module


def _is_machinery(name: str, value: Any) -> bool:
    """Whether the name was put there by IPython, and a node has its own or has no use for it."""
    if name in PROVIDED and name != "display":
        return True
    owner = getattr(value, "__module__", None) or type(value).__module__
    return name in ("display", "exit", "open", "quit") and str(owner).startswith(("IPython", "ipykernel"))


def _kind(value: object) -> str:
    kind = type(value)
    if isinstance(value, KeptValue):
        return "value of a node"
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module} {kind.__qualname__}"


def _elements(name: str, code: CellCode, user_ns: Mapping[str, Any]) -> list[Any]:
    """The elements of `--map name`."""
    if name not in user_ns:
        raise UsageError(f"--map {name}: {_not_there(name, user_ns)}")
    if name not in code.captures:
        raise UsageError(
            f"--map {name}: the cell does not read {name}, so every run would be the same. "
            f"Use {name} in the cell: there it stands for one element."
        )
    try:
        return list(user_ns[name])
    except TypeError:
        kind = type(user_ns[name]).__qualname__
        raise UsageError(f"--map {name}: {name} is of type {kind}, which has no elements. Give it a list.") from None


def _check_unbound(code: CellCode, user_ns: Mapping[str, Any], given: Collection[str]) -> None:
    """Tell of names that the cell will certainly miss, before anything is sent."""
    if code.withheld == "-i":
        for name in code.captures:
            if name not in user_ns:
                raise UsageError(f"-i {name}: {_not_there(name, user_ns)}")
    for name, line in code.unbound:
        if name in given or hasattr(builtins, name):
            continue
        if name not in user_ns:
            raise stated(NameError(f"line {line}: the cell reads {name}, but {_not_there(name, user_ns)}", name=name))
        if code.withheld is not None and name not in code.captures:
            fix = f"Add {name} to -i" if code.withheld == "-i" else "Leave --no-capture out"
            raise UsageError(
                f"line {line}: the cell reads {name}, which {code.withheld} keeps from it. "
                f"{fix}, or assign it in the cell."
            )


def _not_there(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [other for other in names if not other.startswith("_")], n=1)
    fix = f"Did you mean {close[0]}?" if close else "Run the cell that defines it first."
    return f"the notebook has no name {name}. {fix}"


def _check_size(manifest: Manifest, limit: int) -> None:
    if manifest.nbytes > limit:
        largest = manifest.entries[0]
        raise TooLargeError(
            f"the cell takes {size_text(manifest.nbytes)} along, which is over the limit of {size_text(limit)}; "
            f"the largest value is {largest.name} ({largest.kind}, {size_text(largest.nbytes)}). Make it on the node, "
            "leave it out with -i, or raise the limit with --capture-limit."
        )
