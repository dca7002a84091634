"""Removal of unused environments on a machine."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from skyward.bootstrap import prune
from skyward.bootstrap.prune import KEPT, CachedItem, doomed

pytestmark = pytest.mark.unit

DAY = 86400.0
NOW = 1_000 * DAY


def aged(*days: float) -> list[CachedItem]:
    """Return items that were unused for these numbers of days."""
    return [CachedItem(f"{age:g}", NOW - age * DAY) for age in days]


@pytest.mark.parametrize(
    ("found", "gone"),
    [
        ([], []),
        (aged(40, 50, 60, 70, 80), []),  # as many as are always kept
        (aged(0, 1, 2, 3, 4, 5, 29), []),  # none is old
        (aged(0, 1, 2, 3, 4, 31), ["31"]),
        (aged(60, 31, 50, 40, 80, 70), ["80"]),
        (aged(0, 31, 32, 33, 34, 35, 50), ["35", "50"]),
        ([*aged(0, 1, 2, 3, 4, 31), CachedItem("busy", NOW - 90 * DAY, busy=True)], ["31"]),
    ],
)
def test_old_items_are_doomed_unless_in_use_or_among_the_newest(found: list[CachedItem], gone: list[str]) -> None:
    assert doomed(found, NOW) == gone
    assert doomed(reversed(found), NOW) == gone


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("envs", "state", "logs", "trees", "blobs", "run", "used"):
        (tmp_path / folder).mkdir()
    return tmp_path


def make_env(root: Path, name: str, days: float) -> Path:
    """Make an environment with everything that belongs to it, unused for so many days; return its mark."""
    for folder in ("envs", "state", "logs"):
        (root / folder / name).mkdir()
        (root / folder / name / "file").touch()
    return mark(root, name, days)


def mark(root: Path, name: str, days: float) -> Path:
    path = root / "used" / name
    path.touch()
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


def kept(root: Path, *folders: str) -> set[str]:
    return {f"{folder}/{path.name}" for folder in folders for path in (root / folder).iterdir()}


def test_environment_is_removed_with_everything_that_belongs_to_it(root: Path) -> None:
    for n in range(KEPT):
        make_env(root, f"young{n}", n)
    make_env(root, "old", 31)
    assert prune.prune(root, time.time()) == ["old"]
    assert not {name for name in kept(root, "envs", "state", "logs", "used", "trash") if "young" not in name}
    assert len(kept(root, "envs", "state", "logs", "used")) == 4 * KEPT
    assert prune.prune(root, time.time()) == []


def test_locked_environment_is_kept_and_counts_as_used(root: Path) -> None:
    for n in range(KEPT):
        make_env(root, f"young{n}", n)
    path = make_env(root, "held", 40)
    with path.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        assert prune.prune(root, time.time()) == []
    assert time.time() - path.stat().st_mtime < DAY


def test_nothing_is_removed_during_a_bootstrap(root: Path) -> None:
    for n in range(KEPT + 1):
        make_env(root, f"old{n}", 40 + n)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError):
            prune.prune(root, time.time())
    assert len(kept(root, "envs")) == KEPT + 1
    assert not (root / "pruned").exists()
    assert len(prune.prune(root, time.time())) == 1


def test_old_trees_blobs_and_scripts_are_removed(root: Path) -> None:
    for n in range(KEPT + 1):
        (root / "trees" / f"tree{n}").mkdir()
        mark(root, f"tree{n}", 40 + n)
    for folder in ("blobs", "run"):
        for name, days in (("young", 1), ("old", 31)):
            (root / folder / name).touch()
            os.utime(root / folder / name, (time.time() - days * DAY,) * 2)
    prune.prune(root, time.time())
    assert kept(root, "trees") == {f"trees/tree{n}" for n in range(KEPT)}
    assert kept(root, "blobs", "run") == {"blobs/young", "run/young"}


def test_interrupted_removal_is_completed(root: Path) -> None:
    (root / "trash" / "envs-old.7" / "lib").mkdir(parents=True)
    prune.prune(root, time.time())
    assert not kept(root, "trash")
