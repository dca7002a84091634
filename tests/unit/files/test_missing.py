"""The note about a file that a cell did not find and that exists in the notebook's folder."""

import errno
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # its stubs are another package
import pytest

from skyward.files.transfer.choice import FileOptions, choose
from skyward.files.transfer.missing import missing_note
from skyward_jupyter.options.cell_options import parse_cell

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
def test_note_names_option_for_existing_file(folder: Path, name: str) -> None:
    note = missing_note(not_found(name), str(folder), THERE, 3)
    assert note == f"data.csv is here, in {folder}, but not on node 3: send it with --file data.csv."


def test_note_names_option_for_existing_folder(folder: Path) -> None:
    note = missing_note(not_found("my data"), str(folder), THERE, 0)
    assert note is not None
    assert note.endswith("send it with --sync 'my data'.")
    note = missing_note(not_found("my data/new.txt"), str(folder), THERE, 0)
    assert note is not None
    assert note.startswith("The folder my data is here")
    assert "os.makedirs('my data', exist_ok=True)" in note


ODD_NAMES = (
    "-dash.txt",
    "--file",
    "a b.txt",
    "it's.txt",
    'say "hi".txt',
    "~me",
    "a,b.txt",
    "a #1.txt",
    "a[1]*.txt",
    "$x {y}",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_suggested_option_sends_file_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("1")
    note = missing_note(not_found(name), str(tmp_path), THERE, 0)
    assert note is not None
    line = note.partition("send it with ")[2].removesuffix(".")
    files = parse_cell(line).files
    assert list(choose(FileOptions(files=files), str(tmp_path)).files) == [name]


def test_option_for_name_with_dash_has_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "-dash.txt").write_text("1")
    note = missing_note(not_found("-dash.txt"), str(tmp_path), THERE, 0)
    assert note is not None
    assert note.endswith("send it with --file=-dash.txt.")


@pytest.mark.parametrize("name", ["-dir", "my dir", "it's", "a,b", "~me"])
def test_suggested_option_syncs_folder_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    note = missing_note(not_found(name), str(tmp_path), THERE, 0)
    assert note is not None
    line = note.partition("send it with ")[2].removesuffix(".")
    assert [root.path for root in choose(FileOptions(sync=parse_cell(line).sync), str(tmp_path)).roots] == [name]


def test_absolute_path_is_suggested_as_relative_path(folder: Path) -> None:
    note = missing_note(not_found(f"{folder}/data.csv"), str(folder), THERE, 0)
    assert note is not None
    assert note.endswith(f"send it with --file data.csv. In the cell, name it data.csv: {folder} is not there.")


def test_note_follows_the_cause_of_the_error(folder: Path) -> None:
    error = RuntimeError("could not load")
    error.__cause__ = not_found("data.csv")
    assert missing_note(error, str(folder), THERE, 0)
    assert missing_note(ExceptionGroup("several", [ValueError(), not_found("data.csv")]), str(folder), THERE, 0)


@pytest.mark.parametrize("read", [lambda: pd.read_csv("data.csv"), lambda: np.loadtxt("data.csv")])
def test_errors_of_libraries_get_the_note(folder: Path, tmp_path_factory: pytest.TempPathFactory, read: object) -> None:
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
        FileNotFoundError(errno.ENOENT, "No such file or directory"),  # "file" exists here, but is not the missing file
        PermissionError(errno.EACCES, "Permission denied", "data.csv"),
        KeyError("data.csv"),
        ValueError("data.csv is no good"),
    ],
)
def test_other_errors_get_no_note(folder: Path, error: Exception) -> None:
    assert missing_note(error, str(folder), THERE, 0) is None


def test_file_already_sent_is_not_suggested(folder: Path) -> None:
    assert missing_note(not_found("data.csv"), str(folder), THERE, 0, {"data.csv"}) is None
