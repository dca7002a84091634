"""Rules of the code base: rooms, allowed imports, sizes of files and folders, test folders, docstrings, and names.

Run as a script, it prints a report on the repository:

    python -m tests.house
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import skyward

ROOT = Path(__file__).parents[1]

PACKAGES: Mapping[str, Path] = {
    "skyward": ROOT / "skyward",
    "skyward_jupyter": ROOT / "skyward_jupyter",
    "skyward_kernel": ROOT / "kernel_bridge" / "skyward_kernel",
    "skyward_providers": ROOT / "providers" / "skyward_providers",
}

FOLDERS = (*PACKAGES.values(), *(ROOT / name for name in ("tests", "benchmarks", "scripts", "labextension/src")))
"""Folders of all code that is written by hand."""

TEST_FOLDERS = {"jupyter": "skyward_jupyter", "kernel": "skyward_kernel"}
"""Folders of `tests/unit` for packages beside the library; every other one has the name of a room of the library."""

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
"""Names that were replaced by the field's terms (`docs/reference/glossary.md`): of modules, classes and functions."""

NOT_ROOMS = frozenset({"adapters", "pool", "time"})
"""Names of rooms that are also names of variables in texts, or of a module of Python."""

FILE_SUFFIXES = frozenset({"css", "io", "json", "lock", "md", "png", "py", "toml", "ts", "txt"})
"""Last parts of dotted names that are files or hosts."""

_DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`")
_SECTION = re.compile(r"( *)(?:Args|Attributes):\s*")
_ENTRY = re.compile(r"\s*((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*):(?: |$)")
"""Names of an entry in a section of a docstring."""

_FIRST_CELL = re.compile(r"^\|[^|\n]*\|", re.MULTILINE)
"""The first cell of a row of a table."""

_EXCUSED = re.compile(r"#.*\bcircular: \w+")
_DOC_COMMENT = re.compile(r"/\*\*[\s*]*(.+?)(?:\*/|$)", re.MULTILINE)
"""A doc comment of TypeScript, with its first line."""


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
def code_files() -> tuple[Path, ...]:
    """Return the files of all code, in Python and TypeScript."""
    kinds = {".py", ".ts", ".tsx"}
    return tuple(sorted(path for folder in FOLDERS for path in folder.rglob("*.*") if path.suffix in kinds))


@cache
def _text(path: Path) -> str:
    return path.read_text()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_text(path))


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
    path = modules()[module]
    return tuple(_imports_in(_tree(path), module, _text(path).splitlines()))


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


def internals_of_front_ends() -> list[str]:
    """Return imports of the library by the Jupyter packages other than through its doors, and unused names there."""
    doors = {module for module in modules() if module.startswith("skyward.frontends.")}
    public = {"skyward", *(f"skyward.{name}" for name in _exported("skyward"))}
    used: set[str] = set()
    found = []
    for package in ("skyward_jupyter", "skyward_kernel"):
        for each in all_imports(package):
            target = target_of(each)
            if target in doors:
                used.add(each.of)
            elif each.package == "skyward" and target not in public:
                found.append(f"{each} (import it from skyward.frontends)")
    offered = {f"{door}.{name}" for door in doors for name in _exported(door)}
    return found + [f"{name} is not used" for name in sorted(offered - used)]


def _exported(module: str) -> list[str]:
    """Return the names in `__all__` of a module."""
    for node in _tree(modules()[module]).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=names):
                return list(ast.literal_eval(names))
    return []


def circular_imports() -> list[str]:
    """Return the imports of one circle, if there are any."""
    graph = {
        module: {
            target
            for each in imports_of(module)
            if not each.excused and (target := target_of(each)) is not None and target != module
        }
        for module in modules()
        if module != "skyward"  # the package loads each name on first access
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        imported_first = error.args[1]
        return [f"{module} imports {imported}" for imported, module in pairwise(imported_first)]
    return []


def docstrings() -> Iterator[tuple[Path, int, str]]:
    """Yield every docstring and doc comment, and every string below the name it documents: (file, line, text)."""
    for path in code_files():
        if path.suffix != ".py":
            for found in _DOC_COMMENT.finditer(_text(path)):
                yield path, _text(path).count("\n", 0, found.start(1)) + 1, found[1]
            continue
        for statement in _statements(_tree(path)):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield path, statement.lineno, text


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a block and of the blocks in it; expressions are not visited, which takes longer."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(block, part, ()):
            yield statement
            yield from _statements(statement)


def banned_openings() -> list[str]:
    """Return docstrings that open with a word which begins a clause."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path, line, text in docstrings()
        if re.match(rf"\s*({'|'.join(BANNED_OPENINGS)})\b", text)
    ]


def repeated_names() -> list[str]:
    """Return public classes and type aliases of one name in two modules."""
    found: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in _tree(path).body:
            match node:
                case ast.ClassDef(name=name) | ast.TypeAlias(name=ast.Name(id=name)) if name[0] != "_":
                    found.setdefault(name, []).append(module)
    return [f"{name}: {', '.join(where)}" for name, where in found.items() if len(where) > 1]


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


def documented_names(text: str) -> Iterator[str]:
    """Yield the names in the sections `Args` and `Attributes` of a docstring."""
    inside, indent = -1, 0
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if (section := _SECTION.fullmatch(line)) is not None:
            inside, indent = len(section[1]), 0
        elif inside < 0 or not line.strip() or depth <= inside:
            inside = -1
        elif depth == (indent := indent or depth):
            entry = _ENTRY.match(line)
            yield from [line.strip()] if entry is None else entry[1].replace("*", "").split(", ")


def unknown_parameters() -> list[str]:
    """Return names in the sections `Args` and `Attributes` that the function or the class does not have."""
    found = []
    for module, path in modules().items():
        for node in ast.walk(_tree(path)):
            match node:
                case ast.ClassDef():
                    known = _members(node) | {
                        name for each in node.body if isinstance(each, ast.FunctionDef) for name in _parameters(each)
                    }
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    known = _parameters(node)
                case _:
                    continue
            names = documented_names(ast.get_docstring(node) or "")
            found += [f"{module}, line {node.lineno}: {name}" for name in names if name not in known]
    return found


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}


def _members(node: ast.ClassDef) -> set[str]:
    """Return the names of methods, fields, and attributes that methods assign."""
    found = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


@cache
def _classes() -> Mapping[str, list[ast.ClassDef]]:
    """Return the classes of the product, by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in modules().values():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def _has_member(name: str, member: str) -> bool:
    """Return whether a class of this name, or a base of one, has a member."""
    return any(
        member in _members(node)
        or any(_has_member(each.id, member) for base in node.bases for each in ast.walk(base) if type(each) is ast.Name)
        for node in _classes().get(name, ())
    )


@cache
def _top_level_names(module: str) -> frozenset[str]:
    """Return the names that a module defines or imports at its top level, and those in its `__all__`."""
    found = {"__all__", *_exported(module)}
    for node in _tree(modules()[module]).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.TypeAlias(name=ast.Name(id=name)) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(each.id for each in targets if isinstance(each, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found.update(each.asname or each.name for each in names)
    return frozenset(found)


def dotted_name_exists(name: str) -> bool:
    """Return whether a dotted name exists: of a module from any room on, of a name in one, or of a class's member."""
    head, _, rest = name.partition(".")
    if head in _classes():
        return _has_member(head, rest.partition(".")[0])
    found = [module for module in modules() if f".{module}".endswith(f".{name}")]
    parent, _, last = name.rpartition(".")
    owners = [module for module in modules() if f".{module}".endswith(f".{parent}")]
    if found or any(last in _top_level_names(module) for module in owners):
        return True
    parent, _, owner = parent.rpartition(".")
    owners = [module for module in modules() if parent and f".{module}".endswith(f".{parent}")]
    return any(owner in _top_level_names(module) for module in owners) and _has_member(owner, last)


def _is_public(name: str) -> bool:
    """Return whether `skyward` has this name, which may have dots itself."""
    try:
        attrgetter(name)(skyward)
    except AttributeError:
        return False
    return True


def unknown_dotted_names() -> list[str]:
    """Return dotted names in backticks, in code and documents, that begin with a room or a class and do not exist."""
    segments = {part for room in rooms() for part in room.split(".")} - NOT_ROOMS
    files = [path for path in code_files() if path.suffix == ".py"]
    files += [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = []
    for path in files:
        text = _text(path)
        if path.name == "coming-from.md":
            text = _FIRST_CELL.sub("|", text)  # names of other libraries
        for match in _DOTTED.finditer(text):
            name = match[1]
            head, rest = name.split(".", 1)
            if rest.rpartition(".")[2] in FILE_SUFFIXES:
                continue
            if head == "sky":
                wrong = not _is_public(rest)
            else:
                wrong = (head in segments or head in _classes()) and not dotted_name_exists(name)
            if wrong:
                found.append(f"{path.relative_to(ROOT)}, line {text.count('\n', 0, match.start()) + 1}: {name}")
    return found


def misplaced_test_folders() -> list[str]:
    """Return folders of `tests/unit` that mirror no folder of a package."""
    unit = ROOT / "tests" / "unit"
    wrong = []
    for folder in sorted({path.parent for path in unit.rglob("test_*.py")} - {unit}):
        first, *rest = folder.relative_to(unit).parts
        mirrored = ".".join((TEST_FOLDERS.get(first, f"skyward.{first}"), *rest))
        if mirrored not in modules():
            wrong.append(f"{folder.relative_to(ROOT)}: there is no {mirrored}")
    return wrong


def crowded_rooms() -> list[str]:
    """Return rooms with more modules than one idea needs."""
    return [f"{room}: {count} files" for room, count in sorted(rooms().items()) if count > MOST_FILES]


def longest_files(count: int = 15) -> list[tuple[int, str]]:
    """Return the longest files, with their lines."""
    lengths = [(len(_text(path).splitlines()), str(path.relative_to(ROOT))) for path in code_files()]
    return sorted(lengths, reverse=True)[:count]


RULES: Mapping[str, Callable[[], list[str]]] = {
    "no crowded rooms": crowded_rooms,
    "no imports that CONTRIBUTING.md does not allow": forbidden_imports,
    "no internals in the Jupyter packages that skyward.frontends does not offer": internals_of_front_ends,
    "no circular imports": circular_imports,
    "no test folders that mirror no room": misplaced_test_folders,
    "no docstrings that open with a banned word": banned_openings,
    "no two public classes or types of one name": repeated_names,
    "no names that the field's terms have replaced": banned_names,
    "no sections of docstrings about names that the function or class does not have": unknown_parameters,
    "no dotted names in backticks that do not exist": unknown_dotted_names,
}
"""Each rule, and the function that returns its violations."""


def main() -> int:
    """Print the report; return 1 if a rule is violated."""
    print("Longest files:")
    for lines, file in longest_files():
        print(f"  {lines:4}  {file}{'  (look again)' if lines > LONG else ''}")
    print("Files of each room:")
    for room, count in sorted(rooms().items()):
        print(f"  {count:4}  {room}")
    broken = 0
    for rule, find_violations in RULES.items():
        found = find_violations()
        print(f"Rule: {rule}. Violations: {len(found)}")
        for each in found:
            print(f"  {each}")
        broken += len(found)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
