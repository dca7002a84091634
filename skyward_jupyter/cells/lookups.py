"""Detection of variable lookups by strings: `globals()["x"]`, `eval("x + 1")`, `df.query("a > @x")`."""

import ast
import dis
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import CodeType, FunctionType

__all__ = ["NO_LOOKUPS", "Lookups", "UnresolvedLookup", "find_lookups", "lookups_of", "texts_in", "words_in"]

_LOCAL = frozenset({"locals", "vars", "dir"})
"""Functions that return the notebook's variables only if they are called outside any function."""

_RUNNERS = frozenset({"eval", "exec"})
_METHODS = frozenset({"query", "eval", "sql"})
"""Methods of libraries, such as pandas and DuckDB, that look up variables of their caller by name."""

_KEYED = frozenset({"get", "pop", "setdefault", "__getitem__", "__contains__", "__delitem__"})
_SAME_TEXT = frozenset({"compile", "dedent", "strip"})
"""Functions and methods whose result contains the same names as their first argument, or their object."""

_WORD = re.compile(r"[^\W\d]\w*")
_LONGEST = 100_000
"""Limit on the characters of a string, and on the elements of a collection of strings, that are searched."""


@dataclass(frozen=True, slots=True)
class UnresolvedLookup:
    """A lookup of names that do not occur in the code.

    Attributes:
        what: the call and its line: `line 3: dir()`.
        unless: names of the notebook; resolved if all of them are bound to strings. Empty if it never is.
    """

    what: str
    unless: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Lookups:
    """Lookups of variables by name in some code.

    Attributes:
        words: possible names in its strings.
        in_namespace: it uses the namespace, as `globals()` and `eval` do, possibly for names from its arguments.
        by_method: it calls a method that may look up names.
        arguments: variables that are passed to these methods.
        unresolved: lookups of names that do not occur in the code.
    """

    words: frozenset[str] = frozenset()
    in_namespace: bool = False
    by_method: bool = False
    arguments: frozenset[str] = frozenset()
    unresolved: tuple[UnresolvedLookup, ...] = ()


NO_LOOKUPS = Lookups()


def words_in(text: str) -> set[str]:
    """Return all possible names in `text`."""
    return set(_WORD.findall(text))


def texts_in(value: object) -> Iterator[str] | None:
    """Return the strings in `value` if it is a string, or a collection of strings, and not too long; otherwise None."""
    if isinstance(value, str):
        return iter((value,)) if len(value) <= _LONGEST else None
    if isinstance(value, (list, tuple, set, frozenset, dict)) and 0 < len(value) <= _LONGEST:
        return iter(value) if all(isinstance(each, str) and len(each) <= _LONGEST for each in value) else None
    return None


def find_lookups(trees: Iterable[ast.Module]) -> Lookups:
    """Find the lookups of a cell whose whole code is in `trees`."""
    finder = _Finder()
    for tree in trees:
        finder.look(tree)
    return finder.found()


def lookups_of(function: FunctionType) -> Lookups:
    """Find the lookups in a function's code. Names passed to it as arguments are in the code of its callers."""
    codes = list(_codes(function.__code__))
    in_namespace = any(not {"globals", *_RUNNERS}.isdisjoint(code.co_names) for code in codes)
    by_method = any(not _METHODS.isdisjoint(code.co_names) and _calls_method(code) for code in codes)
    words = {word for code in codes for text in _constants(code) for word in words_in(text)}
    unresolved = _unresolved_in(function) if in_namespace else ()
    return Lookups(frozenset(words), in_namespace, by_method, unresolved=unresolved)


def _unresolved_in(function: FunctionType) -> tuple[UnresolvedLookup, ...]:
    """Find the unresolved lookups in `function`, if its source is known."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return ()
    return tuple(replace(each, what=f"{function.__name__}, {each.what}") for each in find_lookups([tree]).unresolved)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _calls_method(code: CodeType) -> bool:
    """Return whether one of `_METHODS` is called with arguments; `model.eval()` of PyTorch has none."""
    steps = list(dis.get_instructions(code))
    return any(
        step.opname == "LOAD_ATTR" and step.argval in _METHODS and not (after.opname == "CALL" and after.arg == 0)
        for step, after in pairwise(steps)
    )


def _constants(code: CodeType) -> Iterator[str]:
    """Yield the strings that `code` uses as values: no docstrings, and no names of keywords and imports."""
    steps = list(dis.get_instructions(code))
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if step.opname not in ("LOAD_CONST", "RETURN_CONST"):
            continue
        if after is not None and (
            after.opname in ("CALL_KW", "IMPORT_NAME") or after.argval in ("__doc__", "__qualname__")
        ):
            continue
        yield from texts_in(step.argval) or ()


@dataclass(slots=True)
class _Finder:
    """Collects the lookups of several trees."""

    _words: set[str] = field(default_factory=set)
    _in_namespace: bool = False
    _by_method: bool = False
    _arguments: set[str] = field(default_factory=set)
    _unresolved: list[UnresolvedLookup] = field(default_factory=list)
    _parents: dict[int, ast.AST] = field(default_factory=dict)
    _origins: dict[str, list[ast.expr | None]] = field(default_factory=dict)

    def found(self) -> Lookups:
        words, arguments = frozenset(self._words), frozenset(self._arguments)
        return Lookups(words, self._in_namespace, self._by_method, arguments, tuple(self._unresolved))

    def look(self, tree: ast.Module) -> None:
        nodes = list(_walk(tree, is_inner=False))
        for node, _ in nodes:
            for child in ast.iter_child_nodes(node):
                self._parents[id(child)] = node
        for node, _ in nodes:
            self._note(node)
        for node, is_inner in nodes:
            self._visit(node, is_inner)

    def _note(self, node: ast.AST) -> None:
        """Record strings, and the expressions that variables are bound to."""
        match node:
            case ast.Constant(value=str(text)) if not isinstance(self._parents[id(node)], ast.Expr):
                self._words |= words_in(text)
            case ast.Name(id=name, ctx=ast.Store()):
                match self._parents[id(node)]:
                    case ast.Assign(value=origin) | ast.NamedExpr(value=origin):
                        self._origins.setdefault(name, []).append(origin)
                    case ast.For(iter=origin) | ast.comprehension(iter=origin):
                        self._origins.setdefault(name, []).append(origin)
                    case _:
                        self._origins.setdefault(name, []).append(None)

    def _visit(self, node: ast.AST, is_inner: bool) -> None:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[code, *spaces], keywords=keywords) if name in _RUNNERS:
                space = next(iter([*spaces, *(each.value for each in keywords if each.arg == "globals")]), None)
                if space is None or any(_is_namespace(each, is_inner) for each in ast.walk(space)):
                    self._key(code, f"line {node.lineno}: {name}()", is_inner)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _METHODS and (node.args or node.keywords):
                self._by_method = True
                given = [*node.args, *(each.value for each in node.keywords)]
                self._arguments |= {
                    each.id for each in given if isinstance(each, ast.Name) and each.id not in self._origins
                }
            case ast.expr() if _is_namespace(node, is_inner):
                self._namespace(node, is_inner)

    def _namespace(self, node: ast.expr, is_inner: bool) -> None:
        """Record the lookup that is made in a namespace."""
        parent = self._parents[id(node)]
        above = self._parents.get(id(parent))
        key: ast.expr | None = None
        match parent:
            case _ if any(_runs_code(each) for each in self._around(node)):
                return  # handled as a call of its own
            case ast.Subscript(slice=key, ctx=ast.Store()) if not isinstance(above, ast.AugAssign):
                return
            case ast.Subscript(slice=key):
                pass
            case ast.Attribute(attr="update") | ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return
            case ast.Attribute(attr=name) if name in _KEYED and isinstance(above, ast.Call) and above.args:
                key = above.args[0]
            case ast.Compare(left=key) | ast.BinOp(left=key, op=ast.Mod()) if key is not node:
                pass
            case ast.Call() | ast.keyword():  # `"{x}".format(**globals())`, `timeit("f(x)", globals=globals())`
                call = parent if isinstance(parent, ast.Call) else above or parent
                texts = (each for each in ast.walk(call) if isinstance(each, ast.Constant))
                key = next((each for each in texts if isinstance(each.value, str)), None)
        called = f"{node.func.id}()" if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else "user_ns"
        self._key(key, f"line {node.lineno}: {called}", is_inner)

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the expressions that contain `node`, innermost first."""
        above = self._parents.get(id(node))
        while isinstance(above, (ast.expr, ast.keyword)):
            yield above
            above = self._parents.get(id(above))

    def _key(self, key: ast.expr | None, what: str, is_inner: bool) -> None:
        """Record a lookup by `key`."""
        self._in_namespace = True
        unless = None if key is None else self._texts(key, is_inner, frozenset())
        if unless is None or unless:
            self._unresolved.append(UnresolvedLookup(what, unless or frozenset()))

    def _texts(self, node: ast.expr, is_inner: bool, seen: frozenset[str]) -> frozenset[str] | None:
        """Return the notebook's variables that determine the string `node`; None if it cannot be determined."""
        parts: list[ast.expr | None]
        match node:
            case ast.Constant(value=str() | bytes()):
                return frozenset()
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                parts = [*elements]
            case ast.JoinedStr(values=values):
                parts = [*values]
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _SAME_TEXT:
                parts = [first]
            case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in _SAME_TEXT:
                parts = [first]
            case ast.Call(func=ast.Attribute(value=text, attr="strip"), args=[]):
                parts = [text]
            case ast.Name(id=name) if name in self._origins and name not in seen:
                parts, seen = self._origins[name], seen | {name}
            case ast.Name(id=name) if name not in seen:
                return frozenset() if is_inner else frozenset({name})
            case _:
                return None
        found: frozenset[str] = frozenset()
        for part in parts:
            more = None if part is None else self._texts(part, is_inner, seen)
            if more is None:
                return None
            found |= more
        return found


def _walk(node: ast.AST, *, is_inner: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes below `node`, each with whether it is in a function or a class."""
    is_inner = is_inner or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        yield child, is_inner
        yield from _walk(child, is_inner=is_inner)


def _is_namespace(node: ast.AST, is_inner: bool) -> bool:
    """Return whether `node` evaluates to the variables of the notebook."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name == "globals" or (name in _LOCAL and not is_inner)
        case ast.Attribute(attr="user_ns", ctx=ast.Load()):
            return True
    return False


def _runs_code(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _RUNNERS
