"""Volumes on machines of their own: places, passing on copies, flushing, and where credentials may not be found."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.journal.installation import data_directory
from skyward.worker.volumes.tools import fuse_problem
from tests.killed_client import kill_at_work
from tests.machines.conftest import hosts, source_of_hosts
from tests.machines.machine import Machine, Network
from tests.object_store import SECRET_KEY, Bucket, object_store
from tests.required import leave_out_for
from tests.waiting import wait_for

pytestmark = pytest.mark.machines


@pytest.fixture(scope="module")
def store() -> Iterator[Bucket]:
    """Store that the machines reach at this host's address."""
    with object_store("0.0.0.0") as bucket:
        yield bucket


@pytest.fixture
def bucket(store: Bucket) -> Iterator[Bucket]:
    store.put("train/a.txt", "alpha")
    store.put("train/sub/b.bin", b"b" * 3_000_000)
    yield store
    store.clear()


def volume(bucket: Bucket, network: Network, mode: Any, *, read_only: bool = True) -> sky.Volume:
    if mode == "mount":
        leave_out_for(fuse_problem(), "SKYWARD_FUSE")
    return sky.Volume(bucket.name, "/data", "train", read_only, bucket.storage(network.address), mode)


def on(machine: Machine, script: str) -> str:
    """Run a script on a machine."""
    command = ["nsenter", "--target", str(machine.pids()[0]), "--mount", "--pid", "--", "sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@sky.function
def names() -> list[str]:
    root = sky.volume("/data")
    assert str(root) == "/data"
    return sorted(each.relative_to(root).as_posix() for each in root.rglob("*") if each.is_file())


@sky.function
def write(name: str, text: str) -> None:
    Path("/data", name).write_text(text)


@sky.function
def read(name: str) -> str:
    return Path("/data", name).read_text()


@pytest.mark.parametrize("mode", ["copy", "mount"])
def test_read_only_volume_is_at_its_path_and_cannot_be_written(
    bucket: Bucket, shared_network: Network, mode: str
) -> None:
    with sky.Compute(provider=hosts(shared_network), nodes=2, volumes=[volume(bucket, shared_network, mode)]) as pool:
        assert names() @ pool == [["a.txt", "sub/b.bin"]] * 2
        with pytest.raises(OSError, match="Read-only file system"):
            write("new.txt", "x") >> pool
    for machine in shared_network.machines:
        assert on(machine, "ls -d /data; grep -e ' /data ' -e ^skyward /proc/mounts; ls /run/skyward") == ""


@pytest.mark.parametrize("mode", ["mount", "sync"])
def test_files_of_a_task_are_on_the_other_machine_when_it_has_ended(
    bucket: Bucket, shared_network: Network, mode: str
) -> None:
    volumes = [volume(bucket, shared_network, mode, read_only=False)]
    with sky.Compute(provider=hosts(shared_network), nodes=2, volumes=volumes) as pool:
        write("new.txt", "written on one machine") >> pool
        assert bucket.get("train/new.txt") == b"written on one machine"
        assert read("new.txt") @ pool == ["written on one machine"] * 2


def test_bytes_of_a_copy_leave_the_store_once(bucket: Bucket, network: Network) -> None:
    for _ in range(3):
        network.add()
    with sky.Compute(provider=hosts(network), nodes=3, volumes=[volume(bucket, network, "copy")]) as pool:
        assert names() @ pool == [["a.txt", "sub/b.bin"]] * 3
        volumes = [node.volumes[0] for node in pool.snapshot().nodes]
    size = 3_000_005
    assert [each.nbytes for each in volumes] == [size] * 3
    assert sum(each.nbytes - each.from_peers for each in volumes) == size


def test_folder_with_files_at_the_mount_is_not_hidden(bucket: Bucket, network: Network) -> None:
    on(network.add(), "mkdir /data && touch /data/precious")
    with (
        pytest.raises(sky.NodeStartError, match=r"/data is a folder with files on the node, which the volume would"),
        sky.Compute(provider=hosts(network), volumes=[volume(bucket, network, "copy")]),
    ):
        pass
    assert on(network.machines[0], "ls /data") == "precious\n"


def test_dead_mount_is_replaced_and_no_task_sees_an_empty_folder(bucket: Bucket, network: Network) -> None:
    @sky.function
    def watch(seconds: float) -> set[int]:
        """Return the numbers of files that were seen until the mount had died and was there again."""
        import time

        seen, end, failures = set(), time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                seen.add(len(list(Path("/data").iterdir())))
                if failures:
                    return seen
            except OSError:
                failures += 1
        raise TimeoutError(f"{failures} failures")

    machine = network.add()
    with sky.Compute(provider=hosts(network), volumes=[volume(bucket, network, "mount")]) as pool:
        names() >> pool
        watching = watch(60.0) > pool
        wait_for(watching.running, "the task to watch the folder")
        on(machine, "pkill -KILL rclone || pkill -KILL s3fs")
        assert watching.result() == {2}


def test_secret_is_in_no_file_and_no_argument(bucket: Bucket, network: Network, tmp_path: Path) -> None:
    leave_out_for(fuse_problem(), "SKYWARD_FUSE")
    machine = network.add()
    volumes = [
        sky.Volume(bucket.name, f"/{mode}", "train", mode == "copy", bucket.storage(network.address), mode)
        for mode in ("mount", "copy", "sync")
    ]

    @sky.function
    def own() -> str:
        import os

        return "\n".join(f"{name}={value}" for name, value in os.environ.items())

    with sky.Compute(provider=hosts(network), volumes=volumes, console="silent") as pool:
        seen = own() >> pool
        written = "find /opt/skyward /run /tmp /root /var /etc -xdev -type f -newer /opt/skyward/began 2>/dev/null"
        arguments = on(machine, "cat /proc/[0-9]*/cmdline")
        on(machine, f"echo {SECRET_KEY} >/root/found")
        on_disk = on(machine, f"{written} | xargs grep -ls {SECRET_KEY}")
        journal = (data_directory() / "journal.db").read_bytes() + (data_directory() / "journal.db-wal").read_bytes()
        described = repr(pool.snapshot()) + repr(volumes)
    assert SECRET_KEY not in seen
    assert SECRET_KEY not in arguments
    assert on_disk == "/root/found\n", "the search must find the file of this test, and nothing else"
    assert SECRET_KEY.encode() not in journal
    assert SECRET_KEY not in described


WRITE_LATE = """
@sky.function
def work():
    import threading, time
    from pathlib import Path

    def late():
        while not Path("/root/gate").exists():
            time.sleep(0.01)
        Path("/data/late.txt").write_text("written without a client")

    threading.Thread(target=late).start()
    print("begun", flush=True)
    time.sleep(2)
"""


def test_worker_whose_lease_expires_uploads_what_is_left(bucket: Bucket, network: Network) -> None:
    """The lease is 31 s: the grace of 1 s, and 30 s."""
    machine = network.add()
    storage = bucket.storage(network.address)
    volumes = (
        f"volumes=[sky.Volume({bucket.name!r}, '/data', 'train', False, "
        f"sky.Storage.minio({storage.endpoint!r}, {str(storage.access_key)!r}, {str(storage.secret_key)!r}), 'sync')]"
    )
    provider = source_of_hosts(network, grace=1)
    kill_at_work(WRITE_LATE, "run = pool.start(work())", provider, f"nodes=1, ttl=0, {volumes}", printed="begun")
    on(machine, "touch /root/gate")
    wait_for(lambda: not machine.running("skyward.worker"), "the worker to end")
    assert bucket.get("train/late.txt") == b"written without a client"
    assert on(machine, "ls -d /data; grep ' /data ' /proc/mounts; ls /opt/skyward/volumes/synced") == ""
    assert [done.error for done in sky.reap()] == [""]


def test_copy_that_does_not_fit_on_the_disk_is_refused_with_both_sizes(bucket: Bucket, network: Network) -> None:
    on(network.add(), "mkdir -p /opt/skyward/volumes && mount -t tmpfs -o size=1m tmpfs /opt/skyward/volumes")
    with (
        pytest.raises(sky.NodeStartError, match=r"its objects need 2.9 MiB, and the disk of the node has .* free"),
        sky.Compute(provider=hosts(network), volumes=[volume(bucket, network, "copy")]),
    ):
        pass


@pytest.mark.parametrize("mode", ["mount", "sync"])
def test_writing_to_a_full_disk_is_an_error_or_is_in_the_store(bucket: Bucket, network: Network, mode: str) -> None:
    @sky.function
    def fill() -> bool:
        """Write more than the disk holds; return whether that was possible."""
        try:
            Path("/data/large.bin").write_bytes(b"l" * 90_000_000)
        except OSError:
            Path("/data/large.bin").unlink(missing_ok=True)
            return False
        return True

    on(network.add(), "mkdir -p /opt/skyward/volumes && mount -t tmpfs -o size=64m tmpfs /opt/skyward/volumes")
    volumes = [volume(bucket, network, mode, read_only=False)]
    with sky.Compute(provider=hosts(network), volumes=volumes) as pool:
        written = fill() >> pool
    assert bucket.keys("train/large") == (["train/large.bin"] if written else [])
    assert not written or bucket.get("train/large.bin") == b"l" * 90_000_000
