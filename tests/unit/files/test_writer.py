"""Files sent by a node are written only if they were requested, and only inside the notebook's folder."""

from pathlib import Path

import pytest

from skyward.files.disk import Content, Versions
from skyward.files.request import FetchedFile, FilesRequest, FilesResult, FilesRoot, Packing
from skyward.files.transfer.writer import FileWriter

pytestmark = pytest.mark.unit


def write_results(
    folder: Path, *paths: str, fetch: tuple[str, ...] = ("**",), deleted: tuple[str, ...] = ()
) -> list[str]:
    """Have a node send files of these paths. Return the reported problems."""
    packing = Packing()
    spans = [packing.add(path, Content((b"1",), (b"",), b"v" * 32, 1), 10**18) for path in paths]
    files = tuple(FetchedFile(span, may_replace=True, is_written=True) for span in spans)
    result = FilesResult("/there", files=files, blobs=packing.blobs(), deleted=deleted)
    roots = (FilesRoot("."),) if deleted else ()
    request = FilesRequest(str(folder), fetch=fetch, roots=roots, client_versions=dict.fromkeys(deleted, b"v"))
    writer = FileWriter(request, Versions(), lambda *_, **__: None, {})
    writer.write([(0, result)], "single")
    return writer.problems


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil", "a/../../evil", "", ".", "a\0b", "a//b", "./a"])
def test_path_outside_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    here = tmp_path / "here"
    here.mkdir()
    assert write_results(here, path) == [f"Node 0 sent {path!r}, which was not requested: it was not written."]
    assert list(tmp_path.rglob("*")) == [here]
    assert not Path("/tmp/evil").exists()


def test_file_not_requested_is_refused(tmp_path: Path) -> None:
    assert write_results(tmp_path, "out/a.png", "main.py", fetch=("out/*.png",)) == [
        "Node 0 sent 'main.py', which was not requested: it was not written."
    ]
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "a.png"]


def test_links_are_not_followed_for_writes_or_deletions(tmp_path: Path) -> None:
    here, outside = tmp_path / "here", tmp_path / "outside"
    here.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (here / "out").symlink_to(outside)
    (problem,) = write_results(here, "out/a")
    assert (
        problem == f"out/a of node 0 could not be written here: out leads out of the notebook's folder, to {outside}."
    )
    write_results(here, deleted=("out/kept",))
    assert [path.name for path in outside.iterdir()] == ["kept"]


def test_link_in_place_of_file_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine")
    (tmp_path / "a.txt").symlink_to(tmp_path / "target")
    assert "a.node0.txt" in write_results(tmp_path, "a.txt", fetch=("*.txt",))[0]
    assert (tmp_path / "a.txt").is_symlink()
    assert (tmp_path / "target").read_text() == "mine"
    assert (tmp_path / "a.node0.txt").read_text() == "1"


def test_incomplete_file_is_not_written(tmp_path: Path) -> None:
    packing = Packing()
    span = packing.add("a", Content((b"12",), (b"",), b"v" * 32, 2), 0)
    result = FilesResult("/there", files=(FetchedFile(span, may_replace=True, is_written=True),))
    writer = FileWriter(FilesRequest(str(tmp_path), fetch=("a",)), Versions(), lambda *_, **__: None, {})
    writer.write([(0, result)], "single")
    assert writer.problems == ["a of node 0 could not be written here: a is incomplete."]
    assert list(tmp_path.iterdir()) == []
