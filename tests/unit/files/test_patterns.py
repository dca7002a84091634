"""Relative paths and patterns for them."""

from pathlib import Path

import pytest

from skyward.files.disk import list_files, matching
from skyward.files.patterns import Excludes, Glob, is_relative, version_name

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("path", ["a", "a/b.txt", "..a", "a..b/c", ".hidden"])
def test_relative_paths_inside_the_folder_are_accepted(path: str) -> None:
    assert is_relative(path)


@pytest.mark.parametrize(
    "path", ["", ".", "..", "/a", "../a", "a/../../b", "a/..", "./a", "a//b", "a/", "a\0b", "a\\..\\b", "//a"]
)
def test_outside_or_unnormalised_paths_are_refused(path: str) -> None:
    assert not is_relative(path)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("out/*.png", ["out/a.png"], ["out/a.txt", "a.png", "out/sub/a.png", "out/.a.png"]),
        ("*.csv", ["a.csv"], ["data/a.csv", "a.csv.gz"]),
        ("**/*.csv", ["a.csv", "data/a.csv", "data/more/a.csv"], [".cache/a.csv", "a.txt"]),
        ("out", ["out", "out/a", "out/sub/b", "out/.hidden"], ["outer/a", "a/out"]),
        ("out/", ["out/a"], ["other"]),
        ("./out/*", ["out/a", "out/sub/b"], ["a"]),
        ("out/**", ["out/a", "out/sub/b"], ["outer"]),
        ("a?.t[xy]t", ["ab.txt", "ac.tyt"], ["a.txt", "abc.txt"]),
        (".env", [".env"], ["env"]),
        ("**", ["a", "b/c"], []),
        (".", ["a", "b/c"], []),
    ],
)
def test_glob_selects_matching_paths(tmp_path: Path, pattern: str, matching: list[str], others: list[str]) -> None:
    glob = Glob(pattern)
    assert [path for path in [*matching, *others] if glob.matches(path)] == matching


def test_glob_finds_matching_files_on_disk(tmp_path: Path) -> None:
    paths = ["a.csv", "data/a.csv", "data/more/b.csv", "data/c.txt", ".cache/d.csv", "out/x/y", "outer/z"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for pattern in (
        "*.csv",
        "**/*.csv",
        "data/*",
        "data",
        "*/*.csv",
        "out*",
        "data/**/b.csv",
        "**",
        "nothing",
        "a.csv/b",
    ):
        glob = Glob(pattern)
        assert sorted(matching(str(tmp_path), glob)) == sorted(path for path in paths if glob.matches(path)), pattern


def test_cyclic_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_text("1")
    (tmp_path / "data/link").symlink_to(tmp_path / "data/a")
    (tmp_path / "data/self").symlink_to(tmp_path / "data")
    (tmp_path / "data/nowhere").symlink_to(tmp_path / "not there")
    assert sorted(matching(str(tmp_path), Glob("**"))) == ["data/a", "data/link"]
    assert sorted(list_files(str(tmp_path), "data", Excludes())) == ["data/a", "data/link"]
    assert sorted(matching(str(tmp_path), Glob("data/self/a"))) == ["data/self/a"]


def test_excludes_apply_to_every_level_of_a_folder(tmp_path: Path) -> None:
    kept = ["a.py", "data/a.csv", "deep/data/x"]
    left = [".git/x", "a/__pycache__/b.pyc", ".venv/lib/x", "a/.ipynb_checkpoints/b", "env/lib/x", "big.ckpt", "data/x"]
    for path in [*kept, *left, "env/pyvenv.cfg"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    excludes = Excludes((*Excludes().patterns, "*.ckpt", "data/x"))
    assert sorted(list_files(str(tmp_path), ".", excludes)) == kept
    assert excludes.skip_any("a/__pycache__/b.pyc")
    assert excludes.skip_any("data/x")
    assert not excludes.skip_any("data/a.csv")
    assert (
        sorted(list_files(str(tmp_path), "deep", excludes)) == []
    )  # patterns with "/" are compared from the folder itself


@pytest.mark.parametrize(
    ("path", "other"),
    [("a.png", "a.node0.png"), ("out/a.png", "out/a.node0.png"), ("LICENSE", "LICENSE.node0"), (".env", ".env.node0")],
)
def test_copy_of_a_file_is_named_for_its_node(path: str, other: str) -> None:
    assert version_name(path, "node0") == other
    assert version_name("a.png", "node0", 2) == "a.node0-2.png"
