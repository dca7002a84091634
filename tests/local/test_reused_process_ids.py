"""A process with the reused id of a former worker is neither terminated nor connected to."""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from skyward.errors import NodeStartError
from skyward.journal import WorkerEntry
from skyward.link.ssh.worker import SSHWorker, end_workers
from skyward.providers.protocol import Cluster, ExecAccess, InstanceType, Offer
from skyward.specs import Spec
from skyward_providers.local import Local
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="this machine is entered as others are on Linux"),
]

OF_ANOTHER_VERSION = ""
OF_ANOTHER_BOOT = " 01234567-89ab-cdef-0123-456789abcdef 4711"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process unrelated to Skyward, in a separate session."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("born", [OF_ANOTHER_VERSION, OF_ANOTHER_BOOT])
def test_process_with_a_reused_id_is_left_alone(tmp_path: Path, stranger: subprocess.Popen[bytes], born: str) -> None:
    access = ExecAccess(("env",), "this machine", str(tmp_path), python=sys.executable)
    node = tmp_path / "nodes" / "pool.1"
    node.mkdir(parents=True)
    (node / "pid").write_text(f"{stranger.pid}{born}\n")
    (node / "hello").write_text(f'{{"pid": {stranger.pid}}}\n')
    worker = WorkerEntry(0, "node 1", "127.0.0.1:1", "127.0.0.1:2", f"node={shlex.quote(str(node))}")

    async def go() -> None:
        with pytest.raises(NodeStartError, match="the worker on this machine is gone"):
            await SSHWorker.enter(access, worker, 30)
        await end_workers(access, "pool", 30)

    asyncio.run(go())
    assert stranger.poll() is None, "the other process was terminated"
    assert not node.exists()


@pytest.mark.parametrize("born", [OF_ANOTHER_VERSION, OF_ANOTHER_BOOT])
def test_local_process_with_a_reused_id_is_left_alone(
    tmp_path: Path, stranger: subprocess.Popen[bytes], born: str
) -> None:
    node = tmp_path / "machine-1" / "nodes" / "pool.1"
    node.mkdir(parents=True)
    (node / "pid").write_text(f"{stranger.pid}{born}\n")
    offer = Offer("local", InstanceType("this machine", 1, 1))
    cluster = Cluster("c-1", "pool", Spec(), offer, {"directory": str(tmp_path)})
    asyncio.run(Local(outlives=True).create_provider().terminate(cluster, ["local-1"]))
    assert stranger.poll() is None, "the other process was terminated"
    assert not node.exists()


LEAVES = f"""#!{sys.executable}
import json, os, subprocess, sys, time
os.setsid()
left = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
said = {{"address": "127.0.0.1:1", "bulk": "127.0.0.1:1", "pid": os.getpid(), "vcpus": 1, "memory_gb": 1, "gpus": 0}}
print(json.dumps({{**said, "python": str(left.pid)}}), flush=True)
while not os.path.exists("../go"):
    time.sleep(0.01)
sys.exit(7)
"""


def test_processes_left_in_the_session_of_a_worker_end_with_it(tmp_path: Path) -> None:
    """While its id cannot be reused. This worker only leaves a process behind when it ends."""
    python = tmp_path / "python"
    python.write_text(LEAVES)
    python.chmod(0o700)
    access = ExecAccess(("env",), "this machine", str(tmp_path), python=str(python))

    async def go() -> None:
        worker = await SSHWorker.start(access, {"SKYWARD_POOL": "pool"}, 60, None, None)
        try:
            left = psutil.Process(int(worker.hello.python))
            (node,) = (tmp_path / "nodes").iterdir()
            assert (node / "pid").read_text().split()[0] == str(worker.hello.pid)
            (node / "go").touch()
            assert await worker.exited() == "its process ended with status 7"
            wait_for(
                lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, "the remaining process to end"
            )
            assert not (node / "pid").exists()
        finally:
            await worker.stop()

    asyncio.run(go())
    assert not list((tmp_path / "nodes").iterdir())
