"""Suggested fixes for a module that a node lacks."""

from pathlib import Path

import pytest

import skyward as sky
from skyward.control.act.tasks.missing_modules import with_fix
from skyward.wire.failures.failure import capture_failure
from skyward.worker.tasks.missing_modules import missing_module


def fix(module: str) -> str:
    advice = str(with_fix(sky.MissingModuleError(f"module {module!r} is not installed on node 0", name=module)))
    return advice.removeprefix(f"module {module!r} is not installed on node 0; ")


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("my_module_here.py", "./my_module_here.py"),
        ("my_module_here/__init__.py", "./my_module_here"),
        ("my_module_here/part.py", "./my_module_here"),
    ],
)
def test_own_module_is_named_with_its_path_and_never_with_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, shown: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    monkeypatch.chdir(tmp_path)
    for module in ("my_module_here", "my_module_here.part"):
        assert fix(module) == (
            f"it is your own, {shown}: import it at the top of the script or notebook, so that it travels with the "
            f"function, or send it with `--include {shown}` on the cell, or Image(includes=[{shown!r}]) in code"
        )


def test_own_module_elsewhere_on_the_import_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere_of_mine.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = f"{tmp_path}/elsewhere_of_mine.py"
    assert f"send it with `--include {path}` on the cell, or Image(includes=['{path}'])" in fix("elsewhere_of_mine")


def test_installed_distribution_is_suggested_by_its_own_name() -> None:
    assert (
        fix("cloudpickle.pickle")
        == "add it with `--pip cloudpickle` on the cell, or Image(pip=['cloudpickle']) in code"
    )
    assert fix("dateutil").startswith("add it with `--pip python-dateutil` on the cell")
    assert fix("cv2").startswith("add it with `--pip opencv-python-headless` on the cell")


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("numpy", "add it with `--pip numpy`"),
        ("numpy.linalg", "add it with `--pip numpy`"),
        ("yaml", "add it with `--pip PyYAML`"),
        ("dateutil", "add it with `--pip python-dateutil`"),
        ("no_such_module_here", "it is not installed on this machine either"),
    ],
)
def test_all_distributions_are_searched_only_if_the_likely_one_does_not_provide_the_module(
    module: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search_all() -> dict[str, list[str]]:
        pytest.fail("all distributions were looked through")

    monkeypatch.setattr("skyward.control.act.tasks.missing_modules.packages_distributions", search_all)
    assert fix(module).startswith(advice)


def test_distribution_of_another_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site-packages/other_name-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Other-Name\nVersion: 1.0\n")
    (info / "RECORD").write_text("brought_here/__init__.py,,\n")
    (tmp_path / "site-packages/brought_here").mkdir()
    (tmp_path / "site-packages/brought_here/__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(info.parent))
    assert fix("brought_here").startswith("add it with `--pip Other-Name` on the cell")


def test_unknown_module_gets_a_reserved_suggestion() -> None:
    assert fix("mdoule_with_typo").startswith(
        "it is not installed on this machine either, so check the name first; if you mean "
    )


@pytest.mark.parametrize(
    ("packages", "given"),
    [(("numpy", "opencv_python.headless>=4"), "opencv_python.headless>=4"), (("opencv-python-headless",), "opencv-")],
)
def test_installed_package_is_not_suggested(packages: tuple[str, ...], given: str) -> None:
    error = sky.MissingModuleError("module 'cv2' is not installed on node 0", name="cv2")
    error.packages = packages
    advice = with_fix(error)
    assert f"Image.pip has '{given}" in str(advice)
    assert "which is installed on the node and does not provide this module: check the module's name" in str(advice)
    assert "--pip" not in str(advice)
    error.packages = ("opencv",)
    assert "add it with `--pip opencv-python-headless`" in str(with_fix(error))


def test_packages_of_the_node_are_part_of_the_pickled_error() -> None:
    error = missing_module(ModuleNotFoundError("No module named 'x'", name="x"), 0)
    assert error.packages is None
    error.packages = ("numpy",)
    again = capture_failure(error).rebuild()
    assert isinstance(again, sky.MissingModuleError)
    assert (again.packages, again.name) == (("numpy",), "x")


def test_other_errors_are_returned_unchanged() -> None:
    error = ValueError("x")
    assert with_fix(error) is error
