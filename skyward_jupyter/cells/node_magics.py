"""The magics inside a `%%sky` cell: their checks, and the names that their code uses."""

import ast
import shlex
from dataclasses import dataclass

from skyward.errors import UsageError
from skyward.frontends.cells import CELL_MAGICS, IGNORED, LINE_MAGICS, build, repeated, script_arguments
from skyward_jupyter.cells.scopes import inner_scopes

__all__ = ["LocalMagics", "Magic", "local_magics", "magic_of"]

_INSTEAD = {
    "conda": "add packages with `%%sky --pip NAME`",
    "uv": "add packages with `%%sky --pip NAME`",
}
_PIP_FLAGS = frozenset({"-q", "--quiet", "-U", "--upgrade", "--no-cache-dir", "--no-input"})
_FUNCTION = "__skyward_timeit__"


@dataclass(frozen=True, slots=True)
class Magic:
    """One magic of a cell, parsed from the call that IPython has made of it.

    Attributes:
        name: its name without percent signs.
        line: the text after it.
        body: the text below a cell magic; None for a line magic.
        lineno: its line number.
    """

    name: str
    line: str
    body: str | None
    lineno: int

    def __str__(self) -> str:
        return f"{'%' if self.body is None else '%%'}{self.name}"

    @property
    def runs(self) -> str:
        """Code that it runs like code of the cell, with the line numbers of the cell."""
        if self.name != "time":
            return ""
        above = "\n" * (self.lineno - 1)
        return above + self.line if self.body is None else f"{above}\n{self.body}"

    @property
    def reads(self) -> frozenset[str]:
        """Names that `%timeit` reads; it binds none."""
        if self.name != "timeit":
            return frozenset()
        asked = repeated(self.line, self.body)
        source = "".join(f"    {line}\n" for line in f"{asked.setup}\n{asked.code}".splitlines())
        return inner_scopes(f"def {_FUNCTION}():\n{source}", _FUNCTION)[(_FUNCTION, 1)].reads

    @property
    def expanded(self) -> str:
        """Text with the placeholders `$name` and `{expression}`."""
        return "" if self.name in ("time", "timeit") else self.line

    def check(self, filename: str) -> None:
        """Check that a node can run the magic.

        Raises:
            SyntaxError: its code is not Python.
            UsageError: only the notebook has this magic, or it has options that nodes do not support.
        """
        if self.name not in (LINE_MAGICS if self.body is None else CELL_MAGICS):
            instead = _INSTEAD.get(self.name, "run it in a cell without %%sky")
            raise UsageError(f"line {self.lineno}: {self} is not available on nodes; {instead}.")
        match self.name:
            case "time":
                program = build(self.runs, filename)
                if program.is_stream or program.is_async:
                    what = "yields" if program.is_stream else "awaits"
                    raise UsageError(f"line {self.lineno}: code that {what} cannot be timed: leave {self} out.")
            case "timeit":
                asked = repeated(self.line, self.body)
                compile("\n" * (self.lineno - (self.body is None)) + asked.code, filename, "exec")
                compile("\n" * (self.lineno - 1) + asked.setup, filename, "exec")
            case "bash" | "sh":
                script_arguments(self.name, self.line)


@dataclass(frozen=True, slots=True)
class LocalMagics:
    """The magics of a cell, as handled by the client before the cell is sent.

    Attributes:
        left_out: statements without effect on a node.
        packages: the packages of `%pip install`.
        timed: the code of `%time`.
        measured: the code of `%timeit`.
    """

    left_out: tuple[ast.Expr, ...]
    packages: tuple[str, ...]
    timed: tuple[ast.Module, ...]
    measured: tuple[ast.Module, ...]


def local_magics(tree: ast.Module, filename: str) -> LocalMagics:
    """Check the magics in `tree`, and collect what the client handles.

    Raises:
        SyntaxError: the code of a magic is not Python.
        UsageError: a node cannot run a magic.
    """
    left_out: list[ast.Expr] = []
    packages: list[str] = []
    timed: list[ast.Module] = []
    measured: list[ast.Module] = []
    statements = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        magic = magic_of(node)
        if magic is None:
            continue
        statement = statements.get(id(node))
        if statement is not None and magic.body is None and magic.name in IGNORED:
            left_out.append(statement)
        elif statement is not None and magic.body is None and magic.name == "pip":
            left_out.append(statement)
            packages += _packages(magic)
        else:
            magic.check(filename)
        if magic.runs:
            code = ast.parse(magic.runs, filename)
            inner = local_magics(code, filename)
            if inner.packages:
                raise UsageError(f"line {magic.lineno}: %pip is not allowed below {magic}: put it in its own cell.")
            timed += [code, *inner.timed]
            measured += inner.measured
        elif magic.name == "timeit":
            asked = repeated(magic.line, magic.body)
            measured += [ast.parse(asked.setup, filename), ast.parse(asked.code, filename)]
    return LocalMagics(tuple(left_out), tuple(dict.fromkeys(packages)), tuple(timed), tuple(measured))


def magic_of(node: ast.AST) -> Magic | None:
    """Return the magic that `node` calls; None if it calls none."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Name(id="get_ipython")), attr="run_line_magic" | "run_cell_magic" as kind
            ),
            args=[ast.Constant(value=str(name)), ast.Constant(value=str(line)), *rest],
        ):
            match rest:
                case [ast.Constant(value=str(body))] if kind == "run_cell_magic":
                    return Magic(name, line, body, node.lineno)
                case _:
                    return Magic(name, line, None, node.lineno)
    return None


def _packages(magic: Magic) -> list[str]:
    """Return the packages of `%pip install NAMES`.

    Raises:
        UsageError: it is any other command.
    """
    try:
        command, *words = shlex.split(magic.line) or [""]
    except ValueError:
        command, words = "", []
    names = [word for word in words if word not in _PIP_FLAGS]
    if command != "install" or not names or any(name.startswith("-") or set(name) & set("{}$") for name in names):
        raise UsageError(
            f"line {magic.lineno}: %pip in a %%sky cell takes `install` and the names of packages, as "
            "`%%sky --pip NAME` does, but got "
            f"{magic.line.strip() or 'nothing'!r}: `!pip ...` runs pip on the node as it is."
        )
    return names
