"""Analysis of a cell before it runs: its source as Python, the names to send and the names to return."""

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from skyward.frontends.cells import PROVIDED, build, imported_names
from skyward_jupyter.cells.lookups import NO_LOOKUPS, Lookups, find_lookups
from skyward_jupyter.cells.names import find_names
from skyward_jupyter.cells.node_magics import local_magics, magic_of

__all__ = ["CellCode", "EmptyBody", "analyse", "blank_lines", "transform_cell"]

_ON_EVERY_NODE = (frozenset(dir(builtins)) | PROVIDED) - {"_"}
"""Names that every node has."""


@dataclass(frozen=True, slots=True)
class CellCode:
    """The result of the analysis of a cell.

    Attributes:
        source: its text as plain Python.
        filename: the file name in its tracebacks.
        captures: names that it reads and has not certainly bound by then.
        shadowing: builtins that it reads; captured only if the notebook has rebound them.
        assigned: names that it binds.
        changes: names through which it assigns to an item or an attribute.
        incidental: names that it only binds as targets of `with` and `for`.
        deletes: names that it may unbind.
        definitions: names bound by an import, a function or a class.
        imports: dotted names of the modules that it may import.
        unbound: the line of each name that is certainly read before anything in the cell binds it.
        is_stream: True if it has a `yield` outside functions.
        is_async: True if it has an `await` outside functions.
        shows_value: True if its last expression is displayed.
        only: the names that `-o` returns; None for all.
        withheld: the option that excludes names of the notebook from the capture, if any.
        packages: packages of `%pip install` in it.
        lookups: lookups of variables by names in strings.
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
        """Return the cell with fewer, or other, names to send and return.

        Args:
            inputs: the only names to send (`-i`).
            outputs: the only names to return (`-o`), whether or not the cell seems to bind them.
            capture: send names at all; False for `--no-capture`.
            without: names that the cell gets in another way.
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
    """Adds an empty line below a single `%%sky` line: IPython refuses a cell magic without a body."""

    has_side_effects = True
    """Excludes it from IPython's check for complete cells: in a terminal the next lines are yet to be typed."""

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines of a cell for IPython."""
        return [*lines, "\n"] if len(lines) == 1 and _MAGIC_LINE.match(lines[0]) else lines


_MAGIC_LINE = re.compile(r"%%sky\s")


def transform_cell(raw: str) -> str:
    """Return the cell as plain Python: `!command` and `%magic` become calls of `get_ipython()`, also below `%%time`."""
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
    """Return the number of leading blank lines, which IPython strips."""
    return raw[: len(raw) - len(raw.lstrip())].count("\n")


def analyse(source: str, *, filename: str = "<sky cell>", first_line: int = 1) -> CellCode:
    """Analyse the cell `source`, as returned by `transform_cell`.

    Args:
        source: the text of the cell.
        filename: the file name in its tracebacks.
        first_line: number of the line on which the source starts, for the line numbers of tracebacks.

    Raises:
        SyntaxError: the cell is not Python, or has a `return`.
        UsageError: the cell uses a magic that nodes do not have.
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
        captures=tuple(name for name in names.reads if name not in _ON_EVERY_NODE),
        shadowing=tuple(name for name in names.reads if name in _ON_EVERY_NODE),
        assigned=tuple(names.binds),
        changes=tuple(names.changes),
        incidental=tuple(names.incidental),
        deletes=tuple(names.deletes),
        definitions=tuple(names.defines),
        imports=_unique(name for each in (tree, *magics.timed) for name in imported_names(each)),
        unbound=tuple(pair for pair in names.unbound.items() if pair[0] not in _ON_EVERY_NODE),
        is_stream=program.is_stream,
        is_async=program.is_async,
        shows_value=program.shows_value,
        packages=magics.packages,
        lookups=find_lookups([tree, *magics.timed, *magics.measured]),
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _without(statements: Iterable[ast.Expr], source: str) -> str:
    """Return the source with each of `statements` replaced by `pass`, on the same number of lines."""
    lines = source.split("\n")
    for node in statements:
        end = node.end_lineno or node.lineno
        indent = lines[node.lineno - 1][: node.col_offset]
        lines[node.lineno - 1 : end] = [f"{indent}pass", *([""] * (end - node.lineno))]
    return "\n".join(lines)
