"""The sources of local modules, ready to send: those that a notebook cell imports, directly and indirectly.

Sources are read from disk when the cell is run, so the next cell sees an edit without a restart.
"""

import ast
import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from skyward.wire.payloads.modules import OUR_PACKAGES, is_local_file

__all__ = ["ModuleSource", "imported_names", "imports_of", "source_bundle"]


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """One module, ready to send.

    Attributes:
        name: full dotted name.
        source: its source as bytes, in the encoding that it declares; empty for a namespace package.
        filename: its path on the client, shown in tracebacks.
        is_package: True if it contains other modules.
        digest: changes whenever the source does.
        constants: by name, numbers and strings that its top level assigns to a name once.
    """

    name: str
    source: bytes
    filename: str
    is_package: bool
    digest: bytes
    constants: Mapping[str, int | float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Read:
    stamp: tuple[int, int]
    source: bytes
    digest: bytes
    imports: tuple[str, ...]
    constants: dict[str, int | float | str | bool]


_read: dict[tuple[str, str], _Read] = {}
"""The last source read of each (module, file)."""


def source_bundle(names: Iterable[str]) -> dict[str, ModuleSource]:
    """Return the local modules among `names`, with their parent packages and all local modules that they import.

    Nothing is imported or run. Names that are not local modules are left out: a name may be an attribute.
    """
    bundle: dict[str, ModuleSource] = {}
    looked: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        path: Sequence[str] | None = None
        for depth in range(1, len(parts) + 1):
            prefix = ".".join(parts[:depth])
            spec = _find(prefix, path) or _loaded(prefix) or _namespace(prefix, path or ())
            if spec is None:
                break
            path = spec.submodule_search_locations
            if prefix not in looked:
                looked.add(prefix)
                found = _load(prefix, spec)
                if found is not None:
                    bundle[prefix], imports = found
                    waiting += imports
            if prefix not in bundle and path is None:
                break
    return _without_lone_namespaces(bundle)


def imports_of(bundle: Mapping[str, ModuleSource]) -> set[str]:
    """Return the dotted names that the modules of `bundle` import."""
    read = (_read.get((module.name, module.filename)) for module in bundle.values())
    return {name for each in read if each is not None for name in each.imports}


def _find(name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a module, found without importing its parents."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec = find(name, path) if find is not None else None
        except Exception:  # a finder that fails on an unknown name must not stop the cell
            spec = None
        if spec is not None:
            return spec  # type: ignore[no-any-return]  # a finder may be any object
    return None


def _loaded(name: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a loaded module that no finder knows (any more)."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if not isinstance(file, str) or not is_local_file(file):
        return None
    folders = [os.path.dirname(file)] if os.path.basename(file) == "__init__.py" else None
    return importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)


def _namespace(name: str, parent: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a namespace package inside another package, which Python finds only after importing that."""
    tail = name.rpartition(".")[2]
    folders = [folder for entry in parent if os.path.isdir(folder := os.path.join(entry, tail))]
    if not folders:
        return None
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = folders
    return spec


def _is_namespace(spec: importlib.machinery.ModuleSpec) -> bool:
    return spec.origin is None and spec.submodule_search_locations is not None


def _load(name: str, spec: importlib.machinery.ModuleSpec) -> tuple[ModuleSource, tuple[str, ...]] | None:
    is_package = spec.submodule_search_locations is not None
    if _is_namespace(spec):
        return ModuleSource(name, b"", "", True, b""), ()
    if spec.origin is None or name.partition(".")[0] in OUR_PACKAGES or not is_local_file(spec.origin):
        return None
    try:
        read = _read_file(name, os.path.abspath(spec.origin), is_package)
    except OSError:
        return None
    origin = os.path.abspath(spec.origin)
    return ModuleSource(name, read.source, origin, is_package, read.digest, read.constants), read.imports


def _read_file(name: str, file: str, is_package: bool) -> _Read:
    status = os.stat(file)
    stamp = (status.st_mtime_ns, status.st_size)
    known = _read.get((name, file))
    if known is not None and known.stamp == stamp:
        return known
    with open(file, "rb") as stream:
        source = stream.read()
    package = name if is_package else name.rpartition(".")[0]
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # reported by the node when the cell imports it
        tree = ast.Module([], [])
    digest = hashlib.sha256(source).digest()
    read = _Read(stamp, source, digest, tuple(imported_names(tree, package)), _constants(tree))
    _read[name, file] = read
    return read


def _constants(tree: ast.Module) -> dict[str, int | float | str | bool]:
    """Return the numbers and strings that the top level of a module assigns to a name that nothing else binds."""
    found: dict[str, int | float | str | bool] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() | str() as value)):
                found[name] = value
    bound = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
    return {name: value for name, value in found.items() if bound.count(name) == 1}


def imported_names(tree: ast.AST, package: str = "") -> Iterator[str]:
    """Yield every dotted name that an import statement in `tree` may load; relative ones are resolved in `package`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = _resolve(module or "", level, package)
                if base:
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in aliases if alias.name != "*")


def _resolve(module: str, level: int, package: str) -> str:
    if level == 0:
        return module
    parents = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*parents, module] if module else parents)


def _without_lone_namespaces(bundle: dict[str, ModuleSource]) -> dict[str, ModuleSource]:
    """Return `bundle` without namespace packages that contain none of its modules: they are not the user's."""
    holders = {name for name, module in bundle.items() if module.filename}
    return {
        name: module
        for name, module in sorted(bundle.items())
        if name in holders or any(other.startswith(f"{name}.") for other in holders)
    }
