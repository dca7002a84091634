"""The working directory of a cell, where task slots are threads of one process."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skyward.errors import PayloadError
from skyward.worker.tasks import folder as folders
from skyward.worker.tasks.folder import Directories, enter, leave

pytestmark = pytest.mark.unit


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which a worker with two slots has started."""
    for name in ("start", "one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "start")
    monkeypatch.setattr(folders, "_found", Directories(str(tmp_path / "start"), str(tmp_path), threads=True))
    return tmp_path / "start"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have directories of their own on Linux")
def test_each_slot_has_its_own_directory(start: Path) -> None:
    one, two = str(start.parent / "one"), str(start.parent / "two")
    first, second = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    with first, second:
        first.submit(enter, one).result(10)
        second.submit(enter, two).result(10)
        second.submit(os.chdir, "/").result(10)
        assert first.submit(os.getcwd).result(10) == one
        assert os.getcwd() == str(start)
        first.submit(leave).result(10)
        assert second.submit(os.getcwd).result(10) == "/"
        assert first.submit(os.getcwd).result(10) == str(start)


def test_cells_of_other_folders_are_refused_without_per_thread_directories(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "unshare", refuse, raising=False)
    one, two = str(start.parent / "one"), str(start.parent / "two")
    first, second = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    with first, second:
        first.submit(enter, one).result(10)
        second.submit(enter, one).result(10)
        first.submit(leave).result(10)
        assert os.getcwd() == one
        with pytest.raises(
            PayloadError, match=f"runs a cell in {one} now, .* wait for the other one, or open the pool"
        ):
            first.submit(enter, two).result(10)
        second.submit(leave).result(10)
        second.submit(leave).result(10)
        assert os.getcwd() == str(start)
        first.submit(enter, two).result(10)
        assert os.getcwd() == two
        first.submit(leave).result(10)


def test_missing_folder_changes_nothing(start: Path) -> None:
    with ThreadPoolExecutor(1) as slot:
        with pytest.raises(FileNotFoundError):
            slot.submit(enter, str(start / "nowhere")).result(10)
        slot.submit(leave).result(10)
    assert os.getcwd() == str(start)


def test_process_outside_a_worker_keeps_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_found", None)
    before = os.getcwd()
    enter(str(tmp_path))
    leave()
    assert os.getcwd() == before
