"""The package in fresh environments: with each version of Python, and the oldest and the newest packages it allows."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.package.conftest import Archives
from tests.package.environment import NOTEBOOK_7, Environment, Resolution, find_python, requirements
from tests.required import leave_out_for
from tests.ui.browser_network import BrowserNetwork
from tests.ui.lab import Lab
from tests.ui.notebook7 import Notebook7
from tests.ui.serving import CHROMIUM, Server, jupyter_lab, opened

# The network of the browser outlives the module, so it exists before.
pytestmark = [pytest.mark.package, pytest.mark.timeout(300), pytest.mark.usefixtures("browser_network")]

CASES: dict[str, tuple[str, Resolution, str]] = {
    "3.12 oldest": ("3.12", "oldest", "wheel"),
    "3.12 newest": ("3.12", "newest", "sdist"),
    "3.13 oldest": ("3.13", "oldest", "sdist"),
    "3.13 newest": ("3.13", "newest", "wheel"),
}

IMPORTS = """import importlib, sys
for name in sys.stdin.read().split():
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(name, "needs", error.name)
import skyward
print("version", skyward.__version__)"""
"""Imports modules, and prints which of them need a package that is not there."""

SCRIPT = """import skyward as sky

@sky.function
def square(n):
    sky.counter("calls").increment()
    return n * n

if __name__ == "__main__":
    with sky.Compute(nodes=2) as pool:
        print("squares:", sky.gather(*map(square, range(5))) >> pool)
        print("broadcast:", square(3) @ pool)
        print("calls:", sky.counter("calls").value)"""

CELL = """%%sky --nodes 2
import os, sys
where = sys.prefix
print("on node", os.environ["SKYWARD_NODE"])"""


@pytest.fixture(scope="module", params=CASES)
def environment(
    request: pytest.FixtureRequest, archives: Archives, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """Environment with the package and its extra `notebook`, and Notebook 7."""
    version, resolution, kind = CASES[request.param]
    python = find_python(version)
    leave_out_for("" if python else f"no CPython {version} on this machine", "SKYWARD_PACKAGE")
    made = Environment.create(tmp_path_factory.mktemp("environment"), python)
    made.install(*requirements(archives.wheel, "notebook"), NOTEBOOK_7, resolution=resolution)
    made.run("python", "-m", "pip", "install", "--quiet", f"{getattr(archives, kind)}[notebook]")
    return made


@pytest.fixture(scope="module")
def lab_server(
    environment: Environment, browser_network: BrowserNetwork | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The environment's JupyterLab."""
    with served(environment, tmp_path_factory.mktemp("lab"), browser_network) as server:
        yield server


@contextmanager
def served(environment: Environment, home: Path, network: BrowserNetwork | None) -> Iterator[Server]:
    """Run the JupyterLab of an environment, where the browser reaches it."""
    leave_out_for("" if CHROMIUM else "no Chromium found", "SKYWARD_BROWSER")
    with jupyter_lab(home, environment.python, environment.variables) as server:
        if network is not None:
            network.connect(server.port)
        yield server


def check_front_end(lab: Lab, environment: Environment) -> None:
    """Check that the panel shows the pool of a cell that has run on nodes of the environment."""
    lab.run("%load_ext skyward")
    lab.run(CELL)
    output = lab.page.locator(".jp-OutputArea-output")
    output.filter(has_text="on node 0").wait_for()
    lab.run("print('nodes use', where)\n%sky status")
    output.filter(has_text=f"nodes use {environment.folder}").wait_for()
    lab.pool().get_by_text("2 of 2 nodes").wait_for()
    lab.run("%sky down")
    lab.panel.get_by_text("No pools yet.").wait_for()


def test_all_modules_can_be_imported_without_other_extras(environment: Environment, archives: Archives) -> None:
    with ZipFile(archives.wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".py")]
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    names -= {"skyward.__main__"}
    shown = environment.run("python", "-c", IMPORTS, given=" ".join(sorted(names)))
    assert shown.splitlines() == ["skyward.worker.display.backend needs matplotlib", f"version {archives.version}"]


def test_requirements_are_consistent(environment: Environment) -> None:
    assert environment.run("python", "-m", "pip", "check").strip() == "No broken requirements found."


def test_script_runs_on_local_nodes(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    shown = environment.run("python", "-W", "error", "script.py", at=tmp_path)
    assert "squares: (0, 1, 4, 9, 16)" in shown
    assert "broadcast: [9, 9]" in shown
    assert "calls: 7" in shown


@pytest.mark.parametrize("command", ["sky", "skyward", "python -m skyward"])
def test_commands_are_installed(environment: Environment, command: str) -> None:
    assert "usage: " in environment.run(*command.split(), "--help")


def test_extension_is_found_and_enabled(environment: Environment, archives: Archives) -> None:
    shown = re.sub(r"\x1b\[\d+m", "", environment.run("jupyter", "labextension", "list"))
    (line,) = (line for line in shown.splitlines() if "skyward" in line)
    assert line.split() == ["skyward-panel", f"v{archives.version}", "enabled", "OK", "(python,", "skyward-jupyter)"]


def test_panel_and_cells_work_in_jupyterlab(
    environment: Environment, lab_server: Server, browser: Any, request: pytest.FixtureRequest
) -> None:
    with opened(Lab, lab_server, browser, request) as lab:
        check_front_end(lab, environment)


@pytest.mark.parametrize("environment", ["3.12 oldest", "3.13 newest"], indirect=True)
def test_panel_and_cells_work_in_notebook_7(
    environment: Environment, lab_server: Server, browser: Any, request: pytest.FixtureRequest
) -> None:
    with opened(Notebook7, lab_server, browser, request) as notebook:
        notebook.show()
        check_front_end(notebook, environment)
        assert notebook.troubles == []


@pytest.mark.parametrize("environment", ["3.12 oldest"], indirect=True)
def test_panel_works_after_an_update_of_jupyterlab(
    environment: Environment,
    browser: Any,
    browser_network: BrowserNetwork | None,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """The last test of this environment, in which the panel worked with the former JupyterLab."""
    assert environment.run("jupyter", "lab", "--version").startswith("4.2.")
    environment.install("--upgrade", "jupyterlab")
    assert not environment.run("jupyter", "lab", "--version").startswith("4.2.")
    with served(environment, tmp_path, browser_network) as server, opened(Lab, server, browser, request) as lab:
        check_front_end(lab, environment)
