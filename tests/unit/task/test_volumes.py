"""Notes on paths of volumes that local nodes do not have."""

import json
from pathlib import Path

import pytest

from skyward.task.volumes import VOLUMES
from skyward.worker.tasks.exceptions import as_ordinary_error

MOUNT = "/skyward-test-results"


def note_on(error: BaseException) -> str:
    return "".join(getattr(as_ordinary_error(error, "f()", 0), "__notes__", ()))


@pytest.mark.parametrize("name", [f"{MOUNT}/x", f"{MOUNT}/sub/x y", MOUNT])
def test_missing_path_below_a_mount_is_explained_on_a_local_node(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VOLUMES, json.dumps({MOUNT: str(tmp_path)}))
    with pytest.raises(FileNotFoundError) as caught:
        Path(name).read_bytes()
    assert f"take its path from sky.volume({MOUNT!r}), which works on any node." in note_on(caught.value)
    assert MOUNT in note_on(RuntimeError(f"Parent directory {MOUNT} does not exist."))


def test_other_errors_and_other_paths_get_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = FileNotFoundError(2, "No such file or directory", f"{MOUNT}/x")
    assert note_on(missing) == "", "no volumes"
    monkeypatch.setenv(VOLUMES, json.dumps({MOUNT: MOUNT}))
    assert note_on(missing) == "", "the volume is at its mount"
    monkeypatch.setenv(VOLUMES, json.dumps({MOUNT: str(tmp_path)}))
    for error in (
        FileNotFoundError(2, "No such file or directory", f"{MOUNT}2/x"),
        FileNotFoundError(2, "No such file or directory", f"/home{MOUNT}/x"),
        ValueError(f"{MOUNT}/x is wrong"),
    ):
        assert note_on(error) == ""
    monkeypatch.setenv(VOLUMES, json.dumps({str(tmp_path): "/elsewhere"}))
    there = FileNotFoundError(2, "No such file or directory", str(tmp_path / "x"))
    assert note_on(there) == "", "the mount is there, and the file is not"
