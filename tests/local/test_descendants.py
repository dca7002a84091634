"""Processes that tasks start end with their worker, however it ends, even if they detach themselves."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import skyward as sky
from skyward.link.launch import start_worker
from skyward.providers.protocol import LocalAccess
from skyward.wire.transport.secrets import SECRETS_VARIABLE
from skyward.wire.transport.trust import issue_secrets
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper"),
]

ESCAPES = """
import os, subprocess, sys, time
devnull = subprocess.DEVNULL
found = [
    subprocess.Popen(["sleep", "1000"]).pid,
    subprocess.Popen(["sleep", "1000"], process_group=0).pid,
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=devnull, stderr=devnull).pid,
    int(subprocess.check_output("setsid nohup sleep 1000 >/dev/null 2>&1 & echo $!", shell=True)),
]
reader, writer = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(writer, f"{os.getpid()}".encode())
        time.sleep(1000)
    os._exit(0)
os.wait()
found.append(int(os.read(reader, 100)))
"""
"""Starts processes: a child, one in its own process group, one in its own session, one that ignores SIGHUP, and one
that is forked twice, so that its parent is gone."""


@sky.function
def escapes() -> list[int]:
    names: dict[str, list[int]] = {}
    exec(ESCAPES, names)
    return names["found"]


@pytest.fixture(params=["thread", "process"])
def pool(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """One node, with each executor."""
    with sky.Compute(nodes=1, worker=sky.Worker(executor=request.param)) as compute:
        yield compute


def gone(processes: list[int]) -> bool:
    """Return whether all of these processes have ended; zombies do not count."""
    return not any(_lives(process) for process in processes)


def _lives(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def worker_of(process: int) -> psutil.Process:
    """Return the worker that a process of a task descends from."""
    return next(
        each
        for each in psutil.Process(process).parents()
        if "skyward.worker.supervisor" in each.cmdline()  # not on the command lines of supervisors
    )


def test_closing_a_pool_ends_processes_of_tasks(pool: sky.Compute) -> None:
    found = escapes() >> pool
    assert all(map(_lives, found))
    pool.close()
    assert gone(found)


@pytest.mark.parametrize("victim", ["worker", "inner supervisor", "outer supervisor"])
def test_death_of_a_worker_ends_processes_of_tasks(pool: sky.Compute, victim: str) -> None:
    found = escapes() >> pool
    worker = worker_of(found[0])
    inner, outer = worker.parents()[:2]
    {"worker": worker, "inner supervisor": inner, "outer supervisor": outer}[victim].kill()
    wait_for(lambda: gone([*found, worker.pid, inner.pid, outer.pid]), "all of them to end")
    assert (tasks.add(1, 2) > pool).result(25) == 3


def test_inner_supervisor_has_time_to_end_what_the_outer_one_left(tmp_path: Path) -> None:
    """The worker's parent does not kill the process group that contains both supervisors."""

    async def stop_after_a_kill() -> None:
        environment = {"SKYWARD_NODE_ID": "0", SECRETS_VARIABLE: issue_secrets("node 0", b"s" * 32)[1].write()}
        started = await start_worker(LocalAccess("127.0.0.1", str(tmp_path)), environment, 30)
        worker = psutil.Process(started.hello.pid)
        inner, outer = worker.parents()[:2]
        inner.suspend()
        outer.kill()
        stopping = asyncio.create_task(started.stop())
        await started.exited()
        for _ in range(10):
            await asyncio.sleep(0)  # performs the next step of `stop`
        assert _lives(inner.pid)
        inner.resume()
        await stopping
        assert gone([worker.pid, inner.pid, outer.pid])

    asyncio.run(stop_after_a_kill())


CLIENT = """
import os, sys, time
import skyward as sky
from tests.local.test_descendants import escapes
pool = sky.Compute(nodes=1, worker=sky.Worker(executor=sys.argv[1])).open()
print(*(escapes() >> pool), flush=True)
if sys.argv[2] == "busy":
    import ctypes

    @sky.function
    def holds_gil():
        print("holds", flush=True)
        time.sleep(0.2)
        ctypes.PyDLL(None).sleep(600)

    future = holds_gil() > pool
elif sys.argv[2] == "forked" and not (helper := os.fork()):
    sys.stdout.close()
    os.close(1)
    time.sleep(600)
elif sys.argv[2] == "forked":
    print(helper, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("executor", "number", "state"),
    [
        ("thread", signal.SIGTERM, "idle"),
        ("process", signal.SIGKILL, "idle"),
        ("thread", signal.SIGKILL, "busy"),
        ("thread", signal.SIGKILL, "forked"),
    ],
)
def test_death_of_the_client_ends_processes_of_tasks(executor: str, number: signal.Signals, state: str) -> None:
    """Also if the worker cannot notice it, because a task holds the GIL, and if the client has forked."""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", CLIENT, executor, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as client:
        assert client.stdout is not None
        found = [int(word) for word in client.stdout.readline().split()]
        assert len(found) == 5
        assert all(map(_lives, found))
        if state == "busy":
            assert "holds" in client.stdout.readline()
        helper = int(client.stdout.readline()) if state == "forked" else None
        worker = worker_of(found[0])
        client.send_signal(number)
    wait_for(lambda: gone([*found, worker.pid]), "all of them to end")
    if helper is not None:
        os.kill(helper, signal.SIGKILL)
    assert [done.error for done in sky.reap()] == [""]
