"""Imports run one way, and each room brings along no more than it may. (What the door shows: test_door.py.)"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import skyward

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ROOMS = {
    "skyward": ROOT / "skyward",
    "skyward_jupyter": ROOT / "skyward_jupyter",
    "skyward_kernel": ROOT / "kernel_bridge" / "skyward_kernel",
    "skyward_providers": ROOT / "providers" / "skyward_providers",
}
MAY_IMPORT = {
    "skyward": {"skyward"},
    "skyward_kernel": {"skyward", "skyward_kernel"},
    "skyward_jupyter": {"skyward", "skyward_kernel", "skyward_jupyter"},
    "skyward_providers": {"skyward", "skyward_providers"},
}
PROVIDERS_MAY_USE = {
    "skyward.accelerators",
    "skyward.errors",
    "skyward.values.limits",
    "skyward.providers.protocol",
    "skyward.specs",
    "skyward.values.validation",
}
OF_ADAPTERS = {
    "skyward.link.adapters.server",
    "skyward.link.adapters.book",
    "skyward.offers",
    "skyward.wire.protocol.adapter",
}
"""The protocol of worker adapters, and their choice among offers; only the provider that speaks it uses them."""
ENGINE_ROOMS = ("skyward.link", "skyward.wire", "skyward.worker")
NODE_DEPENDENCIES = {"blake3", "casty", "cloudpickle"}
LOADED_BY_MATPLOTLIB = "skyward.worker.display.backend"
"""A backend, which matplotlib imports by name where it is installed. Nothing of ours does."""
VALUES = (
    "skyward.accelerators",
    "skyward.errors",
    "skyward.values.limits",
    "skyward.specs",
    "skyward.values.validation",
)


@dataclass(frozen=True, slots=True)
class Import:
    """One import of one module by another."""

    by: str
    line: int
    of: str
    at_load: bool
    """Whether it happens when the importing module loads, and not in a call."""

    def __str__(self) -> str:
        return f"{self.by}, line {self.line}: {self.of}"

    @property
    def package(self) -> str:
        return self.of.partition(".")[0]


def is_type_checking(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            return True
    return False


def imports_in(body: ast.AST, by: str, *, at_load: bool = True) -> Iterator[Import]:
    """The imports in `body` that happen when the program runs."""
    for node in ast.iter_child_nodes(body):
        match node:
            case ast.Import(names=names):
                yield from (Import(by, node.lineno, alias.name, at_load) for alias in names)
            case ast.ImportFrom(module=module, level=0, names=names):
                # `from skyward import errors` imports a module, `from skyward import Image` opens the door.
                yield from (Import(by, node.lineno, f"{module}.{alias.name}", at_load) for alias in names)
            case ast.ImportFrom():
                pytest.fail(f"{by}, line {node.lineno}: write the import out from the package's name.")
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imports_in(node, by, at_load=False)
            case ast.If() if is_type_checking(node):
                yield from imports_in(ast.Module(node.orelse, []), by, at_load=at_load)
            case _:
                yield from imports_in(node, by, at_load=at_load)


def module_name(room: str, path: Path) -> str:
    parts = (room, *path.relative_to(ROOMS[room]).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def all_imports(room: str) -> list[Import]:
    paths = sorted(ROOMS[room].rglob("*.py"))
    assert paths, f"{ROOMS[room]} is empty"
    return [found for path in paths for found in imports_in(ast.parse(path.read_text()), module_name(room, path))]


def names(found: list[Import]) -> str:
    return "\n".join(map(str, found))


def in_any(module: str, rooms: tuple[str, ...] | set[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def fresh(program: str) -> str:
    """What `program` prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way(room: str) -> None:
    wrong = [i for i in all_imports(room) if i.package in ROOMS and i.package not in MAY_IMPORT[room]]
    assert not wrong, names(wrong)


def test_the_library_loads_with_few_packages() -> None:
    """Anything else is imported in the call that needs it, if at all."""
    allowed = NODE_DEPENDENCIES | {"skyward"} | sys.stdlib_module_names
    found = [i for i in all_imports("skyward") if i.by != LOADED_BY_MATPLOTLIB]
    wrong = [i for i in found if i.at_load and i.package not in allowed]
    assert not wrong, names(wrong)


def test_the_backend_is_imported_by_matplotlib_only() -> None:
    wrong = [i for room in ROOMS for i in all_imports(room) if in_any(i.of, {LOADED_BY_MATPLOTLIB})]
    assert not wrong, names(wrong)


def test_only_the_engine_rooms_know_the_engine() -> None:
    found = [i for room in ROOMS for i in all_imports(room) if i.package == "casty"]
    wrong = [i for i in found if not in_any(i.by, ENGINE_ROOMS)]
    assert found
    assert not wrong, names(wrong)


def test_providers_know_the_protocol_and_the_values_only() -> None:
    found = [i for i in all_imports("skyward_providers") if i.package == "skyward"]
    wrong = [i for i in found if not in_any(i.of, PROVIDERS_MAY_USE | (OF_ADAPTERS if "adapter" in i.by else set()))]
    assert found
    assert not wrong, names(wrong)


def test_values_do_no_input_or_output() -> None:
    doing = {"asyncio", "http", "multiprocessing", "socket", "subprocess", "threading", "urllib"}
    wrong = [i for i in all_imports("skyward") if in_any(i.by, VALUES) and i.package in doing]
    assert not wrong, names(wrong)


def test_worker_modules_do_not_import_modules_whose_attributes_tasks_replace() -> None:
    """Whoever looks up `time.monotonic` or `threading.Thread` later gets what a task has put there."""
    found = [
        found
        for found in all_imports("skyward")
        if found.by.startswith("skyward.worker.") and found.of in {"time", "threading"}
    ]
    allowed = {
        "skyward.worker.supervisor",
        "skyward.worker.tasks.threads",
    }  # runs no tasks; replaces those attributes itself
    wrong = [each for each in found if each.by not in allowed]
    assert not wrong, names(wrong)


def test_a_node_needs_its_few_dependencies_only() -> None:
    """Every module of the worker loads where nothing else is installed."""
    allowed = NODE_DEPENDENCIES | {"skyward"}
    paths = sorted((ROOMS["skyward"] / "worker").rglob("*.py"))
    modules = [name for path in paths if (name := module_name("skyward", path)) != LOADED_BY_MATPLOTLIB]
    assert "skyward.worker.__main__" in modules
    assert not fresh(f"""
import importlib, sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package not in {allowed!r} and package not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"a node does not have {{name}}", name=name)

sys.meta_path.insert(0, Bare())
for module in {modules!r}:
    importlib.import_module(module)
""")


def test_no_other_name_opens() -> None:
    """What the modules behind the door call public stays behind it."""
    modules = {path.stem for path in ROOMS["skyward"].iterdir()}
    defined = {
        node.name
        for path in ROOMS["skyward"].rglob("*.py")
        if path != ROOMS["skyward"] / "__init__.py"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_"
    }
    hidden = sorted(defined - set(skyward.__all__) - modules - {"load_ipython_extension", "unload_ipython_extension"})
    assert hidden
    assert fresh(f"import skyward; print(*[name for name in {hidden!r} if hasattr(skyward, name)])") == ""
