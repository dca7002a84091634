"""Volumes in the snapshots and views of pools with real nodes: files that wait, and nodes that flush as they leave."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.views.static import describe
from skyward.views.volumes import volume_table
from tests.fakes.storage import FaultyProxy, Mistake
from tests.fakes.storage.proxy import xml_error
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


def synced(storage: sky.Storage) -> sky.Volume:
    """Return a volume that tasks write to."""
    return sky.Volume("viewed", "/data", "train", False, storage, "sync")


def close_bucket(bucket: Bucket) -> None:
    """Remove the bucket, so that nothing can be uploaded."""
    bucket.clear()
    bucket.store.client.delete_bucket(Bucket=bucket.name)


def test_files_that_could_not_be_uploaded_are_shown_with_the_reason_until_they_are(bucket: Bucket) -> None:
    with sky.Compute(volumes=[synced(bucket.storage())]) as pool:
        write("b.txt", "beta") >> pool
        assert "to upload" not in volume_table(pool.snapshot())
        close_bucket(bucket)
        with pytest.raises(sky.VolumeError):
            write("c.txt", "gamma") >> pool
        wait_for(lambda: "no bucket" in volume_table(pool.snapshot()), "the reason is shown")
        (line,) = [each for each in describe(pool.report()).splitlines() if each.startswith("/data")]
        assert re.search(r"  unsaved  +0  .*  1 file, 5 B  +.*no bucket", line)
        bucket.store.client.create_bucket(Bucket=bucket.name)
        write("d.txt", "delta") >> pool
        wait_for(lambda: "ready" in volume_table(pool.snapshot()), "all files are uploaded")
        assert "no bucket" not in volume_table(pool.snapshot())
    assert {"train/c.txt", "train/d.txt"} <= set(bucket.keys())


def test_node_that_leaves_the_pool_shows_what_it_still_uploads(bucket: Bucket) -> None:
    with FaultyProxy(bucket.store.url) as proxy:
        volume = synced(bucket.storage(proxy.url))
        with sky.Compute(nodes=2, volumes=[volume]) as pool:
            refused = proxy.add(Mistake("PUT", "c.txt", status=403, body=xml_error("AccessDenied")))
            with pytest.raises(sky.SkywardError, match="could not be uploaded"):
                write("c.txt", "gamma") @ pool
            refused.times = 0
            busy = proxy.add(Mistake("PUT", "c.txt", status=503, body=xml_error("SlowDown")))
            pool.resize(1)
            wait_for(lambda: unflushed(pool) == {"stopping": 1, "active": 1}, "the file of the node that leaves")
            busy.times = 0
            wait_for(lambda: len(pool.snapshot().nodes) == 1, "the node is gone")
    assert bucket.get("train/c.txt") == b"gamma"


def unflushed(pool: sky.Compute) -> dict[str, int]:
    """Return the number of files that wait for their upload, by the state of their node."""
    return {node.state: sum(volume.unflushed for volume in node.volumes) for node in pool.snapshot().nodes}
