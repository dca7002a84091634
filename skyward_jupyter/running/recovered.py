"""Cells of a former kernel, whose results arrive after this kernel has attached to their pool."""

from collections.abc import Callable
from typing import Any

from skyward.frontends.cells import (
    VALUE,
    CellEnd,
    CellResult,
    Packed,
    open_result,
    pip_name,
    unpack_shared,
    with_fix,
)
from skyward.frontends.views import joined, nodes_text
from skyward_jupyter.cells.placeholders import PackedValue, module_here, unpickle, unpickle_failure
from skyward_jupyter.failures.frames import TracebackMaker
from skyward_jupyter.running.notices import not_returned, side_effects

__all__ = ["RecoveredCells"]


class RecoveredCells:
    """The notebook that binds the results of cells of its former kernel.

    Args:
        names: returns the names of the notebook.
        notify: shows a sentence to the user.
    """

    def __init__(self, names: Callable[[], dict[str, Any]], notify: Callable[[str], None]) -> None:
        self._names = names
        self._notify = notify

    def open_element(self, packed: Packed) -> Any:
        """Return an element of a cell that yields; a `PackedValue` if it cannot be unpickled here."""
        return unpickle(packed, CellEnd(self._names(), is_notebook=True))

    def bind(self, result: CellResult) -> Any:
        """Bind the variables of a cell, and return the value of its last expression.

        Raises:
            BaseException: the exception of the cell. Its notes are the notices.
        """
        user_ns, state = self._names(), result.state
        found = open_result(result, user_ns)
        for name, module in state.modules.items():
            user_ns[name] = module_here(module)
        user_ns.update(found.values)
        notices = [*found.notices]
        for name, error in found.unopened.items():
            reason, missing = unpickle_failure(error)
            if name == VALUE or name not in state.values:
                what = "The value of the last expression" if name == VALUE else name
                notices.append(f"{what} was not returned: {reason}.")
                continue
            needs, classes = state.needs.get(name, frozenset()), state.classes.get(name, ())
            user_ns[name] = PackedValue(state.values[name], reason, missing, needs, classes)
            fix = "" if missing is None else f", and here after `%pip install {pip_name(missing)}`"
            notices.append(f"{name} cannot be used here: {reason}. It can be used in %%sky cells{fix}.")
        if VALUE in state.failed:
            notices.append(f"The value of the last expression was not returned: {state.failed[VALUE].reason}.")
        notices += [*not_returned([result], user_ns), *side_effects([result]), *_files(result)]
        if result.failure is None:
            for notice in notices:
                self._notify(notice)
            return found.value
        returned = {*found.values, *state.modules}
        raised = with_fix(
            result.failure.rebuild(
                lambda packed: unpack_shared(packed, CellEnd(user_ns, is_notebook=True)),
                TracebackMaker(result.node, user_ns, returned),
            )
        )
        for notice in notices:
            raised.add_note(notice)
        raise raised


def _files(result: CellResult) -> list[str]:
    """Return a sentence on the files that the cell was to fetch: they are written only while its kernel runs."""
    files = result.files
    if files is None or files.is_shared or not files.files:
        return []
    paths = [each.span.path for each in files.files]
    was, are = ("was", "is") if len(paths) == 1 else ("were", "are")
    where = nodes_text([result.node])
    return [
        f"{joined(paths, _NAMED)} {was} not written here, and {are} still on {where}: run a cell there with --fetch."
    ]


_NAMED = 5
"""Most files that are named."""
