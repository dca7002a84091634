"""Environments of local nodes: when a separate one is needed, and what identifies it."""

import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.bootstrap import PHASES, client_environment, facts, script
from skyward.bootstrap.client_environment import (
    cache_directory,
    check_requirements,
    client_plan,
    has_own_environment,
    is_python_here,
)
from skyward.bootstrap.layer import begin, finish, package_folders
from skyward.bootstrap.script import limits

HERE = platform.python_version()
OTHER = "3.12" if sys.version_info[:2] != (3, 12) else "3.13"


@pytest.mark.parametrize(
    ("image", "own"),
    [
        (sky.Image(), False),
        (sky.Image(python=HERE), False),
        (sky.Image(python=f"{sys.version_info.major}.{sys.version_info.minor}"), False),
        (sky.Image(env={"A": "b"}, includes=["x"], apt=["jq"], shell_vars={"A": "b"}), False),
        (sky.Image(python=OTHER), True),
        (sky.Image(pip=["numpy"]), True),
    ],
)
def test_packages_or_another_python_need_a_separate_environment(image: sky.Image, own: bool) -> None:
    assert has_own_environment(image) == own


@pytest.mark.parametrize(
    ("running", "asked", "same"),
    [
        ("3.13.1", "3.13", True),
        ("3.13.1", "3.13.1", True),
        ("3.13.10", "3.13.1", False),
        ("3.13.1", "3.1", False),
        ("3.12.9", "3.13", False),
        ("3.14.0rc1", "3.14", True),
    ],
)
def test_version_of_python_may_omit_the_patch_level(
    monkeypatch: pytest.MonkeyPatch, running: str, asked: str, same: bool
) -> None:
    monkeypatch.setattr(platform, "python_version", lambda: running)
    assert is_python_here(asked) == same


def plan_hash(computed: dict[str, str] | None = None, **fields: Any) -> str:
    return client_plan(sky.Image(**{"pip": ["torchy"], **fields}), computed or {}).image_hash


def test_hash_depends_on_all_inputs_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one-1.0.dist-info").mkdir()
    monkeypatch.setattr(client_environment, "package_folders", lambda: [str(tmp_path)])
    wheel = tmp_path / "torchy-1.0-py3-none-any.whl"
    wheel.write_text("")
    index = sky.PipIndex("https://index.invalid/simple", ["torchy"])
    first = plan_hash()
    assert first == plan_hash() == plan_hash(includes=["x"], excludes=["y"], apt=["jq"], bootstrap_timeout=9)
    others = [
        plan_hash(pip=["torchy", "numpy"]),
        plan_hash(pip_indexes=[index]),
        plan_hash(python=OTHER),
        plan_hash(env={"A": "b"}),
        plan_hash(env={"A": "c"}),
        plan_hash({"A": "d"}, shell_vars={"A": "echo d"}),
        plan_hash(pip=[str(wheel)]),
    ]
    wheel.write_text("other content")
    others.append(plan_hash(pip=[str(wheel)]))
    (tmp_path / "two-1.0.dist-info").mkdir()
    others.append(plan_hash())
    monkeypatch.setattr(client_environment, "worker_requirements", lambda: ("casty>=99",))
    others.append(plan_hash())
    assert len({first, *others}) == len(others) + 1


def test_values_of_variables_are_not_in_the_script() -> None:
    image = sky.Image(pip=["torchy==${NEWEST}"], env={"TOKEN": "secret"}, shell_vars={"NEWEST": "echo 2.0"})
    made = client_plan(image, {"NEWEST": "2.0"})
    assert "torchy==2.0" in script(made)
    assert "secret" not in script(made)


def test_plan_does_not_change_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path))
    made = client_plan(sky.Image(pip=["torchy"], apt=["jq"], bootstrap_timeout=20), {})
    assert (made.apt, made.directory, made.settings) == ((), str(tmp_path), {})
    assert set(limits(made).values()) == {20}
    assert set(limits(made)) == set(PHASES)


@pytest.mark.parametrize("requirement", ["./here", "here/..", "-e ./here", "--editable ./here", "./here[extra]"])
def test_folders_in_pip_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    refused = requirement != "here/.."  # an installer takes it for a name
    if not refused:
        check_requirements(sky.Image(pip=[requirement]))
        return
    with pytest.raises(
        sky.SpecError, match=re.escape(f"Image.pip names the folder {requirement!r}, whose later edits")
    ):
        check_requirements(sky.Image(pip=[requirement]))


def test_undefined_variables_are_refused() -> None:
    check_requirements(sky.Image(pip=["a==${A}", "${B}"], env={"A": "1"}, shell_vars={"B": "echo b"}))
    with pytest.raises(sky.SpecError, match=r"^pip has 'a==\$\{A\}', and neither shell_vars nor env defines A.$"):
        check_requirements(sky.Image(pip=["a==${A}"]))


def test_paths_of_files_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x-1.0-py3-none-any.whl").write_text("")
    monkeypatch.chdir(tmp_path)
    requirements = ["./x-1.0-py3-none-any.whl", "numpy>=2", "y @ https://host.invalid/y.whl"]
    assert client_plan(sky.Image(pip=requirements), {}).pip == (
        f"{tmp_path}/x-1.0-py3-none-any.whl", "numpy>=2", "y @ https://host.invalid/y.whl"
    )  # fmt: skip  # one a line would be no clearer


def test_directory_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKYWARD_CACHE_DIR", "~/x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "x"
    monkeypatch.delenv("SKYWARD_CACHE_DIR")
    assert cache_directory().name == "skyward"


def test_relative_package_folders_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "PATH": "/bin",
        "PIP_FIND_LINKS": "wheels https://host.invalid/x",
        "UV_FIND_LINKS": "a,/b",
        "FORCE_COLOR": "1",
    }
    found = client_environment.for_installer(given)
    assert found["PIP_FIND_LINKS"] == f"{tmp_path}/wheels https://host.invalid/x"
    assert found["UV_FIND_LINKS"] == f"{tmp_path}/a,/b"
    assert found["PATH"].split(os.pathsep)[:2] == ["/bin", os.path.dirname(sys.executable)]
    assert "FORCE_COLOR" not in found
    assert "UV_FIND_LINKS" not in client_environment.for_installer({"PATH": "/bin"})


def test_layer_adds_and_removes_metadata_of_installed_packages(tmp_path: Path) -> None:
    begin(tmp_path, "/the/source")
    first, *others = (tmp_path / "skyward_layer.pth").read_text().splitlines()
    assert first == "/the/source"
    assert others == [f"import site; site.addsitedir({folder!r})" for folder in package_folders()]
    pytest_there = tmp_path / f"pytest-{version('pytest')}.dist-info"
    metadata = (pytest_there / "METADATA").read_text()
    assert f"Name: pytest\nVersion: {version('pytest')}\n" in metadata
    assert "Requires-Dist: pluggy" in metadata
    assert "Provides-Extra: dev" in metadata
    own = tmp_path / "torchy-1.0.dist-info"
    own.mkdir()
    (own / "INSTALLER").write_text("uv")
    finish(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["skyward_layer.pth", "torchy-1.0.dist-info"]


def test_facts_have_the_version_that_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment may shadow a package of the environment below it."""
    (tmp_path / "pytest-0.1.dist-info").mkdir()
    (tmp_path / "pytest-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert '"pytest": "0.1"' in facts.facts()
