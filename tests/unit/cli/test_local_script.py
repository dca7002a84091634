"""A script on this computer: what goes with it to a node."""

import os
from pathlib import Path

import pytest

from skyward.cli.scripts.local_script import LocalScript
from skyward.errors import SpecError

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_modules_beside_the_script_keep_their_places(folder: Path) -> None:
    write(folder / "code" / "train.py", "import near\nfrom parts.inner import deep\nimport json, numpy\n")
    write(folder / "code" / "near.py", "import further\n")
    write(folder / "code" / "further.py")
    write(folder / "code" / "parts" / "__init__.py")
    write(folder / "code" / "parts" / "inner" / "__init__.py")
    write(folder / "code" / "parts" / "inner" / "deep.py")
    write(folder / "code" / "not_imported.py")
    script = LocalScript.at("code/train.py")
    assert script.relative == "code/train.py"
    inside = ("further.py", "near.py", "parts/__init__.py", "parts/inner/__init__.py", "parts/inner/deep.py")
    assert sorted(script.beside) == [f"code/{name}" for name in inside]
    assert script.modules == {}


def test_modules_of_the_import_path_are_sent_for_the_import_path(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module of the script's own folder comes first, as it does in Python."""
    write(folder / "train.py", "import library.part, both\n")
    write(folder / "both.py", "ours = 1\n")
    write(tmp_path / "elsewhere" / "library" / "__init__.py")
    write(tmp_path / "elsewhere" / "library" / "part.py", "x = 1\n")
    write(tmp_path / "elsewhere" / "both.py", "ours = 0\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    script = LocalScript.at("train.py")
    assert script.beside == ("both.py",)
    assert script.modules == {"library/__init__.py": b"", "library/part.py": b"x = 1\n"}


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("none.py", "There is no script none.py in "),
        (".", ". is a folder: give a file, such as the script in it."),
        ("/dev/stdin", "/dev/stdin is no file: give a file, "),
        ("/proc/self/fd/0", "/proc/self/fd/0 is no file: give a file, "),
    ],
)
def test_wrong_script_is_named(path: str, sentence: str) -> None:
    with pytest.raises(SpecError, match="^") as refused:
        LocalScript.at(path)
    assert str(refused.value).startswith(sentence)


def test_pipe_is_no_script(folder: Path) -> None:
    """Regression: the command waited for a writer, or for what another one had read already."""
    os.mkfifo(folder / "pipe")
    with pytest.raises(SpecError, match=r"^pipe is no file: give a file, "):
        LocalScript.at("pipe")


def test_script_outside_of_the_folder_has_no_place_on_a_node(folder: Path) -> None:
    write(folder.parent / "above.py", "import near\n")
    write(folder.parent / "near.py")
    script = LocalScript.at("../above.py")
    assert script.modules == {"near.py": b""}
    with pytest.raises(SpecError, match=r"\.\./above\.py is outside of .*: run the command in a folder above"):
        _ = script.relative


def test_script_that_is_no_python_is_left_to_python(folder: Path) -> None:
    write(folder / "wrong.py", "this is no Python")
    assert LocalScript.at("wrong.py").beside == ()
