"""Compiled cells: statements, last expression, and whether the cell streams or awaits.

The client compiles cells too, so that syntax errors are reported before anything is sent.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import override

from skyward.errors import UsageError

__all__ = ["PROVIDED", "SHOW", "STREAM", "VALUE", "Program", "build", "top_level"]

STREAM = "__skyward_stream__"
"""Name of the function that holds the body of a streaming cell."""

SHOW = "__skyward_show__"
"""Name of the function that a streaming cell calls with its last expression."""

VALUE = "__skyward_value__"
"""Name under which the value of the last expression is returned."""

PROVIDED = frozenset({"__name__", "__doc__", "__builtins__", "get_ipython", "display"})
"""Names in the namespace of every cell."""

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled cell.

    Attributes:
        body: its statements. In a streaming cell they define the function `STREAM`.
        last: its last expression; None if the cell shows none.
        is_stream: True if the cell has a `yield` outside functions.
        is_async: True if the cell has an `await` outside functions.
    """

    body: CodeType
    last: CodeType | None
    is_stream: bool
    is_async: bool

    @property
    def shows_value(self) -> bool:
        """True if the value of a last expression is to be shown. A streaming cell shows it by itself."""
        return self.last is not None


def build(source: str, filename: str) -> Program:
    """Compile the cell `source`.

    Raises:
        SyntaxError: the cell is not Python, or has a `return`.
        UsageError: the cell streams and contains a statement that is not allowed in a function.
    """
    tree = ast.parse(source, filename)
    nodes = list(top_level(tree))
    _refuse_return(nodes, source, filename)
    shows = bool(tree.body) and isinstance(tree.body[-1], ast.Expr) and not _is_silenced(source)
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
        is_async = any(map(_awaits, nodes))
        wrapped = _as_generator(tree, nodes, shows, is_async)
        return Program(compile(wrapped, filename, "exec", dont_inherit=True), None, True, is_async)
    last: CodeType | None = None
    if shows:
        expression = tree.body.pop()
        assert isinstance(expression, ast.Expr)
        last = compile(ast.Expression(expression.value), filename, "eval", flags=_AWAIT, dont_inherit=True)
    body = compile(tree, filename, "exec", flags=_AWAIT, dont_inherit=True)
    flags = body.co_flags | (last.co_flags if last is not None else 0)
    return Program(body, last, False, bool(flags & inspect.CO_COROUTINE))


def top_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of `tree` that belong to the cell itself, not to a function, class or lambda in it.

    Comprehensions belong to the cell. So do the decorators, defaults and bases of its definitions.
    """
    for child in ast.iter_child_nodes(tree):
        yield child
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                outer = [*child.decorator_list, *child.args.defaults, *(d for d in child.args.kw_defaults if d)]
            case ast.ClassDef():
                outer = [*child.decorator_list, *child.bases, *(keyword.value for keyword in child.keywords)]
            case ast.Lambda():
                outer = [*child.args.defaults, *(d for d in child.args.kw_defaults if d)]
            case _:
                yield from top_level(child)
                continue
        for part in outer:
            yield part
            yield from top_level(part)


def _awaits(node: ast.AST) -> bool:
    if isinstance(node, ast.comprehension):
        return bool(node.is_async)
    return isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith))


def _refuse_return(nodes: list[ast.AST], source: str, filename: str) -> None:
    for node in nodes:
        if isinstance(node, ast.Return):
            line = source.split("\n")[node.lineno - 1]
            raise SyntaxError(
                "a cell cannot `return`. End it with the expression to show, or assign the value to a name: "
                "the notebook gets its value.",
                (filename, node.lineno, node.col_offset + 1, line),
            )


def _is_silenced(source: str) -> bool:
    """Return whether the last statement ends with a semicolon, which suppresses its value."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT)
    last = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            last = token.string
    return last == ";"


def _as_generator(tree: ast.Module, nodes: list[ast.AST], shows: bool, is_async: bool) -> ast.Module:
    """Return the cell as the body of a generator function whose names are all global."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            raise UsageError(
                f"line {node.lineno}: `from {node.module} import *` is not allowed in a cell that yields. "
                "Import the names that the cell uses."
            )
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    body: list[ast.stmt] = [node for node in tree.body if node not in future]
    last = body[-1] if body else None
    if shows and isinstance(last, ast.Expr) and not isinstance(last.value, (ast.Yield, ast.YieldFrom)):
        show = ast.Call(ast.Name(SHOW, ast.Load()), [last.value], [])
        body[-1] = ast.copy_location(ast.Expr(ast.copy_location(show, last)), last)
    names = sorted(set(_bound(nodes)))
    body = [_Unscoped().visit(node) for node in body]
    if names:
        body.insert(0, ast.Global(names))
    template = "async def f(): pass" if is_async else "def f(): pass"
    function = ast.parse(template).body[0]
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    function.name, function.body = STREAM, body
    return ast.fix_missing_locations(ast.Module([*future, function], []))


def _bound(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield every name that the cell itself binds or deletes."""
    hidden = {id(name) for name in _comprehension_targets(nodes)}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(node) not in hidden:
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name


def _comprehension_targets(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if isinstance(node, ast.comprehension):
            yield from ast.walk(node.target)


class _Unscoped(ast.NodeTransformer):
    """Removes `global` statements and annotations of names, which are not allowed for names declared global."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    @override
    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    @override
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)
