"""Volumes on local nodes: modes, changes by other nodes, uploads that fail, mounts that die, and the end of nodes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import skyward as sky
from skyward.worker.volumes.pruning import prune_volumes
from skyward.worker.volumes.spaces import spaces_folder
from skyward.worker.volumes.tools import fuse_problem
from tests.fakes.storage import FaultyProxy, Mistake
from tests.fakes.storage.proxy import xml_error
from tests.object_store import Bucket, object_store
from tests.required import leave_out_for
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("cache")]

MODES = ["copy", "mount", "sync"]


@pytest.fixture(scope="module")
def shared_store() -> Iterator[Bucket]:
    with object_store() as store:
        yield store


@pytest.fixture
def bucket(shared_store: Bucket) -> Iterator[Bucket]:
    """Bucket with the objects "train/a.txt" and "train/sub/b.txt"."""
    shared_store.put("train/a.txt", "alpha")
    shared_store.put("train/sub/b.txt", "beta")
    yield shared_store
    shared_store.clear()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the copies of this test, and nothing of a former worker."""
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "volumes"


@pytest.fixture(autouse=True)
def no_mounts_left() -> Iterator[None]:
    """Check that the nodes of each test leave no mounts and no programs that mount."""
    before = spaces()
    yield
    own = spaces() - before
    wait_for(lambda: not own & spaces(), "the folders of mounts to be removed")
    mounts = Path("/proc/self/mounts").read_text()
    assert not [name for name in own if name in mounts]
    wait_for(lambda: not [name for name in own if programs(name)], "the programs that mount to end")


def spaces() -> set[str]:
    """Return the names of the folders in which workers have their mounts."""
    folder = Path(spaces_folder())
    return {each.name for each in folder.iterdir()} if folder.is_dir() else set()


def programs(space: str) -> list[psutil.Process]:
    """Return the programs that mount for one worker."""
    found = [each for each in psutil.process_iter(["name", "cmdline"]) if each.info["name"] in ("s3fs", "rclone")]
    return [each for each in found if any(space in word for word in each.info["cmdline"] or ())]


def volume(bucket: Bucket, mode: Any, *, read_only: bool | None = None, prefix: str = "train") -> sky.Volume:
    if mode == "mount":
        leave_out_for(fuse_problem(), "SKYWARD_FUSE")
    read_only = mode != "sync" if read_only is None else read_only
    return sky.Volume(bucket.name, "/data", prefix, read_only, bucket.storage(), mode)


@sky.function
def files() -> dict[str, str]:
    root = sky.volume("/data")
    return {each.relative_to(root).as_posix(): each.read_text() for each in root.rglob("*") if each.is_file()}


@sky.function
def write(name: str, text: str) -> int:
    path = sky.volume("/data") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return len(text)


@sky.function
def read(name: str) -> str:
    return (sky.volume("/data") / name).read_text()


@sky.function
def space() -> str:
    return os.environ["SKYWARD_SPACE"]


def test_task_sees_each_object_that_was_there_before_it(bucket: Bucket) -> None:
    """The program that mounts keeps listings for a second. It is slow here, since it shares its CPU."""
    with sky.Compute(volumes=[volume(bucket, "mount")]) as pool:
        (program,) = programs(space() >> pool)
        cpu = min(os.sched_getaffinity(0))
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            os.sched_setaffinity(busy.pid, {cpu})
            for thread in program.threads():
                os.sched_setaffinity(thread.id, {cpu})
                os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))
            for number in range(8):
                files() >> pool
                bucket.put(f"train/new-{number}.txt", str(number))
                assert read(f"new-{number}.txt") >> pool == str(number)
        finally:
            busy.kill()
            busy.wait()


@pytest.mark.parametrize("mode", MODES)
def test_every_node_has_the_objects_of_the_prefix(bucket: Bucket, mode: str) -> None:
    bucket.put("other/c.txt", "not in the volume")
    with sky.Compute(nodes=2, volumes=[volume(bucket, mode)]) as pool:
        assert files() @ pool == [{"a.txt": "alpha", "sub/b.txt": "beta"}] * 2
        states = [node.volumes[0] for node in pool.snapshot().nodes]
    assert [(each.mount, each.mode, each.status) for each in states] == [("/data", mode, "ready")] * 2


@pytest.mark.parametrize("mode", ["mount", "sync"])
def test_files_of_a_task_are_in_the_store_and_on_other_nodes_when_it_has_ended(bucket: Bucket, mode: str) -> None:
    with sky.Compute(nodes=2, volumes=[volume(bucket, mode, read_only=False)]) as pool:
        assert read("a.txt") @ pool == ["alpha", "alpha"]
        assert write("new/c.txt", "gamma") >> pool == 5
        assert bucket.get("train/new/c.txt") == b"gamma"
        assert read("new/c.txt") @ pool == ["gamma"] * 2
        write("a.txt", "a longer text than before") >> pool
        assert read("a.txt") @ pool == ["a longer text than before"] * 2


@pytest.mark.parametrize("mode", ["mount", "sync"])
def test_removed_files_are_removed_from_the_store(bucket: Bucket, mode: str) -> None:
    @sky.function
    def remove(name: str) -> None:
        (sky.volume("/data") / name).unlink()

    with sky.Compute(nodes=2, volumes=[volume(bucket, mode, read_only=False)]) as pool:
        files() @ pool
        remove("a.txt") >> pool
        assert files() @ pool == [{"sub/b.txt": "beta"}] * 2
    assert bucket.keys("train/") == ["train/sub/b.txt"]


@pytest.mark.parametrize("mode", ["copy", "mount"])
def test_read_only_volume_cannot_be_changed(bucket: Bucket, mode: str) -> None:
    @sky.function
    def create() -> None:
        (sky.volume("/data") / "new.txt").write_text("x")

    with sky.Compute(volumes=[volume(bucket, mode)]) as pool:
        with pytest.raises(OSError, match="new.txt"):
            create() >> pool
        assert read("a.txt") >> pool == "alpha"
    assert bucket.keys("train/") == ["train/a.txt", "train/sub/b.txt"]


def test_copy_is_fetched_once_for_all_nodes_of_a_machine_and_all_pools(bucket: Bucket) -> None:
    fetched = []
    for _ in range(2):
        with sky.Compute(nodes=2, volumes=[volume(bucket, "copy")]) as pool:
            assert files() @ pool == [{"a.txt": "alpha", "sub/b.txt": "beta"}] * 2
            fetched.append(sum(node.volumes[0].nbytes for node in pool.snapshot().nodes))
    assert fetched == [9, 0]


def test_only_changed_objects_are_fetched_again(bucket: Bucket, cache: Path) -> None:
    with sky.Compute(volumes=[volume(bucket, "copy")]) as pool:
        files() >> pool
    bucket.put("train/a.txt", "omega")
    with sky.Compute(volumes=[volume(bucket, "copy")]) as pool:
        assert files() >> pool == {"a.txt": "omega", "sub/b.txt": "beta"}
        assert pool.snapshot().nodes[0].volumes[0].nbytes == 5
    assert len([each for each in cache.rglob("a.txt") if each.is_file()]) == 1, "the former copy was not removed"


def test_copy_that_was_changed_is_not_used_by_the_next_pool(bucket: Bucket, cache: Path) -> None:
    with sky.Compute(volumes=[volume(bucket, "copy")]) as pool:
        assert read("a.txt") >> pool == "alpha"
    (copy,) = [each for each in cache.rglob("a.txt") if each.is_file()]
    copy.chmod(0o666)
    copy.write_text("spoilt")
    with sky.Compute(volumes=[volume(bucket, "copy")]) as pool:
        assert read("a.txt") >> pool == "alpha"


def test_file_that_nodes_write_at_the_same_time_is_named(bucket: Bucket, capfd: pytest.CaptureFixture[str]) -> None:
    @sky.function
    def own() -> None:
        (sky.volume("/data") / "best.txt").write_text(f"by node {sky.instance_info().node}")

    with sky.Compute(nodes=2, volumes=[volume(bucket, "sync")]) as pool:
        own() @ pool
        shown = capfd.readouterr().err
    assert "best.txt" in shown
    assert "neither had seen the version of the other" in shown or "written by another node" in shown
    assert bucket.get("train/best.txt") in (b"by node 0", b"by node 1")


def test_dead_mount_is_mounted_again(bucket: Bucket) -> None:
    with sky.Compute(volumes=[volume(bucket, "mount")]) as pool:
        assert read("a.txt") >> pool == "alpha"
        for process in programs(space() >> pool):
            process.send_signal(signal.SIGKILL)
        wait_for(lambda: can_read(pool), "the volume can be read again")


def can_read(pool: sky.Compute) -> bool:
    try:
        return read("a.txt") >> pool == "alpha"
    except OSError:
        return False


def test_task_whose_files_cannot_be_uploaded_fails_with_its_value(
    bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    """The reason is in the error of the task, then in that of the close, and nowhere else."""
    with object_store(name="doomed") as doomed:
        doomed.put("train/a.txt", "alpha")
        with pytest.raises(sky.StorageError, match=r"is closed, but .* s3://doomed/train/new.txt"):  # noqa: SIM117
            with sky.Compute(volumes=[volume(doomed, "sync")]) as pool:
                files() >> pool
                doomed.store.client.delete_object(Bucket="doomed", Key="train/a.txt")
                doomed.store.client.delete_bucket(Bucket="doomed")
                with pytest.raises(sky.VolumeError, match=r"s3://doomed/train/new.txt.*no bucket") as raised:
                    write("new.txt", "text") >> pool
                assert raised.value.value == 4
                with pytest.raises(FileNotFoundError) as own:
                    read("none.txt") >> pool
                assert "Beside this error, 1 file could not be uploaded: s3://doomed/train/new.txt" in notes(own.value)
    assert "new.txt" not in capfd.readouterr().err


@sky.function
def rename(before: str, after: str) -> None:
    root = sky.volume("/data")
    (root / before).rename(root / "held")
    if "/" in before:
        (root / before).parent.rmdir()
    (root / after).parent.mkdir(exist_ok=True)
    (root / "held").rename(root / after)


def test_file_with_a_name_that_no_object_can_have_is_named_at_once_and_holds_nothing_back(bucket: Bucket) -> None:
    bucket.put("train/old", "content")
    with pytest.raises(sky.StorageError, match=r"is closed, but .* s3://\S+/train/bad\\nname; a name that has control"):  # noqa: SIM117
        with sky.Compute(volumes=[volume(bucket, "sync")]) as pool:
            rename("old", "data/part0") >> pool
            with pytest.raises(
                sky.VolumeError, match=r"bad\\nname; a name that .+: rename the file in the task\."
            ) as raised:
                write("bad\nname", "text") >> pool
            assert "next task" not in str(raised.value)
            with pytest.raises(sky.VolumeError, match="bad"):
                rename("data/part0", "data") >> pool
            assert sorted(bucket.keys()) == ["train/a.txt", "train/data", "train/sub/b.txt"]


def notes(error: BaseException) -> str:
    return "".join(getattr(error, "__notes__", ()))


def test_conflicting_writers_are_named_and_the_last_one_wins(bucket: Bucket, capfd: pytest.CaptureFixture[str]) -> None:
    with sky.Compute(volumes=[volume(bucket, "sync")]) as pool:
        files() >> pool
        bucket.put("train/a.txt", "written by another program")
        write("a.txt", "written by the task") >> pool
        wait_for(lambda: "written by another node or program" in "".join(seen(capfd)), "the loser is named")
    assert bucket.get("train/a.txt") == b"written by the task"


_SEEN: list[str] = []


def seen(capfd: pytest.CaptureFixture[str]) -> list[str]:
    _SEEN.append(capfd.readouterr().err)
    return _SEEN


@pytest.mark.parametrize("mode", MODES)
def test_wrong_bucket_is_refused_before_a_node_is_launched(bucket: Bucket, mode: Any) -> None:
    wrong = sky.Volume("nosuchbucket", "/data", "train", mode != "sync", bucket.storage(), mode)
    with pytest.raises(sky.StorageError, match="nosuchbucket"), sky.Compute(volumes=[wrong]):
        pass


def test_store_that_does_not_answer_is_refused_before_a_local_node_is_launched(bucket: Bucket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}"
    pool = sky.Compute(volumes=[sky.Volume("bucket", "/data", storage=bucket.storage(closed), mode="copy")])
    with pytest.raises(sky.StorageError, match="connection refused") as raised, pool:
        pass
    assert str(raised.value).count(closed) == 1


OF_A_FUNCTION = """
import sys
import skyward as sky
storage = sky.Storage.minio(sys.argv[1], access_key=lambda: sys.argv[2], secret_key=lambda: sys.argv[3])
volume = sky.Volume("bucket", "/data", "train", read_only=False, storage=storage, mode="sync")
sky.Compute(provider=sky.Local(outlives=True), name="left", volumes=[volume], ttl=60).open().leave()
"""


@pytest.mark.usefixtures("own_journal")
def test_attached_pool_without_its_credentials_launches_nothing_until_it_gets_them_again(
    bucket: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Credentials by a function of the process that opened the pool: its nodes work, and others cannot start."""
    (tmp_path / "opens.py").write_text(OF_A_FUNCTION)
    storage = bucket.storage()
    keys = [str(storage.endpoint), *map(str, (storage.access_key, storage.secret_key))]
    subprocess.run([sys.executable, tmp_path / "opens.py", *keys], check=True, timeout=60)
    with sky.attach("left") as pool:
        write("new.txt", "text") >> pool
        assert bucket.get("train/new.txt") == b"text"
        pool.resize(2)
        wait_for(lambda: pool.snapshot().failure, "the reason")
        assert "`pool.update(volumes=[sky.Volume(..., storage=...)])`" in str(pool.snapshot().failure)
        assert [each.attempt for each in pool.snapshot().startup_failures] == [1]
        assert "trying again" not in capfd.readouterr().err
        pool.update(volumes=[volume(bucket, "sync")])
        wait_for(lambda: [node.state for node in pool.snapshot().nodes] == ["active"] * 2, "two nodes")
        assert read("new.txt") @ pool == ["text"] * 2


def test_state_at_the_end_of_a_task_is_that_of_its_uploads(bucket: Bucket) -> None:
    @sky.function
    def write_many(name: str) -> None:
        for number in range(40):
            (sky.volume("/data") / f"{name}{number}").write_text(name)

    with sky.Compute(volumes=[volume(bucket, "sync")]) as pool:
        assert states(pool) == [("ready", 0, 2)]
        for name in "abcde":
            write_many(name) >> pool
            assert states(pool) == [("ready", 0, 2)]


def states(pool: sky.Compute) -> list[tuple[str, int, int]]:
    found = [volume for node in pool.snapshot().nodes for volume in node.volumes]
    return [(each.status, each.unflushed, each.files) for each in found]


def test_objects_that_a_mount_hides_are_named(bucket: Bucket, capfd: pytest.CaptureFixture[str]) -> None:
    bucket.put("train/sub", "beside its folder")
    with sky.Compute(volumes=[volume(bucket, "mount")]):
        said = "s3://bucket/train/sub and s3://bucket/train/sub/b.txt would be a file and a folder of the same name"
        wait_for(lambda: said in "".join(seen(capfd)), "the hidden object to be named")


@pytest.mark.parametrize("mode", ["copy", "sync"])
def test_object_beside_a_folder_of_its_name_ends_the_launches_at_once(
    bucket: Bucket, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    bucket.put("train/sub", "beside its folder")
    pool = sky.Compute(volumes=[volume(bucket, mode)])
    with pytest.raises(sky.NodeStartError, match="would be a file and a folder of the same name"), pool:
        pass
    assert "trying again" not in capfd.readouterr().err


def test_read_only_volume_without_objects_is_refused(bucket: Bucket) -> None:
    with (
        pytest.raises(sky.StorageError, match="no objects at s3://bucket/tarin"),
        sky.Compute(volumes=[volume(bucket, "copy", prefix="tarin")]),
    ):
        pass


def test_unknown_mount_is_named_with_those_of_the_pool(bucket: Bucket) -> None:
    @sky.function
    def path() -> str:
        return str(sky.volume("/date"))

    with (
        sky.Compute(volumes=[volume(bucket, "copy")]) as pool,
        pytest.raises(sky.SpecError, match=r"no volume at '/date'; it has: '/data'"),
    ):
        path() >> pool


def test_volume_is_no_path_on_the_client() -> None:
    with pytest.raises(sky.NotOnNodeError, match="works only in a task"):
        sky.volume("/data")


@pytest.mark.parametrize("mode", ["mount", "sync"])
def test_files_are_seen_by_slots_that_are_processes(bucket: Bucket, mode: str) -> None:
    worker = sky.Worker(concurrency=2, executor="process")
    with sky.Compute(volumes=[volume(bucket, mode, read_only=False)], worker=worker) as pool:
        assert (read("a.txt") & read("sub/b.txt")) >> pool == ("alpha", "beta")
        sky.gather(*(write(f"n{number}.txt", str(number)) for number in range(4))) >> pool
    assert [bucket.get(f"train/n{number}.txt") for number in range(4)] == [b"0", b"1", b"2", b"3"]


def test_killed_worker_leaves_no_mount_and_deletes_nothing(bucket: Bucket) -> None:
    @sky.function
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    volumes = [volume(bucket, "mount", read_only=False)]
    with sky.Compute(volumes=volumes, retry_on_interruption=0) as pool, pytest.raises(sky.NodeLostError):
        die() >> pool
    assert bucket.keys("train/") == ["train/a.txt", "train/sub/b.txt"]


def test_removing_the_folder_of_a_node_deletes_no_object(bucket: Bucket) -> None:
    @sky.function
    def scratch() -> str:
        return os.environ["SKYWARD_SCRATCH"]

    with sky.Compute(volumes=[volume(bucket, "mount", read_only=False)]) as pool:
        shutil.rmtree(scratch() >> pool, ignore_errors=True)
        assert bucket.keys("train/") == ["train/a.txt", "train/sub/b.txt"]


@sky.function
def write_later(gate: str, name: str) -> None:
    """Write a file on a thread that goes on after the task, once the gate exists."""
    import threading
    import time

    path = sky.volume("/data") / name

    def write_it() -> None:
        while not Path(gate).exists():
            time.sleep(0.01)
        path.write_text("late")

    threading.Thread(target=write_it).start()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_task_that_hangs_in_a_mount_ends_at_its_timeout_and_its_node_is_replaced(bucket: Bucket, executor: Any) -> None:
    leave_out_for(fuse_problem(), "SKYWARD_FUSE")
    with FaultyProxy(bucket.store.url) as proxy:
        volumes = [sky.Volume(bucket.name, "/data", "train", storage=bucket.storage(proxy.url), mode="mount")]
        with sky.Compute(volumes=volumes, worker=sky.Worker(executor=executor)) as pool:
            files() >> pool
            bucket.put("train/new.txt", "text")
            silent = proxy.add(Mistake("GET", "new.txt", hold_after=0))
            task = read("new.txt").with_timeout(1) > pool
            try:
                with pytest.raises(sky.TaskTimeoutError):
                    task.result(timeout=60)
            finally:
                silent.release.set()
            assert read("new.txt") >> pool == "text"


def test_close_waits_until_a_slow_store_has_what_was_written_after_the_task(bucket: Bucket, tmp_path: Path) -> None:
    with FaultyProxy(bucket.store.url) as proxy:
        storage = bucket.storage(proxy.url)
        pool = sky.Compute(volumes=[sky.Volume(bucket.name, "/data", "train", False, storage, "sync")]).open()
        write_later(str(tmp_path / "gate"), "late.txt") >> pool
        slow = proxy.add(Mistake("PUT", "late.txt", hold_after=0))
        path = Path(pool.snapshot().nodes[0].volumes[0].path) / "late.txt"
        (tmp_path / "gate").touch()
        wait_for(path.exists, "the file to be written")
        closing = threading.Thread(target=pool.close)
        closing.start()
        assert slow.held.wait(30)
        assert closing.is_alive()
        slow.release.set()
        closing.join(30)
        assert not closing.is_alive()
    assert bucket.get("train/late.txt") == b"late"


def test_task_ends_once_a_busy_store_has_its_files(bucket: Bucket) -> None:
    with FaultyProxy(bucket.store.url) as proxy:
        storage = bucket.storage(proxy.url)
        with sky.Compute(volumes=[sky.Volume(bucket.name, "/data", "train", False, storage, "sync")]) as pool:
            files() >> pool
            proxy.add(Mistake("PUT", "new.txt", times=3, status=503, body=xml_error("SlowDown")))
            write("new.txt", "text") >> pool
            assert bucket.get("train/new.txt") == b"text"
            assert proxy.count("PUT", "new.txt") >= 4


def test_files_in_use_are_not_pruned_and_those_of_a_killed_worker_are_named(bucket: Bucket, cache: Path) -> None:
    """Both a copy and a synchronized folder, when nothing was used for 40 days."""

    @sky.function
    def process() -> int:
        Path(sky.volume("/out"), "new.txt").write_text("new")
        return os.getpid()

    later = time.time() + 40 * 86400
    volumes = [volume(bucket, "copy"), sky.Volume(bucket.name, "/out", "out", False, bucket.storage(), "sync")]
    with sky.Compute(volumes=volumes, max_provision_attempts=1) as pool:
        worker = process() >> pool
        (folder,) = (cache / "synced").iterdir()
        before = {path for path in cache.rglob("*") if path.is_file()}
        assert prune_volumes(cache, later) == []
        assert before <= {path for path in cache.rglob("*") if path.is_file()}
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not psutil.pid_exists(worker), "the worker to be gone")
        wait_for(lambda: (cache / "synced").exists() and len([*(cache / "synced").iterdir()]) == 2, "another node")
        lines = prune_volumes(cache, time.time() + 2 * 86400)
        assert lines == [f"{folder}: new.txt may not be uploaded, since the worker was killed: kept"]
        assert (folder / "new.txt").read_text() == "new"


def test_update_of_the_volumes_replaces_the_nodes(bucket: Bucket) -> None:
    bucket.put("test/c.txt", "gamma")
    with sky.Compute(volumes=[volume(bucket, "copy")]) as pool:
        assert files() >> pool == {"a.txt": "alpha", "sub/b.txt": "beta"}
        with pytest.raises(sky.StorageError, match="no objects at s3://bucket/tset"):
            pool.update(volumes=[volume(bucket, "copy", prefix="tset")])
        assert files() >> pool == {"a.txt": "alpha", "sub/b.txt": "beta"}
        pool.update(volumes=[volume(bucket, "copy", prefix="test")])
        wait_for(lambda: not any(node.outdated for node in pool.snapshot().nodes), "the node to be replaced")
        assert files() >> pool == {"c.txt": "gamma"}


def test_node_with_a_newer_copy_than_the_others_is_pointed_out(
    bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    with sky.Compute(nodes=(1, 2), volumes=[volume(bucket, "copy")]) as pool:
        assert files() >> pool == {"a.txt": "alpha", "sub/b.txt": "beta"}
        bucket.put("train/a.txt", "omega")
        pool.resize((2, 2))
        wait_for(lambda: [node.state for node in pool.snapshot().nodes] == ["active"] * 2, "the second node")
        assert "node 1 has a newer copy of the volume at /data than node 0" in capfd.readouterr().err


@pytest.mark.parametrize("tool", ["s3fs", "rclone"])
def test_each_program_reads_and_writes_if_it_is_the_only_one(bucket: Bucket, tmp_path: Path, tool: str) -> None:
    leave_out_for(fuse_problem(), "SKYWARD_FUSE")
    for name in (tool, "fusermount", "fusermount3", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    image = sky.Image(env={"PATH": str(tmp_path)})
    for read_only in (True, False):
        volumes = [volume(bucket, "mount", read_only=read_only)]
        with sky.Compute(nodes=2, volumes=volumes, image=image) as pool:
            assert files() @ pool == [{"a.txt": "alpha", "sub/b.txt": "beta"}] * 2
            assert {node.volumes[0].tool for node in pool.snapshot().nodes} == {tool}
            if not read_only:
                for text in ("first", "a longer second text", "3rd"):
                    write("new/c.txt", text) >> pool
                    assert bucket.get("train/new/c.txt") == text.encode()
                    assert read("new/c.txt") @ pool == [text] * 2
