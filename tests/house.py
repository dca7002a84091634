"""Rules of the code base: rooms and their allowed imports, sizes of files and folders, first words of docstrings.

Run as a script, it prints a report on the repository:

    python -m tests.house
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES: Mapping[str, Path] = {
    "skyward": ROOT / "skyward",
    "skyward_jupyter": ROOT / "skyward_jupyter",
    "skyward_kernel": ROOT / "kernel_bridge" / "skyward_kernel",
    "skyward_providers": ROOT / "providers" / "skyward_providers",
}

MOST_FILES = 16
"""Modules of a folder, besides its `__init__`, above which it has more than one idea."""

LONG = 600
"""Lines above which a file should be reviewed. A report, not a rule."""

BANNED_OPENINGS = ("What", "Whether", "Who", "Whose", "How", "Where", "When", "Why", "Which", "Twice")
"""First words of docstrings that are neither an imperative nor a noun phrase."""

BANNED_NAMES = frozenset(
    {
        *("Answering", "Arrivals", "Boots", "CarryOut", "Floor", "Fund", "Harvest", "Heard", "Hearing", "Holdings"),
        *("Holds", "KeptValue", "MachineBook", "Opener", "Place", "Roll", "Seat", "SentCell", "Shown", "Spread"),
        *("Spreading", "Tape", "TroubleView", "blame", "brisk", "broke", "heard", "here", "to_the_end", "unfit"),
    }
)
"""Names that were replaced by the field's terms (`docs/glossary.md`): of modules, classes, functions and fields."""

_EXCUSED = re.compile(r"#.*\bcircular: \w+")


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a module by another.

    Attributes:
        by, line: the importing module, and the line.
        of: dotted name of the imported module, or of a name in one.
        at_load: True if it runs when the importing module loads, rather than in a call.
        is_typing: True if it is for type checkers only.
        excused: True if its line has a comment `# circular: REASON`.
    """

    by: str
    line: int
    of: str
    at_load: bool = True
    is_typing: bool = False
    excused: bool = False

    @property
    def package(self) -> str:
        """The top-level package of the imported module."""
        return self.of.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.by}, line {self.line}: {self.of}"


@cache
def modules() -> Mapping[str, Path]:
    """Return every module of the product, by its dotted name."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """Return every import of a module, including those in functions, for type checkers, and by name in strings."""
    source = modules()[module].read_text()
    lines = source.splitlines()
    return tuple(_imports_in(ast.parse(source), module, lines))


def all_imports(package: str) -> Iterator[Import]:
    """Yield every import of the modules of a package."""
    for module in modules():
        if module.partition(".")[0] == package:
            yield from imports_of(module)


def _imports_in(
    body: ast.AST, by: str, lines: list[str], *, at_load: bool = True, typing: bool = False
) -> Iterator[Import]:
    for node in ast.iter_child_nodes(body):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield _import(node, by, alias.name, lines, at_load, typing)
            case ast.ImportFrom(level=0, module=str(module), names=names):
                for alias in names:
                    yield _import(node, by, f"{module}.{alias.name}", lines, at_load, typing)
            case ast.ImportFrom():
                raise AssertionError(f"{by}, line {node.lineno}: write the import out from the package's name.")
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if _called(func) == "import_module":
                yield _import(node, by, name, lines, False, typing)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports_in(node, by, lines, at_load=False, typing=typing)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports_in(ast.Module(node.body, []), by, lines, at_load=at_load, typing=True)
                yield from _imports_in(ast.Module(node.orelse, []), by, lines, at_load=at_load, typing=typing)
            case _:
                yield from _imports_in(node, by, lines, at_load=at_load, typing=typing)


def _import(node: ast.stmt | ast.expr, by: str, of: str, lines: list[str], at_load: bool, typing: bool) -> Import:
    text = " ".join(lines[node.lineno - 1 : node.end_lineno])
    return Import(by, node.lineno, of, at_load, typing, _EXCUSED.search(text) is not None)


def _called(func: ast.expr) -> str:
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def target_of(each: Import) -> str | None:
    """Return the module of the product that an import loads; None for one of another package."""
    known = modules()
    if each.of in known:
        return each.of
    parent = each.of.rpartition(".")[0]
    return parent if parent in known else None


def room_of(module: str) -> str:
    """Return the folder of a module, as a dotted name; a module at the top of the library is a room of its own."""
    if modules()[module].name == "__init__.py":
        return module
    room = module.rpartition(".")[0]
    return module if room == "skyward" else room


def rooms() -> Mapping[str, int]:
    """Return every room, with the number of its modules besides `__init__`."""
    found: Counter[str] = Counter()
    for module, path in modules().items():
        found[room_of(module)] += path.name != "__init__.py"
    return {room: count for room, count in found.items() if count or room in PACKAGES}


def layers() -> Mapping[str, int]:
    """Return the layer of each room, the lowest first, from the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| [^|`]+ \| ((?:`skyward[\w.]*`(?:, )?)+) \|$", text, re.MULTILINE)
    return {room: layer for layer, row in enumerate(rows) for room in re.findall(r"`([\w.]+)`", row)}


def forbidden_imports() -> list[str]:
    """Return imports that go up, or between rooms of one layer, and rooms missing in the table or in the code."""
    layer = layers()
    found = [f"CONTRIBUTING.md has no layer for {room}" for room in sorted(rooms().keys() - layer.keys())]
    found += [f"CONTRIBUTING.md has a layer for {room}, which is not there" for room in sorted(layer.keys() - rooms())]
    for module in modules():
        room = room_of(module)
        for each in imports_of(module):
            target = target_of(each)
            if target is None or each.excused or (other := room_of(target)) == room:
                continue
            if layer.get(other, -1) >= layer.get(room, -1):
                found.append(f"{each} ({room} may not import {other})")
    return found


def circles() -> list[tuple[str, ...]]:
    """Return groups of modules that import one another, directly or indirectly."""
    graph = {
        module: {
            target
            for each in imports_of(module)
            if not each.excused and (target := target_of(each)) is not None and target != module
        }
        for module in modules()
        if module != "skyward"  # the package loads each name on first access
    }
    return sorted(tuple(sorted(each)) for each in _components(graph) if len(each) > 1)


def _components(graph: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Yield Tarjan's strongly connected components, without recursion over long paths."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, rest = work[-1]
            following = next((each for each in rest if each in graph), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    yield stack[at:]
                    del stack[at:]
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                work.append((following, iter(graph[following])))
            elif following in stack:
                low[node] = min(low[node], index[following])


def docstrings() -> Iterator[tuple[str, int, str]]:
    """Yield every docstring, and every string below the name it documents: (file, line, text)."""
    folders = (*PACKAGES.values(), ROOT / "tests", ROOT / "benchmarks", ROOT / "scripts")
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
                match statement:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield str(path.relative_to(ROOT)), statement.lineno, text


def banned_openings() -> list[str]:
    """Return docstrings that open with a word which begins a clause."""
    return [
        f"{file}:{line}: {text.splitlines()[0]}"
        for file, line, text in docstrings()
        if text.split(maxsplit=1)[0].rstrip(",") in BANNED_OPENINGS
    ]


def banned_names() -> list[str]:
    """Return definitions of modules, classes, functions and fields with a banned name."""
    found = [f"module {module}" for module in modules() if module.rpartition(".")[2] in BANNED_NAMES]
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.TypeAlias(name=ast.Name(id=name)):
                    pass
                case _:
                    continue
            if name in BANNED_NAMES:
                found.append(f"{module}, line {node.lineno}: {name}")
    return found


def crowded_rooms() -> list[str]:
    """Return rooms with more modules than one idea needs."""
    return [f"{room}: {count} files" for room, count in sorted(rooms().items()) if count > MOST_FILES]


def longest_files(count: int = 15) -> list[tuple[int, str]]:
    """Return the longest files, with their lines."""
    lengths = [(len(path.read_text().splitlines()), str(path.relative_to(ROOT))) for path in modules().values()]
    return sorted(lengths, reverse=True)[:count]


def main() -> int:
    """Print the report; return 1 if a rule is violated."""
    print("Longest files:")
    for lines, file in longest_files():
        print(f"  {lines:4}  {file}{'  (look again)' if lines > LONG else ''}")
    print("Files of each room:")
    for room, count in sorted(rooms().items()):
        print(f"  {count:4}  {room}")
    broken = False
    for title, found in (
        ("Crowded rooms", crowded_rooms()),
        ("Imports that CONTRIBUTING.md does not allow", forbidden_imports()),
        ("Circles", [" <-> ".join(circle) for circle in circles()]),
        ("Docstrings that open with a banned word", banned_openings()),
        ("Banned names", banned_names()),
    ):
        print(f"{title}: {len(found)}")
        for each in found[:20]:
            print(f"  {each}")
        broken = broken or bool(found)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
