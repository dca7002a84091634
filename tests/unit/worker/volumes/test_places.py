"""Places of volumes: what is not hidden, what is replaced, and what is removed, without deleting a file."""

import os
from pathlib import Path

import pytest

from skyward.worker.volumes import places
from skyward.worker.volumes.places import PlaceError, Space, clear_abandoned, clear_space


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    """Space below the folder of the test."""
    monkeypatch.setattr(places, "spaces_folder", lambda: str(tmp_path / "spaces"))
    return Space("own")


def folder_with(path: Path, name: str) -> Path:
    path.mkdir()
    (path / name).touch()
    return path


def test_link_is_replaced_and_removed_with_the_space(space: Space, tmp_path: Path) -> None:
    first, second = folder_with(tmp_path / "first", "one"), folder_with(tmp_path / "second", "two")
    at = tmp_path / "node" / "data"
    space.place(first, at, read_only=True, link=True)
    assert os.listdir(at) == ["one"]
    space.place(second, at, read_only=True, link=True)
    assert os.listdir(at) == ["two"]
    space.clear()
    assert not os.path.lexists(at)
    assert not space.folder.exists()
    assert os.listdir(first) == ["one"]
    assert os.listdir(second) == ["two"]


def test_empty_folder_is_replaced_by_the_link(space: Space, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    space.place(folder_with(tmp_path / "files", "one"), tmp_path / "data", read_only=True, link=True)
    assert os.listdir(tmp_path / "data") == ["one"]
    space.clear()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda at: folder_with(at, "precious"), "is a folder with files on the node, which the volume would hide"),
        (lambda at: at.touch(), "is a file on the node"),
        (lambda at: at.symlink_to("/elsewhere"), "is a symbolic link on the node"),
    ],
)
def test_what_is_there_is_not_hidden(space: Space, tmp_path: Path, make: object, reason: str) -> None:
    at = tmp_path / "data"
    make(at)  # type: ignore[operator]  # the parameters are functions of a path
    with pytest.raises(PlaceError, match=reason):
        space.place(tmp_path, at, read_only=True, link=True)
    assert os.path.lexists(at)
    space.clear()


def test_link_of_a_worker_that_has_ended_is_replaced(space: Space, tmp_path: Path) -> None:
    at = tmp_path / "data"
    at.symlink_to(space.folder.parent / "gone" / "m1")
    space.place(folder_with(tmp_path / "files", "one"), at, read_only=True, link=True)
    assert os.listdir(at) == ["one"]
    space.clear()


def test_link_of_another_node_on_the_machine_is_not_taken(space: Space, tmp_path: Path) -> None:
    other, at = Space("other"), tmp_path / "data"
    other.place(other.new_folder(), at, read_only=True, link=True)
    with pytest.raises(PlaceError, match="is a volume of another node on the same machine"):
        space.place(tmp_path, at, read_only=True, link=True)
    assert Path(os.readlink(at)).is_relative_to(other.folder)
    other.clear()
    space.clear()


def test_path_that_cannot_be_made_is_refused_with_the_fix(space: Space, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlaceError, match="cannot be made on the node .* such as one below /tmp or its home"):
        space.place(tmp_path, tmp_path / "file" / "data", read_only=True, link=True)
    space.clear()


def test_spaces_of_killed_workers_are_removed_and_those_in_use_are_not(space: Space, tmp_path: Path) -> None:
    files = folder_with(tmp_path / "files", "one")
    dead = space.folder.parent / "dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "m1").mkdir()
    (tmp_path / "left").symlink_to(files)
    (dead / "record").write_text(f"link {tmp_path / 'left'}\n")
    clear_abandoned()
    assert not dead.exists()
    assert not os.path.lexists(tmp_path / "left")
    assert os.listdir(files) == ["one"]
    assert space.folder.exists()
    space.clear()


def test_space_with_files_in_it_is_left(space: Space) -> None:
    """A folder that is not empty may be a mount whose end was not seen."""
    folder = space.new_folder()
    (folder / "object").touch()
    clear_space(space.folder)
    assert (folder / "object").exists()
    (folder / "object").unlink()
    space.clear()


def test_folder_of_another_user_is_refused(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PlaceError, match="belongs to another user"):
        Space("other")
    monkeypatch.undo()
    space.clear()
