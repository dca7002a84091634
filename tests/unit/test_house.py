"""Rules for the files of the repository: the hosts they name, their lock files, and what an install contains."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PACKAGES = ("skyward", "skyward_jupyter", "kernel_bridge/skyward_kernel", "providers/skyward_providers")
MADE = {"__pycache__", "dist", "node_modules"}
REGISTRIES = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"))]


def files(*kinds: str) -> Iterator[Path]:
    """Return the files of the repository, without generated ones."""
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name not in MADE and (name == ".ci" or name[0] != ".")]
        yield from (Path(folder, name) for name in names if not kinds or Path(name).suffix in kinds)


def test_no_file_names_a_registry() -> None:
    """A clone installs from whatever index its user has configured."""
    found = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in files()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    ]
    assert not found


@pytest.mark.parametrize("path", ["requirements.lock", "requirements-oldest.lock", "benchmarks/requirements.lock"])
def test_locks_have_hashes_and_no_addresses(path: str) -> None:
    lock = (ROOT / path).read_text()
    assert "://" not in lock
    pins = [line for line in lock.splitlines() if "==" in line.partition(";")[0] and line[0] not in " #"]
    assert pins
    assert not [pin for pin in pins if not pin.endswith("\\")]
    assert not [pin for pin in pins if pin.startswith("torch==")]


def test_oldest_lock_has_the_lower_bounds_of_the_requirements_of_users() -> None:
    """`make oldest` uses it, so each bound is tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        Requirement(text)
        for texts in (project["dependencies"], *project["optional-dependencies"].values())
        for text in texts
    ]
    bounds = {
        each.name: next(Version(part.version) for part in each.specifier if part.operator == ">=") for each in wanted
    }
    pins = re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "requirements-oldest.lock").read_text(), re.MULTILINE)
    assert {name: Version(version) for name, version in pins if name in bounds} == bounds, "run: make lock"


def test_every_command_of_the_makefile_is_in_the_readme() -> None:
    commands = set(re.findall(r"^([\w-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    listed = set(re.findall(r"^\| `make ([\w-]+)`", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert commands - listed == {"help", "setup"}
    assert listed <= commands


def test_files_that_the_documentation_names_exist() -> None:
    """A page may shorten a path at its beginning: `act/pool.py` is `skyward/control/act/pool.py`."""
    known = {f"/{path.relative_to(ROOT).as_posix()}" for path in files(".py", ".md", ".ts", ".tsx", ".toml", ".cfg")}
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        for name in re.findall(r"`([\w/.]+/[\w.]+\.(?:py|tsx?|md|cfg))`", page.read_text())
        if not any(path.endswith(f"/{name}") for path in known)
    ]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_contents_of_an_install() -> None:
    assert metadata("skyward-jupyter")["License-Expression"] == "MIT"
    (local,) = entry_points(group="skyward.providers", name="local")
    assert local.load()().name == "local"


def test_panel_of_an_editable_install_is_updated(tmp_path: Path) -> None:
    """The panel is a copy, which would otherwise stay outdated until the lock changes."""
    for name in ("scripts/setup.sh", "pyproject.toml", "requirements.lock", "labextension/install.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    built, installed = tmp_path / "labextension/dist", tmp_path / ".venv/share/jupyter/labextensions/skyward-panel"
    for folder, entry in ((built, "new.js"), (installed, "old.js")):
        (folder / "static").mkdir(parents=True)
        (folder / "static" / entry).touch()
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    stamp = 'echo "$(pwd) $(cat requirements.lock pyproject.toml scripts/setup.sh | cksum)" >.venv/.made-from'
    subprocess.run(["sh", "-c", stamp], cwd=tmp_path, check=True)
    for _ in range(2):
        subprocess.run(["sh", "scripts/setup.sh"], cwd=tmp_path, check=True, timeout=30)
        there = sorted(path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file())
        assert there == ["install.json", "static/new.js"]
