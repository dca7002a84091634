"""Capture of the names that a cell reads, packed to be sent."""

import linecache
import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from skyward.errors import TooLargeError, UsageError
from skyward.frontends.calls import KEEP_FOR, PendingFunction
from skyward.frontends.cells import (
    CellRequest,
    ModuleSource,
    Packed,
    Root,
    imports_of,
    is_local_file,
    is_shared_visibly,
    pack,
    run_cell,
    source_bundle,
    stream_cell,
)
from skyward.frontends.configuration import shown
from skyward.frontends.views import size_text
from skyward_jupyter.cells.cell import CellCode
from skyward_jupyter.cells.collector import Collector
from skyward_jupyter.cells.manifest import Manifest, ManifestEntry
from skyward_jupyter.cells.name_checks import elements_of, no_such_name, refuse_binding
from skyward_jupyter.cells.originals import Originals, not_shared

__all__ = ["CAPTURE_LIMIT", "Capture", "capture"]


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
        times: number of equal runs, without `--map`.
    """

    manifest: Manifest
    request: CellRequest
    values: tuple[Packed, ...]
    originals: Originals = field(default_factory=Originals)
    notices: tuple[str, ...] = ()
    is_stream: bool = False
    each: tuple[str, tuple[Packed, ...]] | None = None
    times: int = 1

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
        """The calls to send: one for each element with `--map`, otherwise only `pending`, as often as it runs."""
        if self.each is None:
            return [self.pending] * self.times
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
    gang: int | None = None,
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
        gang: number of runs at once; None for one that is no gang.
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
    collector = Collector(user_ns, local)
    code = replace(code, captures=(*code.captures, *_only_kept(keep, code, collector.scope)))
    each = None
    if map_name is not None:
        values = _elements(map_name, code, collector.scope)
        each = (map_name, tuple(collector.pack(f"{map_name}[{i}]", value) for i, value in enumerate(values)))
        collector.entries.append(ManifestEntry(map_name, f"{len(values)} elements", each[1], "one for each run"))
        code = code.narrow(without=(map_name,))
    collector.names(code, frozenset() if map_name is None else frozenset({map_name}))
    sources = source_bundle(sorted({*code.imports, *collector.local, *collector.uses}))
    collector.process_wide({*code.imports, *imports_of(sources)}, with_generators=is_next)
    parts = collector.parts()
    is_in_place = in_place and each is None and gang is None
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
        shows=each is None and gang is None,
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
    notices = (*map(not_shared, () if is_in_place else apart), *collector.notices(code), *_changed_modules(sources))
    return Capture(manifest, request, packed, originals, notices, code.is_stream, each, gang or 1)


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
                raise UsageError(f"--keep {name}: the cell does not assign {name}, and {no_such_name(name, user_ns)}")
            found.append(name)
    return found


def _elements(name: str, code: CellCode, user_ns: Mapping[str, Any]) -> list[Any]:
    """Return the elements for `--map name`."""
    if name not in user_ns:
        raise UsageError(f"--map {name}: {no_such_name(name, user_ns)}")
    if name not in code.captures:
        raise UsageError(
            f"--map {name}: the cell does not read {name}, so every run would be the same. "
            f"Use {name} in the cell, where it is bound to one element."
        )
    return elements_of(name, user_ns)


def _check_size(manifest: Manifest, limit: int) -> None:
    if manifest.nbytes > limit:
        largest = manifest.entries[0]
        raise TooLargeError(
            f"the cell sends {size_text(manifest.nbytes)}, which is over the limit of {size_text(limit)}; "
            f"the largest value is {largest.name} ({largest.kind}, {size_text(largest.nbytes)}). Make it on the node, "
            "leave it out with -i, or raise the limit with --capture-limit."
        )
