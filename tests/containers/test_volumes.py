"""Volumes of containers: mounted where a container may, copied where it may not."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

import skyward as sky
from skyward.worker.volumes.tools import fuse_problem
from tests.containers.conftest import containers
from tests.containers.engine import MOUNTS, Engine
from tests.fakes.storage import ACCESS_KEY, SECRET_KEY
from tests.required import leave_out_for

pytestmark = pytest.mark.containers

ADDRESS = "198.18.7.1"
"""Address of the store in the network namespace of the engine, which all containers reach, and this host does not."""

STORE = f"""
import sys
from tests.fakes.storage import object_store
with object_store("{ADDRESS}") as store:
    store.client.create_bucket(Bucket="bucket")
    store.client.put_object(Bucket="bucket", Key="train/a.txt", Body=b"alpha")
    print(store.url, flush=True)
    for line in sys.stdin:
        print(store.get("bucket", line.strip()).decode(), flush=True)
"""

FUSE = ("--device", "/dev/fuse", "--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined")


@pytest.fixture(scope="module")
def store(shared_engine: Engine) -> Iterator[subprocess.Popen[str]]:
    """Store beside the engine; a key that is written to it is answered by the object."""
    enter = ["nsenter", f"--net={shared_engine.network_namespace}"]
    subprocess.run([*enter, "ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    with subprocess.Popen(
        [*enter, sys.executable, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        yield process
        process.stdin.close()
        process.wait(10)


@pytest.fixture(scope="module")
def storage(store: subprocess.Popen[str]) -> sky.Storage:
    """Store as users write it."""
    assert store.stdout is not None
    return sky.Storage.minio(store.stdout.readline().strip(), ACCESS_KEY, SECRET_KEY)


@sky.function
def mode() -> tuple[str, str]:
    import os

    text = (sky.volume("/data") / "a.txt").read_text()
    return text, "mount" if os.path.ismount("/data") else "folder"


@sky.function
def write() -> None:
    (sky.volume("/data") / "new.txt").write_text("from a container")


def test_container_with_fuse_mounts_and_writes(
    engine: Engine, store: subprocess.Popen[str], storage: sky.Storage
) -> None:
    leave_out_for(fuse_problem(), "SKYWARD_FUSE")
    provider = containers(engine, options=(*MOUNTS, *FUSE))
    volumes = [sky.Volume("bucket", "/data", "train", False, storage)]
    with sky.Compute(provider=provider, volumes=volumes) as pool:
        assert mode() >> pool == ("alpha", "mount")
        write() >> pool
        assert store.stdin is not None
        assert store.stdout is not None
        store.stdin.write("train/new.txt\n")
        store.stdin.flush()
        assert store.stdout.readline() == "from a container\n"


def test_container_without_fuse_copies_what_it_reads_and_refuses_what_it_would_write(
    engine: Engine, storage: sky.Storage
) -> None:
    provider = containers(engine)
    with sky.Compute(provider=provider, volumes=[sky.Volume("bucket", "/data", "train", True, storage)]) as pool:
        assert mode() >> pool == ("alpha", "folder")
        assert pool.snapshot().nodes[0].volumes[0].mode == "copy"
    refused = sky.Compute(provider=provider, volumes=[sky.Volume("bucket", "/data", "train", False, storage)])
    with pytest.raises(sky.NodeStartError, match=r"/dev/fuse .*: use mode='sync' for a volume that tasks write to"):
        refused.open()
