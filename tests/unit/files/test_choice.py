"""Selection of files by `--file`, `--sync` and `--fetch`, and the errors for invalid values."""

import os
from pathlib import Path

import pytest

from skyward.errors import SkywardError, TooLargeError, UsageError
from skyward.files.transfer.choice import IGNORE_FILE, FileOptions, choose

pytestmark = pytest.mark.unit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notebook"
    for path in ("data.csv", "data/a.csv", "data/b.csv", "data/deep/c.csv", "a,b.txt", "out/x"):
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_text("12")
    (tmp_path / "outside.csv").write_text("1")
    return made


@pytest.mark.parametrize(
    ("texts", "files"),
    [
        (("data.csv",), ["data.csv"]),
        (("./data/../data.csv",), ["data.csv"]),
        (("data/*.csv",), ["data/a.csv", "data/b.csv"]),
        (("data/**/*.csv",), ["data/a.csv", "data/b.csv", "data/deep/c.csv"]),
        (("*.csv", "data.csv"), ["data.csv"]),
        (("data.csv, data/a.csv",), ["data.csv", "data/a.csv"]),
        (("a,b.txt",), ["a,b.txt"]),
    ],
)
def test_file_option_selects_files(folder: Path, texts: tuple[str, ...], files: list[str]) -> None:
    assert sorted(choose(FileOptions(texts), str(folder)).files) == files


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (FileOptions(("dtaa.csv",)), "--file dtaa.csv: no such file in {0}. Did you mean data.csv or data/a.csv?"),
        (FileOptions(("a.csv",)), "--file a.csv: no such file in {0}. Did you mean data/a.csv or data.csv?"),
        (
            FileOptions(("nothing",)),
            "--file nothing: no such file in {0}. Paths are relative to that folder.",
        ),
        (
            FileOptions(("*.parquet",)),
            "--file *.parquet: no file matches it in {0}. Paths are relative to that folder.",
        ),
        (FileOptions(("data",)), "--file data: it is a folder, but --file sends files: write --sync data."),
        (FileOptions((".",)), "--file .: it is a folder, but --file sends files: write --sync ."),
        (
            FileOptions(("../outside.csv",)),
            "--file ../outside.csv: it is outside the working folder {0}, and has no place on a node: "
            "copy or link it into the folder.",
        ),
        (
            FileOptions(("{0}/data.csv",)),
            "--file {0}/data.csv: write the path relative to the working folder, as the code does: --file data.csv.",
        ),
        (
            FileOptions(("/etc/passwd",)),
            "--file /etc/passwd: it is outside the working folder {0}, and has no place on a node: "
            "copy or link it into the folder.",
        ),
        (FileOptions(sync=("dat",)), "--sync dat: no such folder in {0}. Did you mean data?"),
        (
            FileOptions(sync=("data.csv",)),
            "--sync data.csv: it is a file, but --sync takes a folder: write --file data.csv.",
        ),
        (
            FileOptions(sync=("..",)),
            "--sync ..: it is outside the working folder {0}, and has no place on a node: "
            "copy it into the folder, or work in a folder above it.",
        ),
        (
            FileOptions(fetch=("/tmp/*.png",)),
            "--fetch /tmp/*.png: it is outside the working folder {0}, and has no place on a node: "
            "write it below the working folder.",
        ),
        (
            FileOptions(("data.csv", "data/a.csv"), limit=3),
            "the files to send are 4 B, which is over the limit of 3 B; the largest is data.csv (2 B). "
            "Leave it out, or raise the limit with --file-limit.",
        ),
    ],
)
def test_invalid_choice_raises_with_advice(folder: Path, asked: FileOptions, words: str) -> None:
    here = str(folder)
    asked = FileOptions(tuple(text.format(here) for text in asked.files), asked.sync, asked.fetch, (), asked.limit)
    with pytest.raises(SkywardError) as raised:
        choose(asked, here)
    assert isinstance(raised.value, TooLargeError if asked.limit else UsageError)
    assert str(raised.value) == words.format(here)


def test_option_takes_several_folders_and_patterns(folder: Path) -> None:
    choice = choose(FileOptions(sync=("data, out",), fetch=("out/*.png,model.pt",)), str(folder))
    assert [root.path for root in choice.roots] == ["data", "out"]
    assert choice.fetch == ("out/*.png", "model.pt")


def test_link_out_of_the_folder_is_read_but_never_written(folder: Path) -> None:
    (folder / "linked.csv").symlink_to(folder.parent / "outside.csv")
    assert list(choose(FileOptions(("linked.csv",)), str(folder)).files) == ["linked.csv"]
    (folder.parent / "results").mkdir()
    (folder / "results").symlink_to(folder.parent / "results")
    for asked in (FileOptions(fetch=("results/*.png",)), FileOptions(sync=("results",))):
        with pytest.raises(UsageError, match="is a link to .*, outside the working folder"):
            choose(asked, str(folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_refused(folder: Path) -> None:
    (folder / "data.csv").chmod(0)
    with pytest.raises(UsageError, match="--file data.csv: it cannot be read; check its permissions."):
        choose(FileOptions(("data.csv",)), str(folder))


def test_special_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(UsageError, match="--file pipe: it is neither a file nor a folder"):
        choose(FileOptions(("pipe",)), str(folder))
    assert "pipe" not in choose(FileOptions(sync=(".",)), str(folder)).synced


def test_synced_folder_applies_excludes(folder: Path) -> None:
    (folder / IGNORE_FILE).write_text("# mine\n\n*.txt\ndata/deep/\n")
    choice = choose(FileOptions(("data.csv", "a,b.txt"), sync=(".", "data"), excludes=("b.csv",)), str(folder))
    assert [root.path for root in choice.roots] == ["."]
    assert sorted(choice.synced) == [IGNORE_FILE, "data.csv", "data/a.csv", "out/x"]
    assert sorted(choice.files) == ["a,b.txt"]  # selected by name, although the folder excludes it


def test_ignore_file_with_negated_pattern_is_refused(folder: Path) -> None:
    (folder / IGNORE_FILE).write_text("*.txt\n!a.txt\n")
    with pytest.raises(UsageError, match=r"!a.txt is a negated pattern, which is not supported: remove the line."):
        choose(FileOptions(sync=(".",)), str(folder))


def test_folder_with_too_many_files_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(choose.__globals__, "_MOST", 3)
    with pytest.raises(UsageError, match=r"^--sync .: the folder has more than 3 files. Name a smaller one"):
        choose(FileOptions(sync=(".",)), str(folder))
