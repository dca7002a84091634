"""Caches of frameworks and volumes on a machine: their variables, and what is removed from them."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from skyward.bootstrap.prune import prune_caches
from skyward.caches.frameworks import cache_variables
from skyward.caches.items import DAY, CacheItem, bytes_lacking, unwanted
from skyward.caches.users import CacheUsers, use_caches
from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation
from skyward.worker.volumes.pruning import prune_volumes
from skyward.worker.volumes.trees import CachedTrees

pytestmark = pytest.mark.unit

NOW = 1_000 * DAY
FOLDER = Path("/opt/skyward/caches")


def test_frameworks_have_their_caches_in_one_folder(tmp_path: Path) -> None:
    assert cache_variables(FOLDER, {}, tmp_path) == {
        "HF_HOME": "/opt/skyward/caches/huggingface",
        "TORCH_HOME": "/opt/skyward/caches/torch",
        "KERAS_HOME": "/opt/skyward/caches/keras",
        "SCIKIT_LEARN_DATA": "/opt/skyward/caches/scikit-learn",
    }


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({"HF_HOME": "/data/hub"}, {"TORCH_HOME", "KERAS_HOME", "SCIKIT_LEARN_DATA"}),
        ({"HF_HOME": ""}, {"TORCH_HOME", "KERAS_HOME", "SCIKIT_LEARN_DATA"}),
        ({"XDG_CACHE_HOME": "/scratch"}, {"KERAS_HOME", "SCIKIT_LEARN_DATA"}),
        ({"HF_HUB_CACHE": "/data/hub"}, {"HF_HOME", "TORCH_HOME", "KERAS_HOME", "SCIKIT_LEARN_DATA"}),
    ],
)
def test_variables_that_are_set_are_kept(environ: dict[str, str], left: set[str], tmp_path: Path) -> None:
    assert set(cache_variables(FOLDER, environ, tmp_path)) == left


def test_login_and_settings_of_the_user_are_still_found(tmp_path: Path) -> None:
    for name in (".cache/huggingface/token", ".keras/keras.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    found = cache_variables(FOLDER, {}, tmp_path)
    assert found["HF_TOKEN_PATH"] == str(tmp_path / ".cache/huggingface/token")
    assert "KERAS_HOME" not in found
    assert "HF_TOKEN_PATH" not in cache_variables(FOLDER, {"HF_HOME": "/data/hub"}, tmp_path)


def item(name: str, days: float, size: int = 1, *, busy: bool = False) -> CacheItem:
    return CacheItem(Path(name), NOW - days * DAY, size, busy)


@pytest.mark.parametrize(
    ("found", "lacking", "gone"),
    [
        ([item("old", 31), item("young", 29)], 0, ["old"]),
        ([item("busy", 31, busy=True)], 100, []),
        ([item("a", 5, 10), item("b", 6, 10), item("c", 4, 10)], 11, ["b", "a"]),
        ([item("a", 5, 10), item("old", 40, 10)], 10, ["old"]),
        ([item("today", 0.9, 10)], 10, []),
    ],
)
def test_items_are_removed_once_unused_and_the_oldest_from_a_full_disk(
    found: list[CacheItem], lacking: int, gone: list[str]
) -> None:
    assert [each.path.name for each in unwanted(found, NOW, lacking)] == gone


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of Skyward with empty caches, on a disk that is not full."""
    monkeypatch.setattr("skyward.bootstrap.prune.bytes_lacking", lambda _: 0)
    monkeypatch.setattr("skyward.worker.volumes.pruning.bytes_lacking", lambda _: 0)
    (tmp_path / "caches").mkdir()
    (tmp_path / "volumes").mkdir()
    return tmp_path


def put(file: Path, days: float, size: int = 10) -> Path:
    """Make a file that was last read and written so many days ago."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    age(file, days)
    return file


def age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    for each in (*path.rglob("*"), path) if path.is_dir() else (path, path.parent):
        os.utime(each, (then, then), follow_symlinks=False)


@contextmanager
def user_of(cache: Path, name: str) -> Iterator[str]:
    """Run a process that counts as a user of a cache; yield its variable for the Hugging Face Hub."""
    program = """
import os, sys
from pathlib import Path
from skyward.caches.users import CacheUsers, use_caches
if sys.argv[2]:
    CacheUsers(Path(sys.argv[1])).enter(sys.argv[2])
else:
    use_caches(sys.argv[1])
print(os.environ.get("HF_HOME", ""), flush=True)
sys.stdin.read()
"""
    variables = {name: value for name, value in os.environ.items() if name not in ("HF_HOME", "XDG_CACHE_HOME")}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(cache), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


def entries(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_repositories_and_files_are_removed_as_they_are_used(root: Path) -> None:
    hub, torch = root / "caches/huggingface/hub", root / "caches/torch/hub"
    old = put(hub / "models--old/blobs/1", 31)
    (hub / "models--old/snapshots").mkdir()
    (hub / "models--old/snapshots/weights").symlink_to(old)
    put(hub / "models--used/blobs/1", 31)
    put(hub / "models--used/blobs/2", 29)
    put(torch / "checkpoints/old.pth", 31)
    put(torch / "checkpoints/used.pth", 1)
    put(root / "caches/huggingface/mine/file", 31)
    for folder in (root / "caches/huggingface/mine", hub / "models--old", hub / "models--used"):
        age(folder, 31)
    used = hub / "models--used/blobs/2"
    os.utime(used, (time.time() - 29 * DAY,) * 2)
    assert prune_caches(root, time.time()) == []
    assert entries(root / "caches") == {
        "huggingface/hub/models--used/blobs/1",
        "huggingface/hub/models--used/blobs/2",
        "torch/hub/checkpoints/used.pth",
    }
    assert not (hub / "models--old").exists()
    assert not (root / "caches/.trash").exists()


def test_open_files_are_kept(root: Path) -> None:
    path = put(root / "caches/torch/hub/checkpoints/open.pth", 40)
    with path.open():
        prune_caches(root, time.time())
        assert path.exists()
    prune_caches(root, time.time())
    assert not path.exists()


def test_what_a_running_worker_has_read_is_kept(root: Path) -> None:
    """A worker that runs since 50 days keeps what it has read since, and what its first day may have read."""
    read = put(root / "caches/torch/hub/checkpoints/read.pth", 49)
    unread = put(root / "caches/torch/hub/checkpoints/unread.pth", 60)
    caches = root / "caches"
    with user_of(caches, "worker"):
        age(caches / ".users/worker", 50)
        prune_caches(root, time.time())
        assert read.exists()
        assert not unread.exists()
    prune_caches(root, time.time())
    assert not read.exists()


def test_without_times_of_reads_a_used_cache_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.caches.pruning._knows_reads", lambda _: False)
    path = put(root / "caches/torch/hub/checkpoints/a.pth", 40)
    with user_of(root / "caches", "worker"):
        pass
    prune_caches(root, time.time())
    assert path.exists(), "a worker has used the cache today, and may have read the file"
    age(root / "caches/.used", 31)
    prune_caches(root, time.time())
    assert not path.exists()


def test_full_disk_loses_what_is_unused_for_longest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oldest = put(root / "caches/torch/hub/checkpoints/oldest.pth", 20, 40_000)
    tree = copied(root, "a", days=10)
    newest = put(root / "caches/huggingface/hub/models--new/blobs/1", 2)
    age(root / "caches/huggingface/hub/models--new", 2)
    monkeypatch.setattr("skyward.bootstrap.prune.bytes_lacking", lambda _: 41_001)
    prune_caches(root, time.time())
    assert not oldest.exists()
    assert not tree.exists()
    assert newest.exists()


def test_lack_of_room_is_told_from_the_size_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1024**3
    for total, free, lacking in ((100, 4, 6), (100, 11, 0), (10_000, 60, 0), (10_000, 20, 30)):
        usage = SimpleNamespace(total=total * gib, free=free * gib)
        monkeypatch.setattr("skyward.caches.items.shutil", SimpleNamespace(disk_usage=lambda _, usage=usage: usage))
        assert bytes_lacking(Path("/")) == lacking * gib


def copied(root: Path, contents: str, days: float) -> Path:
    """Make a complete copy of a prefix, which was last used so many days ago; return its folder."""
    trees = trees_of(root)
    with trees.fetching():
        (trees.part(contents) / "file").write_text(contents)
        tree = trees.finish(contents, [ObjectEntry("file", len(contents), "etag", 0.0)])
        trees.use(contents)
        trees.release()
    age(tree.with_name(f"{contents}.used"), days)
    return tree


def trees_of(root: Path) -> CachedTrees:
    return CachedTrees.of(root / "volumes", BucketLocation("http://store", "bucket", "prefix"))


def test_copies_are_removed_unless_in_use(root: Path) -> None:
    old, young, used = copied(root, "old", 31), copied(root, "young", 29), copied(root, "used", 31)
    (old.parent / "cut.part").mkdir()
    age(old.parent / "cut.part", 31)
    trees = trees_of(root)
    trees.use("used")
    age(used.with_name("used.used"), 31)
    prune_caches(root, time.time())
    trees.release()
    left = {path.name for path in old.parent.iterdir()}
    assert left == {"lock", "young", "young.json", "young.used", "used", "used.json", "used.used"}
    assert young.is_dir()
    assert time.time() - used.with_name("used.used").stat().st_mtime < DAY, "a copy in use counts as used"


def test_copies_stay_while_their_prefix_is_fetched(root: Path) -> None:
    old = copied(root, "old", 31)
    with trees_of(root).fetching():
        prune_caches(root, time.time())
    assert old.is_dir()


@pytest.mark.parametrize("kind", ["synced", "waiting"])
def test_files_of_killed_workers_are_named_and_removed_when_old(root: Path, kind: str) -> None:
    folder = root / "volumes" / kind / "abc-0"
    put(folder / "results/new.txt", 29)
    put(folder / "results/old.txt", 40)
    age(folder, 40)
    os.utime(folder / "results/new.txt", (time.time() - 29 * DAY,) * 2)
    lines = prune_caches(root, time.time())
    assert lines == [
        f"{folder}: results/new.txt, results/old.txt may not be uploaded, since the worker was killed: kept"
    ]
    assert entries(folder) == {"results/new.txt", "results/old.txt"}
    age(folder, 31)
    lines = prune_caches(root, time.time())
    assert lines == [f"{folder}: results/new.txt, results/old.txt may not be uploaded: removed after 31 days"]
    assert not folder.exists()
    assert prune_caches(root, time.time()) == []


def test_files_of_living_workers_are_not_touched(root: Path) -> None:
    folder = root / "volumes/synced/abc-0"
    put(folder / "old.txt", 40)
    age(folder, 40)
    with user_of(root / "volumes", "abc"):
        assert prune_caches(root, time.time()) == []
    assert (folder / "old.txt").exists()


def test_nothing_is_removed_from_caches_during_a_bootstrap(root: Path) -> None:
    path = put(root / "caches/torch/hub/checkpoints/old.pth", 40)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError):
            prune_caches(root, time.time())
    assert path.exists()


def test_cache_of_local_nodes_is_pruned_once_a_day(root: Path) -> None:
    first = copied(root, "first", 31)
    assert prune_volumes(root / "volumes", time.time()) == []
    assert not first.exists()
    second = copied(root, "second", 31)
    prune_volumes(root / "volumes", time.time())
    assert second.exists()
    prune_volumes(root / "volumes", time.time() + 2 * DAY)
    assert not second.exists()


def test_worker_counts_as_a_user_and_has_the_variables(tmp_path: Path) -> None:
    with user_of(tmp_path, "") as home_of_the_hub:
        assert home_of_the_hub == f"{tmp_path}/huggingface"
        assert len(CacheUsers(tmp_path).living()) == 1
    assert CacheUsers(tmp_path).living() == {}


def test_folder_that_cannot_be_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HOME", raising=False)
    (tmp_path / "file").touch()
    use_caches(str(tmp_path / "file"))
    assert "HF_HOME" not in os.environ
