"""Rules of the code base (tests/house.py); each package loads only what it may. (Public names: test_door.py.)"""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import skyward
from tests.house import (
    PACKAGES,
    RULES,
    Import,
    all_imports,
    documented_names,
    dotted_name_exists,
    modules,
)

pytestmark = pytest.mark.unit

PROVIDERS_MAY_USE = {
    "skyward.accelerators",
    "skyward.errors",
    "skyward.providers",
    "skyward.specs",
    "skyward.values",
}
OF_ADAPTERS = {
    "skyward.control.act.machines.booting",
    "skyward.journal.Claim",
    "skyward.link.adapters",
    "skyward.market",
    "skyward.wire.protocol.adapter",
}
"""The protocol of worker adapters, their choice among offers, their wait for machines, and what protects these from
sweeps; only the provider that speaks it uses them."""
ENGINE_ROOMS = ("skyward.link", "skyward.wire", "skyward.worker")
NODE_DEPENDENCIES = {"blake3", "casty", "cloudpickle"}
LOADED_BY_MATPLOTLIB = "skyward.worker.display.backend"
"""Backend that only matplotlib imports, by name."""
PURE = (
    "skyward.accelerators",
    "skyward.control.decide",
    "skyward.errors",
    "skyward.scaling",
    "skyward.specs",
    "skyward.values",
)


def runtime_imports(package: str) -> list[Import]:
    """Return the imports of a package that happen at run time."""
    return [each for each in all_imports(package) if not each.is_typing]


def listed(found: Iterable[object]) -> str:
    return "\n".join(map(str, found))


def in_any(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def fresh(program: str) -> str:
    """Return the output of `program` in a separate interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("rule", RULES)
def test_code_keeps_the_rule(rule: str) -> None:
    found = RULES[rule]()
    assert not found, listed(found)


def test_names_in_sections_of_docstrings_are_found() -> None:
    text = """A class.

    Args:
        first, second: two.
            with: a second line.
        *rest: others.

    Attributes:
        no entry

    Raises:
        OSError: never.
    """
    assert list(documented_names(text)) == ["first", "second", "rest", "no entry"]


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("wire.protocol.messages", True),
        ("skyward.wire.protocol.messages.Submit", True),
        ("wire.protocol.messages.Submit.task", True),
        ("Compute.events", True),
        ("wire.messages", False),
        ("wire.protocol.messages.NoMessage", False),
        ("Compute.no_method", False),
    ],
)
def test_dotted_names_are_those_of_modules_and_members(name: str, exists: bool) -> None:
    assert dotted_name_exists(name) is exists


def test_library_loads_few_packages() -> None:
    """Anything else is imported in the call that needs it, if at all."""
    allowed = NODE_DEPENDENCIES | {"skyward"} | sys.stdlib_module_names
    found = [each for each in runtime_imports("skyward") if each.by != LOADED_BY_MATPLOTLIB]
    wrong = [each for each in found if each.at_load and each.package not in allowed]
    assert not wrong, listed(wrong)


def test_backend_is_imported_by_matplotlib_only() -> None:
    wrong = [each for package in PACKAGES for each in all_imports(package) if in_any(each.of, {LOADED_BY_MATPLOTLIB})]
    assert not wrong, listed(wrong)


def test_only_the_engine_rooms_import_the_engine() -> None:
    found = [each for package in PACKAGES for each in runtime_imports(package) if each.package == "casty"]
    wrong = [each for each in found if not in_any(each.by, ENGINE_ROOMS)]
    assert found
    assert not wrong, listed(wrong)


def test_providers_import_the_protocol_and_the_values_only() -> None:
    found = [each for each in runtime_imports("skyward_providers") if each.package == "skyward"]
    wrong = [
        each
        for each in found
        if not in_any(each.of, PROVIDERS_MAY_USE | (OF_ADAPTERS if "adapter" in each.by else set()))
    ]
    assert found
    assert not wrong, listed(wrong)


def test_pure_rooms_do_no_input_or_output() -> None:
    doing = {"asyncio", "http", "multiprocessing", "socket", "subprocess", "threading", "urllib"}
    wrong = [i for i in runtime_imports("skyward") if in_any(i.by, PURE) and i.package in doing]
    assert not wrong, listed(wrong)


def test_worker_modules_do_not_import_modules_whose_attributes_tasks_replace() -> None:
    """A later lookup of `time.monotonic` or `threading.Thread` would return a task's replacement."""
    found = [
        found
        for found in runtime_imports("skyward")
        if found.by.startswith("skyward.worker.") and found.of in {"time", "threading"}
    ]
    allowed = {
        "skyward.worker.supervisor",
        "skyward.worker.tasks.threads",
    }  # runs no tasks; replaces those attributes itself
    wrong = [each for each in found if each.by not in allowed]
    assert not wrong, listed(wrong)


def test_worker_imports_only_its_own_dependencies() -> None:
    """Every module of the worker loads without other packages installed."""
    allowed = NODE_DEPENDENCIES | {"skyward"}
    loaded = [name for name in modules() if in_any(name, {"skyward.worker"}) and name != LOADED_BY_MATPLOTLIB]
    assert "skyward.worker.__main__" in loaded
    assert not fresh(f"""
import importlib, sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package not in {allowed!r} and package not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"a node does not have {{name}}", name=name)

sys.meta_path.insert(0, Bare())
for module in {loaded!r}:
    importlib.import_module(module)
""")


def test_worker_starts_without_the_kinds_of_events() -> None:
    """Their classes are many, and would delay the start of each node."""
    loaded = fresh("import sys, skyward.worker.__main__; print(*sys.modules)").split()
    assert "skyward.events.metrics" in loaded
    assert "skyward.events.kinds" not in loaded


def test_internal_names_are_not_public() -> None:
    """Public names of internal modules are not public names of `skyward`."""
    defined = {
        node.name
        for module, path in modules().items()
        if module.startswith("skyward.")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_"
    }
    names = {path.stem for path in PACKAGES["skyward"].iterdir()}
    hidden = sorted(defined - set(skyward.__all__) - names - {"load_ipython_extension", "unload_ipython_extension"})
    assert hidden
    assert fresh(f"import skyward; print(*[name for name in {hidden!r} if hasattr(skyward, name)])") == ""


def test_extension_loads_no_control_plane_and_no_connection(tmp_path: Path) -> None:
    """The first cell loads them, while its pool opens. The reaper does, too, if there are pools."""
    loaded = fresh(f"""
import os
import sys
os.environ["SKYWARD_DATA_DIR"] = {str(tmp_path)!r}
from IPython.core.interactiveshell import InteractiveShell
import skyward_jupyter
from skyward_kernel import reaper
skyward_jupyter.load_ipython_extension(InteractiveShell.instance())
reaper._reap_due()
heavy = ("skyward.link.", "skyward.control.act.pool", "asyncssh", "rich")
# A copy: the reaper imports modules meanwhile.
print(*[name for name in list(sys.modules) if name.startswith(heavy)])
skyward_jupyter.unload_ipython_extension(InteractiveShell.instance())
""")
    assert loaded == ""
