"""The recipe for conda: it states what the package does, and the tools of conda build it."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.package.conftest import Archives
from tests.package.environment import ROOT, Environment, find_python, requirements
from tests.required import leave_out_for

pytestmark = [pytest.mark.package, pytest.mark.timeout(400)]

RECIPE = ROOT / "conda.recipe" / "recipe.yaml"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def recipe() -> dict[str, Any]:
    """Return the recipe as it is written."""
    found: dict[str, Any] = yaml.safe_load(RECIPE.read_text())
    return found


def specifiers(stated: list[str]) -> dict[str, SpecifierSet]:
    """Return the versions that requirements allow, by the name of the package, without virtual packages."""
    wanted = [Requirement(text) for text in stated if not text.startswith("__")]
    return {each.name: each.specifier for each in wanted}


def test_recipe_requires_what_the_package_requires() -> None:
    project = PYPROJECT["project"]
    extras = dict(project["optional-dependencies"])
    needed = [*project["dependencies"], *extras.pop("notebook"), f"python{project['requires-python']}"]
    optional = [text for texts in extras.values() for text in texts]
    stated = recipe()["requirements"]
    assert specifiers(stated["run"]) == specifiers(needed)
    assert specifiers(stated["run_constraints"]) == specifiers(optional)
    backend = PYPROJECT["build-system"]["requires"]
    assert specifiers(stated["host"]) == specifiers([*backend, "pip", f"python{project['requires-python']}"])


def test_recipe_has_the_version_and_the_commands_of_the_package() -> None:
    found, project = recipe(), PYPROJECT["project"]
    assert found["context"]["version"] == project["version"]
    assert found["package"]["name"] == project["name"]
    assert found["about"]["license"] == project["license"]
    commands = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert found["build"]["python"]["entry_points"] == commands


@pytest.mark.skipif(sys.platform != "linux", reason="the interpreter is packed for Linux")
def test_recipe_builds_the_files_of_the_wheel_and_passes_its_tests(archives: Archives, tmp_path: Path) -> None:
    python = find_python("3.13") or find_python("3.12")
    leave_out_for("" if python else "no CPython 3.12 or 3.13 on this machine", "SKYWARD_PACKAGE")
    tools, source = (Environment.create(tmp_path / name, python) for name in ("tools", "source"))
    tools.install(*PYPROJECT["dependency-groups"]["conda"])
    source.install(*requirements(archives.wheel, "notebook"), *PYPROJECT["build-system"]["requires"])
    program, folder = Path(__file__).with_name("conda_build.py"), tmp_path / "conda"
    built = json.loads(tools.run("python", str(program), str(RECIPE), str(source.folder), str(folder)).splitlines()[-1])
    assert built["tests"] == [True], "\n".join(built["output"])
    assert (built["name"], built["version"], built["noarch"]) == ("skyward-jupyter", archives.version, "python")
    with ZipFile(archives.wheel) as archive:
        data = f"skyward_jupyter-{archives.version}.data/data/"
        wheel = {
            name.removeprefix(data) if name.startswith(data) else f"site-packages/{name}" for name in archive.namelist()
        }
    assert {name for name in built["files"] if "dist-info" not in name} == {
        name for name in wheel if "dist-info" not in name
    }
