"""Contents and metadata of the wheel and the source archive."""

import json
import re
import stat
import subprocess
import tarfile
import tomllib
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest
from markdown_it import MarkdownIt
from packaging.metadata import Metadata
from trove_classifiers import classifiers

from tests.package.conftest import Archives, build
from tests.package.environment import ROOT, Environment, find_python

pytestmark = pytest.mark.package

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"skyward_jupyter-{PROJECT['version']}"
FOLDERS = {
    "skyward": "skyward",
    "skyward_jupyter": "skyward_jupyter",
    "providers/skyward_providers": "skyward_providers",
    "kernel_bridge/skyward_kernel": "skyward_kernel",
    "labextension/dist": f"{NAME}.data/data/share/jupyter/labextensions/skyward-panel",
}
"""Folders of the repository, with their places in the wheel."""


def tracked(*folders: str) -> list[str]:
    """Return the files of folders that are in the repository, or are new and not ignored."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [file for file in files if (ROOT / file).exists()]


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> Metadata:
    """Return the metadata of a wheel, checked by the rules of indexes."""
    return Metadata.from_email(contents(wheel)[f"{NAME}.dist-info/METADATA"], validate=True)


def test_wheel_has_the_files_of_the_packages_and_of_the_panel(archives: Archives) -> None:
    """It has no tests, pages, notebooks and caches, since it has nothing else."""
    wanted = {f"{place}{file.removeprefix(folder)}" for folder, place in FOLDERS.items() for file in tracked(folder)}
    wanted |= {f"{FOLDERS['labextension/dist']}/install.json"}
    wanted |= {f"{NAME}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    wanted |= {f"{NAME}.dist-info/licenses/LICENSE"}
    assert {*contents(archives.wheel)} == wanted
    assert archives.wheel.name == f"{NAME}-py3-none-any.whl"


@pytest.mark.parametrize("package", ["skyward", "skyward_jupyter", "skyward_kernel", "skyward_providers"])
def test_wheel_is_typed(archives: Archives, package: str) -> None:
    assert contents(archives.wheel)[f"{package}/py.typed"] == b""


def test_files_of_the_wheel_are_readable_by_everyone(archives: Archives) -> None:
    with ZipFile(archives.wheel) as archive:
        modes = {entry.filename: stat.S_IMODE(entry.external_attr >> 16) for entry in archive.infolist()}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o444 != 0o444} == {}


def test_source_archive_builds_the_same_wheel(archives: Archives, tmp_path: Path) -> None:
    with tarfile.open(archives.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (again,) = build(tmp_path / NAME, tmp_path / "built", "wheel")
    assert again.read_bytes() == archives.wheel.read_bytes()


def test_source_archive_has_no_tests_pages_and_caches(archives: Archives) -> None:
    with tarfile.open(archives.sdist) as archive:
        files = {Path(name).relative_to(NAME).as_posix() for name in archive.getnames()}
    packages = {file for folder in FOLDERS for file in tracked(folder)}
    others = {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert files == packages | others | {"labextension/install.json", "scripts/published_readme.py"}


def test_oldest_build_backend_builds_the_same_files(archives: Archives, tmp_path: Path) -> None:
    (requirement,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    environment = Environment.create(tmp_path / "environment", find_python("3.13") or find_python("3.12"))
    environment.install(requirement, resolution="oldest")
    (again,) = build(ROOT, tmp_path / "built", "wheel", python=environment.python)
    stated = {f"{NAME}.dist-info/WHEEL", f"{NAME}.dist-info/RECORD"}  # the version of the backend
    ours, theirs = contents(archives.wheel), contents(again)
    assert {*ours} == {*theirs}
    assert {name for name in ours if ours[name] != theirs[name]} <= stated


def test_versions_agree(archives: Archives) -> None:
    """`pyproject.toml` has the version; `make panel` writes it into the files of the panel."""
    assert str(metadata(archives.wheel).version) == PROJECT["version"]
    lock = json.loads((ROOT / "labextension/package-lock.json").read_text())
    built = json.loads(contents(archives.wheel)[f"{FOLDERS['labextension/dist']}/package.json"])
    source = json.loads((ROOT / "labextension/package.json").read_text())
    stated = {built["version"], source["version"], lock["version"], lock["packages"][""]["version"]}
    assert stated == {PROJECT["version"]}, "run: make panel"


def test_metadata_is_what_indexes_accept(archives: Archives) -> None:
    found = metadata(archives.wheel)
    assert (found.metadata_version, found.name) == ("2.4", "skyward-jupyter")
    assert (found.license_expression, found.license_files) == ("MIT", ["LICENSE"])
    assert contents(archives.wheel)[f"{NAME}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert {*(found.classifiers or ())} <= classifiers
    assert str(found.requires_python) == ">=3.12"
    with tarfile.open(archives.sdist) as archive:
        stated = archive.extractfile(f"{NAME}/PKG-INFO")
        assert stated is not None
        assert stated.read() == contents(archives.wheel)[f"{NAME}.dist-info/METADATA"]


def test_classifiers_name_the_tested_versions_of_python(archives: Archives) -> None:
    named = [each for each in metadata(archives.wheel).classifiers or () if re.search(r":: 3\.\d+$", each)]
    assert named == [f"Programming Language :: Python :: {version}" for version in ("3.12", "3.13")]


def test_description_renders_without_the_repository(archives: Archives) -> None:
    """Relative links lead nowhere on the page of an index, and the commands of the Makefile are not there."""
    found = metadata(archives.wheel)
    assert found.description_content_type == "text/markdown"
    text = found.description or ""
    tokens = [child for token in MarkdownIt().parse(text) for child in (token, *(token.children or ()))]
    targets = [
        token.attrGet("href") or token.attrGet("src") for token in tokens if token.type in ("link_open", "image")
    ]
    assert [target for target in targets if not str(target).startswith("https://")] == []
    html = [token.content for token in tokens if token.type in ("html_block", "html_inline")]
    assert [each for each in html if not re.fullmatch(r"<!--[^>]*-->\s*", each)] == [], "every renderer drops comments"
    assert "](" not in re.sub(r"```.*?```|`[^`\n]+`", "", text, flags=re.DOTALL)
    assert "    make " not in text
    assert text.startswith("# Skyward for Jupyter\n")
    assert "\n## Install\n" in text


def test_entry_points_exist(archives: Archives) -> None:
    parser = ConfigParser(delimiters=("=",))
    parser.read_string(contents(archives.wheel)[f"{NAME}.dist-info/entry_points.txt"].decode())
    found = {section: dict(parser[section]) for section in parser.sections()}
    assert {*found} == {"console_scripts", "skyward.providers", "skyward.plugins", "skyward.views"}
    assert {*found["console_scripts"]} == {"sky", "skyward"}
    for target in (each for section in found.values() for each in section.values()):
        module, _, attribute = target.partition(":")
        assert not attribute or callable(getattr(import_module(module), attribute)), target
        import_module(module)
