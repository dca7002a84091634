"""Checks of the names of a cell, before anything is sent."""

import builtins
import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from skyward.errors import UsageError
from skyward_jupyter.cells.cell import CellCode
from skyward_jupyter.failures.presentation import as_sentence

__all__ = ["check_unbound", "elements_of", "no_such_name", "refuse_binding"]


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
        raise UsageError(f"--map {name}: {no_such_name(name, user_ns)}")
    try:
        return list(user_ns[name])
    except TypeError:
        kind = type(user_ns[name]).__qualname__
        raise UsageError(f"--map {name}: {name} is of type {kind}, which is not iterable. Use a list.") from None


def check_unbound(code: CellCode, user_ns: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise for names that the cell certainly needs and that do not exist, before anything is sent."""
    if code.withheld == "-i":
        for name in code.captures:
            if name not in user_ns:
                raise UsageError(f"-i {name}: {no_such_name(name, user_ns)}")
    for name, line in code.unbound:
        if name in given or hasattr(builtins, name):
            continue
        if name not in user_ns:
            raise as_sentence(
                NameError(f"line {line}: the cell reads {name}, but {no_such_name(name, user_ns)}", name=name)
            )
        if code.withheld is not None and name not in code.captures:
            fix = f"Add {name} to -i" if code.withheld == "-i" else "Leave out --no-capture"
            raise UsageError(
                f"line {line}: the cell reads {name}, which {code.withheld} excludes. {fix}, or assign it in the cell."
            )


def no_such_name(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [other for other in names if not other.startswith("_")], n=1)
    fix = f"Did you mean {close[0]}?" if close else "Run the cell that defines it first."
    return f"{name} is not defined in the notebook. {fix}"
