"""What a cell is before it runs: its source as Python, the names that go with it and the names that come back."""

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal

from skyward.wire.payloads.sources import imported_names
from skyward.worker.cells.program import PROVIDED, build
from skyward_jupyter.cells.lookups import NO_LOOKUPS, Lookups, find_lookups
from skyward_jupyter.cells.names import find_names
from skyward_jupyter.cells.node_magics import local_magics, magic_of

__all__ = ["CellCode", "EmptyBody", "Shape", "analyse", "blank_lines", "transform_cell"]

type Shape = Literal["single", "all", "map"]
"""The runs of a cell: one on one node, one on all nodes, or one for each element."""

_EVERYWHERE = (frozenset(dir(builtins)) | PROVIDED) - {"_"}
"""Names that every node has."""


@dataclass(frozen=True, slots=True)
class CellCode:
    """A cell that was looked at.

    Attributes:
        source: its text as plain Python.
        filename: what its tracebacks call it.
        captures: names that it reads and that it has not certainly bound by then.
        shadowing: builtins that it reads; they are captured only where the notebook has its own in their place.
        assigned: names that it binds.
        changes: names through which it assigns to an item or an attribute.
        incidental: names that it binds by the way, as `with` and `for` do.
        deletes: names that it may unbind.
        definitions: names bound by an import, a function or a class.
        imports: dotted names of the modules that it may import.
        unbound: for each name that is certainly read before anything in the cell binds it, the line.
        is_stream: it has a `yield` of its own.
        is_async: it has an `await` of its own.
        shows_value: its last expression is displayed.
        only: the names that `-o` asks back; None for all.
        withheld: the option that keeps names of the notebook from the cell, if any.
        packages: those that a `%pip install` in it asks for.
        lookups: how it finds variables by their names in strings.
    """

    source: str
    filename: str
    captures: tuple[str, ...] = ()
    shadowing: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    incidental: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    unbound: tuple[tuple[str, int], ...] = ()
    is_stream: bool = False
    is_async: bool = False
    shows_value: bool = False
    only: tuple[str, ...] | None = None
    withheld: str | None = None
    packages: tuple[str, ...] = ()
    lookups: Lookups = NO_LOOKUPS

    def narrow(
        self,
        *,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        capture: bool = True,
        without: Sequence[str] = (),
    ) -> "CellCode":
        """The cell with less, or other, names around it.

        Args:
            inputs: the only names to take along (`-i`).
            outputs: the only names to bring back (`-o`), whether or not the cell seems to bind them.
            capture: whether names are taken along at all (`--no-capture`).
            without: names that the cell is given some other way.
        """
        code = self
        if not capture:
            code = replace(code, captures=(), shadowing=(), withheld="--no-capture")
        elif inputs is not None:
            code = replace(code, captures=_unique(inputs), shadowing=(), withheld="-i")
        if outputs is not None:
            code = replace(code, only=_unique(outputs))
        left = tuple(name for name in code.captures if name not in without)
        return replace(code, captures=left, unbound=tuple(pair for pair in code.unbound if pair[0] not in without))


class EmptyBody:
    """Gives a `%%sky` line that stands alone an empty line below it: IPython refuses a cell magic without one."""

    has_side_effects = True
    """Keeps IPython from asking it whether a cell is complete: in a terminal the next lines are still to come."""

    def __call__(self, lines: list[str]) -> list[str]:
        """The lines of a cell as IPython is to have them."""
        return [*lines, "\n"] if len(lines) == 1 and _MAGIC_LINE.match(lines[0]) else lines


_MAGIC_LINE = re.compile(r"%%sky\s")


def transform_cell(raw: str) -> str:
    """The cell `raw` as plain Python: `!command` and `%magic` become calls of `get_ipython()`, below `%%time` too."""
    transform: Callable[[str], str] = (
        import_module("IPython.core.inputtransformer2").TransformerManager().transform_cell
    )
    source = transform(raw)
    if not source.startswith("get_ipython().run_cell_magic("):
        return source
    magic = next(filter(None, map(magic_of, ast.walk(ast.parse(source)))))
    if magic.body is None or magic.name not in ("time", "timeit"):
        return source
    body = "\n" * blank_lines(magic.body) + transform_cell(magic.body)
    return f"get_ipython().run_cell_magic({magic.name!r}, {magic.line!r}, {body!r})\n"


def blank_lines(raw: str) -> int:
    """The number of lines at the beginning that hold nothing; IPython leaves them out."""
    return raw[: len(raw) - len(raw.lstrip())].count("\n")


def analyse(source: str, *, filename: str = "<sky cell>", first_line: int = 1) -> CellCode:
    """The names and the nature of the cell `source`, which `transform_cell` made plain Python.

    Args:
        source: the text of the cell.
        filename: what its tracebacks call it.
        first_line: number of the line on which the source starts, for the line numbers of tracebacks.

    Raises:
        SyntaxError: it is not Python, or it returns.
        UsageError: it uses a magic that nodes do not have.
    """
    source = "\n" * (first_line - 1) + source
    tree = ast.parse(source, filename)
    magics = local_magics(tree, filename)
    if magics.left_out:
        source = _without(magics.left_out, source)
        tree = ast.parse(source, filename)
    program = build(source, filename)
    names = find_names(tree, source, filename)
    return CellCode(
        source=source,
        filename=filename,
        captures=tuple(name for name in names.reads if name not in _EVERYWHERE),
        shadowing=tuple(name for name in names.reads if name in _EVERYWHERE),
        assigned=tuple(names.binds),
        changes=tuple(names.changes),
        incidental=tuple(names.incidental),
        deletes=tuple(names.deletes),
        definitions=tuple(names.defines),
        imports=_unique(name for each in (tree, *magics.timed) for name in imported_names(each)),
        unbound=tuple(pair for pair in names.unbound.items() if pair[0] not in _EVERYWHERE),
        is_stream=program.is_stream,
        is_async=program.is_async,
        shows_value=program.shows_value,
        packages=magics.packages,
        lookups=find_lookups([tree, *magics.timed, *magics.measured]),
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _without(statements: Iterable[ast.Expr], source: str) -> str:
    """The source with `pass` in the place of each of `statements`, on as many lines as it had."""
    lines = source.split("\n")
    for node in statements:
        end = node.end_lineno or node.lineno
        indent = lines[node.lineno - 1][: node.col_offset]
        lines[node.lineno - 1 : end] = [f"{indent}pass", *([""] * (end - node.lineno))]
    return "\n".join(lines)
