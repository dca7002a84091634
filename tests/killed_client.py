"""Clients that are killed: once their script has run, or at a point while they open a pool.

The points are the calls of a client to the outside.
"""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import psutil

__all__ = ["count_points", "has_ended", "kill_at", "kill_at_work", "kill_when_up"]

ROOT = str(Path(__file__).parents[1])

UP = r"""
import time
print("\nup\n", end="", flush=True)  # in one piece, as a line of its own, whatever the tasks have printed
time.sleep(1000)
"""

AT_WORK = """
import skyward as sky
{tasks}
pool = sky.Compute(provider={provider}, {options}).open()
{start}
"""

SCRIPT = """
import os, sys

at, seen = int(sys.argv[1]), 0
does = {{"subprocess.Popen", "socket.bind", "socket.connect", "os.mkdir", "os.rename", "os.remove", "sqlite3.connect"}}

def note(event, args):
    global seen
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in does:
        seen += 1
        if seen == at:
            os.kill(os.getpid(), 9)

import skyward as sky
sys.addaudithook(note)
with sky.Compute({options}, name="doomed"):
    points = seen
    if not at:
        print(points, flush=True)
"""


def kill_when_up(script: str) -> None:
    """Run the script of a client, and kill the client after the last line."""
    command = [sys.executable, "-c", script + UP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment({})) as client:
        try:
            assert client.stdout is not None
            assert "up\n" in client.stdout, "the client exited before it was up; see its output"
        finally:
            client.kill()


def kill_at_work(tasks: str, start: str, provider: str, options: str, printed: str = "") -> None:
    """Kill a client whose tasks run.

    Args:
        tasks: source of the tasks.
        start: source that starts them on `pool`.
        provider: source of the provider of the pool.
        options: source of the other arguments of the pool.
        printed: text that a task must have printed before.
    """
    if printed:
        start += f"\nnext(entry for entry in pool.follow() if {printed!r} in entry.text)"
    kill_when_up(AT_WORK.format(tasks=tasks, provider=provider, options=options, start=start))


def count_points(options: str, env: Mapping[str, str]) -> int:
    """Return the number of points between the first and the last step of opening a pool with these options."""
    command = [sys.executable, "-c", SCRIPT.format(options=options), "0"]
    done = subprocess.run(command, env=_environment(env), capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def kill_at(point: int, options: str, env: Mapping[str, str]) -> str:
    """Kill a client at a point; return the mark by which the processes that it started are known.

    The number of points varies a little between runs: a run that opens the pool in fewer points closes it then.
    """
    mark = uuid.uuid4().hex
    command = [sys.executable, "-c", SCRIPT.format(options=options), str(point)]
    done = subprocess.run(command, env={**_environment(env), "KILLED_CLIENT": mark}, check=False, timeout=60)
    assert done.returncode in (-signal.SIGKILL, 0)
    return mark


def has_ended(mark: str) -> bool:
    """Return whether all processes of this machine that a killed client has started have ended."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("KILLED_CLIENT") == mark and process.status() != psutil.STATUS_ZOMBIE:
                return False
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return True


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ROOT, **env}
