"""Another user of the machine at the ports of a pool gets nothing, and cannot exhaust the pool."""

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import skyward as sky
from tests.listening import listening_at
from tests.local import tasks
from tests.remote_tasks import total

FRAMES = int(os.environ.get("SKYWARD_STRANGER_FRAMES", "8000"))
"""Malformed frames that each of two attackers sends. By hand, 500,000 take about ten minutes."""

pytestmark = [pytest.mark.local, pytest.mark.timeout(120 + FRAMES // 100)]

MOST_GROWTH = 64 * 1024 * 1024


@sky.function
def noop() -> int:
    return 1


@sky.function
def counted() -> int:
    return sky.counter("strangers").increment()


@contextlib.contextmanager
def stranger(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A process of another user that sends as `words` say."""
    script = Path(__file__).parents[1] / "attacker.py"
    process = subprocess.Popen(
        [sys.executable, "-I", str(script), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs the addresses of Linux")
@pytest.mark.parametrize(
    "words", [("--idle", "500"), ("--frames", str(FRAMES), "--slow", "20")], ids=["idle", "frames"]
)
def test_attackers_at_every_port_exhaust_neither_memory_nor_service(words: tuple[str, ...], tmp_path: Path) -> None:
    """Tasks, blobs and collections continue meanwhile, including the first blob, whose connection is opened then."""
    bomb = tmp_path / "bomb"
    tmp_path.chmod(0o777)
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        node = tasks.pid() >> pool
        assert counted() >> pool == 1
        ports = [f"{ip}:{port}" for ip, port in listening_at(psutil.Process(node))]
        assert len(ports) == 4, "ports of the engine, the bulk path, the cluster, and blobs between nodes"
        worker, client = psutil.Process(node), psutil.Process()
        before = [each.memory_info().rss for each in (worker, client)]
        took: list[float] = []
        descriptors = turn = 0
        with contextlib.ExitStack() as strangers:
            crowd = [strangers.enter_context(stranger(*words, "--bomb", str(bomb), *ports)) for _ in range(2)]
            busy = list(crowd)
            while busy or turn < 200:
                started = time.perf_counter()
                assert noop() >> pool == 1
                took.append(time.perf_counter() - started)
                if turn % 20 == 0:
                    assert counted() >> pool == 2 + turn // 20
                    assert total(np.full(200_000 + turn % 1000, turn, dtype=np.int64)) >> pool == turn * (
                        200_000 + turn % 1000
                    )
                turn += 1
                descriptors = max(descriptors, worker.num_fds())
                busy = [each for each in busy if not has_said(each)]
            sent = sum(int(each.stdout.readline()) for each in crowd if each.stdout is not None)
            grown = [each.memory_info().rss - old for each, old in zip((worker, client), before, strict=True)]
            threads = worker.num_threads()
        took.sort()
        p50, p99, worst = (round(each * 1e3, 1) for each in (took[turn // 2], took[turn * 99 // 100], took[-1]))
        print(
            f"{sent} frames sent; {turn} tasks, p50 {p50} ms, p99 {p99} ms, worst {worst} ms; worker and client grew "
            f"by {grown[0] >> 20} and {grown[1] >> 20} MiB; the worker had {descriptors} descriptors at most, and has "
            f"{threads} threads"
        )
        assert sent > FRAMES or "--frames" not in words
        assert max(grown) < MOST_GROWTH
        assert threads < 60
        assert tasks.pid() >> pool == node, "the worker was replaced"
        for port in ports:
            socket.create_connection((port.rpartition(":")[0], int(port.rpartition(":")[2])), timeout=20).close()
    assert not bomb.exists(), "a pickle of an attacker was unpickled"


def has_said(process: subprocess.Popen[str]) -> bool:
    """Return whether a process has written something."""
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])
