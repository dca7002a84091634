"""A file that a cell did not find, and that is here, is told with the option that sends it."""

import errno
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # its stubs are another package
import pytest

from skyward_jupyter.files.missing import missing_note

pytestmark = pytest.mark.unit

THERE = "/opt/skyward/nodes/x/work"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in ("data.csv", "my data/a b.txt", "file"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("1")
    return tmp_path


def not_found(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", name)


@pytest.mark.parametrize("name", ["data.csv", "./data.csv", f"{THERE}/data.csv"])
def test_a_file_that_is_here(folder: Path, name: str) -> None:
    note = missing_note(not_found(name), str(folder), THERE, 3)
    assert note == f"data.csv is here, in {folder}, and not on node 3: send it with --file data.csv."


def test_a_folder_that_is_here(folder: Path) -> None:
    note = missing_note(not_found("my data"), str(folder), THERE, 0)
    assert note is not None
    assert note.endswith("send it with --sync 'my data'.")
    note = missing_note(not_found("my data/new.txt"), str(folder), THERE, 0)
    assert note is not None
    assert note.startswith("The folder my data is here")
    assert "os.makedirs('my data', exist_ok=True)" in note


def test_an_absolute_path_is_told_as_the_relative_one(folder: Path) -> None:
    note = missing_note(not_found(f"{folder}/data.csv"), str(folder), THERE, 0)
    assert note is not None
    assert note.endswith(f"send it with --file data.csv. In the cell, name it data.csv: {folder} is not there.")


def test_the_error_that_it_came_from_counts(folder: Path) -> None:
    error = RuntimeError("could not load")
    error.__cause__ = not_found("data.csv")
    assert missing_note(error, str(folder), THERE, 0)
    assert missing_note(ExceptionGroup("several", [ValueError(), not_found("data.csv")]), str(folder), THERE, 0)


@pytest.mark.parametrize("read", [lambda: pd.read_csv("data.csv"), lambda: np.loadtxt("data.csv")])
def test_errors_of_libraries(folder: Path, tmp_path_factory: pytest.TempPathFactory, read: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        with pytest.raises(FileNotFoundError) as raised:
            read()  # type: ignore[operator]  # it is a lambda
    assert missing_note(raised.value, str(folder), THERE, 0)


@pytest.mark.parametrize(
    "error",
    [
        not_found("other.csv"),
        not_found("/etc/data.csv"),
        not_found("../data.csv"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),  # "file" is here, and not what is meant
        PermissionError(errno.EACCES, "Permission denied", "data.csv"),
        KeyError("data.csv"),
        ValueError("data.csv is no good"),
    ],
)
def test_other_errors_have_no_such_note(folder: Path, error: Exception) -> None:
    assert missing_note(error, str(folder), THERE, 0) is None


def test_a_file_that_was_sent_is_not_advised_again(folder: Path) -> None:
    assert missing_note(not_found("data.csv"), str(folder), THERE, 0, {"data.csv"}) is None
