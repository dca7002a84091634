"""Names that a cell reads, binds, changes and deletes, found without running it.

The analysis follows the order of execution. A name that is certainly bound by then is the cell's own; any other name
that it reads comes from the notebook. The names that a function reads count when the function is first used, not when
it is defined: only then must they exist.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from skyward.frontends.cells import names_in_command
from skyward_jupyter.cells.node_magics import Magic, magic_of
from skyward_jupyter.cells.scopes import InnerScope, Key, inner_scopes

__all__ = ["Names", "find_names"]

_OPAQUE = frozenset({"exec", "eval", "globals", "locals", "vars"})
"""Functions that can bind names invisibly."""


@dataclass(slots=True)
class Names:
    """The names of a cell, in order of first occurrence.

    Attributes:
        reads: read before the cell itself has certainly bound them.
        binds: bound by the cell itself, or by a `global` of a function in it.
        changes: names through which the cell assigns to an item or an attribute.
        incidental: bound only as the target of a `for` or a `with`.
        deletes: unbound by the cell.
        defines: bound by an import, a function or a class.
        unbound: the line of each name that is certainly read before anything binds it.
        opaque: True if the cell may bind names that the analysis cannot see.
    """

    reads: dict[str, None] = field(default_factory=dict)
    binds: dict[str, None] = field(default_factory=dict)
    changes: dict[str, None] = field(default_factory=dict)
    incidental: dict[str, None] = field(default_factory=dict)
    deletes: dict[str, None] = field(default_factory=dict)
    defines: dict[str, None] = field(default_factory=dict)
    unbound: dict[str, int] = field(default_factory=dict)
    opaque: bool = False


def find_names(tree: ast.Module, source: str, filename: str) -> Names:
    """Find the names of the cell `tree`, parsed from `source`."""
    walk = _Walk(inner_scopes(source, filename))
    walk.block(tree.body)
    names = walk.names
    for name in walk.globals_bound:
        names.binds[name] = None
        walk.assigned.add(name)
    if names.opaque:
        names.unbound.clear()
    names.unbound = {name: line for name, line in names.unbound.items() if name not in names.binds}
    names.incidental = {name: None for name in names.incidental if name not in walk.assigned}
    return names


class _Walk(ast.NodeVisitor):
    def __init__(self, inner: dict[Key, InnerScope]) -> None:
        self.names = Names()
        self.globals_bound: dict[str, None] = {}
        self.assigned: set[str] = set()
        self._targets: set[int] = set()
        self._inner = inner
        self._bound: set[str] = set()
        self._deferred: dict[str, frozenset[str]] = {}
        self._sure = True
        self._ended = False

    # -- blocks and flow

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def _branches(self, *branches: Iterable[ast.AST], exhaustive: bool) -> None:
        """Visit alternatives, of which one runs, or none: names that all of them bind are bound afterwards."""
        before, sure, ended = self._bound, self._sure, self._ended
        self._sure = False
        outcomes = [] if exhaustive else [before]
        for branch in branches:
            self._bound, self._ended = set(before), ended
            for node in branch:
                self.visit(node)
            if not self._ended:
                outcomes.append(self._bound)
        self._bound = set.intersection(*outcomes) if outcomes else set(before)
        self._ended = ended or (exhaustive and not outcomes)
        self._sure = sure and not self._ended

    def _maybe(self, *nodes: ast.AST) -> None:
        self._branches(nodes, exhaustive=False)

    def _end(self, node: ast.AST) -> None:
        self.generic_visit(node)
        self._ended = True

    visit_Raise = visit_Break = visit_Continue = _end

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse, exhaustive=True)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._branches([node.body], [node.orelse], exhaustive=True)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._maybe(*node.values[1:])

    def visit_Compare(self, node: ast.Compare) -> None:
        self.visit(node.left)
        self.visit(node.comparators[0])
        self._maybe(*node.comparators[1:])

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._maybe(*node.body)
        self._maybe(*node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._targets.update(map(id, ast.walk(node.target)))
        self._maybe(node.target, *node.body)
        self._maybe(*node.orelse)

    visit_For = visit_AsyncFor = _for

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        sure = self._sure
        for item in node.items:
            if item.optional_vars is not None:
                self._targets.update(map(id, ast.walk(item.optional_vars)))
            self.visit(item)
        self._sure = False  # it may swallow a NameError
        self.block(node.body)
        self._sure = sure and not self._ended

    visit_With = visit_AsyncWith = _with

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        before = set(self._bound)
        self._branches([*node.body, *node.orelse], *([handler] for handler in node.handlers), exhaustive=True)
        after = self._bound
        if node.finalbody:
            sure, self._sure = self._sure, False
            self._bound = before & after if node.handlers else before
            self.block(node.finalbody)
            self._bound |= after
            self._sure = sure

    visit_Try = visit_TryStar = _try

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name:
            self._bind(node.name)
        self.block(node.body)
        if node.name:
            self._unbind(node.name)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        last = node.cases[-1]
        wildcard = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
        self._branches(*([case] for case in node.cases), exhaustive=wildcard)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self.generic_visit(node)
        if node.name:
            self._bind(node.name)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest:
            self._bind(node.rest)

    # -- names

    def visit_Name(self, node: ast.Name) -> None:
        match node.ctx:
            case ast.Load():
                self._read(node.id, node.lineno)
            case ast.Store() if id(node) in self._targets:
                self.names.incidental[node.id] = None
                self._note_bound(node.id)
            case ast.Store():
                self._bind(node.id)
            case _:
                self._read(node.id, node.lineno)
                self._unbind(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._unsure(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id, node.lineno)
        self.visit(node.value)
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_Subscript(self, node: ast.Subscript | ast.Attribute) -> None:
        self.generic_visit(node)
        root = _root(node)
        if root is not None and not isinstance(node.ctx, ast.Load):
            self.names.changes[root] = None

    visit_Attribute = visit_Subscript

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if (magic := magic_of(node)) is not None:
            self._magic(magic)
        elif isinstance(node.func, ast.Attribute):
            if node.func.attr in ("system", "getoutput"):
                self._command(node)
        elif isinstance(node.func, ast.Name) and node.func.id in _OPAQUE:
            self.names.opaque = True

    def _command(self, node: ast.Call) -> None:
        """Visit a `!command`, with its placeholders `$name` and `{expression}`."""
        for text in node.args:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                for name in names_in_command(text.value):
                    self._read(name, node.lineno, sure=False)

    def _magic(self, magic: Magic) -> None:
        """Visit a magic that runs on the node, with the code after or below it."""
        for name in (*magic.reads, *names_in_command(magic.expanded)):
            self._read(name, magic.lineno, sure=False)
        if magic.runs:
            self._inner |= inner_scopes(magic.runs, "<magic>")
            self.block(ast.parse(magic.runs).body)

    def visit_Global(self, node: ast.Global) -> None:
        """Do nothing: at the top of a cell, `global` has no effect."""

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.names.opaque = True
                continue
            name = alias.asname or alias.name.partition(".")[0]
            self._bind(name)
            self.names.defines[name] = None

    visit_ImportFrom = visit_Import

    # -- scopes inside the cell

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        for part in (*node.decorator_list, *arguments.defaults, *(d for d in arguments.kw_defaults if d)):
            self.visit(part)
        bound = set(self._bound)
        self._bound |= _type_parameters(node)
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        annotations = [parameter.annotation for parameter in parameters if parameter is not None]
        for annotation in (*annotations, node.returns):
            if annotation is not None:
                self._unsure(annotation)
        self._bound = bound
        self._define(node, bool(node.decorator_list))

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        own = _type_parameters(node) - self._bound
        self._bound |= own
        for part in (*node.bases, *node.keywords):
            self.visit(part)
        self._bound -= own
        self._class_body(node)
        self._define(node, bool(node.decorator_list or node.keywords))

    def _class_body(self, node: ast.ClassDef) -> None:
        """Visit the body, which runs at once in its own scope and binds nothing outside it."""
        outer, bound, deferred = self.names, set(self._bound), dict(self._deferred)
        self.names = Names()
        self._bound |= _type_parameters(node)
        self.block(node.body)
        body, self.names, self._bound, self._deferred = self.names, outer, bound, deferred
        self.names.reads |= body.reads
        self.names.unbound = body.unbound | self.names.unbound
        self.names.opaque |= body.opaque

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, used_at_once: bool) -> None:
        inner = self._inside(node.name, node.lineno)
        self._bind(node.name)
        self.names.defines[node.name] = None
        self._deferred[node.name] = inner.reads
        if used_at_once:
            self._use(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)
        self._maybe_read_all("lambda", node.lineno)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        """Visit the first iterable, which is evaluated here, and the rest, which runs in its own scope, if at all."""
        bound, sure = set(self._bound), self._sure
        for part in node.generators:
            self.visit(part.iter)
            self._sure = False
            targets = {name.id for name in ast.walk(part.target) if isinstance(name, ast.Name)}
            self._bound |= targets
            for condition in part.ifs:
                self.visit(condition)
        for element in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(element)
        self._bound, self._sure = bound, sure

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_TypeAlias(self, node: ast.TypeAlias) -> None:
        assert isinstance(node.name, ast.Name)
        self._maybe_read_all(node.name.id, node.lineno)
        self._bind(node.name.id)

    # -- records

    def _inside(self, name: str, line: int) -> InnerScope:
        inner = self._inner.get((name, line), InnerScope(frozenset(), frozenset()))
        for bound in sorted(inner.binds):
            self.globals_bound[bound] = None
        self.names.opaque |= not _OPAQUE.isdisjoint(inner.reads)
        return inner

    def _maybe_read_all(self, name: str, line: int) -> None:
        """Record that everything that an inner scope reads may be read here."""
        for read in sorted(self._inside(name, line).reads):
            self._read(read, line, sure=False)

    def _unsure(self, node: ast.AST) -> None:
        sure, self._sure = self._sure, False
        self.visit(node)
        self._sure = sure

    def _read(self, name: str, line: int, *, sure: bool = True) -> None:
        if name in self._bound:
            self._use(name)
            return
        self.names.reads[name] = None
        if sure and self._sure and not self._ended:
            self.names.unbound.setdefault(name, line)

    def _use(self, name: str) -> None:
        for read in sorted(self._deferred.pop(name, ())):
            self._read(read, 0, sure=False)

    def _bind(self, name: str) -> None:
        self.assigned.add(name)
        self._note_bound(name)

    def _note_bound(self, name: str) -> None:
        self._bound.add(name)
        self._deferred.pop(name, None)
        self.names.binds[name] = None

    def _unbind(self, name: str) -> None:
        self._bound.discard(name)
        self.names.deletes[name] = None


def _type_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    return {parameter.name for parameter in node.type_params if hasattr(parameter, "name")}


def _root(node: ast.expr) -> str | None:
    """Return the name that a chain of attributes and items starts from: `df` of `df.loc[0].x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
