"""`%%sky --local`: a cell that runs in the notebook's process, without a node, to try it out."""

import ast
from collections.abc import Callable, Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from skyward.errors import UsageError
from skyward.frontends.cells import SHOW, STREAM, Program, build
from skyward_jupyter.cells.name_checks import refuse_binding
from skyward_jupyter.cells.names import find_names

__all__ = ["LocalCell"]

_MISSING = object()


class LocalCell:
    """A cell that runs in the notebook's process.

    Args:
        source: the cell as plain Python, with the line numbers of the notebook.
        filename: the file name in IPython.
        user_ns: the names of the notebook.
        local: the variables of the function that the cell is in.

    Raises:
        SyntaxError: the cell is not Python, or has a `return`.
        UsageError: the cell awaits, or binds one of `local`.
    """

    def __init__(
        self, source: str, filename: str, user_ns: dict[str, Any], local: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._program: Program = build(source, filename)
        if self._program.is_async:
            raise UsageError("A cell that awaits cannot run with --local: run it without the %%sky line.")
        self._source = source
        self._filename = filename
        self._user_ns = user_ns
        self._local = local
        if local:
            names = find_names(ast.parse(source), source, filename)
            refuse_binding(names.binds, names.deletes, local)

    @property
    def is_stream(self) -> bool:
        """True if the cell yields."""
        return self._program.is_stream

    @property
    def shows_value(self) -> bool:
        """True if its last expression is displayed."""
        return self._program.shows_value

    def run(self) -> Any:
        """Run the cell, and return the value of its last expression."""
        names = {**self._user_ns, **self._local} if self._local else self._user_ns
        try:
            exec(self._program.body, names)
            return None if self._program.last is None else eval(self._program.last, names)
        finally:
            if self._local:
                self._user_ns.update((name, value) for name, value in names.items() if name not in self._local)

    def stream(self, show: Callable[[object], object]) -> Generator[Any]:
        """Run a cell that yields: yield its elements, and `show` its last expression."""
        self._user_ns[SHOW] = show
        try:
            exec(self._program.body, self._user_ns)
            yield from self._user_ns[STREAM]()
        finally:
            self._user_ns.pop(SHOW, None)
            self._user_ns.pop(STREAM, None)

    def run_each(self, name: str, elements: Iterable[Any]) -> list[Any]:
        """Run the cell for each element, with `name` bound to it; return the values of its last expression.

        Each name that the cell binds becomes a list of its values. If a run raises, all names are restored.
        """
        names = find_names(ast.parse(self._source), self._source, self._filename)
        self._local = {each: value for each, value in self._local.items() if each != name}
        before = {each: self._user_ns.get(each, _MISSING) for each in (*names.binds, name)}
        rows: list[dict[str, Any]] = []
        values = []
        try:
            for element in elements:
                self._restore(before)
                self._user_ns[name] = element
                values.append(self.run())
                rows.append({each: self._user_ns[each] for each in names.binds if each in self._user_ns})
        finally:
            self._restore(before)
        for each in names.binds:
            bound = [row[each] for row in rows if each in row]
            if bound:
                self._user_ns[each] = bound[0] if each in names.defines else [row.get(each) for row in rows]
        return values

    def _restore(self, before: dict[str, Any]) -> None:
        for name, value in before.items():
            if value is _MISSING:
                self._user_ns.pop(name, None)
            else:
                self._user_ns[name] = value
