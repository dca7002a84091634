"""Bringing home what a cell left behind, as if it had run here."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from skyward.control.missing import with_fix
from skyward.wire.notebook import Side, unpack_shared
from skyward.wire.payload import Packed
from skyward.worker.cell import CellResult
from skyward.worker.harvest import Harvest
from skyward.worker.missing import pip_name
from skyward_jupyter.frames import TracebackMaker
from skyward_jupyter.kept import KeptValue, module_here

__all__ = ["apply_result", "apply_results", "stream_items"]


def apply_result(result: CellResult, user_ns: dict[str, Any]) -> list[str]:
    """Bind, change and unbind names in `user_ns` as the cell did on its node.

    Returns:
        One sentence for each value that did not come back, or that cannot be opened here.

    Raises:
        BaseException: what the cell raised, after the names it had bound by then. Its notes have the sentences.
    """
    home = _Home(user_ns, result)
    values = home.values()
    user_ns.update(home.namesakes(values))
    user_ns.update(values)
    home.bind_the_rest()
    for name in result.harvest.deleted:
        user_ns.pop(name, None)
    error = home.error({*values, *result.harvest.modules})
    if error is not None:
        raise _with_notes(error, home.notices)
    return home.notices


def apply_results(results: Sequence[CellResult], user_ns: dict[str, Any]) -> list[str]:
    """Bind what several runs of one cell left behind: each name becomes the list of its values, in order of the runs.

    Imports, functions and classes are bound once. Where a run failed, the lists have its exception. A run that did not
    bind a name has None there. What a cell changed without assigning to it stays as it is here.

    Returns:
        One sentence for each value that did not come back, or that cannot be opened here.

    Raises:
        BaseException: what the first run that failed raised, after the lists are bound.
    """
    homes = [_Home(user_ns, result) for result in results]
    errors = [home.error() for home in homes]
    rows = [home.values() for home in homes]
    notices: list[str] = []
    for home in homes:
        home.bind_the_rest()
        notices += (notice for notice in home.notices if notice not in notices)
    for name in dict.fromkeys(name for row in rows for name in row):
        if any(name in result.definitions for result in results):
            user_ns[name] = next(row[name] for row in rows if name in row)
        elif any(name in row and name not in home.unassigned for row, home in zip(rows, homes, strict=True)):
            user_ns[name] = [row.get(name) if error is None else error for error, row in zip(errors, rows, strict=True)]
    for name in set.intersection(*(set(result.harvest.deleted) for result in results)) if results else ():
        user_ns.pop(name, None)
    failed = [error for error in errors if error is not None]
    if failed:
        rest = len(results) - len(failed)
        kept = f"; the values of the other {rest} are in the lists" if rest else ""
        notices.append(f"{len(failed)} of {len(results)} runs failed{kept}.")
        raise _with_notes(failed[0], notices)
    return notices


def stream_items(items: Iterator[Any], user_ns: dict[str, Any], notify: Callable[[str], None]) -> Iterator[Any]:
    """The elements that a streaming cell yields; at its end its names are bound as by `apply_result`.

    Args:
        items: what `stream_cell` yields, and returns at its end.
        user_ns: the names of the notebook.
        notify: takes the sentences that `apply_result` returns.

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
        yield _opened(item, side, frozenset()) if isinstance(item, Packed) else item
    for notice in apply_result(result, user_ns):
        notify(notice)


class _Home:
    """Opens one result in the notebook."""

    def __init__(self, user_ns: dict[str, Any], result: CellResult) -> None:
        self._user_ns = user_ns
        self._result = result
        self._side = Side(user_ns, is_home=True)
        self.notices: list[str] = []

    @property
    def _harvest(self) -> Harvest:
        return self._result.harvest

    @property
    def unassigned(self) -> frozenset[str]:
        """Names that came back though the cell did not assign to them: it changed their value, or shared it."""
        followers = {name for name in self._harvest.in_place if name in self._harvest.aliases}
        return frozenset({*self._harvest.changed, *followers})

    def error(self, home: Collection[str] = ()) -> BaseException | None:
        """What the cell raised, of its own type, with the traceback of the node; `home`: names whose values came home."""
        failure = self._result.failure
        if failure is None:
            return None
        make_traceback = TracebackMaker(self._result.node, self._user_ns, home)
        return with_fix(failure.rebuild(lambda packed: unpack_shared(packed, self._side), make_traceback))

    def values(self) -> dict[str, Any]:
        """By name, what the cell bound or changed."""
        found = {name: self._open(name, packed) for name, packed in self._harvest.values.items()}
        return found | {name: found[first] for name, first in self._harvest.aliases.items()}

    def namesakes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What other names of the notebook stand for now, whose object the cell changed in place under its own name."""
        missing = object()
        replaced = {id(self._user_ns.get(name, missing)): values[name] for name in self._harvest.in_place}
        return {name: replaced[id(value)] for name, value in self._user_ns.items() if id(value) in replaced}

    def bind_the_rest(self) -> None:
        """Bind the modules, and what returned functions use and the notebook does not have; tell what stayed behind."""
        for name, module in self._harvest.modules.items():
            self._user_ns[name] = module_here(module)
        for name, packed in self._harvest.supports.items():
            if name not in self._user_ns:
                self._user_ns[name] = self._open(name, packed)
        for name, reason in self._harvest.failed.items():
            self.notices.append(f"{name} stayed on node {self._result.node}: {reason}. {_fix(reason)}")

    def _open(self, name: str, packed: Packed) -> Any:
        value = _opened(packed, self._side, self._harvest.needs.get(name, frozenset()))
        if isinstance(value, type) and name not in self._result.definitions:  # a class of the notebook, changed there
            self._side.refresh = True
            value = _opened(packed, self._side, frozenset())
            self._side.refresh = False
        if isinstance(value, KeptValue) and name not in self._result.definitions:
            fix = "" if value.module is None else f", and `%pip install {pip_name(value.module)}` lets it be used here"
            self.notices.append(f"{name} came back unopened: {value.reason}. It can be used in %%sky cells{fix}.")
        return value


def _opened(packed: Packed, side: Side, needs: frozenset[str]) -> Any:
    try:
        return unpack_shared(packed, side)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        return KeptValue(packed, f"module {module!r} is not installed here", module, needs)
    except Exception as error:
        return KeptValue(packed, f"it cannot be read here ({type(error).__name__}: {error})", None, needs)


def _fix(reason: str) -> str:
    if "over the limit of" in reason:
        return "Bring back less of it, or raise the limit with --capture-limit."
    if "did not bind" in reason:
        return "Assign it in the cell, or leave it out of -o."
    return "Bring back what you need of it under another name."


def _with_notes(error: BaseException, notes: Sequence[str]) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error
