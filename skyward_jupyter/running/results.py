"""Binding the results of a cell in the notebook, as if the cell had run here."""

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pickle import Pickler
from types import FrameType, MappingProxyType
from typing import Any

from skyward.frontends.calls import Kept, call, renew
from skyward.frontends.cells import (
    VALUE,
    CellEnd,
    CellResult,
    Change,
    Packed,
    PackedGraph,
    ReturnedState,
    is_applied_last,
    is_array_overwritten,
    is_inside_frame,
    is_shared_visibly,
    is_whole_different,
    pip_name,
    put_change,
    renew_hashes,
    seeds_used,
    unpack_shared,
    unpack_tracked,
    with_fix,
)
from skyward.frontends.views import joined
from skyward_jupyter.cells.collector import HISTORY
from skyward_jupyter.cells.originals import Originals, not_shared
from skyward_jupyter.cells.placeholders import NotReturned, PackedValue, module_here, unpickle, unpickle_failure
from skyward_jupyter.failures.frames import TracebackMaker
from skyward_jupyter.running.notices import (
    changed_copies,
    changes_not_returned,
    copies_of_kept,
    moved_to_node,
    not_returned,
    side_effects,
)

__all__ = ["AppliedCell", "apply_result", "apply_results", "stream_items"]


@dataclass(frozen=True, slots=True)
class AppliedCell:
    """Notices and value of a cell whose names are bound.

    Attributes:
        notices: one sentence for each value that was not returned, or cannot be unpickled here.
        value: the value of its last expression; for several runs the list of them; None if there is none.
    """

    notices: list[str]
    value: Any = None


def apply_result(result: CellResult, user_ns: dict[str, Any], originals: Originals) -> AppliedCell:
    """Apply the changes of the cell to `user_ns`: bind, change and unbind names.

    Args:
        result: the result of the cell.
        user_ns: the names of the notebook.
        originals: the captured objects.

    Raises:
        BaseException: the exception of the cell, once the names it had bound are bound here. Its notes are the notices.
    """
    binder = _Binder(user_ns, result, originals)
    renew(result.updated_kept)
    values = binder.values()
    value = binder.value(values)
    binder.renew_packed(values)
    user_ns.update(binder.namesakes(values))
    binder.leave_locals(values)
    user_ns.update(values)
    binder.bind_the_rest()
    kept = []
    for name in result.state.deleted:
        if originals.is_bound_as_before(name, user_ns):
            user_ns.pop(name, None)
        else:
            kept.append(f"The cell deleted {name}, but {name} was rebound here after the cell was sent: it was kept.")
    notices = [
        *binder.notices,
        *binder.stale_references(),
        *kept,
        *not_returned([result], user_ns),
        *changes_not_returned([result]),
        *moved_to_node(result),
        *copies_of_kept(result),
        *side_effects([result]),
    ]
    touched = {*result.state.changed, *result.state.stale}
    notices += (not_shared(names) for names in originals.apart if not touched.isdisjoint(names))
    changed = set(result.state.changed) - result.state.stale.keys()
    error = binder.error({*values, *result.state.modules, *changed})
    if error is not None:
        raise _with_notes(error, notices)
    return AppliedCell(notices, value)


def apply_results(
    results: Sequence[CellResult],
    user_ns: dict[str, Any],
    *,
    joins: bool = False,
    errors: Mapping[int, BaseException] = MappingProxyType({}),
) -> AppliedCell:
    """Bind the results of several runs of one cell: each name becomes the list of its values, in order of the runs.

    Imports, functions and classes are bound once. A failed run has its exception in the lists, and a run that did not
    bind a name has None. Values that the cell changed without assigning to them stay unchanged, with a notice.

    Args:
        results: the results of the runs.
        user_ns: the names of the notebook.
        joins: each run had its own node, so that values kept under one name become one handle.
        errors: errors of runs without a result, by number: they are in the lists, and not raised.

    Raises:
        BaseException: the exception of the first failed run, once the lists are bound.
    """
    for result in results:
        renew(result.updated_kept)
    binders = [_Binder(user_ns, result, Originals()) for result in results]
    raised = [binder.error() for binder in binders]
    in_lists = [errors.get(number, error) for number, error in enumerate(raised)]
    rows = [binder.values() for binder in binders]
    values = [binder.value(row) for binder, row in zip(binders, rows, strict=True)]
    notices: list[str] = []
    for binder in binders:
        binder.bind_the_rest()
        notices += (notice for notice in binder.notices if notice not in notices)
    bound = dict.fromkeys(name for row in rows for name in row)
    for name in bound:
        if any(name in result.definitions for result in results):
            user_ns[name] = next(row[name] for row in rows if name in row)
        elif joins and (handles := [row[name] for row in rows if isinstance(row.get(name), Kept)]):
            user_ns[name] = Kept.join(handles)
            if len(handles) < len(rows):
                notices.append(f"{name} is {user_ns[name].where} only.")
        else:
            its = [row.get(name) if error is None else error for error, row in zip(in_lists, rows, strict=True)]
            for number, value in enumerate(its):
                if isinstance(value, Kept):
                    call(value, f"{name}[{number}]")
            user_ns[name] = its
    notices += [*not_returned(results, user_ns), *changed_copies(results, bound), *side_effects(results)]
    for name in set.intersection(*(set(result.state.deleted) for result in results)) if results else ():
        user_ns.pop(name, None)
    failed = [error for error in raised if error is not None]
    if failed:
        rest = len(results) - len(failed)
        others = "run" if rest == 1 else f"{rest} runs"
        kept = f"; the values of the other {others} are in the lists" if rest else ""
        notices.append(f"{len(failed)} of {len(results)} runs failed{kept}.")
        raise _with_notes(failed[0], notices)
    return AppliedCell(notices, values if any(value is not None for value in values) else None)


def stream_items(
    items: Iterator[Any], user_ns: dict[str, Any], originals: Originals, notify: Callable[[str], None]
) -> Iterator[Any]:
    """Yield the elements of a streaming cell, and bind its names at the end like `apply_result`.

    Args:
        items: the elements of `stream_cell`, with its result as the return value.
        user_ns: the names of the notebook.
        originals: the captured objects.
        notify: shows a sentence to the user.

    Raises:
        BaseException: the exception of the cell, after its last element.
    """
    side = CellEnd(user_ns, is_notebook=True)
    while True:
        try:
            item = next(items)
        except StopIteration as end:
            result: CellResult = end.value
            break
        yield unpickle(item, side) if isinstance(item, Packed) else item
    for notice in apply_result(result, user_ns, originals).notices:
        notify(notice)


class _Binder:
    """The result of one run, unpickled in the notebook."""

    def __init__(self, user_ns: dict[str, Any], result: CellResult, originals: Originals) -> None:
        self._user_ns = user_ns
        self._result = result
        self._originals = originals
        self._side = CellEnd(user_ns, is_notebook=True)
        self._conflicts: dict[str, None] = {}
        self._replaced: list[tuple[str, Any]] = []
        self._steps: set[int] = set()
        self._instead: dict[int, Any] = {}
        self.notices: list[str] = []

    @property
    def _state(self) -> ReturnedState:
        return self._result.state

    def error(self, returned: Collection[str] = ()) -> BaseException | None:
        """Return the exception of the cell, with its own type and its traceback on the node; None if it succeeded.

        Args:
            returned: names whose values were returned.
        """
        failure = self._result.failure
        if failure is None:
            return None
        make_traceback = TracebackMaker(self._result.node, self._user_ns, returned)
        return with_fix(failure.rebuild(lambda packed: unpack_shared(packed, self._side), make_traceback))

    def values(self) -> dict[str, Any]:
        """Apply in-place changes to objects of the notebook, and return the values that the cell bound, by name."""
        found = {name: self._open(name, packed) for name, packed in self._state.values.items()}
        graph = self._state.graph
        return found if graph is None else found | self._open_graph(graph)

    def value(self, values: dict[str, Any]) -> Any:
        """Return the value of the last expression, removed from `values`; a `NotReturned` if it was not returned."""
        name = self._state.value
        if not name:
            return None
        if name in self._state.failed:
            return NotReturned(self._state.failed[name].reason)
        if name == VALUE:
            return values.pop(VALUE, None)
        return values.get(name, self._here(name))

    def leave_locals(self, values: dict[str, Any]) -> None:
        """Remove the variables of the function that the cell is in from `values`: they cannot be rebound here."""
        for name in self._originals.local.keys() & values.keys():
            del values[name]
            self.notices.append(
                f"{name} is bound to another object by the cell, but %sky! cannot bind a variable of a function: it is "
                f"unchanged. Assign the value: `{name} = %sky! ...`."
            )

    def _here(self, name: str, default: object = None) -> Any:
        """Return the value of a name in the scope of the cell."""
        return self._originals.local.get(name, self._user_ns.get(name, default))

    def _open_graph(self, graph: PackedGraph) -> dict[str, Any]:
        seeds = self._originals.at(graph.seeds)
        values: dict[str, Any]
        changes: list[tuple[int, tuple[Change, ...]]]
        try:
            (values, changes, instead), memo = unpack_tracked(graph.packed, self._side, seeds)
            made = list(memo.copy().values())[len(seeds) :]
        except Exception as error:
            reason, module = unpickle_failure(error)
            names = [name for name in self._state.changed if name not in graph.names]
            if names:
                self.notices.append(
                    f"The changes of {joined(names)} could not be applied here: {reason}. "
                    f"{'It is' if len(names) == 1 else 'They are'} unchanged."
                )
            needed = seeds_used(graph.packed, seeds)
            needs = frozenset().union(*(self._state.needs.get(name, ()) for name in graph.names))
            classes = tuple({key for name in graph.names for key in self._state.classes.get(name, ())})
            return {
                name: self._noted(name, PackedValue(graph.packed, reason, module, needs, classes, name, needed))
                for name in graph.names
            }
        self._note_given_up(graph, instead)
        for name in graph.replaced:
            if not self._originals.is_name_of(name, self._here(name, None)):
                values.pop(name)  # rebound here; the change concerns its former value
        for number, found in changes:
            if any(self._is_overwritten(seeds[number], change, graph.seeds[number][0]) for change in found):
                self._conflicts.update(self._named(seeds[number], graph.seeds[number][0]))
        for now in (False, True):
            for number, found in changes:
                for change in found:
                    if is_applied_last(seeds[number], change) is now:
                        self._put(seeds[number], change, graph.seeds[number][0])
        if changes:
            renew_hashes(made, (seeds[number] for number, _ in changes))
        if self._conflicts:
            names = list(self._conflicts)
            self.notices.append(
                f"{joined(names)} {'was' if len(names) == 1 else 'were'} also changed here since the cell was sent: "
                "where both changed the same part, the cell's version was kept. "
                f"Change {'it' if len(names) == 1 else 'them'} after the cell, or give the cell a copy."
            )
        return values

    def _is_overwritten(self, value: Any, change: Change, part: int) -> bool:
        """Return whether a change that is applied as a whole overwrites one made in the notebook."""
        if is_array_overwritten(value, change):
            return True
        likeness = self._originals.likeness(part, self._side)
        return is_whole_different(value, change, likeness) and not self._originals.is_as_sent(part)

    def _named(self, value: Any, part: int) -> dict[str, None]:
        return dict.fromkeys(self._originals.names_of(value, part))

    def _put(self, value: Any, change: Change, part: int) -> None:
        try:
            if put_change(value, change, self._originals.likeness(part, self._side)):
                self._conflicts.update(self._named(value, part))
        except Exception as error:
            kind = type(value).__qualname__
            self.notices.append(
                f"A change of an object of type {kind} could not be applied here ({type(error).__name__}: {error})."
            )

    def _note_given_up(self, graph: PackedGraph, instead: list[Any]) -> None:
        """Record the objects that are replaced with new ones, and those of them that have changed here."""
        for (place, before), new in zip(graph.given_up, instead, strict=True):
            (value,) = self._originals.at([(place.part, place.number)])
            names = self._originals.names_of(value, place.part)
            if isinstance(value, PackedValue):  # another object on the node
                if not isinstance(new, PackedValue):
                    self._instead[id(value)] = new
                continue
            self._instead[id(value)] = new
            self._replaced.append((names[0] if names else "a value", value))
            if type(value) is tuple and not self._originals.is_root(value, place.part):
                self._steps.add(id(value))
            is_alike = self._originals.likeness(place.part, self._side).same(value, before)
            if not is_alike and not self._originals.is_as_sent(place.part):
                self._conflicts.update(dict.fromkeys(names))

    def stale_references(self) -> Iterator[str]:
        """Yield a sentence for each replaced object that something here still refers to."""
        ours = {id(value) for _, value in self._replaced} | {id(self._user_ns), *map(id, self._replaced)}
        ours.add(id(self._user_ns.get("Out")))  # displayed values stay
        for name, value in self._replaced:
            if is_inside_frame(type(value)) or id(value) in self._steps:
                continue
            holders = (each for each in gc.get_referrers(value) if id(each) not in ours and _is_of_user(each))
            holder = next((each for each in holders if not self._originals.has(each)), None)
            if holder is not None:
                yield (
                    f"{name} is now a new {type(value).__qualname__} with the changes of the cell; a "
                    f"{type(holder).__qualname__} here still refers to the old one. Use that in the cell too."
                )

    def renew_packed(self, values: dict[str, Any]) -> None:
        """Update the notebook's packed values in place if their new versions are packed too."""
        graph = self._state.graph
        for name in () if graph is None else graph.replaced:
            before, now = self._user_ns.get(name), values.get(name)
            if isinstance(before, PackedValue) and isinstance(now, PackedValue):
                before.become(now)
                values[name] = before

    def namesakes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return new values for other names of the notebook whose object was replaced, or is kept by a node."""
        missing = object()
        kept = {id(self._here(name, missing)): values[name] for name in self._result.kept if name in values}
        replaced = self._instead | kept
        found = self._user_ns.items()
        return {
            name: replaced[id(value)]
            for name, value in found
            if id(value) in replaced and is_shared_visibly(value) and not HISTORY.fullmatch(name)
        }

    def bind_the_rest(self) -> None:
        """Bind the modules, and names that returned functions use and that the notebook does not have."""
        for name, module in self._state.modules.items():
            self._user_ns[name] = module_here(module)
        for name, packed in self._state.supports.items():
            if name not in self._user_ns:
                self._user_ns[name] = self._open(name, packed)

    def _open(self, name: str, packed: Packed) -> Any:
        state = self._state
        value = unpickle(packed, self._side, state.needs.get(name, frozenset()), state.classes.get(name, ()))
        return self._noted(name, value)

    def _noted(self, name: str, value: Any) -> Any:
        """Return `value`, and add a notice if it could not be unpickled."""
        if isinstance(value, PackedValue) and name not in (*self._result.definitions, VALUE):
            fix = "" if value.module is None else f", and here after `%pip install {pip_name(value.module)}`"
            self.notices.append(f"{name} cannot be used here: {value.reason}. It can be used in %%sky cells{fix}.")
        return value


def _is_of_user(holder: Any) -> bool:
    """Return whether `holder` belongs to the user, and not to the notebook's machinery."""
    if isinstance(holder, (FrameType, Pickler)) or is_inside_frame(type(holder)):
        return False
    if type(holder).__module__.partition(".")[0] in ("IPython", "ipykernel", "_pickle", "skyward", "skyward_jupyter"):
        return False
    return not (isinstance(holder, dict) and ("_oh" in holder or "_ih" in holder))


def _with_notes(error: BaseException, notes: Sequence[str]) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error
