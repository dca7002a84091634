"""Bringing home what a cell left behind, as if it had run here."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pickle import Pickler
from types import FrameType
from typing import TYPE_CHECKING, Any

from skyward.control.act.tasks.missing_modules import with_fix
from skyward.formatting import joined, nodes_text
from skyward.kept.handles import Kept, call, renew
from skyward.wire.kinds.arrays import is_inside_frame
from skyward.wire.objects.changes import (
    Change,
    is_array_overwritten,
    is_late,
    is_whole_different,
    put_change,
    renew_hashes,
)
from skyward.wire.objects.contents import is_shared_visibly
from skyward.wire.objects.notebook import Side, seeds_used, unpack_shared, unpack_tracked
from skyward.wire.payloads.payload import Packed
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.object_graph import Together
from skyward.worker.cells.program import VALUE
from skyward.worker.cells.returned_state import ReturnedState
from skyward.worker.tasks.missing_modules import pip_name
from skyward_jupyter.cells.history import HISTORY
from skyward_jupyter.cells.originals import Originals, not_shared
from skyward_jupyter.cells.unopened import StayedBehind, UnopenedValue, module_here
from skyward_jupyter.failures.frames import TracebackMaker

if TYPE_CHECKING:
    from skyward.worker.cells.imports import Forgotten

__all__ = ["Outcome", "apply_result", "apply_results", "opened", "stream_items"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be said and shown of a cell whose names are bound.

    Attributes:
        notices: one sentence for each value that did not come back, or that cannot be opened here.
        value: that of its last expression; for several runs the list of them; None if there is none.
    """

    notices: list[str]
    value: Any = None


def apply_result(result: CellResult, user_ns: dict[str, Any], originals: Originals) -> Outcome:
    """Bind, change and unbind names in `user_ns` as the cell did on its node.

    Args:
        result: what the cell left behind.
        user_ns: the names of the notebook.
        originals: the objects that the cell took along.

    Raises:
        BaseException: what the cell raised, after the names it had bound by then. Its notes have the sentences.
    """
    home = _Home(user_ns, result, originals)
    renew(result.looked_at)
    values = home.values()
    value = home.value(values)
    home.renew_unopened(values)
    user_ns.update(home.namesakes(values))
    home.leave_locals(values)
    user_ns.update(values)
    home.bind_the_rest()
    kept = []
    for name in result.harvest.deleted:
        if originals.is_bound_as_before(name, user_ns):
            user_ns.pop(name, None)
        else:
            kept.append(f"The cell unbound {name}, which was bound anew here since it was sent, and stays.")
    notices = [
        *home.notices,
        *home.left_behind(),
        *kept,
        *_stayed([result], user_ns),
        *_stale([result]),
        *_moved(result),
        *_copied(result),
        *_besides([result]),
    ]
    touched = {*result.harvest.changed, *result.harvest.stale}
    notices += (not_shared(names) for names in originals.apart if not touched.isdisjoint(names))
    changed = set(result.harvest.changed) - result.harvest.stale.keys()
    error = home.error({*values, *result.harvest.modules, *changed})
    if error is not None:
        raise _with_notes(error, notices)
    return Outcome(notices, value)


def apply_results(results: Sequence[CellResult], user_ns: dict[str, Any], *, joins: bool = False) -> Outcome:
    """Bind what several runs of one cell left behind: each name becomes the list of its values, in order of the runs.

    Imports, functions and classes are bound once. Where a run failed, the lists have its exception. A run that did not
    bind a name has None there. What a cell changed without assigning to it stays as it is here, which is said.

    Args:
        results: what the runs left behind.
        user_ns: the names of the notebook.
        joins: each ran on a node of its own, so that what they keep under one name is one handle.

    Raises:
        BaseException: what the first run that failed raised, after the lists are bound.
    """
    for result in results:
        renew(result.looked_at)
    homes = [_Home(user_ns, result, Originals()) for result in results]
    errors = [home.error() for home in homes]
    rows = [home.values() for home in homes]
    values = [home.value(row) for home, row in zip(homes, rows, strict=True)]
    notices: list[str] = []
    for home in homes:
        home.bind_the_rest()
        notices += (notice for notice in home.notices if notice not in notices)
    bound = dict.fromkeys(name for row in rows for name in row)
    for name in bound:
        if any(name in result.definitions for result in results):
            user_ns[name] = next(row[name] for row in rows if name in row)
        elif joins and (handles := [row[name] for row in rows if isinstance(row.get(name), Kept)]):
            user_ns[name] = Kept.join(handles)
            if len(handles) < len(rows):
                notices.append(f"{name} is {user_ns[name].where} only.")
        else:
            its = [row.get(name) if error is None else error for error, row in zip(errors, rows, strict=True)]
            for number, value in enumerate(its):
                if isinstance(value, Kept):
                    call(value, f"{name}[{number}]")
            user_ns[name] = its
    notices += [*_stayed(results, user_ns), *_changed(results, bound), *_besides(results)]
    for name in set.intersection(*(set(result.harvest.deleted) for result in results)) if results else ():
        user_ns.pop(name, None)
    failed = [error for error in errors if error is not None]
    if failed:
        rest = len(results) - len(failed)
        kept = f"; the values of the other {rest} are in the lists" if rest else ""
        notices.append(f"{len(failed)} of {len(results)} runs failed{kept}.")
        raise _with_notes(failed[0], notices)
    return Outcome(notices, values if any(value is not None for value in values) else None)


def stream_items(
    items: Iterator[Any], user_ns: dict[str, Any], originals: Originals, notify: Callable[[str], None]
) -> Iterator[Any]:
    """The elements that a streaming cell yields; at its end its names are bound as by `apply_result`.

    Args:
        items: what `stream_cell` yields, and returns at its end.
        user_ns: the names of the notebook.
        originals: the objects that the cell took along.
        notify: takes what is to be said in the end.

    Raises:
        BaseException: what the cell raised, after its last element.
    """
    side = Side(user_ns, is_home=True)
    while True:
        try:
            item = next(items)
        except StopIteration as end:
            result: CellResult = end.value
            break
        yield opened(item, side) if isinstance(item, Packed) else item
    for notice in apply_result(result, user_ns, originals).notices:
        notify(notice)


class _Home:
    """Opens one result in the notebook."""

    def __init__(self, user_ns: dict[str, Any], result: CellResult, originals: Originals) -> None:
        self._user_ns = user_ns
        self._result = result
        self._originals = originals
        self._side = Side(user_ns, is_home=True)
        self._conflicts: dict[str, None] = {}
        self._replaced: list[tuple[str, Any]] = []
        self._steps: set[int] = set()
        self._instead: dict[int, Any] = {}
        self.notices: list[str] = []

    @property
    def _harvest(self) -> ReturnedState:
        return self._result.harvest

    def error(self, home: Collection[str] = ()) -> BaseException | None:
        """What the cell raised, of its own type, with its traceback on the node.

        Args:
            home: names whose values the notebook has as the node had them.
        """
        failure = self._result.failure
        if failure is None:
            return None
        make_traceback = TracebackMaker(self._result.node, self._user_ns, home)
        return with_fix(failure.rebuild(lambda packed: unpack_shared(packed, self._side), make_traceback))

    def values(self) -> dict[str, Any]:
        """By name, what the cell bound; objects of the notebook have taken over what it changed in them."""
        found = {name: self._open(name, packed) for name, packed in self._harvest.values.items()}
        together = self._harvest.together
        return found if together is None else found | self._opened_together(together)

    def value(self, values: dict[str, Any]) -> Any:
        """That of the last expression, taken out of `values`; a `StayedBehind` if it did not come."""
        name = self._harvest.value
        if not name:
            return None
        if name in self._harvest.failed:
            return StayedBehind(self._harvest.failed[name])
        if name == VALUE:
            return values.pop(VALUE, None)
        return values.get(name, self._here(name))

    def leave_locals(self, values: dict[str, Any]) -> None:
        """Take what cannot be bound here out of `values`: the variables of the function that the cell is in."""
        for name in self._originals.local.keys() & values.keys():
            del values[name]
            self.notices.append(
                f"{name} is another object after this, and a variable of a function cannot be bound to it: it is as "
                f"before. Give it the value: `{name} = %sky! ...`."
            )

    def _here(self, name: str, default: object = None) -> Any:
        """The value that a name stands for where the cell is."""
        return self._originals.local.get(name, self._user_ns.get(name, default))

    def _opened_together(self, together: Together) -> dict[str, Any]:
        seeds = self._originals.at(together.seeds)
        values: dict[str, Any]
        changes: list[tuple[int, tuple[Change, ...]]]
        try:
            (values, changes, instead), memo = unpack_tracked(together.packed, self._side, seeds)
            made = list(memo.copy().values())[len(seeds) :]
        except Exception as error:
            reason, module = _why_unopened(error)
            names = [name for name in self._harvest.changed if name not in together.names]
            if names:
                self.notices.append(
                    f"What the cell changed in {joined(names)} could not be brought here: {reason}. "
                    f"{'It is' if len(names) == 1 else 'They are'} as before."
                )
            needed = seeds_used(together.packed, seeds)
            needs = frozenset().union(*(self._harvest.needs.get(name, ()) for name in together.names))
            classes = tuple({key for name in together.names for key in self._harvest.classes.get(name, ())})
            return {
                name: self._noted(name, UnopenedValue(together.packed, reason, module, needs, classes, name, needed))
                for name in together.names
            }
        self._note_given_up(together, instead)
        for name in together.replaced:
            if not self._originals.is_name_of(name, self._here(name, None)):
                values.pop(name)  # it was bound anew here, and what it stood for has changed
        for number, found in changes:
            if any(self._is_overwritten(seeds[number], change, together.seeds[number][0]) for change in found):
                self._conflicts.update(self._named(seeds[number], together.seeds[number][0]))
        for now in (False, True):
            for number, found in changes:
                for change in found:
                    if is_late(seeds[number], change) is now:
                        self._put(seeds[number], change, together.seeds[number][0])
        if changes:
            renew_hashes(made, (seeds[number] for number, _ in changes))
        if self._conflicts:
            names = list(self._conflicts)
            self.notices.append(
                f"{joined(names)} changed here too since the cell was sent: where both changed the same, "
                f"{'it is' if len(names) == 1 else 'they are'} as the cell left {'it' if len(names) == 1 else 'them'}. "
                f"Change {'it' if len(names) == 1 else 'them'} after the cell, or give the cell a copy."
            )
        return values

    def _is_overwritten(self, value: Any, change: Change, part: int) -> bool:
        """Whether the notebook has changed what a change, which is not put in piece by piece, is about."""
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
                f"A change of an object of type {kind} could not be taken over here ({type(error).__name__}: {error})."
            )

    def _note_given_up(self, together: Together, instead: list[Any]) -> None:
        """Note which of the objects have changed here that new ones stand for from now on."""
        for (place, before), new in zip(together.given_up, instead, strict=True):
            (value,) = self._originals.at([(place.part, place.number)])
            names = self._originals.names_of(value, place.part)
            if isinstance(value, UnopenedValue):  # it is another object on the node
                if not isinstance(new, UnopenedValue):
                    self._instead[id(value)] = new
                continue
            self._instead[id(value)] = new
            self._replaced.append((names[0] if names else "a value", value))
            if type(value) is tuple and not self._originals.is_root(value, place.part):
                self._steps.add(id(value))
            is_alike = self._originals.likeness(place.part, self._side).same(value, before)
            if not is_alike and not self._originals.is_as_sent(place.part):
                self._conflicts.update(dict.fromkeys(names))

    def left_behind(self) -> Iterator[str]:
        """One sentence for each object that a new one stands for now, and that something here still refers to."""
        ours = {id(value) for _, value in self._replaced} | {id(self._user_ns), *map(id, self._replaced)}
        ours.add(id(self._user_ns.get("Out")))  # what was displayed stays so
        for name, value in self._replaced:
            if is_inside_frame(type(value)) or id(value) in self._steps:
                continue
            holders = (each for each in gc.get_referrers(value) if id(each) not in ours and _is_of_user(each))
            holder = next((each for each in holders if not self._originals.has(each)), None)
            if holder is not None:
                yield (
                    f"{name} has a new {type(value).__qualname__} now, with what the cell changed in it; a "
                    f"{type(holder).__qualname__} here still has the old one. Name that in the cell too."
                )

    def renew_unopened(self, values: dict[str, Any]) -> None:
        """Let what was packed here before stand for what it is now, where it is still packed."""
        together = self._harvest.together
        for name in () if together is None else together.replaced:
            before, now = self._user_ns.get(name), values.get(name)
            if isinstance(before, UnopenedValue) and isinstance(now, UnopenedValue):
                before.become(now)
                values[name] = before

    def namesakes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What other names of the notebook stand for now: their object could not take over a change, or is kept."""
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
        """Bind the modules, and what returned functions use and the notebook does not have."""
        for name, module in self._harvest.modules.items():
            self._user_ns[name] = module_here(module)
        for name, packed in self._harvest.supports.items():
            if name not in self._user_ns:
                self._user_ns[name] = self._open(name, packed)

    def _open(self, name: str, packed: Packed) -> Any:
        harvest = self._harvest
        value = opened(packed, self._side, harvest.needs.get(name, frozenset()), harvest.classes.get(name, ()))
        return self._noted(name, value)

    def _noted(self, name: str, value: Any) -> Any:
        """`value`; a sentence says if it could not be opened."""
        if isinstance(value, UnopenedValue) and name not in (*self._result.definitions, VALUE):
            fix = "" if value.module is None else f", and `%pip install {pip_name(value.module)}` lets it be used here"
            self.notices.append(f"{name} came back unopened: {value.reason}. It can be used in %%sky cells{fix}.")
        return value


def _is_of_user(holder: Any) -> bool:
    """Whether `holder` is the user's, and no part of what runs the notebook."""
    if isinstance(holder, (FrameType, Pickler)) or is_inside_frame(type(holder)):
        return False
    if type(holder).__module__.partition(".")[0] in ("IPython", "ipykernel", "_pickle", "skyward", "skyward_jupyter"):
        return False
    return not (isinstance(holder, dict) and ("_oh" in holder or "_ih" in holder))


def opened(packed: Packed, side: Side, needs: frozenset[str] = frozenset(), classes: tuple[str, ...] = ()) -> Any:
    """The value of `packed`; a `UnopenedValue` where it cannot be opened here."""
    try:
        return unpack_shared(packed, side)
    except Exception as error:
        reason, module = _why_unopened(error)
        return UnopenedValue(packed, reason, module, needs, classes)


def _why_unopened(error: Exception) -> tuple[str, str | None]:
    """Why a value cannot be opened here, and the module that is missing, if that is why."""
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        return f"module {module!r} is not installed here", module
    return f"it cannot be read here ({type(error).__name__}: {error})", None


def _stayed(results: Sequence[CellResult], user_ns: Mapping[str, Any]) -> list[str]:
    """One sentence for each name that the cell bound and that did not come back, whichever nodes it ran on."""
    nodes: dict[tuple[str, str], list[int]] = {}
    for result in results:
        for name, reason in result.harvest.failed.items():
            if name != VALUE:  # `_` and `Out` say it
                nodes.setdefault((name, reason), []).append(result.node)
    return [
        f"{name} did not come back from {nodes_text(ranks)}: {reason}. {_fix(reason, name in user_ns)}"
        for (name, reason), ranks in nodes.items()
    ]


def _stale(results: Sequence[CellResult]) -> list[str]:
    return [
        f"{name} was changed on {nodes_text([result.node])}, and the change did not come back: {reason}. "
        f"Here {name} is as before. {_fix(reason, False)}"
        for result in results
        for name, reason in result.harvest.stale.items()
    ]


def _moved(result: CellResult) -> list[str]:
    if not result.copied:
        return []
    are, them, copies = ("is", "it", "it is a copy") if len(result.copied) == 1 else ("are", "them", "they are copies")
    return [
        f"{joined(result.copied)} {are} kept on {nodes_text([result.node])} from now on. Something else here refers "
        f"to {them}, or to a part of {them}: there {copies}, as before the cell."
    ]


def _copied(result: CellResult) -> list[str]:
    """One sentence for each kept value that has something in common with values that are copies of it here."""
    names: dict[str, list[str]] = {}
    for name, kept in result.harvest.copied.items():
        names.setdefault(kept, []).append(name)
    found = []
    for kept, parts in names.items():
        are = "is" if len(parts) == 1 else "are"
        it_is = "it is a copy" if len(parts) == 1 else "they are copies"
        found.append(
            f"{joined(parts)} {are} part of {kept}, which is kept on {nodes_text([result.node])}: here {it_is}, and a "
            f"change on one side does not show on the other. Keep both with --keep {','.join([kept, *parts])}."
        )
    return found


def _changed(results: Sequence[CellResult], bound: Iterable[str]) -> list[str]:
    """One sentence about what several runs changed, each for itself."""
    nodes: dict[str, list[int]] = {}
    for result in results:
        for name in (*result.harvest.changed, *result.harvest.stale):
            if name not in bound:
                nodes.setdefault(name, []).append(result.node)
    if not nodes:
        return []
    names = joined(nodes)
    ranks = sorted({rank for each in nodes.values() for rank in each})
    variables = [name for name in nodes if name.isidentifier()]  # others are settings, called what they are
    here = "it is" if len(nodes) == len(variables) == 1 else "they are"
    told = f"{names} changed on {nodes_text(ranks)}, each run in a copy of its own; here {here} as before."
    if variables:
        told += f" Assign the value in the cell to have the list of all copies: `{variables[0]} = {variables[0]}`."
    return [told]


def _besides(results: Sequence[CellResult]) -> list[str]:
    """The sentences about what happened beside the variables of the cell."""
    return [*_forgotten(results), *_surroundings(results)]


def _forgotten(results: Sequence[CellResult]) -> list[str]:
    """The sentences about modules that are imported again because the sources of some have changed."""
    nodes: dict[Forgotten, set[int]] = {}
    for result in results:
        nodes.setdefault(result.harvest.forgotten, set()).add(result.node)
    found = []
    for modules, ranks in nodes.items():
        where, changed, others = nodes_text(ranks), joined(modules.changed), joined(modules.others)
        are = "is" if len(modules.others) == 1 else "are"
        if changed:
            has, it = ("has", "it") if len(modules.changed) == 1 else ("have", "them")
            more = f", as {are} {others}" if others else ""
            found.append(
                f"{changed} {has} changed since {where} imported {it}: imported again there, with new variables{more}."
            )
        elif others:
            found.append(f"{others} {are} imported again on {where}, with new variables.")
    return found


def _surroundings(results: Sequence[CellResult]) -> list[str]:
    """One sentence about what the cell changed beside its variables."""
    nodes: dict[str, list[int]] = {}
    for result in results:
        for what in result.harvest.surroundings:
            nodes.setdefault(what, []).append(result.node)
    if not nodes:
        return []
    ranks = sorted({rank for each in nodes.values() for rank in each})
    are = "it is" if len(nodes) == 1 else "they are"
    return [f"The cell changed {joined(nodes)} on {nodes_text(ranks)}; here {are} as before."]


def _fix(reason: str, is_here: bool) -> str:
    if "over the limit of" in reason:
        return "Bring back less of it, or raise the limit with --capture-limit."
    if "nothing to keep" in reason:
        return "Assign it in the cell, or leave it out of --keep."
    if "did not bind" in reason:
        return "Assign it in the cell, or leave it out of -o."
    before = "It is here as it was before. " if is_here else ""
    return f"{before}Bring back what you need of it under another name."


def _with_notes(error: BaseException, notes: Sequence[str]) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error
