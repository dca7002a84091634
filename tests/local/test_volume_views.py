"""Volumes in the snapshots and views of pools with real nodes: files that wait, and nodes that flush as they leave."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.events.volumes import VolumeState
from skyward.views.static import describe
from skyward.views.volumes import volume_table
from tests.object_store import Bucket, object_store
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Bucket with the object "train/a.txt"."""
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    with object_store(name="viewed") as store:
        store.put("train/a.txt", "alpha")
        yield store


@sky.function
def write(name: str, text: str) -> None:
    (sky.volume("/data") / name).write_text(text)


def synced(bucket: Bucket) -> sky.Volume:
    """Return a volume that tasks write to."""
    return sky.Volume(bucket.name, "/data", "train", False, bucket.storage(), "sync")


def close_bucket(bucket: Bucket) -> None:
    """Remove the bucket, so that nothing can be uploaded."""
    bucket.clear()
    bucket.client.delete_bucket(Bucket=bucket.name)


def states(pool: sky.Compute, state: str) -> list[VolumeState]:
    """Return the volumes of the nodes in a state."""
    return [volume for node in pool.snapshot().nodes if node.state == state for volume in node.volumes]


def test_files_that_could_not_be_uploaded_are_shown_until_they_are(bucket: Bucket) -> None:
    with sky.Compute(volumes=[synced(bucket)]) as pool:
        write("b.txt", "beta") >> pool
        assert "to upload" not in volume_table(pool.snapshot())
        close_bucket(bucket)
        with pytest.raises(sky.VolumeError):
            write("c.txt", "gamma") >> pool
        wait_for(lambda: "1 file, 5 B" in volume_table(pool.snapshot()), "the file waits for its upload")
        assert "uploading" in describe(pool.report())
        bucket.client.create_bucket(Bucket=bucket.name)
        write("d.txt", "delta") >> pool
        wait_for(lambda: "to upload" not in volume_table(pool.snapshot()), "all files are uploaded")
    assert {"train/c.txt", "train/d.txt"} <= set(bucket.keys())


def test_node_that_leaves_the_pool_shows_its_volumes_while_it_flushes_them(bucket: Bucket) -> None:
    with sky.Compute(nodes=2, volumes=[synced(bucket)]) as pool:
        write("b.txt", "beta") @ pool
        seen: list[VolumeState] = []
        pool.resize(1)
        wait_for(lambda: seen.extend(states(pool, "stopping")) or len(pool.snapshot().nodes) == 1, "the node is gone")
        assert {volume.mount for volume in seen} == {"/data"}
        assert len(states(pool, "active")) == 1
