"""A client that is killed at each request to its cloud, and the reaper that cleans up after it."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil
import pytest

import skyward as sky
from tests.fakes.server import Moment
from tests.waiting import wait_for

__all__ = ["BUILDING", "Interruptible", "reaped_after_each_kill"]

_CLIENTS = """
import asyncio, os, sys, traceback
import httpx
import skyward as sky
from skyward.control.act.nodes.launching import launchers_of
from skyward.journal import PoolRecord
from skyward.specs import Options, Spec

spec = Spec(provider={source}, allocation="on-demand", {spec})
spec.provider.create_provider()

{life}

for line in sys.stdin:
    client = os.fork()
    if not client:
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(client, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]), flush=True)
"""
"""Clients, forked one by one from a process that has loaded everything, with a life `run` each."""

_POOL = """
def run():
    record = PoolRecord.new("doomed", {"": (spec,)}, Options(), 1.0)
    launcher = launchers_of(record, {"": (spec,)}, Options())[""]

    async def life():
        await launcher.prepare()
        first, *_ = await launcher.provision(launcher.sources[0], 2)
        await launcher.terminate(first)
        await launcher.teardown()

    asyncio.run(life())
    record.end()
"""
"""Life of a pool at its provider, with its journal, from the offers to the teardown."""

BUILDING = """
from skyward.control.act.nodes import image_building
from skyward.pool.account.images import build_with

async def nothing(*_, **__):
    pass

image_building.bake_machine = nothing

def run():
    build_with(None, {name: getattr(spec, name) for name in spec.__dataclass_fields__}, str, rebuild=True)
"""
"""Life of a client that builds an image of a machine that cannot be entered."""


class Interruptible(Protocol):
    """A fake that tells when it carries out requests."""

    on_request: Callable[[Moment], None]


@contextmanager
def _clients(source: str, spec: str, life: str, variables: Mapping[str, str]) -> "Iterator[subprocess.Popen[str]]":
    script = _CLIENTS.format(source=source, spec=spec, life=life)
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, bufsize=1,
    ) as clients:  # fmt: skip  # one option a line would hide the command
        yield clients


def reaped_after_each_kill(
    cloud: Interruptible,
    source: str,
    left: Callable[[], Collection[object]],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    spec: str = "",
    life: str = _POOL,
    first: int = 0,
    moments: tuple[Moment, ...] = ("before", "after"),
    variables: Mapping[str, str] | None = None,
) -> int:
    """Kill a client before and after each of its requests, and reap; return the number of requests of a whole life.

    Args:
        source: Python source of the provider's settings.
        left: returns what exists in the cloud.
        data: a folder for the journal.
        spec: further fields of the spec, as source.
        life: source of a function `run`, which each client runs.
        first: number of requests at which no client is killed, since those of another life are the same.
        moments: when a client is killed, of each request.
        variables: environment variables of the client.
    """
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(data))
    monkeypatch.setattr("skyward.pool.reaping.reap._VISIBLE_WITHIN", 0.0)  # the fake has carried out what it was sent
    with _clients(source, spec, life, variables or {}) as clients:
        for number in itertools.count(first):
            ends = [_killed(cloud, clients, number, moment, left, data) for moment in moments]
            if 0 in ends:
                return number
    raise AssertionError("counting never ends")


def _killed(
    cloud: Interruptible,
    clients: "subprocess.Popen[str]",
    number: int,
    moment: Moment,
    left: Callable[[], Collection[object]],
    data: Path,
) -> int:
    """Start a client, kill it at a request, and reap; return its exit status: 0 if it made fewer requests."""
    assert clients.stdin is not None
    assert clients.stdout is not None
    for file in data.glob("offers.db*"):
        file.unlink()  # each client asks for offers, so that the requests of all have the same numbers
    before = itertools.count(-number)
    started: list[int] = []

    def on_request(now: Moment) -> None:
        if now == moment and next(before) == 0:
            while not started:
                pass  # its process id arrives before its first request is over
            os.kill(started[0], signal.SIGKILL)
            wait_for(lambda: _is_over(started[0]), "the client to end")

    cloud.on_request = on_request
    clients.stdin.write("next\n")
    started.append(int(clients.stdout.readline()))
    status = int(clients.stdout.readline())
    cloud.on_request = lambda now: None
    assert status in (0, -signal.SIGKILL), f"the client failed at request {number}"
    where = f"killed {moment} request {number}"
    failed = [reaped.error for reaped in sky.reap() if reaped.error]
    assert not failed, f"{where}: {failed}"
    assert not left(), f"{where}: {left()} is left"
    assert not sky.orphans(), where
    return status


def _is_over(pid: int) -> bool:
    """Return whether a process has ended, waited for or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
